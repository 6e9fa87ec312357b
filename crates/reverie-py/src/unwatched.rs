//! Requests whose outcome nobody waits for (`wait=False`): their errors are counted, and the first is logged.

use crate::enter::{Deadline, Waited, wait};
use crate::errors::raise;
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::append::Pace;
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Requests of one kind. Those for one table are answered in the order in which they were sent; one that its table holds
/// keeps no place of what is answered behind it for other tables.
pub struct Unwatched {
    /// For people: "update", "insert".
    what: &'static str,
    /// What may be unanswered before the next request waits.
    most: Left,
    /// Held by who waits for the oldest request. Under the GIL it is only tried.
    turn: Mutex<()>,
    /// Guards the numbers and the list; held for a move.
    state: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    /// One for each table that was ever sent to: their places stay.
    queues: Vec<Queue>,
    /// Requests that were ever left.
    sent: u64,
    left: Left,
    pace: Pace,
    errors: u64,
}

/// What is unanswered, the request that is waited for included.
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

/// Until when is waited.
#[derive(Clone, Copy)]
struct Aim {
    /// No more than this may be left.
    enough: Left,
    /// Who waits is woken when no more than this is left, and looks now and then whether it is enough.
    woken: Left,
}

/// Requests for one table, in the order in which they were sent.
struct Queue {
    table: String,
    requests: VecDeque<Request>,
}

/// A request that goes on alone.
struct Request {
    ticket: Box<dyn Pending>,
    /// Its place among all that were left.
    order: u64,
    bytes: u64,
}

/// Who waits for room is woken when half of the requests are answered, not by each; but looks after this long whether
/// there is some.
const LOOK: Duration = Duration::from_millis(5);

/// A ticket of whatever type.
trait Pending: Send {
    /// The outcome without its value, where it is there. Nobody is hurried for it.
    fn look(&mut self) -> Option<Result<()>>;

    /// Waits until the outcome is there, at most for so long; it is left where it is.
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

/// Requests that nobody waits for. A learner's updates do not wait behind inserts that a limiter holds.
pub struct Alone {
    pub inserts: Unwatched,
    pub updates: Unwatched,
}

/// `Client(max_in_flight_bytes=)` where it is not given.
pub const IN_FLIGHT_BYTES: usize = 64 << 20;
/// Inserts that may be unanswered while no caller waits for them: so many that small ones fill a long way, too.
const MOST_INSERTS: usize = 4096;
/// The same of updates.
const MOST_UPDATES: usize = 1024;

impl Alone {
    /// None yet. Of each kind so many bytes may be unanswered.
    pub fn new(max_in_flight_bytes: u64) -> Self {
        Self {
            inserts: Unwatched::new("insert", MOST_INSERTS, max_in_flight_bytes),
            updates: Unwatched::new("update", MOST_UPDATES, max_in_flight_bytes),
        }
    }
}

impl Watching {
    /// The queues with requests, each with the place of its oldest among all.
    fn waiting(&self) -> impl Iterator<Item = (usize, u64)> {
        let fronts = self.queues.iter().map(|queue| queue.requests.front());
        fronts.enumerate().filter_map(|(index, front)| Some((index, front?.order)))
    }
}

impl Unwatched {
    /// None yet. A request waits while so many are unanswered, or more bytes than that.
    fn new(what: &'static str, requests: usize, bytes: u64) -> Self {
        let most = Left { requests, bytes };
        Self { what, most, turn: Mutex::default(), state: Mutex::default() }
    }

    /// Lets a request for the table go on alone; it has so many bytes. One that is done leaves nothing but its error.
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

    /// Counts an error that nobody waited for.
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

    /// How many failed.
    pub fn errors(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Aim { enough: Left::ALL, woken: Left::ALL }, Deadline::from_timeout(Some(0.0))?, |_| {
            String::new()
        })?;
        Ok(self.lock().errors)
    }

    /// Waits until another request may go on alone; false where that took too long. `why` says what a table waits for.
    /// `round_trip`: pauses where a server so far away lags behind, see [`Pace`].
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

    /// Waits until all are answered; false where that took too long.
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

    /// Takes off what is answered, waiting as long as there is more than enough. `Some(Some)`: one that failed. `None`:
    /// there is more.
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
        // Whoever has the turn takes off alone: others only add behind, and the places stay.
        let found = {
            let mut state = self.lock();
            // The queue that was answered last: the others may wait for their tables.
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

    /// Takes answered ones off the fronts, up to one that failed. `None`: there is more than enough.
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
