//! Requests that were sent and are not confirmed yet.

use crate::error::{Error, Result};
use crate::sync::{Mutex, lock};
use crate::table::Ticket;
use std::collections::VecDeque;
use std::sync::TryLockError;
use std::time::Duration;

/// The interval at which a thread that waits for several tables, or for less than it is woken for, checks again.
///
/// The thread is woken by one request, not by each that is confirmed.
const RECHECK: Duration = Duration::from_millis(5);

/// An amount of unconfirmed requests, or the most that may be unconfirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Items, or whatever the sender counts.
    pub items: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Load {
    /// No requests.
    pub const NONE: Self = Self { items: 0, bytes: 0 };
    /// Any number of requests.
    pub const UNLIMITED: Self = Self { items: usize::MAX, bytes: u64::MAX };

    /// A load of this many items at most.
    pub fn items(items: usize) -> Self {
        Self { items, ..Self::UNLIMITED }
    }

    /// A load of this many bytes at most.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes, ..Self::UNLIMITED }
    }

    /// Half of it.
    pub fn half(self) -> Self {
        Self { items: self.items / 2, bytes: self.bytes / 2 }
    }

    fn within(self, most: Self) -> bool {
        self.items <= most.items && self.bytes <= most.bytes
    }
}

/// The goal of a wait.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The wait ends when no more than this is left.
    pub target: Load,
    /// The waiting thread is woken when no more than this is left, and checks `target` now and then.
    pub wake_at: Load,
}

impl From<Load> for Goal {
    fn from(target: Load) -> Self {
        Self { target, wake_at: target }
    }
}

/// The unconfirmed requests of one sender, whose limit of bytes they count towards.
///
/// A table confirms requests in the order in which they were sent. A request that its table holds up does not occupy
/// the places of requests for other tables that were confirmed after it.
pub struct InFlight<T> {
    /// Held by the thread that waits for a request.
    waiter: Mutex<()>,
    /// Guards the queues and the counts; held briefly, never during a wait.
    state: Mutex<InFlightState<T>>,
}

struct InFlightState<T> {
    /// The queue of each table that was ever sent to; the indices never change.
    queues: Vec<TableRequests<T>>,
    /// The number of requests ever sent.
    sent: u64,
    load: Load,
    /// The queue and the position of the request that a thread has taken out to wait for it.
    awaited: Option<(usize, u64)>,
}

/// Requests for one table, in the order in which they were sent.
struct TableRequests<T> {
    table: String,
    sent: VecDeque<SentRequest<T>>,
}

struct SentRequest<T> {
    ticket: Ticket<T>,
    /// The position of the insert among all that were sent.
    order: u64,
    size: Load,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        let state = InFlightState { queues: Vec::new(), sent: 0, load: Load::NONE, awaited: None };
        Self { waiter: Mutex::new(()), state: Mutex::new(state) }
    }
}

impl<T> InFlightState<T> {
    /// The queues with requests, each with the position of its oldest request among all.
    fn waiting(&self) -> impl Iterator<Item = (usize, u64)> {
        let fronts = self.queues.iter().map(|queue| queue.sent.front());
        fronts.enumerate().filter_map(|(index, front)| Some((index, front?.order)))
    }

    /// Removes confirmed requests from the fronts, up to one that failed.
    /// `Ok`: true if no more than `target` is left.
    fn remove_confirmed(&mut self, target: Load) -> Result<bool> {
        for queue in &mut self.queues {
            while let Some(outcome) = queue.sent.front_mut().and_then(|oldest| oldest.ticket.poll()) {
                let done = queue.sent.pop_front().expect("it was polled");
                self.load.items -= done.size.items;
                self.load.bytes -= done.size.bytes;
                outcome?;
            }
        }
        Ok(self.load.within(target))
    }
}

impl<T> InFlight<T> {
    /// Adds a request of this size; one that is done already is not kept. Returns its error.
    pub fn push(&self, table: &str, mut ticket: Ticket<T>, size: Load) -> Result<()> {
        if let Some(outcome) = ticket.poll() {
            return outcome.map(drop);
        }
        let mut state = lock(&self.state);
        state.load.items += size.items;
        state.load.bytes += size.bytes;
        state.sent += 1;
        let sent = SentRequest { ticket, order: state.sent, size };
        match state.queues.iter_mut().find(|queue| queue.table == table) {
            Some(queue) => queue.sent.push_back(sent),
            None => state.queues.push(TableRequests { table: table.to_owned(), sent: VecDeque::from([sent]) }),
        }
        Ok(())
    }

