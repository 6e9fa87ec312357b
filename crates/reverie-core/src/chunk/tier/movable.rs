//! The chunks that the disk tier moves.

use super::record::Record;
use super::stored::ChunkOnDisk;
use std::sync::Arc;

/// A chunk as the disk tier sees it.
pub(in crate::chunk) trait Movable: Send + Sync {
    /// A number that distinguishes it from other live chunks.
    fn address(&self) -> usize;

    /// The number of its cells of all columns.
    fn published(&self) -> u64;

    /// True if its bytes are in memory and packed.
    fn has_packed_bytes(&self) -> bool;

    /// True if it was read since the last call.
    fn take_used(&self) -> bool;

    /// The place of the chunk on the disk; `None` while it is in memory.
    fn stored(&self) -> Option<Arc<ChunkOnDisk>>;

    /// Appends its bytes to those that are written together; `None` if they are on the disk or cannot move.
    fn record(&self, out: &mut Vec<u8>) -> Option<Record>;

    /// Notes that the chunk's bytes are on the disk: frees those in memory once their readers are done.
    fn store(&self, stored: ChunkOnDisk);
}

/// The memory that is used up.
pub(in crate::chunk) trait Memory: Send + Sync {
    /// Bytes that chunks use.
    fn used(&self) -> u64;

    /// Chunks became smaller, or it was found that they do not: those that wait for memory look again.
    fn freed(&self);
}
