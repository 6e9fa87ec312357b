//! Chunks that the client has released while items that wait for their tables may still have them.

use reverie_core::chunk::Chunk;
use std::sync::{Arc, Weak};

/// Released chunks that still exist. Those that no table has are counted.
#[derive(Default)]
pub struct ReleasedChunks {
    chunks: Vec<Weak<Chunk>>,
    bytes: u64,
    pace: SweepSchedule,
}

impl ReleasedChunks {
    /// Adds a released chunk, unless this is the last reference. A table that has it may delete it before an item that
    /// waits is done with it.
    pub(super) fn push(&mut self, chunk: Arc<Chunk>) {
        if Arc::strong_count(&chunk) == 1 {
            return;
        }
        if !chunk.in_tables() {
            self.bytes += chunk.size_bytes();
        }
        self.chunks.push(Arc::downgrade(&chunk));
        self.pace.added();
    }

    /// The bytes of the chunks. May include chunks that came into tables, or were freed, since the last
    /// [`ReleasedChunks::recount`].
    pub fn bytes(&mut self) -> u64 {
        if self.pace.is_due(self.chunks.len()) { self.recount() } else { self.bytes }
    }

    /// Like [`ReleasedChunks::bytes`], computed now.
    pub fn recount(&mut self) -> u64 {
        let Self { chunks, bytes, .. } = self;
        *bytes = 0;
        chunks.retain(|chunk| {
            let Some(chunk) = chunk.upgrade() else { return false };
            if !chunk.in_tables() {
                *bytes += chunk.size_bytes();
            }
            true
        });
        *bytes
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Forgets all: no item waits, so that only others have the chunks.
    pub fn clear(&mut self) {
        if !self.chunks.is_empty() {
            *self = Self::default();
        }
    }
}

/// Decides when all entries of a list are looked at: so seldom that on average a question costs a few looks at entries.
#[derive(Default)]
pub(super) struct SweepSchedule(usize);

/// Entries that may be looked at for each question, and for each new entry.
const LOOKS: (usize, usize) = (16, 4);

impl SweepSchedule {
    pub(super) fn added(&mut self) {
        self.0 = self.0.saturating_add(LOOKS.1);
    }

    /// True if a list of this length is to be looked at now.
    pub(super) fn is_due(&mut self, len: usize) -> bool {
        self.0 = self.0.saturating_add(LOOKS.0);
        let due = self.0 >= len;
        if due {
            self.0 = 0;
        }
        due
    }
}
