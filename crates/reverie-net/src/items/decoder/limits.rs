//! The limits of a connection, and the errors for a peer that exceeds them or breaks a rule.

use crate::proto;
use reverie_core::Error;
use reverie_core::chunk::Layout;

/// Limits on the memory that a connection uses on the server.
#[derive(Clone, Copy, Debug)]
pub struct DecoderLimits {
    /// Bytes of one chunk.
    pub max_chunk_bytes: u64,
    /// Chunks and bodies that the connection may name at a time, and patterns.
    pub max_named: usize,
    /// Bytes of chunks that the connection holds open or named and no table refers to, and of its other named things.
    /// Computed now and then: chunks that leave their tables meanwhile may be added.
    pub max_held_bytes: u64,
}

impl Default for DecoderLimits {
    fn default() -> Self {
        Self { max_chunk_bytes: proto::MAX_CHUNK_BYTES, max_named: 1 << 20, max_held_bytes: 4 << 30 }
    }
}

/// The bytes of a chunk's layout.
pub(super) fn layout_bytes(layout: &Layout) -> u64 {
    32 * layout.num_columns() as u64
}

pub(super) fn broken(what: impl Into<String>) -> Error {
    Error::Protocol(what.into())
}

pub(super) fn too_many(what: &str, limit: usize) -> Error {
    Error::ResourceExhausted {
        what: format!("a connection with more than {limit} {what}"),
        needed: limit as u64 + 1,
        budget: limit as u64,
        hint: "confirm inserts, and write with fewer writers over one client".to_owned(),
    }
}
