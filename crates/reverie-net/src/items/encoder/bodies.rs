//! The runs of chunks that the server knows.

use super::chunks::Chunks;
use super::{ByAddress, LOOKED_AT};
use crate::proto;
use reverie_core::chunk::Chunk;
use reverie_core::item::Part;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

type Parts = Vec<Part>;

/// The bodies by their address.
#[derive(Default)]
pub(super) struct Bodies {
    /// The weak reference keeps the address from being given to another.
    known: ByAddress<(u64, Weak<Parts>)>,
    /// All addresses: those looked at longest ago first.
    turns: VecDeque<usize>,
    /// Named since the last look around.
    fresh: usize,
}

impl Bodies {
    /// True where none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The definition of a body that the server does not know. Its chunks have their numbers.
    pub(super) fn define(&mut self, parts: &Arc<Parts>, chunks: &Chunks, named: &mut u64) -> Option<proto::BodyDef> {
        let address = Arc::as_ptr(parts).addr();
        if self.known.contains_key(&address) {
            return None;
        }
        *named += 1;
        self.known.insert(address, (*named, Arc::downgrade(parts)));
        self.turns.push_back(address);
        self.fresh += 1;
        let number = |chunk: &Arc<Chunk>| chunks.number(chunk).expect("chunks are named before their bodies");
        let part = |part: &Part| proto::BodyPart {
            chunks: part.chunks.iter().map(number).collect(),
            starts: part.starts.to_vec(),
        };
        Some(proto::BodyDef { body: *named, parts: parts.iter().map(part).collect() })
    }

    /// The number of a body that was defined.
    pub(super) fn number(&self, parts: &Arc<Parts>) -> Option<u64> {
        self.known.get(&Arc::as_ptr(parts).addr()).map(|(number, _)| *number)
    }

    /// Releases, of the bodies whose turn it is, those that are gone.
    pub(super) fn tidy(&mut self, released: &mut Vec<u64>) {
        let looks = (LOOKED_AT + 2 * std::mem::take(&mut self.fresh)).min(self.turns.len());
        for _ in 0..looks {
            let Some(address) = self.turns.pop_front() else { return };
            match self.known.get(&address) {
                Some((_, parts)) if parts.strong_count() > 0 => self.turns.push_back(address),
                _ => released.extend(self.known.remove(&address).map(|(number, _)| number)),
            }
        }
    }
}
