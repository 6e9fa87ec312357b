//! Makes commits: takes what changed from the tables, and writes it.

use super::encode::{CommitHead, Encoder};
use super::recover::{JournalEnd, unneeded};
use crate::checkpoint::summary::LogStart;
use crate::checkpoint::{SaveOutcome, Store};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::table::{TableDelta, Tables};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The journal of the tables of one server, without a thread: each call does its work before it returns.
pub struct Log {
    tables: Arc<Tables>,
    store: Arc<Store>,
    /// Time since the Unix epoch.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    /// Guards the order of the commits. Taken before the tables' locks, and before that of the store's chunks.
    state: Mutex<LogState>,
}

struct LogState {
    /// The number of the next commit.
    next: u64,
    /// The segment and offset up to which everything is on the disk; zeros until this log has synced.
    synced: (u64, u64),
    /// The revision of the forgotten senders that was written.
    forgotten: u64,
    /// Bytes written since the start, but for marks.
    written: u64,
    /// The part of these that is on the disk.
    on_disk: u64,
    since_checkpoint: SinceCheckpoint,
    encoder: Encoder,
    /// The reason why the last changes of the tables are in no commit: there is no later one.
    failed: Option<Error>,
    /// The last commit failed because the disk is full.
    has_no_room: bool,
}

/// The amount written since the newest checkpoint, which a start reads. It is ordered by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SinceCheckpoint {
    /// The number of the checkpoint, of those that this log took.
    pub(super) checkpoint: u64,
    /// Bytes of commits, and of chunks that they refer to, since its cut.
    pub(super) bytes: u64,
}

/// A commit that was not written.
pub(super) struct CommitFailure {
    pub(super) error: Error,
    /// The disk is full: the next commit may be written, with all that this one has.
    pub(super) has_no_room: bool,
}

impl CommitFailure {
    /// A failure that ends the journal, also one that another thread met.
    pub(super) fn for_good(error: Error) -> Self {
        Self { error, has_no_room: false }
    }
}

/// The right to make the next commit.
pub(super) struct CommitTurn<'a> {
    log: &'a Log,
    state: MutexGuard<'a, LogState>,
}

impl LogState {
    /// Bytes written that may not be on the disk, but for the last mark.
    fn unsynced(&self) -> u64 {
        self.written - self.on_disk
    }
}

impl CommitTurn<'_> {
    /// See [`Log::commit`]. Returns also [`Log::since_checkpoint`].
    pub(super) fn commit(mut self, counts: bool) -> Result<(u64, SinceCheckpoint), CommitFailure> {
        match self.log.commit_held(&mut self.state, counts) {
            Ok(()) => Ok((self.state.unsynced(), self.state.since_checkpoint)),
            Err(error) => Err(CommitFailure { error, has_no_room: self.state.has_no_room }),
        }
    }
}

