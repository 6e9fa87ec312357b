//! The server's end.

use crate::bulk::BulkIn;
use crate::proto;
use reverie_core::Result;
use reverie_core::chunk::Meter;
use reverie_core::table::Inserts;
use std::sync::Arc;

/// What a connection may make the server hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one chunk.
    pub max_chunk_bytes: u64,
    /// Chunks and bodies that the connection may name at a time, and patterns.
    pub max_named: usize,
    /// Bytes of chunks that the connection holds open or named and no table refers to.
    pub max_held_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_chunk_bytes: proto::MAX_CHUNK_BYTES, max_named: 1 << 20, max_held_bytes: 4 << 30 }
    }
}

/// The episodes of a session by the numbers that its client gives them: kept across its connections.
#[derive(Default)]
pub struct Episodes {}

/// One request of an insert message.
pub struct Arrived {
    /// Its number.
    pub id: u64,
    /// Index of the table, not checked.
    pub table: u32,
    /// The items; every cell of them exists.
    pub items: Inserts,
    /// Bytes that it counts for against the insert credit: its share of [`credit_bytes`](super::credit_bytes).
    pub size_bytes: u64,
}

/// Turns messages back into items. Nothing in a message is trusted; what breaks a rule is `Protocol`, what wants more
/// than the limits is `ResourceExhausted`, and after either the connection is to be ended.
pub struct Decoder {
    _meter: Arc<Meter>,
    _limits: Limits,
    _session_episodes: u32,
}

impl Decoder {
    /// A decoder for a new connection of the session that these episodes belong to. Chunks are counted in `meter`.
    pub fn new(meter: Arc<Meter>, limits: Limits, _episodes: Arc<Episodes>) -> Self {
        Self { _meter: meter, _limits: limits, _session_episodes: 0 }
    }

    /// The requests of a message, in order; none where it only brings cells. The bulk bytes are copied on return.
    pub fn insert(&mut self, _message: proto::Insert, _bulk: &dyn BulkIn) -> Result<Vec<Arrived>> {
        todo!()
    }
}
