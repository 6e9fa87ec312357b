//! Requests whose outcome nobody waits for (`wait=False`): their errors are counted, and the first is logged.

use crate::enter::{Deadline, Waited, wait};
use crate::errors::raise;
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Requests of one kind, in the order in which they were sent.
pub struct Unwatched {
    /// For people: "update", "insert".
    what: &'static str,
    /// Held by who waits for the oldest request. Under the GIL it is only tried.
    turn: Mutex<()>,
    /// Guards the numbers and the list; held for a move.
    state: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    tickets: VecDeque<Alone>,
    left: Left,
    errors: u64,
}

/// What is unanswered, the request that is waited for included.
#[derive(Clone, Copy, Default)]
struct Left {
    requests: usize,
    bytes: u64,
}

/// A request that goes on alone.
struct Alone {
    ticket: Box<dyn Pending>,
    table: String,
    bytes: u64,
}

/// What may be unanswered before the next request waits for the oldest: enough to hide a round trip.
const MOST: Left = Left { requests: 1024, bytes: 64 << 20 };

/// A ticket of whatever type.
trait Pending: Send {
    /// The outcome without its value, waiting at most for so long.
    fn settle(&mut self, timeout: Duration) -> Option<Result<()>>;
}

impl<T: Send> Pending for Ticket<T> {
    fn settle(&mut self, timeout: Duration) -> Option<Result<()>> {
        self.wait(timeout).map(|outcome| outcome.map(drop))
    }
}

impl Unwatched {
    /// None yet.
    pub fn new(what: &'static str) -> Self {
        Self { what, turn: Mutex::default(), state: Mutex::default() }
    }

    /// Lets a request for the table go on alone; it has so many bytes.
    pub fn leave<T: Send + 'static>(&self, ticket: Ticket<T>, table: &str, bytes: u64) {
        let mut state = self.lock();
        state.left.requests += 1;
        state.left.bytes += bytes;
        state.tickets.push_back(Alone { ticket: Box::new(ticket), table: table.to_owned(), bytes });
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
        let seen = Left { requests: usize::MAX, bytes: u64::MAX };
        self.settle(py, seen, Deadline::from_timeout(Some(0.0))?, |_| String::new())?;
        Ok(self.lock().errors)
    }

    /// Waits until another request may go on alone; false where that took too long. `why` says what a table waits for.
    pub fn make_room(&self, py: Python<'_>, deadline: Deadline, why: impl Fn(&str) -> String + Sync) -> PyResult<bool> {
        let most = Left { requests: MOST.requests - 1, bytes: MOST.bytes };
        self.settle(py, most, deadline, why)
    }

    /// Waits until all are answered; false where that took too long.
    pub fn flush(&self, py: Python<'_>, deadline: Deadline, why: impl Fn(&str) -> String + Sync) -> PyResult<bool> {
        self.settle(py, Left::default(), deadline, why)
    }

    /// The table of the oldest request.
    pub fn waits_for(&self) -> Option<String> {
        self.lock().tickets.front().map(|alone| alone.table.clone())
    }

    fn settle(
        &self,
        py: Python<'_>,
        at_most: Left,
        deadline: Deadline,
        why: impl Fn(&str) -> String + Sync,
    ) -> PyResult<bool> {
        let why = || self.waits_for().map_or_else(String::new, |table| why(&table));
        loop {
            match wait(py, deadline, |slice| self.look(at_most, slice), why)? {
                Waited::Late => return Ok(false),
                Waited::Done(None) => return Ok(true),
                Waited::Done(Some(error)) => self.note(py, &raise(py, error))?,
            }
        }
    }

    /// Takes off what is answered, waiting for the oldest as long as there are more than `at_most`. `Some(Some)`: one
    /// that failed. `None`: there are more.
    fn look(&self, at_most: Left, slice: Duration) -> Option<Result<Option<reverie_core::Error>>> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if slice.is_zero() => return None,
            Err(TryLockError::WouldBlock) => self.turn.lock().unwrap_or_else(PoisonError::into_inner),
        };
        loop {
            let (oldest, Left { requests, bytes }) = {
                let mut state = self.lock();
                (state.tickets.pop_front(), state.left)
            };
            let Some(mut oldest) = oldest else { return Some(Ok(None)) };
            let enough = requests <= at_most.requests && bytes <= at_most.bytes;
            let outcome = oldest.ticket.settle(if enough { Duration::ZERO } else { slice });
            let mut state = self.lock();
            let Some(outcome) = outcome else {
                state.tickets.push_front(oldest);
                return enough.then_some(Ok(None));
            };
            state.left.requests -= 1;
            state.left.bytes -= oldest.bytes;
            if let Err(error) = outcome {
                return Some(Ok(Some(error)));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
