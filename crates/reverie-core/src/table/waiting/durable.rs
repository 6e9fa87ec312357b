//! The part of a journal that a table uses: it reports when changes outlive the process. And the requests that wait for
//! that.

use super::ticket::{Pending, Ticket};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::sample::Draws;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table::types::changes::ChangeCounts;
use crate::table::types::inserts::Keys;
use crate::table::types::journal::JournalInfo;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A journal of tables.
pub trait TableJournal: Send + Sync {
    /// A ticket that is done once everything that was done before this call is as durable as the journal promises.
    ///
    /// Fails with `Storage` if the journal has failed, and with `Undecided` if it has ended and may not have all of
    /// that.
    fn barrier(&self) -> Ticket<()>;

    /// A ticket that is done once everything that was done before this call is on the disk, priorities and counts too.
    ///
    /// With `at_once` the journal does not wait for the end of its interval. Fails as [`TableJournal::check`].
    fn durable(&self, at_once: bool) -> Ticket<()>;

    /// Called by a thread that is about to block for a barrier: does the work for all barriers here, if it can.
    ///
    /// Blocks for as long as a file takes the bytes.
    fn commit_here(&self);

    /// Called by a task that waits for a barrier: the journal's own thread does the work at once.
    fn wake_committer(&self);

    /// True if what it acknowledges may not be on the disk yet, and it works.
    fn is_durable_later(&self) -> bool;

    /// `Storage` if the journal has stopped: nothing more is made durable.
    fn check(&self) -> Result<()>;

    /// True if items of this chunk can be written without reading it. False also if that is not known at once.
    fn has(&self, chunk: &Arc<Chunk>) -> bool;

    /// The figures.
    fn info(&self) -> JournalInfo;
}

/// The outcome of a request that waits for its commit.
pub trait Outcome: Default {
    /// The outcome of a request that was done, or done in part, and was withdrawn before its commit; `why` reports it.
    ///
    /// It must not look like that of a request whose commit is there.
    fn not_committed(self, why: String) -> Result<Self>;

    /// False if the request has changed nothing: there is nothing to commit.
    fn has_changed(&self) -> bool {
        true
    }
}

impl Outcome for Keys {
    fn not_committed(self, why: String) -> Result<Self> {
        Err(Error::NotCommitted { keys: self, why })
    }

    fn has_changed(&self) -> bool {
        !self.is_empty()
    }
}

impl Outcome for Draws {
    /// Draws exist nowhere else: the caller gets them, with the reason.
    fn not_committed(mut self, why: String) -> Result<Self> {
        self.not_committed = Some(why);
        Ok(self)
    }

    fn has_changed(&self) -> bool {
        self.consuming
    }
}

impl Outcome for () {
    fn not_committed(self, why: String) -> Result<Self> {
        Err(Error::NotCommitted { keys: Keys::new(), why })
    }
}

impl Outcome for ChangeCounts {
    fn not_committed(self, why: String) -> Result<Self> {
        Err(Error::NotCommitted { keys: Keys::new(), why })
    }
}

impl Outcome for (ChangeCounts, ChangeCounts) {
    fn not_committed(self, why: String) -> Result<Self> {
        Err(Error::NotCommitted { keys: Keys::new(), why })
    }
}

/// The reason why a request that is done, or done in part, has no commit yet, and what that means.
pub fn why_not_committed(journal: &JournalInfo) -> String {
    let journal = match &journal.error {
        Some(error) if journal.is_full => format!("the journal waits for room on the disk ({error})"),
        _ => "the journal has not written it yet".to_owned(),
    };
    format!("what is done is not committed: {journal}; a kill of the server before that would undo it")
}

/// The time for which a request that is done at its table, or done in part, waits for its commit beyond its deadline,
/// see [`Ticket::needs_commit`].
pub const COMMIT_GRACE: Duration = Duration::from_millis(100);

/// A thread that waits for less leaves the work to the journal's own thread: a file may take longer than that.
const COMMITS_FROM: Duration = Duration::from_millis(10);

/// A request that is done once its outcome is durable.
pub(super) struct DurableRequest<T> {
    /// Held while the thread that waits is parked.
    stage: Mutex<DurableStage<T>>,
    durable: Arc<dyn TableJournal>,
}

enum DurableStage<T> {
    /// The request waits at its table.
    Waiting(Ticket<T>),
    /// The request is done at its table, in whole or (if it was withdrawn) in part, and waits for the journal.
    Applied(T, Ticket<()>),
    Done(Result<T>),
    Taken,
}

impl<T: Outcome> DurableRequest<T> {
    pub(super) fn new(ticket: Ticket<T>, durable: Arc<dyn TableJournal>) -> Self {
        let once = Self { stage: Mutex::new(DurableStage::Waiting(ticket)), durable };
        // The journal has the request from now on, even if no caller ever waits.
        drop(once.stage());
        once
    }

    /// The stage of a request that ended at its table: what it has changed there waits for the journal.
    fn applied(&self, outcome: Result<T>) -> DurableStage<T> {
        match outcome {
            Ok(outcome) if outcome.has_changed() => DurableStage::Applied(outcome, self.durable.barrier()),
            outcome => DurableStage::Done(outcome),
        }
    }

