//! What a table needs of a journal: when what was done outlives the process. And the requests that wait for that.

use super::ticket::{Pending, Ticket};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table::types::journal::JournalInfo;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A journal of tables.
pub trait Durable: Send + Sync {
    /// A ticket that is done once everything that was done before this call is as durable as the journal promises.
    ///
    /// Fails with `Storage` if the journal has stopped.
    fn barrier(&self) -> Ticket<()>;

    /// A ticket that is done once everything that was done before this call is on the disk, priorities and counts too.
    ///
    /// With `at_once` the journal does not wait for the end of its interval. Fails as [`Durable::barrier`].
    fn durable(&self, at_once: bool) -> Ticket<()>;

    /// Called by a thread that is about to block for a barrier: does the work for all barriers here, if it can.
    ///
    /// Blocks for as long as a file takes the bytes.
    fn commit_here(&self);

    /// Called by a task that waits for a barrier: the journal's own thread does the work at once.
    fn hurry(&self);

    /// True if what it acknowledges may not be on the disk yet, and it works.
    fn is_later(&self) -> bool;

    /// `Storage` if the journal has stopped: nothing more is made durable.
    fn check(&self) -> Result<()>;

    /// True if items of this chunk can be written without reading it. False also if that is not known at once.
    fn has(&self, chunk: &Arc<Chunk>) -> bool;

    /// The figures.
    fn info(&self) -> JournalInfo;
}

/// How long a request that is done at its table waits for its commit beyond its deadline, see [`Ticket::needs_commit`].
pub const COMMIT_GRACE: Duration = Duration::from_millis(100);

/// A thread that waits for less leaves the work to the journal's own thread: a file may take longer than that.
const COMMITS_FROM: Duration = Duration::from_millis(10);

/// A request that is done once its outcome is durable.
pub(super) struct OnceDurable<T> {
    /// Held while the thread that waits is parked.
    stage: Mutex<Stage<T>>,
    durable: Arc<dyn Durable>,
}

enum Stage<T> {
    /// It waits at its table.
    Asked(Ticket<T>),
    /// It is done there, and waits for the journal.
    Applied(T, Ticket<()>),
    Done(Result<T>),
    Taken,
}

impl<T> OnceDurable<T> {
    pub(super) fn new(ticket: Ticket<T>, durable: Arc<dyn Durable>) -> Self {
        let once = Self { stage: Mutex::new(Stage::Asked(ticket)), durable };
        // The journal knows of it from now on, also if no caller ever waits.
        drop(once.stage());
        once
    }

    /// Its stage, after what has happened meanwhile.
    fn stage(&self) -> MutexGuard<'_, Stage<T>> {
        let mut stage = lock(&self.stage);
        loop {
            let next = match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Asked(mut ticket) => match ticket.poll() {
                    Some(Ok(outcome)) => Stage::Applied(outcome, self.durable.barrier()),
                    Some(Err(error)) => Stage::Done(Err(error)),
                    None => {
                        *stage = Stage::Asked(ticket);
                        return stage;
                    }
                },
                Stage::Applied(outcome, mut barrier) => match barrier.poll() {
                    Some(durable) => Stage::Done(durable.map(|()| outcome)),
                    None => {
                        *stage = Stage::Applied(outcome, barrier);
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

impl<T: Default + Send + Sync> Pending<T> for OnceDurable<T> {
    fn poll(&mut self) -> Option<Result<T>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Done(outcome) => Some(outcome),
            other => {
                *stage = other;
                None
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(*self.stage(), Stage::Done(_))
    }

    fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        loop {
            let stage = self.stage();
            let done = match &*stage {
                Stage::Asked(ticket) => ticket.is_done_or_wakes(waker),
                Stage::Applied(_, barrier) => {
                    self.durable.hurry();
                    barrier.is_done_or_wakes(waker)
                }
                Stage::Done(_) => return true,
                Stage::Taken => return false,
            };
            if !done {
                return false;
            }
        }
    }

    fn park(&self, timeout: Duration) {
        let commits = timeout >= COMMITS_FROM;
        if commits && matches!(*self.stage(), Stage::Applied(..)) {
            self.durable.commit_here();
        }
        match &*self.stage() {
            Stage::Asked(ticket) => ticket.park(timeout),
            Stage::Applied(_, barrier) => {
                if !commits && !timeout.is_zero() {
                    self.durable.hurry();
                }
                barrier.park(timeout);
            }
            Stage::Done(_) | Stage::Taken => {}
        }
    }

    fn nudge(&self) {
        if let Stage::Asked(ticket) = &*self.stage() {
            ticket.nudge();
        }
    }

    /// Who withdraws it now gets all that is done at its table; that it is durable is then not known.
    fn withdraw(&mut self) {
        let mut stage = self.stage();
        let next = match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Asked(ticket) => Stage::Done(ticket.cancel()),
            Stage::Applied(outcome, _) => Stage::Done(Ok(outcome)),
            last => last,
        };
        *stage = next;
    }

    fn cancel(mut self: Box<Self>) -> Result<T> {
        self.withdraw();
        Pending::poll(&mut *self).unwrap_or_else(|| Ok(T::default()))
    }

    fn needs_commit(&self) -> bool {
        matches!(*self.stage(), Stage::Applied(..))
    }
}
