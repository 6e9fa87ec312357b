//! gRPC over TCP: any host.

// The client's end.
pub mod client;
pub mod connector;
mod trust;

// The server's end.
mod accept;
mod body;
pub mod server;
mod service;
mod status;
mod stream;
