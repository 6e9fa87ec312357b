//! The sealed chunks in memory, in the order in which they are looked at to be moved.

use super::ledger::lock_unpoisoned;
use super::movable::Movable;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// A queue is searched for chunks that are gone when it has this many more than at the last search.
const MORE: usize = 1024;

/// Chunks that may be moved: packed ones, which are read slowly anyway, go first.
#[derive(Default)]
pub(super) struct MoveQueue {
    packed: Mutex<Turns>,
    raw: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    chunks: VecDeque<Weak<dyn Movable>>,
    /// Chunks that were there after the last search.
    kept: usize,
}

impl Turns {
    fn push(&mut self, chunk: Weak<dyn Movable>) {
        if self.chunks.len() >= 2 * self.kept + MORE {
            self.chunks.retain(|chunk| chunk.strong_count() > 0);
            self.kept = self.chunks.len();
        }
        self.chunks.push_back(chunk);
    }

    /// The first that was not read since its last turn; those that were have another turn. `None` after a round.
    fn next_cold(&mut self) -> Option<Arc<dyn Movable>> {
        for _ in 0..self.chunks.len() {
            let Some(chunk) = self.chunks.pop_front().and_then(|chunk| chunk.upgrade()) else { continue };
            if !chunk.take_used() {
                return Some(chunk);
            }
            self.chunks.push_back(Arc::downgrade(&chunk));
        }
        None
    }
}

impl MoveQueue {
    fn of(&self, chunk: &dyn Movable) -> &Mutex<Turns> {
        if chunk.has_packed_bytes() { &self.packed } else { &self.raw }
    }

    pub(super) fn push(&self, chunk: Weak<dyn Movable>) {
        // It lives: its writer has it.
        let Some(of) = chunk.upgrade().map(|chunk| self.of(&*chunk)) else { return };
        lock_unpoisoned(of).push(chunk);
    }

    /// Makes it the last.
    pub(super) fn put_back(&self, chunk: &Arc<dyn Movable>) {
        lock_unpoisoned(self.of(&**chunk)).chunks.push_back(Arc::downgrade(chunk));
    }

    /// A chunk to move: packed before raw, and among each the first that was not read since its last turn.
    ///
    /// If all were read since then, the first; `None` if there is none.
    pub(super) fn next_cold(&self) -> Option<Arc<dyn Movable>> {
        let mut turns = [&self.packed, &self.raw].map(lock_unpoisoned);
        // The first round takes the marks, so that a second one finds a chunk if there is one.
        for _ in 0..2 {
            if let Some(chunk) = turns.iter_mut().find_map(|turns| turns.next_cold()) {
                return Some(chunk);
            }
        }
        None
    }
}
