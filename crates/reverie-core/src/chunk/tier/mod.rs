//! **Disk tier**: chunks that move to files when the memory for chunks is used up.
//!
//! Sealed chunks wait in a queue, the oldest first. Above fifteen sixteenths of its memory a thread moves those that
//! were not read since it looked at them last, until an eighth is free. A chunk on the disk stays there: the kernel's
//! page cache keeps those that are read often. Files of which most bytes belong to no chunk any more are compacted.

mod files;
mod ledger;
mod movable;
mod queue;
mod segments;
mod stored;

pub(super) use movable::{Memory, Movable};
pub(crate) use segments::{InSegment, NUMBERED, SavedChunk, Segments};
pub(super) use stored::{LastShape, Record, Stored, Unread};

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, Input};
use crate::error::{Error, Result};
use files::{File, Files, Place};
use ledger::{Ledger, held};
use queue::Queue;
use segments::Shared;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of a file, after which another one is begun.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes that are written together.
const AT_ONCE: u64 = 1 << 20;
/// The share of live bytes up to which a file is compacted.
const SPARSE: f64 = 0.67;
/// The same while the files have `disk_bytes`.
const SPARSE_IF_FULL: f64 = 0.95;
/// Chunks that are looked at, when no more can be written, for those that are in segments.
const MOST_LOOKED_AT: usize = 1024;
/// Time between attempts after the disk refused a write.
const RETRY: Duration = Duration::from_secs(1);

/// The settings of a disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// The folder of the files; created if it does not exist. No other process may use it.
    pub folder: PathBuf,
    /// Bytes of memory for chunks.
    pub memory_bytes: u64,
    /// Bytes of all files at most; `None`: what the disk has.
    pub disk_bytes: Option<u64>,
    /// Bytes of compacted chunks in a second at most; 0: as fast as the disk is.
    pub compaction_bytes_per_second: u64,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            folder: PathBuf::new(),
            memory_bytes: u64::MAX,
            disk_bytes: None,
            compaction_bytes_per_second: 128 << 20,
        }
    }
}

/// The figures of a disk tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierInfo {
    /// The folder of the files.
    pub folder: String,
    /// Bytes of memory that chunks use.
    pub memory: u64,
    /// Bytes of memory that they may use.
    pub memory_bytes: u64,
    /// Bytes of the chunks on the disk.
    pub stored: u64,
    /// Of these, bytes in the segments of checkpoints and of the journal.
    pub shared: u64,
    /// Chunks on the disk.
    pub chunks: u64,
    /// Bytes of the tier's own files: also those of chunks that are gone.
    pub used: u64,
    /// Bytes that the files may have.
    pub disk_bytes: Option<u64>,
    /// Chunks that were moved to the disk since the start, also those whose bytes were there.
    pub moved: u64,
    /// Bytes that compaction wrote since the start.
    pub compacted: u64,
    /// Why no chunk can be moved now; `None` if one can, or none has to.
    pub error: Option<String>,
}

/// Moves chunks to the disk. Each server has one at most; its meter holds it.
pub(crate) struct Tier {
    parts: Arc<Parts>,
    mover: Mutex<Option<JoinHandle<()>>>,
}

struct Parts {
    options: TierOptions,
    ledger: Arc<Ledger>,
    queue: Queue,
    /// Guards the files. Chunks are written under it, by one thread at a time.
    files: Mutex<Written>,
    shared: Shared,
    moved: AtomicU64,
    compacted: AtomicU64,
    state: Mutex<State>,
}

struct Written {
    files: Files,
    /// Of each file, by its number.
    members: HashMap<u64, Members>,
    /// The file that is compacted, and its chunks that were not looked at yet.
    sparse: Option<(Arc<File>, Members)>,
    /// The shape of the last chunk that moved.
    last: LastShape,
}

/// Chunks that were written to one file, of which some may be gone.
type Members = Vec<Weak<dyn Movable>>;

