//! One commit for all waiting requests: everything done meanwhile is one commit, and one sync.
//!
//! A thread that blocks until its commit is written makes it itself, with what others did meanwhile: that takes no
//! switch of threads. The journal's own thread makes those that only tasks wait for, or that no thread made within
//! [`LINGER`]. A second thread waits for the disk, so that commits go on meanwhile; those that must be on the disk
//! before they are acknowledged wait in the first.

use super::log::{CommitFailure, Log, SinceCheckpoint};
use super::options::{JournalOptions, SyncPolicy};
use super::progress::{BarrierHolder, Progress};
use super::recover::JournalEnd;
use crate::checkpoint::{SaveOutcome, Store};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::table::{JournalInfo, Promise, TableJournal, Tables, Ticket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which writes to a full disk are retried.
const RETRY: Duration = Duration::from_millis(200);

/// The time for which the journal's thread leaves a commit to a thread that may wait for it.
const LINGER: Duration = Duration::from_millis(2);

/// The number of times that a thread tries to make a commit while another makes one, before it blocks.
const TRIES: usize = 20;

/// The most commits that a thread makes in a row for others, besides its own.
const FOR_OTHERS: usize = 2;

/// The journal of a server's tables: a thread that makes commits, and one that waits for the disk.
pub struct Journal {
    pub(super) log: Log,
    options: JournalOptions,
    /// Guards the waiting requests. Nothing is written under it.
    progress: Mutex<Progress>,
    changed: Condvar,
    /// There is something to sync, or no more.
    pub(super) sync_asked: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    checkpoints: OnceLock<(u64, CheckpointTrigger)>,
}

/// Begins a checkpoint in another thread.
type CheckpointTrigger = Box<dyn Fn() + Send + Sync>;

impl Journal {
    /// Begins a journal in the folder of the store, see [`Log::begin`], and its threads.
    ///
    /// From now on inserts and consuming draws are done once they are as durable as the settings say.
    pub fn begin(
        tables: Arc<Tables>,
        store: Arc<Store>,
        from: JournalEnd,
        options: JournalOptions,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        options.validate()?;
        let table = tables.iter().next().map(|table| table.name().to_owned()).unwrap_or_default();
        let log = Log::begin(Arc::clone(&tables), store, from, now)?;
        let journal = Arc::new(Self {
            log,
            options,
            progress: Mutex::new(Progress::new(table)),
            changed: Condvar::new(),
            sync_asked: Condvar::new(),
            threads: Mutex::default(),
            checkpoints: OnceLock::new(),
        });
        for (name, run) in [("journal", Self::run as fn(&Self)), ("journal-sync", Self::run_syncs)] {
            let theirs = Arc::clone(&journal);
            match std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&theirs)) {
                Ok(thread) => journal.threads().push(thread),
                Err(error) => {
                    let _ = journal.stop();
                    let path = "a thread of the journal".to_owned();
                    return Err(Error::Storage { path, action: "start".into(), reason: error.to_string() });
                }
            }
        }
        for table in tables.iter() {
            let durable: Arc<dyn TableJournal> = journal.clone();
            table.set_durable(durable);
        }
        Ok(journal)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `wake` whenever the journal has `bytes` more than at the newest checkpoint, so that it takes another.
    ///
    /// If that checkpoint fails, the next call comes after as many bytes again. Set once.
    pub fn checkpoint_by(&self, bytes: u64, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.checkpoints.set((bytes, Box::new(wake)));
    }

    /// `outcome`: the outcome that is known at once.
    fn wait_for(
        &self,
        outcome: impl FnOnce(&Progress) -> Option<Result<()>>,
        queue: impl FnOnce(&mut Progress) -> &mut Vec<(u64, Promise<()>)>,
    ) -> Ticket<()> {
        let mut progress = self.progress();
        if let Some(outcome) = outcome(&progress) {
            return Ticket::done(outcome);
        }
        let (ticket, promise) = Ticket::promised(Arc::new(BarrierHolder), 0, false);
        let round = progress.next;
        queue(&mut progress).push((round, promise));
        let wakes = progress.asleep || progress.wants_disk;
        drop(progress);
        if wakes {
            self.changed.notify_all();
        }
        ticket
    }

    /// Makes one commit in this thread for all waiting requests. False if there is nothing to do, or this thread may
    /// not.
    fn commit_for_all(&self) -> bool {
        if self.options.syncs == SyncPolicy::Always {
            return false;
        }
        // A commit mostly takes less than two switches of threads would.
        let turn = (0..TRIES).find_map(|nth| {
            if nth > 0 {
                std::thread::yield_now();
            }
            self.log.try_turn()
        });
        let Some(turn) = turn else {
            self.wake_committer();
            return false;
        };
        let (round, counts) = {
            let mut progress = self.progress();
            let stands = progress.ended || progress.failed.is_some() || progress.info.is_full;
            if stands || progress.written.is_empty() {
                return false;
            }
            progress.begin_round()
        };
        match turn.commit(counts) {
            Ok((unsynced, _)) if unsynced > self.options.max_unsynced_bytes => self.wake_committer(),
            Ok((unsynced, since_checkpoint)) => {
                self.finish(round, false, unsynced);
                self.ask_for_checkpoint(since_checkpoint);
                // So that the disk works while others go on.
                if unsynced > self.options.max_unsynced_bytes / 2 {
                    self.begin_sync(round);
                }
                return true;
            }
            Err(failed) if failed.has_no_room => self.wake_committer(),
            Err(failed) => self.fail(failed.error),
        }
        false
    }

    /// Takes a checkpoint, see [`Log::save`]. Blocks.
    pub fn save(&self) -> Result<SaveOutcome> {
        self.check()?;
        self.log.save()
    }

    /// Takes the last checkpoint of closed tables, see [`Log::save_last`]. Blocks.
    pub fn save_last(&self) -> Result<SaveOutcome> {
        self.check()?;
        self.log.save_last()
    }

    /// Writes what is left, waits for the disk, and ends the threads. Idempotent.
    ///
    /// Changes made before the call are written, by two commits at most. Requests that come during the last one or
    /// after it are done if the tables were closed before it, and fail with `Undecided` otherwise. Fails if something
    /// that was acknowledged may not be on the disk.
    pub fn stop(&self) -> Result<()> {
        self.progress().ended = true;
        self.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        // A panic there failed all waiting requests.
        threads.into_iter().for_each(|thread| _ = thread.join());
        self.check_failed()
    }

    /// Fails if another thread has failed; unlike [`TableJournal::check`], not while the last requests are done.
    pub(super) fn check_failed(&self) -> Result<()> {
        self.progress().failed.clone().map_or(Ok(()), Err)
    }

    fn run(&self) {
        let _end = JournalPanicGuard(self);
        let _syncs = self.syncs_while();
        let mut next_counts = Instant::now().checked_add(self.options.interval);
        loop {
            let Some((round, ends, counts, (syncs, waits_for_disk))) = self.next_round(next_counts) else { return };
            if counts {
                next_counts = Instant::now().checked_add(self.options.interval);
            }
            let by_time = counts && matches!(self.options.syncs, SyncPolicy::Interval(_));
            let has_all = ends && self.log.has_closed_tables();
            let outcome = self.log.try_commit(counts || ends || waits_for_disk).and_then(|unsynced| {
                let most = self.options.max_unsynced_bytes;
                // All that wait for this round wait until the disk has it.
                let holds = self.options.syncs == SyncPolicy::Always || unsynced > most;
                if !holds {
                    self.check_failed().map_err(CommitFailure::for_good)?;
                    self.finish(round, false, unsynced);
                }
                if !holds && !ends && (syncs || by_time || unsynced > most / 2) {
                    self.begin_sync(round);
                }
                if holds || ends {
                    self.sync().map_err(|error| CommitFailure { error, has_no_room: self.log.is_full() })?;
                    self.check_failed().map_err(CommitFailure::for_good)?;
                    self.finish(round, true, self.log.unsynced_bytes());
                }
                Ok(())
            });
            match outcome {
                Ok(()) => self.ask_for_checkpoint(self.log.since_checkpoint()),
                // Waiting requests keep waiting: there may be room later.
                Err(failed) if failed.has_no_room && !ends => {
                    self.progress().wants_disk |= syncs;
                    self.wait_for_room(failed.error);
                }
                Err(failed) => return self.fail(failed.error),
            }
            if ends && self.progress().is_over_now(has_all) {
                return;
            }
        }
    }

    /// Waits for a reason to commit; returns the round, and whether the thread ends, whether it is time to write
    /// counts, and whether a request waits for the disk: a new one, and any. `None` if the journal has failed.
    fn next_round(&self, next_counts: Option<Instant>) -> Option<(u64, bool, bool, (bool, bool))> {
        let mut progress = self.progress();
        // While others may make the commits: the round that was the next one when this thread last looked, and when it
        // looks again.
        let mut lingers: Option<(u64, Instant)> = None;
        loop {
            if progress.failed.is_some() {
                return None;
            }
            let now = Instant::now();
            let left = next_counts.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            let (counts, waits, syncs) = (left.is_zero(), !progress.written.is_empty(), progress.wants_disk);
            let round = progress.next;
            let elapsed = lingers.filter(|(_, until)| *until <= now);
            let no_round_since = elapsed.is_some_and(|(since, _)| since == round);
            let at_once = progress.must_commit || no_round_since || self.options.syncs == SyncPolicy::Always;
            if progress.ended || counts || syncs || (waits && at_once) {
                (progress.must_commit, progress.wants_disk) = (false, false);
                let (round, waits_for_disk) = progress.begin_round();
                return Some((round, progress.ended, counts, (syncs, waits_for_disk)));
            }
            progress.must_commit = false;
            if elapsed.is_some() || lingers.is_none() {
                let has_round_since = elapsed.is_some() && !no_round_since;
                lingers = (waits || has_round_since).then_some((round, now + LINGER));
            }
            progress.asleep = lingers.is_none();
            let most = lingers.map_or(Duration::from_secs(3600), |(_, until)| until - now);
            let waited = self.changed.wait_timeout(progress, left.min(most));
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
            progress.asleep = false;
        }
    }

    pub(super) fn finish(&self, round: u64, synced: bool, unsynced: u64) {
        let done = {
            let mut progress = self.progress();
            let info = &mut progress.info;
            (info.rounds, info.unsynced_bytes) = (info.rounds.max(round + 1), unsynced);
            (info.is_full, info.error) = (false, None);
            progress.take_done(round, synced)
        };
        done.into_iter().for_each(|promise| promise.fill(Ok(())));
    }

    /// Asks for a checkpoint if so much was written since the last one, and since it was asked for.
    fn ask_for_checkpoint(&self, written: SinceCheckpoint) {
        let asks = self.checkpoints.get();
        let is_due = self.progress().note_written(written, asks.map(|(most, _)| *most));
        if let (true, Some((_, wake))) = (is_due, asks) {
            wake();
        }
    }

    pub(super) fn wait_for_room(&self, error: Error) {
        let mut progress = self.progress();
        (progress.info.error, progress.info.is_full) = (Some(error.to_string()), true);
        let goes_on = |progress: &mut Progress| !progress.ended && progress.failed.is_none();
        drop(self.changed.wait_timeout_while(progress, RETRY, goes_on));
    }

    pub(super) fn fail(&self, error: Error) {
        let waiting = {
            let mut progress = self.progress();
            progress.failed.get_or_insert(error);
            progress.take_all()
        };
        let error = self.progress().failed.clone().expect("it was just set");
        self.changed.notify_all();
        self.sync_asked.notify_all();
        waiting.into_iter().for_each(|promise| promise.fill(Err(error.clone())));
    }
}