    /// Removes the requests that are confirmed. Returns what is left, or the first error of a request.
    pub fn remove_confirmed(&self) -> Result<Load> {
        let mut state = lock(&self.state);
        let mut first: Option<Error> = None;
        while let Err(error) = state.remove_confirmed(Load::UNLIMITED) {
            first.get_or_insert(error);
        }
        first.map_or(Ok(state.load), Err)
    }

    /// Waits at most for `timeout` until no more than `goal.target` is left.
    ///
    /// `None`: more is left. An error is that of one request, which is removed; others may have failed, too.
    pub fn wait(&self, goal: Goal, timeout: Duration) -> Option<Result<()>> {
        let _waiter = match self.waiter.try_lock() {
            Ok(waiter) => waiter,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if timeout.is_zero() => return None,
            Err(TryLockError::WouldBlock) => lock(&self.waiter),
        };
        let mut left = timeout;
        loop {
            if let Some(done) = self.is_enough(goal) {
                return Some(done);
            }
            if left.is_zero() {
                return None;
            }
            // Each look counts as a whole one, so that the wait ends without a clock.
            let slice = self.wait_for_one(goal, left);
            left -= slice;
        }
    }

    /// Waits for the request whose end makes enough room, at most for `timeout`; returns for how long at most.
    ///
    /// Meanwhile the request is taken out, so that other threads can push and remove. It is put back into its place,
    /// also where another thread has removed requests that were confirmed before and after it.
    fn wait_for_one(&self, goal: Goal, timeout: Duration) -> Duration {
        let Some((index, awaited, timeout)) = self.take_awaited(goal, timeout) else { return timeout };
        awaited.ticket.park(timeout);
        let mut state = lock(&self.state);
        state.awaited = None;
        let queue = &mut state.queues[index].sent;
        let at = queue.partition_point(|other| other.order < awaited.order);
        queue.insert(at, awaited);
        timeout
    }

    fn is_enough(&self, goal: Goal) -> Option<Result<()>> {
        lock(&self.state).remove_confirmed(goal.target).map(|enough| enough.then_some(())).transpose()
    }

    /// Takes out the request to wait for, and decides for how long.
    ///
    /// It is of the table whose oldest request was sent last, since other tables may hold theirs up: the first of its
    /// requests after which no more than `goal.wake_at` is left.
    fn take_awaited(&self, goal: Goal, timeout: Duration) -> Option<(usize, SentRequest<T>, Duration)> {
        let mut state = lock(&self.state);
        let (index, _) = state.waiting().max_by_key(|(_, order)| *order)?;
        let is_alone = state.waiting().nth(1).is_none();
        // Some requests go on only when their table is asked to look again.
        state.queues.iter().filter_map(|queue| queue.sent.front()).for_each(|oldest| oldest.ticket.nudge());
        let sent = &mut state.queues[index].sent;
        let mut behind = Load::NONE;
        let last = sent.iter().rposition(|sent| {
            behind = Load { items: behind.items + sent.size.items, bytes: behind.bytes + sent.size.bytes };
            !behind.within(goal.wake_at)
        });
        let awaited = sent.remove(last.unwrap_or(0))?;
        state.awaited = Some((index, awaited.order));
        let all = is_alone && goal.wake_at == goal.target;
        Some((index, awaited, if all { timeout } else { timeout.min(RECHECK) }))
    }

    /// The load that is not confirmed, as of the last [`InFlight::remove_confirmed`] or wait.
    pub fn load(&self) -> Load {
        lock(&self.state).load
    }

    /// The table that the oldest request waits for.
    pub fn waits_for(&self) -> Option<String> {
        let state = lock(&self.state);
        let oldest = state.waiting().chain(state.awaited).min_by_key(|(_, order)| *order);
        oldest.map(|(index, _)| state.queues[index].table.clone())
    }
}
