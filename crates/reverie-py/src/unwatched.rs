//! Fire-and-forget requests (`wait=False`): their errors are counted, and the first is logged.

use crate::enter::{Deadline, Waited, wait};
use crate::errors::raise;
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::append::Pace;
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Requests of one kind. Those for one table are answered in the order in which they were sent.
/// A request that its table holds up does not occupy the places of requests for other tables that were answered after
/// it.
pub struct Unwatched {
    /// The name for messages: "update", "insert".
    what: &'static str,
    /// The unanswered requests and bytes from which on the next request waits.
    most: Left,
    /// Held by the thread that waits for a request. Under the GIL it is only tried.
    turn: Mutex<()>,
    /// Guards the counts and the lists; held briefly.
    state: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    /// One for each table that was ever sent to; their indices never change.
    queues: Vec<Queue>,
    /// The number of requests ever sent.
    sent: u64,
    left: Left,
    pace: Pace,
    errors: u64,
}

/// Unanswered requests, including the one that is waited for.
#[derive(Clone, Copy, Default)]
struct Left {
    requests: usize,
    bytes: u64,
}

impl Left {
    const NONE: Self = Self { requests: 0, bytes: 0 };
    const ALL: Self = Self { requests: usize::MAX, bytes: u64::MAX };

    fn within(self, most: Self) -> bool {
        self.requests <= most.requests && self.bytes <= most.bytes
    }

    fn half(self) -> Self {
        Self { requests: self.requests / 2, bytes: self.bytes / 2 }
    }
}

/// The goal of a wait.
#[derive(Clone, Copy)]
struct Aim {
    /// The wait ends when no more than this is left.
    enough: Left,
    /// The waiting thread is woken when no more than this is left, and checks `enough` now and then.
    woken: Left,
}

/// Requests for one table, in the order in which they were sent.
struct Queue {
    table: String,
    requests: VecDeque<Request>,
}

/// A request that no caller waits for.
struct Request {
    ticket: Box<dyn Pending>,
    /// Its place in the order of all requests.
    order: u64,
    bytes: u64,
}

/// How often a thread that waits for room checks whether there is some.
/// It is woken when half of the requests are answered, not by each answer.
const LOOK: Duration = Duration::from_millis(5);

/// A ticket of any type.
trait Pending: Send {
    /// The outcome without its value, if it has arrived. Does not wait.
    fn look(&mut self) -> Option<Result<()>>;

    /// Waits until the outcome arrives, for at most `timeout`; does not take the outcome.
    fn wait_for(&mut self, timeout: Duration);
}

impl<T: Send> Pending for Ticket<T> {
    fn look(&mut self) -> Option<Result<()>> {
        self.poll().map(|outcome| outcome.map(drop))
    }

    fn wait_for(&mut self, timeout: Duration) {
        self.nudge();
        self.park(timeout);
    }
}

/// Requests that no caller waits for. A learner's updates do not wait behind inserts that a limiter holds up.
pub struct Alone {
    pub inserts: Unwatched,
    pub updates: Unwatched,
}

/// The default of `Client(max_in_flight_bytes=)`.
pub const IN_FLIGHT_BYTES: usize = 64 << 20;
/// Unanswered inserts at most: so many that small ones use a long round trip fully, too.
const MOST_INSERTS: usize = 4096;
/// Unanswered updates at most.
const MOST_UPDATES: usize = 1024;

impl Alone {
    /// No requests yet. Each kind may have this many unanswered bytes.
    pub fn new(max_in_flight_bytes: u64) -> Self {
        Self {
            inserts: Unwatched::new("insert", MOST_INSERTS, max_in_flight_bytes),
            updates: Unwatched::new("update", MOST_UPDATES, max_in_flight_bytes),
        }
    }
}

impl Watching {
    /// The queues with requests, each with the place of its oldest request in the order of all.
    fn waiting(&self) -> impl Iterator<Item = (usize, u64)> {
        let fronts = self.queues.iter().map(|queue| queue.requests.front());
        fronts.enumerate().filter_map(|(index, front)| Some((index, front?.order)))
    }
}

impl Unwatched {
    /// No requests yet. A request waits while `requests` or more, or more than `bytes`, are unanswered.
    fn new(what: &'static str, requests: usize, bytes: u64) -> Self {
        let most = Left { requests, bytes };
        Self { what, most, turn: Mutex::default(), state: Mutex::default() }
    }

