//! The thread that moves chunks to the disk: which chunks, when, and what it does if the disk takes none.

use super::files::{File, Files, Place, WriteFailure};
use super::ledger::{Ledger, lock_unpoisoned};
use super::movable::{Memory, Movable};
use super::options::TierOptions;
use super::queue::MoveQueue;
use super::record::Record;
use super::segments::ReadSegments;
use super::shape::LastShape;
use super::stored::ChunkOnDisk;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes that are written together.
pub(super) const AT_ONCE: u64 = 1 << 20;
/// The most chunks that one turn looks for in segments while no chunk can be written.
const MAX_SEARCHED: usize = 1024;
/// Time between attempts after the disk refused a write.
const RETRY: Duration = Duration::from_secs(1);

/// The state that the tier and its mover share.
pub(super) struct TierState {
    pub(super) options: TierOptions,
    pub(super) ledger: Arc<Ledger>,
    pub(super) queue: MoveQueue,
    /// Guards the files. Chunks are written under it, by one thread at a time.
    pub(super) files: Mutex<TierFiles>,
    pub(super) shared: ReadSegments,
    pub(super) moved: AtomicU64,
    pub(super) compacted: AtomicU64,
    pub(super) state: Mutex<MoverState>,
}

/// The files, and what is in them.
pub(super) struct TierFiles {
    pub(super) files: Files,
    /// The chunks of each file, by the file's number.
    pub(super) members: HashMap<u64, Members>,
    /// The file that is compacted, and its chunks that were not looked at yet.
    pub(super) sparse: Option<(Arc<File>, Members)>,
    /// The shape of the last chunk that moved.
    pub(super) last: LastShape,
}

/// Chunks that were written to one file, of which some may be gone.
type Members = Vec<Weak<dyn Movable>>;

/// The outcome of the last attempt to move chunks, or the reason why it moved nothing.
#[derive(Clone, Debug, Default)]
pub(super) enum MoverState {
    /// The last attempt moved some chunks, or none had to move.
    #[default]
    Moves,
    /// No sealed chunk is in memory.
    NothingToMove,
    /// The files have `disk_bytes`.
    Full(u64),
    /// The disk refused a write.
    Fails(Error),
}

impl TierState {
    pub(super) fn high(&self) -> u64 {
        self.options.memory_bytes - self.options.memory_bytes / 16
    }

    fn low(&self) -> u64 {
        self.options.memory_bytes - self.options.memory_bytes / 8
    }

    pub(super) fn run(&self, memory: &Weak<dyn Memory>) {
        let clock = SystemClock::new();
        // When the next file may be compacted.
        let mut next: Option<Duration> = None;
        loop {
            let fails = matches!(*lock_unpoisoned(&self.state), MoverState::Fails(_));
            let retry = lock_unpoisoned(&self.files).files.has_left().then_some(RETRY);
            let left = next.map(|next| next.saturating_sub(clock.now())).into_iter().chain(retry).min();
            if !(if fails { self.ledger.pause(RETRY) } else { self.ledger.wait(left) }) {
                return;
            }
            let Some(memory) = memory.upgrade() else { return };
            self.move_until(&*memory, self.low());
            if next.is_none_or(|next| next <= clock.now()) {
                // Bytes that are freed while it looks are another change, and wake this thread.
                let seen = self.ledger.changes.load(Relaxed);
                next = self.compact(&*memory).map(|pause| clock.now() + pause);
                if next.is_some() {
                    self.ledger.changes.fetch_add(1, Relaxed);
                } else if self.ledger.looked_at.swap(seen, Relaxed) != seen {
                    // Inserts that waited for it.
                    memory.freed();
                }
            }
        }
    }

    /// Moves chunks until they use no more than `most` bytes of memory. Notifies those that wait for memory.
    pub(super) fn move_until(&self, memory: &dyn Memory, most: u64) {
        while let Some(excess) = memory.used().checked_sub(most).filter(|excess| *excess > 0) {
            let state = self.move_some(excess);
            let moves = matches!(state, MoverState::Moves);
            self.set(state);
            memory.freed();
            if !moves {
                return;
            }
        }
        self.set(MoverState::Moves);
    }

