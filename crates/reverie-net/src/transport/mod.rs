//! The transports of a connection, as seen by its two ends: gRPC, or a Unix socket with shared memory.

pub mod client;
pub mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Bytes sent and received on connections, those in shared memory included.
#[derive(Debug, Default)]
pub struct ByteCounts {
    /// Bytes sent to the peers.
    pub sent: AtomicU64,
    /// Bytes received from the peers.
    pub received: AtomicU64,
}

/// The state of a client's connections.
#[derive(Debug, Default)]
pub struct Traffic {
    /// The bytes of all of them.
    pub bytes: Arc<ByteCounts>,
    /// The server's last answer was that it has no shared memory for inserts: they go through the socket.
    pub without_insert_slot: AtomicBool,
    /// The server had no shared memory for the last batch.
    pub without_batch_slot: AtomicBool,
}
