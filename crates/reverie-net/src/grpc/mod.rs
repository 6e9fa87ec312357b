//! gRPC over TCP: any host.

pub mod client;
pub mod connector;
mod trust;
