//! The bytes on the disk, and the signal that wakes the mover.

use crate::disk::Input;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks, also after a panic in another thread.
pub(super) fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files are compacted when all of them have this many times the bytes of chunks.
const GARBAGE: f64 = 1.5;

/// Bytes of a file, after which another one is begun.
const FILE_BYTES: u64 = 64 << 20;
/// A file is full when it has this part of all files' bytes, if that is more than [`Ledger::file_bytes`].
const SHARE: u64 = 64;

/// A file that no chunk refers to. Its last handle is closed by the mover, which may free many bytes.
pub(super) struct UnusedFile {
    /// `None` for a segment, which is not the tier's to remove.
    pub(super) path: Option<PathBuf>,
    /// Bytes that were written to it.
    pub(super) length: u64,
    pub(super) input: Box<dyn Input>,
}

/// The counts of the files of one server, shared by its files.
pub(super) struct Ledger {
    /// Bytes after which a file is full, while there are few files.
    pub(super) file_bytes: u64,
    /// Bytes that all files may have.
    disk_bytes: Option<u64>,
    /// Bytes of all files that were not removed.
    pub(super) used: AtomicU64,
    /// Bytes of chunks in these files.
    pub(super) stored: AtomicU64,
    /// Bytes of chunks in segments.
    pub(super) shared: AtomicU64,
    pub(super) chunks: AtomicU64,
    /// The mover waits for bytes to become free on the disk.
    pub(super) wants_room: AtomicBool,
    /// Counts the chunks that were freed meanwhile, and what else may let compaction find some.
    pub(super) changes: AtomicU64,
    /// The changes after which it found none.
    pub(super) looked_at: AtomicU64,
    /// Files that no chunk refers to: the mover removes them, as that takes time and chunks may be freed anywhere.
    pub(super) unused: Mutex<Vec<UnusedFile>>,
    signal: Mutex<Signal>,
    wake: Condvar,
    /// A signal was given and not taken: saves the lock.
    signalled: AtomicBool,
}

#[derive(Default)]
struct Signal {
    work: bool,
    ends: bool,
}

impl Ledger {
    pub(super) fn new(disk_bytes: Option<u64>) -> Self {
        Self {
            // Small limits have small files, so that the share of a file that is written is small.
            file_bytes: disk_bytes.map_or(FILE_BYTES, |most| (most / 16).clamp(1, FILE_BYTES)),
            disk_bytes,
            used: 0.into(),
            stored: 0.into(),
            shared: 0.into(),
            chunks: 0.into(),
            wants_room: false.into(),
            changes: 0.into(),
            looked_at: 0.into(),
            unused: Mutex::default(),
            signal: Mutex::default(),
            wake: Condvar::new(),
            signalled: false.into(),
        }
    }

    /// Bytes after which a file is full now.
    ///
    /// Larger where there are many, each of which is open: about four hundred for a terabyte.
    pub(super) fn full_at(&self) -> u64 {
        self.file_bytes.max(self.used.load(Relaxed) / SHARE)
    }

    /// The most bytes of a file that has several chunks, whatever is on the disk; compaction of one needs as many.
    ///
    /// Moves leave them free.
    pub(super) fn largest_file(&self) -> Option<u64> {
        self.disk_bytes.map(|most| self.file_bytes.max(most / SHARE))
    }

    /// Bytes that may be written now.
    pub(super) fn room(&self) -> u64 {
        self.disk_bytes.map_or(u64::MAX, |most| most.saturating_sub(self.used.load(Relaxed)))
    }

    /// The bytes of chunks in files, or in segments.
    fn bytes_in(&self, segments: bool) -> &AtomicU64 {
        if segments { &self.shared } else { &self.stored }
    }

    /// A chunk has bytes in a file or a segment.
    pub(super) fn enter(&self, bytes: u64, segment: bool) {
        self.bytes_in(segment).fetch_add(bytes, Relaxed);
        self.chunks.fetch_add(1, Relaxed);
    }

    /// A chunk no longer has bytes in a file or a segment.
    pub(super) fn leave(&self, bytes: u64, segment: bool) {
        self.bytes_in(segment).fetch_sub(bytes, Relaxed);
        self.chunks.fetch_sub(1, Relaxed);
        let wants_room = self.wants_room.load(Relaxed);
        if wants_room {
            self.changes.fetch_add(1, Relaxed);
        }
        if wants_room || self.is_littered() {
            self.wake();
        }
    }

    /// True if compaction may find room: something changed that the mover did not look at yet.
    pub(super) fn may_find_room(&self) -> bool {
        self.changes.load(Relaxed) != self.looked_at.load(Relaxed)
    }

    /// True if the files are so much larger than the chunks that some should be removed or compacted.
    pub(super) fn is_littered(&self) -> bool {
        // The file that is written does not count.
        let stored = self.stored.load(Relaxed) + self.file_bytes;
        self.used.load(Relaxed) as f64 > GARBAGE * stored as f64
    }

    /// Wakes the mover.
    #[inline]
    pub(super) fn wake(&self) {
        if !self.signalled.load(Relaxed) && !self.signalled.swap(true, Relaxed) {
            lock_unpoisoned(&self.signal).work = true;
            self.wake.notify_all();
        }
    }

    /// Ends the mover.
    pub(super) fn end(&self) {
        lock_unpoisoned(&self.signal).ends = true;
        self.wake.notify_all();
    }

    /// Waits for a signal, or for the time if there is one. False at the end.
    pub(super) fn wait(&self, time: Option<Duration>) -> bool {
        self.wait_while(time, |signal| !signal.ends && !signal.work)
    }

    /// Waits for the time, whatever is signalled. False at the end.
    pub(super) fn pause(&self, time: Duration) -> bool {
        self.wait_while(Some(time), |signal| !signal.ends)
    }

    fn wait_while(&self, time: Option<Duration>, until: impl Fn(&mut Signal) -> bool) -> bool {
        let signal = lock_unpoisoned(&self.signal);
        let mut signal = match time {
            Some(time) => self.wake.wait_timeout_while(signal, time, until).unwrap_or_else(PoisonError::into_inner).0,
            None => self.wake.wait_while(signal, until).unwrap_or_else(PoisonError::into_inner),
        };
        signal.work = false;
        self.signalled.store(false, Relaxed);
        !signal.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_larger_than_what_moves_leave_free_for_its_compaction() {
        for power in 0..50 {
            for most in [1_u64 << power, (1 << power) + 12_345] {
                let ledger = Ledger::new(Some(most));
                for part in 0..=64 {
                    ledger.used.store(most / 64 * part, Relaxed);
                    let (full, largest) = (ledger.full_at(), ledger.largest_file().unwrap());
                    assert!(full <= largest && largest <= most.div_ceil(16), "{most}: {full}, {largest}");
                    assert_eq!(ledger.room(), most - most / 64 * part);
                }
            }
        }
    }
}
