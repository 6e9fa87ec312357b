//! gRPC over TCP, to any host.

// Both ends.
mod begun;
pub(crate) mod codec;
mod frames;
#[cfg(test)]
mod given;
mod large;
mod metered;

// The client's end.
pub mod client;
pub mod connector;
mod counted;
mod download;
mod refusal;
mod trust;
mod turns;
mod upload;

// The server's end.
pub(crate) mod accept;
mod queue;
mod body;
mod bounded;
pub mod server;
mod service;
mod status;
mod stream;