    pub(super) fn set(&self, state: MoverState) {
        let is_full = matches!(state, MoverState::Full(_));
        let mut present = lock_unpoisoned(&self.state);
        if is_full && !matches!(*present, MoverState::Full(_)) {
            // The mover finds out, in whatever thread this is.
            self.ledger.changes.fetch_add(1, Relaxed);
            self.ledger.wake();
        }
        self.ledger.wants_room.store(is_full, Relaxed);
        *present = state;
    }

    /// Moves some chunks, of about `excess` bytes at most, those that were not read lately first.
    fn move_some(&self, excess: u64) -> MoverState {
        let mut guard = lock_unpoisoned(&self.files);
        let written = &mut *guard;
        written.files.remove_unused();
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        let at_once = AT_ONCE.min(self.ledger.file_bytes).min(excess);
        let largest = self.ledger.largest_file();
        let (mut scratch, mut in_segments) = (Vec::new(), 0);
        while bytes.len() as u64 + in_segments < at_once {
            let Some(chunk) = self.queue.next_cold() else { break };
            if let Some(stored) = self.shared.found(&*chunk, &mut scratch, &mut written.last) {
                in_segments += stored.disk_bytes();
                self.moved.fetch_add(1, Relaxed);
                chunk.store(stored);
                continue;
            }
            let before = bytes.len();
            if let Some(record) = chunk.record(&mut bytes) {
                if before > 0 && largest.is_some_and(|largest| bytes.len() as u64 > largest) {
                    bytes.truncate(before);
                    self.queue.put_back(&chunk);
                    break;
                }
                records.push((chunk, record));
            }
        }
        if records.is_empty() {
            return if in_segments > 0 { MoverState::Moves } else { MoverState::NothingToMove };
        }
        // A file's worth is left for compaction.
        match written.files.write(&bytes, largest.unwrap_or(0)) {
            Ok((file, at)) => {
                self.moved.fetch_add(records.len() as u64, Relaxed);
                written.store(&file, at, records);
                MoverState::Moves
            }
            Err(refused) => {
                let state = match refused {
                    WriteFailure::Full => MoverState::Full(self.ledger.used.load(Relaxed)),
                    WriteFailure::Fails(error) => MoverState::Fails(error),
                };
                // Chunks later in the queue may be in segments: moving those writes nothing. The others stay in the
                // queue.
                let mut left: Vec<_> = records.into_iter().map(|(chunk, _)| chunk).collect();
                while in_segments < at_once && self.shared.is_set() && left.len() < MAX_SEARCHED {
                    let Some(chunk) = self.queue.next_cold() else { break };
                    match self.shared.found(&*chunk, &mut scratch, &mut written.last) {
                        Some(stored) => {
                            in_segments += stored.disk_bytes();
                            self.moved.fetch_add(1, Relaxed);
                            chunk.store(stored);
                        }
                        None => left.push(chunk),
                    }
                }
                left.iter().for_each(|chunk| self.queue.put_back(chunk));
                if in_segments > 0 { MoverState::Moves } else { state }
            }
        }
    }
}

impl TierFiles {
    /// The chunks are in the file, from `at` on.
    pub(super) fn store(&mut self, file: &Arc<File>, at: u64, records: Vec<(Arc<dyn Movable>, Record)>) {
        if !self.members.contains_key(&file.number) {
            // With a new file, older ones may have been removed.
            let files = &self.files;
            self.members.retain(|number, _| files.has(*number));
            // The lists of full files no longer grow.
            self.members.values_mut().for_each(Vec::shrink_to_fit);
        }
        let members = self.members.entry(file.number).or_default();
        for (chunk, record) in records {
            let (offset, length) = (at + record.bytes.start as u64, record.bytes.len() as u64);
            members.push(Arc::downgrade(&chunk));
            chunk.store(ChunkOnDisk::of(record, Place::new(file, offset, length), &mut self.last));
        }
    }
}
