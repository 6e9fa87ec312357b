//! The transports of a connection, as seen by its two ends: gRPC, or a Unix socket with shared memory.

pub mod client;
pub mod server;

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Bytes sent and received on a client's connections.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes sent to the server.
    pub sent: AtomicU64,
    /// Bytes received from the server.
    pub received: AtomicU64,
    /// The server's last answer was that it has no shared memory for inserts: they go through the socket.
    pub without_insert_slot: AtomicBool,
    /// The server had no shared memory for the last batch.
    pub without_batch_slot: AtomicBool,
}
