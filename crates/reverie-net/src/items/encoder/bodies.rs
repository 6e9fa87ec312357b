//! The bodies (runs of chunks) that the server has.

use super::chunks::Chunks;
use super::known::{ByAddress, SWEPT_AT_ONCE};
use crate::convert::numbers;
use crate::proto;
use reverie_core::chunk::Chunk;
use reverie_core::item::{Part, Span};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Bytes of the definition in the head of a message, at most.
pub(super) fn head_bytes(body: &proto::BodyDef) -> usize {
    /// The number, and the lengths of the entry and its episodes.
    const BODY_BYTES: usize = 24;
    /// The lengths of a part, its chunks and their starts.
    const PART_BYTES: usize = 16;
    BODY_BYTES + PART_BYTES * body.parts.len()
}

/// The bodies by their address.
#[derive(Default)]
pub(super) struct Bodies {
    /// The weak reference keeps the address from being reused.
    known: ByAddress<(u64, Weak<Span>)>,
    /// All addresses, the least recently checked first.
    turns: VecDeque<usize>,
    /// Bodies named since the last check.
    fresh: usize,
}

impl Bodies {
    /// True if none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The definition of a body that the server does not know. Its chunks must have their numbers.
    pub(super) fn define(&mut self, span: &Arc<Span>, chunks: &Chunks, named: &mut u64) -> Option<proto::BodyDef> {
        let address = Arc::as_ptr(span).addr();
        if self.known.contains_key(&address) {
            return None;
        }
        *named += 1;
        self.known.insert(address, (*named, Arc::downgrade(span)));
        self.turns.push_back(address);
        self.fresh += 1;
        let number = |chunk: &Arc<Chunk>| chunks.number(chunk).expect("chunks are named before their bodies");
        let part = |part: &Part| proto::BodyPart {
            chunks: numbers::encode(&part.chunks.iter().map(number).collect::<SmallVec<[u64; 8]>>()),
            starts: numbers::encode(&part.starts),
        };
        let (parts, episodes) = (span.parts.iter().map(part).collect(), numbers::encode(&span.episodes));
        Some(proto::BodyDef { body: *named, parts, episodes })
    }

    /// The number of a body that was defined.
    pub(super) fn number(&self, span: &Arc<Span>) -> Option<u64> {
        self.known.get(&Arc::as_ptr(span).addr()).map(|(number, _)| *number)
    }

    /// Checks some bodies in turn, and releases those that were dropped.
    pub(super) fn tidy(&mut self, released: &mut Vec<u64>) {
        let looks = (SWEPT_AT_ONCE + 2 * std::mem::take(&mut self.fresh)).min(self.turns.len());
        for _ in 0..looks {
            let Some(address) = self.turns.pop_front() else { return };
            match self.known.get(&address) {
                Some((_, span)) if span.strong_count() > 0 => self.turns.push_back(address),
                _ => released.extend(self.known.remove(&address).map(|(number, _)| number)),
            }
        }
    }
}
