//! What the two ends need of the way that a connection travels: gRPC, or a Unix socket with shared memory.

pub mod client;
pub mod server;

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Bytes that went over a client's connections.
#[derive(Debug, Default)]
pub struct Traffic {
    /// To the server.
    pub sent: AtomicU64,
    /// From the server.
    pub received: AtomicU64,
    /// The server had no shared memory for inserts when it was last asked: they go through the socket.
    pub without_insert_slot: AtomicBool,
    /// It had none for the last batch.
    pub without_batch_slot: AtomicBool,
}