/// Why the last attempt moved nothing.
#[derive(Clone, Debug, Default)]
enum State {
    /// It did, or did not have to.
    #[default]
    Moves,
    /// No sealed chunk is in memory.
    NothingToMove,
    /// The files have `disk_bytes`.
    Full(u64),
    /// The disk refused a write.
    Fails(Error),
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
        // Small limits have small files, so that the share of a file that is written is small.
        let file_bytes = options.disk_bytes.map_or(FILE_BYTES, |most| (most / 16).clamp(1, FILE_BYTES));
        let ledger = Arc::new(Ledger::new(file_bytes));
        let files = Files::new(disk, &options.folder, Arc::clone(&ledger))?;
        let files = Mutex::new(Written { files, members: HashMap::new(), sparse: None, last: None });
        let shared = Shared::new(Arc::clone(&ledger));
        let parts = Arc::new(Parts {
            options,
            ledger,
            queue: Queue::default(),
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
        *held(&self.mover) = Some(thread);
        Ok(())
    }

    /// See [`Shared::set`].
    pub(crate) fn share(&self, segments: Weak<dyn Segments>) {
        self.parts.shared.set(segments);
    }

    /// See [`Shared::place`].
    pub(super) fn place(
        &self,
        at: InSegment,
        open: impl FnOnce() -> Result<(PathBuf, Box<dyn Input>)>,
    ) -> Result<Place> {
        self.parts.shared.place(at, open)
    }

    /// See [`Shared::follow`].
    pub(super) fn follow(&self, chunk: &dyn Movable, saved: SavedChunk, last: &mut LastShape) {
        self.parts.shared.follow(chunk, saved, last);
    }

    /// A chunk that was sealed, while chunks use so much memory.
    pub(super) fn enlist(&self, chunk: Weak<dyn Movable>, memory: u64) {
        self.parts.queue.push(chunk);
        let mut state = held(&self.parts.state);
        if let State::NothingToMove = *state {
            *state = State::Moves;
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
            self.parts.relieve(memory, self.parts.options.memory_bytes);
        }
    }

    /// Bytes of memory for chunks.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.parts.options.memory_bytes
    }

    /// True if a chunk may be moved: now, once it is sealed, or once the disk works again.
    pub(crate) fn may_free(&self) -> bool {
        !matches!(*held(&self.parts.state), State::Full(_))
    }

    /// Ends the mover, removes the files and releases the folder. Chunks on the disk can still be read.
    pub(crate) fn close(&self) {
        self.parts.ledger.end();
        if let Some(mover) = held(&self.mover).take() {
            // The mover itself may free the last chunk of a server.
            if mover.thread().id() != thread::current().id() {
                let _ = mover.join();
            }
        }
        let mut written = held(&self.parts.files);
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
            error: self.trouble(),
        }
    }

    /// Why no chunk can be moved now, in words; `None` if one can.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &*held(&self.parts.state) {
            State::Moves => None,
            State::NothingToMove => Some("every chunk in memory is still being written".to_owned()),
            State::Full(used) => Some(format!("the files have {used} bytes, and disk_bytes allows no more")),
            State::Fails(error) => Some(format!("the disk refused a chunk, and is tried again each second: {error}")),
        }
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.close();
    }
}

impl Parts {
    fn high(&self) -> u64 {
        self.options.memory_bytes - self.options.memory_bytes / 16
    }

    fn low(&self) -> u64 {
        self.options.memory_bytes - self.options.memory_bytes / 8
    }

    fn run(&self, memory: &Weak<dyn Memory>) {
        let clock = SystemClock::new();
        // When the next file may be compacted.
        let mut next: Option<Duration> = None;
        loop {
            let fails = matches!(*held(&self.state), State::Fails(_));
            let left = next.map(|next| next.saturating_sub(clock.now()));
            if !(if fails { self.ledger.pause(RETRY) } else { self.ledger.wait(left) }) {
                return;
            }
            let Some(memory) = memory.upgrade() else { return };
            self.relieve(&*memory, self.low());
            if next.is_none_or(|next| next <= clock.now()) {
                next = self.compact(&*memory).map(|pause| clock.now() + pause);
            }
        }
    }

    /// Moves chunks until they use no more than `most` bytes of memory. Notifies those that wait for memory.
    fn relieve(&self, memory: &dyn Memory, most: u64) {
        while let Some(excess) = memory.used().checked_sub(most).filter(|excess| *excess > 0) {
            let state = self.move_some(excess);
            let moves = matches!(state, State::Moves);
            self.set(state);
            memory.freed();
            if !moves {
                return;
            }
        }
        self.set(State::Moves);
    }

    fn set(&self, state: State) {
        self.ledger.wants_room.store(matches!(state, State::Full(_)), Relaxed);
        *held(&self.state) = state;
    }