    /// Takes over a request for the table, which has this many bytes. One that is done leaves only its error.
    pub fn leave<T: Send + 'static>(
        &self,
        py: Python<'_>,
        mut ticket: Ticket<T>,
        table: &str,
        bytes: u64,
    ) -> PyResult<()> {
        if let Some(outcome) = ticket.poll() {
            return outcome.map_or_else(|error| self.note(py, &raise(py, error)), |_| Ok(()));
        }
        let mut state = self.lock();
        state.left.requests += 1;
        state.left.bytes += bytes;
        state.pace.sent(bytes);
        state.sent += 1;
        let request = Request { ticket: Box::new(ticket), order: state.sent, bytes };
        match state.queues.iter_mut().find(|queue| queue.table == table) {
            Some(queue) => queue.requests.push_back(request),
            None => state.queues.push(Queue { table: table.to_owned(), requests: VecDeque::from([request]) }),
        }
        Ok(())
    }

    /// Counts an error of a request that no caller waits for; logs the first.
    pub fn note(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        let mut state = self.lock();
        state.errors += 1;
        let first = state.errors == 1;
        drop(state);
        if first {
            let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
            let text = "an %s that nobody waits for (wait=False) failed; further ones are only counted: %s";
            logger.call_method1("warning", (text, self.what, error.value(py)))?;
        }
        Ok(())
    }

    /// The number of errors.
    pub fn errors(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Aim { enough: Left::ALL, woken: Left::ALL }, Deadline::from_timeout(Some(0.0))?, |_| {
            String::new()
        })?;
        Ok(self.lock().errors)
    }

    /// Waits until another request may be sent; false at the deadline. `why` describes what a table waits for.
    /// `round_trip`: pauses if a server at this distance lags behind, see [`Pace`].
    pub fn make_room(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        round_trip: Option<Duration>,
        why: impl Fn(&str) -> String + Sync,
    ) -> PyResult<bool> {
        let enough = Left { requests: self.most.requests - 1, bytes: self.most.bytes };
        let room = self.settle(py, Aim { enough, woken: self.most.half() }, deadline, why)?;
        let Some(round_trip) = round_trip.filter(|_| room) else { return Ok(room) };
        let due = {
            let mut state = self.lock();
            let before = state.left.bytes;
            state.pace.is_due(before).then(|| (before, state.pace.aim()))
        };
        if let Some((before, bytes)) = due {
            self.pause(py, deadline, (before, Left { bytes, ..Left::ALL }), round_trip)?;
        }
        Ok(true)
    }

    #[cold]
    fn pause(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        (before, aim): (u64, Left),
        round_trip: Duration,
    ) -> PyResult<()> {
        let (most, start) = (Pace::PAUSE + round_trip, Instant::now());
        let deadline =
            Deadline::from_timeout(Some(deadline.limit().map_or(most, |limit| limit.min(most)).as_secs_f64()))?;
        self.settle(py, Aim { enough: aim, woken: aim }, deadline, |_| String::new())?;
        let mut state = self.lock();
        let after = state.left.bytes;
        state.pace.paused(before, after, start.elapsed(), round_trip);
        Ok(())
    }

    /// Waits until all requests are answered; false at the deadline.
    pub fn flush(&self, py: Python<'_>, deadline: Deadline, why: impl Fn(&str) -> String + Sync) -> PyResult<bool> {
        self.settle(py, Aim { enough: Left::NONE, woken: Left::NONE }, deadline, why)
    }

    /// The table of the oldest request.
    pub fn waits_for(&self) -> Option<String> {
        let state = self.lock();
        let oldest = state.waiting().min_by_key(|(_, order)| *order);
        oldest.map(|(index, _)| state.queues[index].table.clone())
    }

    fn settle(
        &self,
        py: Python<'_>,
        aim: Aim,
        deadline: Deadline,
        why: impl Fn(&str) -> String + Sync,
    ) -> PyResult<bool> {
        let why = || self.waits_for().map_or_else(String::new, |table| why(&table));
        loop {
            match wait(py, deadline, |slice| self.look(aim, slice), why)? {
                Waited::Late => return Ok(false),
                Waited::Done(None) => return Ok(true),
                Waited::Done(Some(error)) => self.note(py, &raise(py, error))?,
            }
        }
    }

    /// Removes answered requests; waits while more than enough are left.
    /// `Some(Some)`: a request failed. `Some(None)`: enough are answered. `None`: more than enough are left.
    fn look(&self, aim: Aim, slice: Duration) -> Option<Result<Option<reverie_core::Error>>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if slice.is_zero() => return None,
            Err(TryLockError::WouldBlock) => self.turn.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if let Some(found) = self.take_answered(aim.enough) {
            return Some(Ok(found));
        }
        if slice.is_zero() {
            return None;
        }
        // Only the thread with the turn removes requests: others only append, and the indices stay valid.
        let found = {
            let mut state = self.lock();
            // The queue whose oldest request was sent last: the others may wait for their tables.
            let youngest = state.waiting().max_by_key(|(_, order)| *order);
            let alone = state.waiting().nth(1).is_none();
            youngest.and_then(|(index, _)| {
                let requests = &mut state.queues[index].requests;
                let mut behind = Left::NONE;
                let last = requests.iter().rposition(|request| {
                    behind = Left { requests: behind.requests + 1, bytes: behind.bytes + request.bytes };
                    !behind.within(aim.woken)
                });
                let at = last.unwrap_or(0);
                requests.remove(at).map(|request| ((index, at), request, alone))
            })
        };
        if let Some(((index, at), mut request, alone)) = found {
            let eager = alone && aim.woken.within(aim.enough) && aim.enough.within(aim.woken);
            request.ticket.wait_for(if eager { slice } else { slice.min(LOOK) });
            self.lock().queues[index].requests.insert(at, request);
        }
        self.take_answered(aim.enough).map(Ok)
    }

    /// Removes answered requests from the fronts, up to one that failed. `None`: more than enough are left.
    fn take_answered(&self, enough: Left) -> Option<Option<reverie_core::Error>> {
        let mut state = self.lock();
        let Watching { queues, left, .. } = &mut *state;
        for queue in queues {
            while let Some(outcome) = queue.requests.front_mut().and_then(|oldest| oldest.ticket.look()) {
                let done = queue.requests.pop_front().expect("it was looked at");
                left.requests -= 1;
                left.bytes -= done.bytes;
                if let Err(error) = outcome {
                    return Some(Some(error));
                }
            }
        }
        left.within(enough).then_some(None)
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
