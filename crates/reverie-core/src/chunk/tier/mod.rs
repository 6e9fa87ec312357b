//! **Disk tier**: chunks that move to files when the memory for chunks is used up.
//!
//! Sealed chunks wait in a queue, the oldest first. Above fifteen sixteenths of its memory a thread moves those that
//! were not read since it looked at them last, until an eighth is free. A chunk on the disk stays there: the kernel's
//! page cache keeps those that are read often. Files of which most bytes belong to no chunk any more are compacted.

mod compaction;
mod files;
mod ledger;
mod movable;
mod mover;
mod options;
mod queue;
mod record;
mod segments;
mod shape;
mod stored;

pub(super) use movable::{Memory, Movable};
pub use options::{TierInfo, TierOptions};
pub(super) use record::Record;
pub(crate) use segments::{NUMBERED, SavedChunk, SegmentRange, SegmentStore};
pub(super) use shape::LastShape;
pub(super) use stored::{ChunkOnDisk, RecordCheck};

use crate::disk::{Disk, Input};
use crate::error::{Error, Result};
use files::{Files, Place};
use ledger::{Ledger, lock_unpoisoned};
use mover::{MoverState, TierFiles, TierState};
use queue::MoveQueue;
use segments::ReadSegments;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};

/// Moves chunks to the disk. Each server has one at most; its meter holds it.
pub(crate) struct Tier {
    parts: Arc<TierState>,
    mover: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tier").field("options", &self.parts.options).finish_non_exhaustive()
    }
}

impl Tier {
    /// Takes the folder. [`Tier::begin`] starts to move chunks.
    pub(super) fn new(options: TierOptions, disk: Arc<dyn Disk>) -> Result<Self> {
        if options.memory_bytes == 0 {
            return Err(Error::InvalidArgument("memory_bytes must be at least 1".to_owned()));
        }
        let ledger = Arc::new(Ledger::new(options.disk_bytes));
        let files = Files::new(disk, &options.folder, Arc::clone(&ledger))?;
        let files = Mutex::new(TierFiles { files, members: HashMap::new(), sparse: None, last: None });
        let shared = ReadSegments::new(Arc::clone(&ledger));
        let parts = Arc::new(TierState {
            options,
            ledger,
            queue: MoveQueue::default(),
            files,
            shared,
            moved: 0.into(),
            compacted: 0.into(),
            state: Mutex::default(),
        });
        Ok(Self { parts, mover: Mutex::new(None) })
    }

    /// Starts the thread that moves chunks when this memory is used up.
    pub(super) fn begin(&self, memory: Weak<dyn Memory>) -> Result<()> {
        let parts = Arc::clone(&self.parts);
        let thread = thread::Builder::new().name("reverie-tier".to_owned()).spawn(move || parts.run(&memory));
        let thread = thread.map_err(|error| {
            Error::Unavailable(format!("the thread that moves chunks to the disk could not be started: {error}"))
        })?;
        *lock_unpoisoned(&self.mover) = Some(thread);
        Ok(())
    }

    /// See [`ReadSegments::set`].
    pub(crate) fn share(&self, segments: Weak<dyn SegmentStore>) {
        self.parts.shared.set(segments);
    }

    /// See [`ReadSegments::place`].
    pub(super) fn place(
        &self,
        at: SegmentRange,
        open: impl FnOnce() -> Result<(PathBuf, Box<dyn Input>)>,
    ) -> Result<Place> {
        self.parts.shared.place(at, open)
    }

    /// See [`ReadSegments::follow`].
    pub(super) fn follow(&self, chunk: &dyn Movable, saved: SavedChunk, last: &mut LastShape) {
        self.parts.shared.follow(chunk, saved, last);
    }

    /// A chunk that was sealed, while chunks use so much memory.
    pub(super) fn enqueue(&self, chunk: Weak<dyn Movable>, memory: u64) {
        self.parts.queue.push(chunk);
        let mut state = lock_unpoisoned(&self.parts.state);
        if let MoverState::NothingToMove = *state {
            *state = MoverState::Moves;
        }
        drop(state);
        self.grown(memory);
    }

    /// The memory for chunks changed: wakes the mover if there is too little.
    #[inline]
    pub(super) fn grown(&self, memory: u64) {
        if memory > self.parts.high() {
            self.parts.ledger.wake();
        }
    }

    /// Moves chunks, on this thread, until the memory is within its limit or no chunk can be moved.
    ///
    /// No more than that: the mover frees the rest.
    pub(super) fn make_room(&self, memory: &dyn Memory) {
        if memory.used() > self.parts.options.memory_bytes {
            self.parts.move_until(memory, self.parts.options.memory_bytes);
        }
    }

    /// Bytes of memory for chunks.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.parts.options.memory_bytes
    }

    /// False if no chunk that is written to the end may be moved, since `disk_bytes` are used up, almost all of them by
    /// chunks of items.
    pub(crate) fn may_free(&self) -> bool {
        !matches!(*lock_unpoisoned(&self.parts.state), MoverState::Full(_)) || self.parts.ledger.may_find_room()
    }

    /// Ends the mover, removes the files and releases the folder. Chunks on the disk can still be read.
    pub(crate) fn close(&self) {
        self.parts.ledger.end();
        if let Some(mover) = lock_unpoisoned(&self.mover).take() {
            // The mover itself may free the last chunk of a server.
            if mover.thread().id() != thread::current().id() {
                let _ = mover.join();
            }
        }
        let mut written = lock_unpoisoned(&self.parts.files);
        written.sparse = None;
        written.files.close();
    }

    /// The figures, while chunks use so much memory.
    pub(super) fn info(&self, memory: u64) -> TierInfo {
        let parts = &self.parts;
        TierInfo {
            folder: parts.options.folder.display().to_string(),
            memory,
            memory_bytes: parts.options.memory_bytes,
            stored: parts.ledger.stored.load(Relaxed) + parts.ledger.shared.load(Relaxed),
            shared: parts.ledger.shared.load(Relaxed),
            chunks: parts.ledger.chunks.load(Relaxed),
            used: parts.ledger.used.load(Relaxed),
            disk_bytes: parts.options.disk_bytes,
            moved: parts.moved.load(Relaxed),
            compacted: parts.compacted.load(Relaxed),
            error: self.stall_reason(),
        }
    }

    /// The reason why no chunk can be moved now, in words; `None` if one can.
    pub(crate) fn stall_reason(&self) -> Option<String> {
        match &*lock_unpoisoned(&self.parts.state) {
            MoverState::Moves => None,
            MoverState::NothingToMove => Some("all complete chunks are on the disk already".to_owned()),
            MoverState::Full(used) => Some(format!("the files have {used} bytes, which is all that disk_bytes allows")),
            MoverState::Fails(error) => {
                Some(format!("writing a chunk failed, and is tried again each second: {error}"))
            }
        }
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.close();
    }
}
