//! gRPC over TCP, to any host.

// Both ends.
mod peeked_stream;
pub(crate) mod codec;
mod frames;
#[cfg(test)]
mod frames_body;
mod large;
mod metered_stream;

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
