//! Chunks that the client has released while items that wait for their tables still have them.

use reverie_core::chunk::Chunk;
use std::sync::{Arc, Weak};

/// Released chunks that no table had when they were last looked at.
#[derive(Default)]
pub struct Released {
    chunks: Vec<Weak<Chunk>>,
    bytes: u64,
    pace: Pace,
}

impl Released {
    /// Adds a released chunk, unless a table has it or nobody does.
    pub(super) fn push(&mut self, chunk: Arc<Chunk>) {
        if chunk.in_tables() || Arc::strong_count(&chunk) == 1 {
            return;
        }
        self.bytes += chunk.size_bytes();
        self.chunks.push(Arc::downgrade(&chunk));
        self.pace.added();
    }

    /// The bytes of the chunks. May include chunks that came into tables, or were freed, since the last
    /// [`Released::reckon`].
    pub fn bytes(&mut self) -> u64 {
        if self.pace.is_due(self.chunks.len()) { self.reckon() } else { self.bytes }
    }

    /// As [`Released::bytes`], computed now.
    pub fn reckon(&mut self) -> u64 {
        let Self { chunks, bytes, .. } = self;
        *bytes = 0;
        chunks.retain(|chunk| {
            let held = chunk.upgrade().filter(|chunk| !chunk.in_tables()).map(|chunk| chunk.size_bytes());
            *bytes += held.unwrap_or(0);
            held.is_some()
        });
        *bytes
    }
}

/// Paces the looks at all entries of a list: each costs no more than a bounded number of looks at one.
#[derive(Default)]
pub(super) struct Pace(usize);

/// Entries that may be looked at for each question, and for each new entry.
const LOOKS: (usize, usize) = (16, 4);

impl Pace {
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