    /// Moves some chunks, of about `excess` bytes at most, those that were not read lately first.
    fn move_some(&self, excess: u64) -> State {
        let mut guard = held(&self.files);
        let written = &mut *guard;
        written.files.remove_unused();
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        let at_once = AT_ONCE.min(self.ledger.file_bytes).min(excess);
        let (mut scratch, mut in_segments) = (Vec::new(), 0);
        while bytes.len() as u64 + in_segments < at_once {
            let Some(chunk) = self.queue.next_cold() else { break };
            if let Some(stored) = self.shared.found(&*chunk, &mut scratch, &mut written.last) {
                in_segments += stored.disk_bytes();
                self.moved.fetch_add(1, Relaxed);
                chunk.store(stored);
                continue;
            }
            if let Some(record) = chunk.record(&mut bytes) {
                records.push((chunk, record));
            }
        }
        if records.is_empty() {
            return if in_segments > 0 { State::Moves } else { State::NothingToMove };
        }
        let used = self.ledger.used.load(Relaxed);
        // A file's worth is left for compaction.
        let needed = used + bytes.len() as u64 + self.ledger.file_bytes;
        let fits = self.options.disk_bytes.is_none_or(|most| needed <= most);
        let outcome = if fits { written.files.write(&bytes).map_err(State::Fails) } else { Err(State::Full(used)) };
        match outcome {
            Ok((file, at)) => {
                self.moved.fetch_add(records.len() as u64, Relaxed);
                written.store(&file, at, records);
                State::Moves
            }
            Err(state) => {
                // Those behind them may be in segments, which takes no bytes. All have another turn.
                let mut left: Vec<_> = records.into_iter().map(|(chunk, _)| chunk).collect();
                while in_segments < at_once && self.shared.is_set() && left.len() < MOST_LOOKED_AT {
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
                if in_segments > 0 { State::Moves } else { state }
            }
        }
    }

    /// Copies some chunks of a sparse file to another one, if there is too much garbage; after the last of them the file is
    /// removed.
    ///
    /// Returns how long to wait before the next; `None` if there is none.
    fn compact(&self, memory: &dyn Memory) -> Option<Duration> {
        let is_full = matches!(*held(&self.state), State::Full(_));
        let mut written = held(&self.files);
        written.files.remove_unused();
        if written.sparse.is_none() {
            if !is_full && !self.ledger.is_littered() {
                return None;
            }
            let file = written.files.emptiest(if is_full { SPARSE_IF_FULL } else { SPARSE })?;
            let chunks = written.members.get(&file.number).cloned().unwrap_or_default();
            written.sparse = Some((file, chunks));
        }
        let (file, mut chunks) = written.sparse.take()?;
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        while (bytes.len() as u64) < AT_ONCE {
            let Some(chunk) = chunks.pop() else { break };
            let Some(chunk) = chunk.upgrade() else { continue };
            let Some(old) = chunk.stored().filter(|old| old.place().is_in(&file)) else { continue };
            // A chunk that cannot be read keeps its file.
            if let Ok(record) = old.copied(&mut bytes) {
                records.push((chunk, record));
            }
        }
        if !records.is_empty() {
            // After an error its other chunks stay where they are, and the file is found again later.
            let (to, at) = written.files.write(&bytes).ok()?;
            written.store(&to, at, records);
        }
        if chunks.is_empty() {
            Files::give_up(&file);
            drop(file);
            written.files.remove_unused();
        } else {
            written.sparse = Some((file, chunks));
        }
        drop(written);
        self.compacted.fetch_add(bytes.len() as u64, Relaxed);
        memory.freed();
        let rate = self.options.compaction_bytes_per_second;
        Some(if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes.len() as f64 / rate as f64) })
    }
}

impl Written {
    /// The chunks are in the file, from `at` on.
    fn store(&mut self, file: &Arc<File>, at: u64, records: Vec<(Arc<dyn Movable>, Record)>) {
        if !self.members.contains_key(&file.number) {
            // A new file: some others are gone.
            let files = &self.files;
            self.members.retain(|number, _| files.has(*number));
            // Those of full files grow no more.
            self.members.values_mut().for_each(Vec::shrink_to_fit);
        }
        let members = self.members.entry(file.number).or_default();
        for (chunk, record) in records {
            let (offset, length) = (at + record.bytes.start as u64, record.bytes.len() as u64);
            members.push(Arc::downgrade(&chunk));
            chunk.store(record.stored(Place::new(file, offset, length), &mut self.last));
        }
    }
}