    /// The request's stage, brought up to date.
    fn stage(&self) -> MutexGuard<'_, DurableStage<T>> {
        let mut stage = lock(&self.stage);
        loop {
            let next = match std::mem::replace(&mut *stage, DurableStage::Taken) {
                DurableStage::Waiting(mut ticket) => match ticket.poll() {
                    Some(outcome) => self.applied(outcome),
                    None => {
                        *stage = DurableStage::Waiting(ticket);
                        return stage;
                    }
                },
                DurableStage::Applied(outcome, mut barrier) => match barrier.poll() {
                    Some(durable) => DurableStage::Done(durable.map(|()| outcome)),
                    None => {
                        *stage = DurableStage::Applied(outcome, barrier);
                        return stage;
                    }
                },
                last => {
                    *stage = last;
                    return stage;
                }
            };
            *stage = next;
        }
    }
}

impl<T: Outcome + Send + Sync> Pending<T> for DurableRequest<T> {
    fn poll(&mut self) -> Option<Result<T>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, DurableStage::Taken) {
            DurableStage::Done(outcome) => Some(outcome),
            other => {
                *stage = other;
                None
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(*self.stage(), DurableStage::Done(_))
    }

    fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        loop {
            let stage = self.stage();
            let done = match &*stage {
                DurableStage::Waiting(ticket) => ticket.is_done_or_wakes(waker),
                DurableStage::Applied(_, barrier) => {
                    self.durable.wake_committer();
                    barrier.is_done_or_wakes(waker)
                }
                DurableStage::Done(_) => return true,
                DurableStage::Taken => return false,
            };
            if !done {
                return false;
            }
        }
    }

    fn park(&self, timeout: Duration) {
        let commits = timeout >= COMMITS_FROM;
        if commits && matches!(*self.stage(), DurableStage::Applied(..)) {
            self.durable.commit_here();
        }
        match &*self.stage() {
            DurableStage::Waiting(ticket) => ticket.park(timeout),
            DurableStage::Applied(_, barrier) => {
                if !commits && !timeout.is_zero() {
                    self.durable.wake_committer();
                }
                barrier.park(timeout);
            }
            DurableStage::Done(_) | DurableStage::Taken => {}
        }
    }

    fn nudge(&self) {
        if let DurableStage::Waiting(ticket) = &*self.stage() {
            ticket.nudge();
        }
    }

    /// The part that is done at the table waits for the journal, as all of it would.
    fn withdraw(&mut self) {
        let mut stage = self.stage();
        let next = match std::mem::replace(&mut *stage, DurableStage::Taken) {
            DurableStage::Waiting(ticket) => self.applied(ticket.cancel()),
            last => last,
        };
        *stage = next;
    }

    /// The outcome is marked as not committed, unless it is.
    fn cancel(mut self: Box<Self>) -> Result<T> {
        self.withdraw();
        let last = std::mem::replace(&mut *self.stage(), DurableStage::Taken);
        match last {
            DurableStage::Applied(outcome, _) => outcome.not_committed(why_not_committed(&self.durable.info())),
            DurableStage::Done(outcome) => outcome,
            DurableStage::Waiting(_) | DurableStage::Taken => Ok(T::default()),
        }
    }

    fn needs_commit(&self) -> bool {
        matches!(*self.stage(), DurableStage::Applied(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::table::waiting::promise::Promise;
    use crate::table::waiting::ticket::RequestHolder;

    /// A journal that has written nothing yet.
    #[derive(Default)]
    struct StalledJournal(Mutex<Vec<Promise<()>>>);

    struct Barriers;

    impl TableJournal for StalledJournal {
        fn barrier(&self) -> Ticket<()> {
            let (ticket, promise) = Ticket::promised(Arc::new(Barriers), 0, false);
            lock(&self.0).push(promise);
            ticket
        }

        fn durable(&self, _: bool) -> Ticket<()> {
            self.barrier()
        }

        fn commit_here(&self) {}

        fn wake_committer(&self) {}

        fn is_durable_later(&self) -> bool {
            false
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }

        fn has(&self, _: &Arc<Chunk>) -> bool {
            true
        }

        fn info(&self) -> JournalInfo {
            JournalInfo::default()
        }
    }

    impl RequestHolder<()> for Barriers {
        fn withdraw(&self, _: u64) -> Option<()> {
            None
        }
    }

    /// A table that has a part of an insert, or completes the insert while it is withdrawn.
    struct Table {
        part: Option<Keys>,
        promise: Mutex<Option<Promise<Keys>>>,
    }

    impl RequestHolder<Keys> for Table {
        fn withdraw(&self, _: u64) -> Option<Keys> {
            if self.part.is_none()
                && let Some(promise) = lock(&self.promise).take()
            {
                promise.fill(Ok(Keys::from_elem(Key::from(7), 2)));
            }
            self.part.clone()
        }
    }

    fn withdrawn(part: Option<Keys>) -> Result<Keys> {
        let table = Arc::new(Table { part, promise: Mutex::default() });
        let (ticket, promise) = Ticket::promised(Arc::clone(&table) as _, 1, false);
        *lock(&table.promise) = Some(promise);
        Box::new(DurableRequest::new(ticket, Arc::new(StalledJournal::default()))).cancel()
    }

    #[test]
    fn an_insert_that_is_withdrawn_has_no_commit_if_it_was_completed_meanwhile_or_a_part_of_it_is_in() {
        let part = Keys::from_elem(Key::from(5), 1);
        for (part, num_keys) in [(None, 2), (Some(part), 1)] {
            let outcome = withdrawn(part);
            assert!(matches!(&outcome, Err(Error::NotCommitted { keys, .. }) if keys.len() == num_keys), "{outcome:?}");
        }
        assert_eq!(withdrawn(Some(Keys::new())), Ok(Keys::new()), "there is nothing to commit");
    }
}