/// Fails the waiting requests if the thread panics.
pub(super) struct JournalPanicGuard<'a>(pub(super) &'a Journal);

impl Drop for JournalPanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "its thread panicked, which is a defect in reverie's engine; please report it".to_owned();
            self.0.fail(Error::Storage { path: "the journal".to_owned(), action: "write".into(), reason });
        }
    }
}

impl TableJournal for Journal {
    fn barrier(&self) -> Ticket<()> {
        self.wait_for(Progress::outcome, |progress| &mut progress.written)
    }

    fn durable(&self, at_once: bool) -> Ticket<()> {
        let outcome = |progress: &Progress| progress.error().map(Err);
        self.wait_for(outcome, |progress| {
            progress.wants_disk |= at_once;
            if at_once { &mut progress.synced } else { &mut progress.synced_later }
        })
    }

    fn commit_here(&self) {
        let _end = JournalPanicGuard(self);
        for _ in 0..=FOR_OTHERS {
            if !self.commit_for_all() {
                return;
            }
        }
        self.wake_committer();
    }

    fn wake_committer(&self) {
        let mut progress = self.progress();
        if !progress.written.is_empty() {
            progress.must_commit = true;
            drop(progress);
            self.changed.notify_all();
        }
    }

    fn is_durable_later(&self) -> bool {
        self.options.syncs != SyncPolicy::Always && self.progress().failed.is_none()
    }

    fn check(&self) -> Result<()> {
        self.progress().error().map_or(Ok(()), Err)
    }

    fn has(&self, chunk: &Arc<Chunk>) -> bool {
        self.log.has(chunk)
    }

    fn info(&self) -> JournalInfo {
        let progress = self.progress();
        let (sync, waiting) = (self.options.syncs.name().to_owned(), progress.synced.len() as u64);
        let mut info = JournalInfo { sync, waiting, ..progress.info.clone() };
        if let Some(failed) = &progress.failed {
            (info.is_full, info.error) = (false, Some(failed.to_string()));
        }
        info
    }
}
