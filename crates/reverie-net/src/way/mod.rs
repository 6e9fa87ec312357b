//! What the two ends need of the way that a connection travels: gRPC, or a Unix socket with shared memory.

pub mod client;
pub mod server;

use std::sync::atomic::AtomicU64;

/// Bytes that went over a client's connections.
#[derive(Debug, Default)]
pub struct Traffic {
    /// To the server.
    pub sent: AtomicU64,
    /// From the server.
    pub received: AtomicU64,
}