impl Log {
    /// Begins a journal in the folder of the store, with a checkpoint of the tables as they are.
    ///
    /// `from` is the end of the journal that the tables were restored from. `now` returns the time since the Unix
    /// epoch. Every later change of the tables is in the next commit.
    pub fn begin(
        tables: Arc<Tables>,
        store: Arc<Store>,
        from: JournalEnd,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self> {
        {
            let mut log = store.log();
            log.segments.set_journaled();
            log.number_after(from.chunk);
        }
        // Starts that failed for want of room must not leave less for each next one.
        store.make_room(unneeded)?;
        store.watch_lock();
        // The first manifest refers to them.
        store.sync_adopted()?;
        tables.iter().for_each(|table| table.track_changes());
        let state = Mutex::new(LogState {
            next: from.commit,
            synced: (0, 0),
            forgotten: 0,
            written: 0,
            on_disk: 0,
            since_checkpoint: SinceCheckpoint::default(),
            encoder: Encoder::default(),
            failed: None,
            has_no_room: false,
        });
        let log = Self { tables, store, now: Box::new(now), state };
        log.take(false, false)?;
        Ok(log)
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store of its checkpoints.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// True if all tables are closed: nothing changes any more.
    pub(super) fn has_closed_tables(&self) -> bool {
        self.tables.are_closed()
    }

    /// Writes what changed since the last commit; with `counts` also priorities and counts of draws.
    ///
    /// Changes made to a table before the call then survive the end of this process. Returns the bytes that were
    /// written and may not be on the disk. On an error nothing is lost: the next call writes what this one could not.
    pub fn commit(&self, counts: bool) -> Result<u64> {
        self.try_commit(counts).map_err(|failed| failed.error)
    }

    /// Like [`Log::commit`]; the error also has whether the disk is full.
    pub(super) fn try_commit(&self, counts: bool) -> Result<u64, CommitFailure> {
        let mut state = self.state();
        match self.commit_held(&mut state, counts) {
            Ok(()) => Ok(state.unsynced()),
            Err(error) => Err(CommitFailure { error, has_no_room: state.has_no_room }),
        }
    }

    /// The right to make the next commit; `None` while another thread has it, or a checkpoint uses the segments.
    pub(super) fn try_turn(&self) -> Option<CommitTurn<'_>> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // A checkpoint may have it for as long as the disk takes.
        self.store.try_log().is_some().then_some(CommitTurn { log: self, state })
    }

    fn commit_held(&self, state: &mut LogState, counts: bool) -> Result<()> {
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        {
            let mut log = self.store.log();
            // A disk that was full may have failed since.
            state.has_no_room = false;
            log.segments.check_synced()?;
            if log.is_behind() {
                // Nothing more is taken from the tables before the disk has this.
                let written = log.write();
                state.has_no_room = log.segments.has_no_room();
                written?;
            }
            // With what a checkpoint has written meanwhile: it is no part of the journal, but goes to the disk with it.
            state.written += log.segments.take_bytes();
        }
        let deltas: Vec<(&str, TableDelta)> =
            self.tables.iter().filter_map(|table| Some((table.name(), table.delta(counts)?))).collect();
        // After the tables, as in a cut.
        let (revision, names) = {
            let forgotten = self.tables.forgotten();
            let revision = forgotten.revision();
            (revision, (revision != state.forgotten).then(|| forgotten.names()))
        };
        if deltas.is_empty() && names.is_none() {
            return Ok(());
        }
        let (number, synced) = (state.next, state.synced);
        let head = CommitHead { number, synced, clock: self.tables.now(), wall: (self.now)(), forgotten: names };
        let mut log = self.store.log();
        state.written += log.segments.take_bytes();
        if let Err(error) = state.encoder.put(&mut log, &head, &deltas) {
            // The changes taken from the tables are in no commit.
            (state.failed, state.has_no_room) = (Some(error.clone()), false);
            return Err(error);
        }
        (state.next, state.forgotten) = (number + 1, revision);
        let written = log.write();
        state.has_no_room = log.segments.has_no_room();
        let bytes = log.segments.take_bytes();
        state.written += bytes;
        state.since_checkpoint.bytes += bytes;
        log.settle();
        drop(log);
        // The items' references: chunks may be freed here, under no table's lock.
        drop(deltas);
        written
    }

    /// Waits until all commits so far are on the disk. Other threads may commit meanwhile.
    ///
    /// If the disk fails at that, every later commit, sync and checkpoint fails, too: what is not on the disk is not
    /// known.
    pub fn sync(&self) -> Result<()> {
        self.store.log().segments.check_synced()?;
        let written = {
            let state = self.state();
            if state.unsynced() == 0 {
                return Ok(());
            }
            state.written
        };
        let end = self.store.sync_written()?;
        let mut state = self.state();
        // Another thread may have synced more meanwhile.
        state.on_disk = state.on_disk.max(written);
        state.synced = state.synced.max(end);
        self.mark(&mut state);
        Ok(())
    }

    /// Writes a commit without changes. It records the position up to which everything is on the disk, so that damage
    /// before that is not taken for a write that did not finish.
    fn mark(&self, state: &mut LogState) {
        let mut log = self.store.log();
        if log.is_behind() {
            return;
        }
        let (number, synced) = (state.next, state.synced);
        let head = CommitHead { number, synced, clock: self.tables.now(), wall: (self.now)(), forgotten: None };
        if state.encoder.put(&mut log, &head, &[]).is_err() {
            return;
        }
        state.next += 1;
        // If it fails, the next commit tries again, and reports it.
        let _ = log.write();
        log.segments.take_bytes();
    }

    /// True if items of this chunk can be written without reading it. False while another thread writes or saves.
    pub(super) fn has(&self, chunk: &Arc<Chunk>) -> bool {
        self.store.try_log().is_some_and(|log| log.has(chunk))
    }

    /// Bytes that were written and may not be on the disk.
    pub fn unsynced_bytes(&self) -> u64 {
        self.state().unsynced()
    }

    /// The amount written since the newest checkpoint.
    pub(super) fn since_checkpoint(&self) -> SinceCheckpoint {
        self.state().since_checkpoint
    }

    /// True if the last write failed because the disk is full, and no sync failed: the next may succeed.
    pub fn is_full(&self) -> bool {
        let log = self.store.log();
        log.segments.has_no_room() && log.segments.check_synced().is_ok()
    }

    /// Takes a checkpoint: recovery then begins with it, and the commits before it are not needed.
    pub fn save(&self) -> Result<SaveOutcome> {
        self.take(false, true)
    }

    /// Like [`Log::save`], for closed tables.
    pub fn save_last(&self) -> Result<SaveOutcome> {
        self.take(true, true)
    }

    fn take(&self, last: bool, commits: bool) -> Result<SaveOutcome> {
        if commits {
            // Syncs first, so that the cut's own sync, for which commits wait, is short.
            self.sync()?;
        }
        let mut begin = 0;
        let cut = |checkpoint| {
            // No commit between the end of a segment and the cut: the first commit of the next segment is after it.
            let mut state = self.state();
            if commits {
                self.commit_held(&mut state, false)?;
            }
            let segment = self.store.rotate()?;
            if !commits {
                self.store.log().segments.start_with(Some(checkpoint));
            }
            state.encoder.begin();
            let cuts = if last { self.tables.last_cut() } else { self.tables.cut() }?;
            state.on_disk = state.written;
            // At a start, the end of the journal that was read may be torn, or on no disk, until the manifest replaces
            // it.
            if commits {
                state.synced = (segment, 0);
            }
            state.since_checkpoint = SinceCheckpoint { checkpoint: state.since_checkpoint.checkpoint + 1, bytes: 0 };
            begin = segment;
            let start = LogStart { segment, commit: state.next };
            // The cut has no leases: they are in the first commit after it, before the manifest replaces the log so
            // far.
            self.commit_held(&mut state, false)?;
            Ok((cuts, Some(start)))
        };
        let saved = self.store.take(&self.tables, (self.now)(), last, cut)?;
        // Records written from here on belong to no start that may have failed.
        self.store.log().segments.start_with(None);
        let mut state = self.state();
        state.synced = state.synced.max((begin, 0));
        Ok(saved)
    }
}
