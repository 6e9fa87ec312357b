//! The requests that wait for a journal, each with the commit that it waits for.

use super::log::SinceCheckpoint;
use crate::error::{Error, Result};
use crate::table::{JournalInfo, Promise, RequestHolder};

/// Holds a barrier: nothing is withdrawn with it.
pub(super) struct BarrierHolder;

impl RequestHolder<()> for BarrierHolder {
    fn withdraw(&self, _: u64) -> Option<()> {
        Some(())
    }
}

#[derive(Default)]
pub(super) struct Progress {
    /// The first table of the journal's server.
    table: String,
    /// The number of the round that begins next: what is done before it begins is in it.
    pub(super) next: u64,
    /// Requests that wait for a round to be written, and for one to be on the disk.
    pub(super) written: Vec<(u64, Promise<()>)>,
    pub(super) synced: Vec<(u64, Promise<()>)>,
    /// Like `synced`, for requests that do not make the journal wait for the disk earlier.
    pub(super) synced_later: Vec<(u64, Promise<()>)>,
    pub(super) info: JournalInfo,
    pub(super) failed: Option<Error>,
    pub(super) ended: bool,
    /// The last commit but for one was made: it accepts no request from now on. The last one is for those that wait.
    pub(super) is_over: bool,
    /// The last commit has everything that was ever done: the tables were closed before it.
    has_all: bool,
    /// A task waits for a commit that it cannot make: the thread does not linger.
    pub(super) must_commit: bool,
    /// The thread waits for the next reason to commit, and must be woken for it.
    pub(super) asleep: bool,
    /// A request waits for the disk, and the journal's thread has begun no round for it.
    pub(super) wants_disk: bool,
    /// The newest round that was written and that the thread of the syncs has not looked at.
    pub(super) to_sync: Option<u64>,
    /// The thread of the syncs ends.
    pub(super) syncs_end: bool,
    /// The amount written with the latest commit that was noted.
    noted: SinceCheckpoint,
    /// The amount written when a checkpoint was asked for.
    requested: SinceCheckpoint,
}

impl Progress {
    /// The progress of a new journal; `table` is the first table of its server.
    pub(super) fn new(table: String) -> Self {
        Self { table, ..Self::default() }
    }

    /// Begins a round. Returns its number, and whether it writes priorities and counts of draws: a sync of it completes
    /// all that wait for the disk now, each of which may have changed them, and the round of another thread that was to
    /// write them may come after it.
    pub(super) fn begin_round(&mut self) -> (u64, bool) {
        self.next += 1;
        (self.next - 1, !self.synced.is_empty())
    }

    /// Takes the requests that wait for this round or an earlier one; with `synced` also those that wait for the disk.
    pub(super) fn take_done(&mut self, round: u64, synced: bool) -> Vec<Promise<()>> {
        let mut done = Vec::new();
        let Self { written, synced: for_disk, synced_later, .. } = self;
        for waiting in [written, for_disk, synced_later].into_iter().take(if synced { 3 } else { 1 }) {
            done.extend(waiting.extract_if(.., |(of, _)| *of <= round).map(|(_, promise)| promise));
        }
        done
    }

    /// Notes how much was written with a commit. True if a checkpoint is asked for: `most` bytes after the newest one,
    /// and after the last time.
    ///
    /// Threads that commit note it in any order: nothing is done for a commit that is older than one that was noted.
    pub(super) fn note_written(&mut self, written: SinceCheckpoint, most: Option<u64>) -> bool {
        if written < self.noted {
            return false;
        }
        (self.noted, self.info.log_bytes) = (written, written.bytes);
        let before = if self.requested.checkpoint == written.checkpoint { self.requested.bytes } else { 0 };
        let is_due = most.is_some_and(|most| written.bytes - before >= most);
        if is_due {
            self.requested = written;
        }
        is_due
    }

    /// The refusal of a request before it is done, or that does nothing, by a journal that writes nothing more. It ends
    /// when its server does: its tables are closed then.
    pub(super) fn error(&self) -> Option<Error> {
        let over = || Error::Closed { name: self.table.clone() };
        self.failed.clone().or_else(|| self.is_over.then(over))
    }

    /// The outcome of a request that comes now, if it is known at once. It is done at its table: to say that it was
    /// refused would be wrong.
    pub(super) fn outcome(&self) -> Option<Result<()>> {
        let unknown = || {
            let journal = "the journal has ended, and its last commit may be from before this request";
            Err(Error::Undecided(format!("{journal}: the next server may have what is done, or not")))
        };
        let over = || if self.has_all { Ok(()) } else { unknown() };
        self.failed.clone().map(Err).or_else(|| self.is_over.then(over))
    }

    /// Accepts no more requests, after a round that was to be the last one. False if requests came meanwhile: another
    /// round follows for them, so that a journal ends however steadily requests come.
    ///
    /// `has_all`: the tables were closed before that round.
    pub(super) fn is_over_now(&mut self, has_all: bool) -> bool {
        (self.is_over, self.has_all) = (true, has_all);
        [&self.written, &self.synced, &self.synced_later].into_iter().all(Vec::is_empty)
    }

    /// Takes all waiting requests.
    pub(super) fn take_all(&mut self) -> Vec<Promise<()>> {
        self.take_done(u64::MAX, true)
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, SinceCheckpoint};

    #[test]
    fn a_checkpoint_is_asked_for_once_for_so_many_bytes_in_whatever_order_threads_note_their_commits() {
        let mut progress = Progress::default();
        let mut note = |checkpoint, bytes| {
            let is_due = progress.note_written(SinceCheckpoint { checkpoint, bytes }, Some(100));
            (is_due, progress.info.log_bytes)
        };
        assert_eq!([note(1, 60), note(1, 110), note(1, 90)], [(false, 60), (true, 110), (false, 110)]);
        assert_eq!([note(1, 209), note(1, 210), note(1, 209)], [(false, 209), (true, 210), (false, 210)]);
        // A checkpoint was taken; a commit before it is noted after it.
        assert_eq!(
            [note(2, 0), note(1, 330), note(2, 99), note(2, 100)],
            [(false, 0), (false, 0), (false, 99), (true, 100)]
        );
    }
}
