//! Requests whose outcome nobody waits for: their errors are counted, and the first is logged.

use crate::enter::{Deadline, Waited, wait};
use crate::errors::raise;
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See above.
#[derive(Default)]
pub struct Unwatched {
    state: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    tickets: VecDeque<Box<dyn Pending>>,
    errors: u64,
}

/// Requests nobody waits for that may be unanswered: beyond, the next waits for the oldest.
const MOST_UNWATCHED: usize = 1024;

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
    /// Lets a request go on alone.
    pub fn leave<T: Send + 'static>(&self, py: Python<'_>, ticket: Ticket<T>) -> PyResult<()> {
        let full = {
            let mut state = self.lock();
            state.tickets.push_back(Box::new(ticket));
            state.tickets.len() > MOST_UNWATCHED
        };
        let least = if full { MOST_UNWATCHED } else { usize::MAX };
        self.settle(py, least, Deadline::from_timeout(None)?).map(drop)
    }

    /// Counts an error that nobody waited for.
    pub fn note(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        let mut state = self.lock();
        state.errors += 1;
        let first = state.errors == 1;
        drop(state);
        if first {
            let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
            let text = "an update that nobody waits for (wait=False) failed; further ones are only counted: %s";
            logger.call_method1("warning", (text, error.value(py)))?;
        }
        Ok(())
    }

    /// How many failed.
    pub fn errors(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, usize::MAX, Deadline::from_timeout(Some(0.0))?)?;
        Ok(self.lock().errors)
    }

    /// Waits until at most so many are unanswered; false where that took too long.
    pub fn settle(&self, py: Python<'_>, at_most: usize, deadline: Deadline) -> PyResult<bool> {
        loop {
            let poll = |slice: Duration| {
                let mut state = self.lock();
                loop {
                    let enough = state.tickets.len() <= at_most;
                    let slice = if enough { Duration::ZERO } else { slice };
                    match state.tickets.front_mut().map(|ticket| ticket.settle(slice)) {
                        None => return Some(Ok(None)),
                        Some(None) if enough => return Some(Ok(None)),
                        Some(None) => return None,
                        Some(Some(outcome)) => {
                            state.tickets.pop_front();
                            if let Err(error) = outcome {
                                return Some(Ok(Some(error)));
                            }
                        }
                    }
                }
            };
            match wait(py, deadline, poll, || "updates that were sent with wait=False".to_owned())? {
                Waited::Late => return Ok(false),
                Waited::Done(None) => return Ok(true),
                Waited::Done(Some(error)) => self.note(py, &raise(py, error))?,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
