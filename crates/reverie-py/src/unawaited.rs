//! Fire-and-forget requests (`wait=False`): their errors are counted, and the first is logged.

use crate::enter::{Deadline, WaitOutcome, late, wait};
use crate::errors::raise;
use pyo3::prelude::*;
use reverie_core::append::{Goal, InFlight, Load, Pace};
use reverie_core::table::{ChangeCounts, Keys, Ticket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests of one kind.
pub struct UnawaitedQueue<T> {
    /// The name for messages: "update", "insert".
    what: &'static str,
    /// The unanswered requests and bytes from which on the next request waits.
    most: Load,
    in_flight: InFlight<T>,
    /// Locked briefly.
    pace: Mutex<Pace>,
    errors: AtomicU64,
}

/// Requests that no caller waits for. A learner's updates do not wait behind inserts that a limiter holds up.
pub struct UnawaitedRequests {
    pub inserts: UnawaitedQueue<Keys>,
    pub updates: UnawaitedQueue<(ChangeCounts, ChangeCounts)>,
}

/// The default of `Client(max_in_flight_bytes=)`.
pub const IN_FLIGHT_BYTES: usize = 64 << 20;
/// Unanswered inserts at most: so many that small ones use a long round trip fully, too.
const MOST_INSERTS: usize = 4096;
/// Unanswered updates at most.
const MOST_UPDATES: usize = 1024;

impl UnawaitedRequests {
    /// No requests yet. Each kind may have this many unanswered bytes.
    pub fn new(max_in_flight_bytes: u64) -> Self {
        Self {
            inserts: UnawaitedQueue::new("insert", MOST_INSERTS, max_in_flight_bytes),
            updates: UnawaitedQueue::new("update", MOST_UPDATES, max_in_flight_bytes),
        }
    }

    /// Waits until all requests are answered. At the deadline: an error with why the oldest is not.
    pub fn flush(&self, py: Python<'_>, deadline: Deadline, why: impl Fn(&str) -> String + Sync) -> PyResult<()> {
        let since = Instant::now();
        let waits_for = match self.inserts.flush(py, deadline, &why)? {
            false => self.inserts.waits_for(),
            true if self.updates.flush(py, deadline.after(since.elapsed()), &why)? => return Ok(()),
            true => self.updates.waits_for(),
        };
        let why = waits_for.map_or_else(String::new, |table| why(&table));
        Err(late(py, "flush", &why, |_| Ok(())))
    }
}

impl<T: Send> UnawaitedQueue<T> {
    /// No requests yet. A request waits while `requests` or more, or more than `bytes`, are unanswered.
    fn new(what: &'static str, requests: usize, bytes: u64) -> Self {
        let most = Load { items: requests, bytes };
        Self { what, most, in_flight: InFlight::default(), pace: Mutex::default(), errors: AtomicU64::new(0) }
    }

    /// Adds a request for the table, which has this many bytes. One that is done leaves only its error.
    pub fn add(&self, py: Python<'_>, ticket: Ticket<T>, table: &str, bytes: u64) -> PyResult<()> {
        if !ticket.is_done() {
            self.pace().sent(bytes);
        }
        match self.in_flight.push(table, ticket, Load { items: 1, bytes }) {
            Ok(()) => Ok(()),
            Err(error) => self.note(py, &raise(py, error)),
        }
    }

    /// Counts an error of a request that no caller waits for; logs the first.
    pub fn note(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        if self.errors.fetch_add(1, Ordering::Relaxed) == 0 {
            let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
            let text = "an %s that no caller waits for (wait=False) failed; further failures are only counted: %s";
            logger.call_method1("warning", (text, self.what, error.value(py)))?;
        }
        Ok(())
    }

    /// The number of errors.
    pub fn errors(&self, py: Python<'_>) -> PyResult<u64> {
        self.wait_until(py, Load::UNLIMITED.into(), Deadline::from_timeout(Some(0.0))?, |_| String::new())?;
        Ok(self.errors.load(Ordering::Relaxed))
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
        let target = Load { items: self.most.items - 1, ..self.most };
        let room = self.wait_until(py, Goal { target, wake_at: self.most.half() }, deadline, why)?;
        let Some(round_trip) = round_trip.filter(|_| room) else { return Ok(room) };
        let before = self.in_flight.load().bytes;
        let due = {
            let mut pace = self.pace();
            pace.is_due(before).then(|| pace.aim())
        };
        if let Some(bytes) = due {
            self.pause(py, deadline, (before, Load::bytes(bytes)), round_trip)?;
        }
        Ok(true)
    }

    #[cold]
    fn pause(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        (before, aim): (u64, Load),
        round_trip: Duration,
    ) -> PyResult<()> {
        let (most, start) = (Pace::PAUSE + round_trip, Instant::now());
        let deadline =
            Deadline::from_timeout(Some(deadline.limit().map_or(most, |limit| limit.min(most)).as_secs_f64()))?;
        self.wait_until(py, aim.into(), deadline, |_| String::new())?;
        self.pace().paused(before, self.in_flight.load().bytes, start.elapsed(), round_trip);
        Ok(())
    }

    /// Waits until all requests are answered; false at the deadline.
    pub fn flush(&self, py: Python<'_>, deadline: Deadline, why: impl Fn(&str) -> String + Sync) -> PyResult<bool> {
        self.wait_until(py, Load::NONE.into(), deadline, why)
    }

    /// The table of the oldest request.
    pub fn waits_for(&self) -> Option<String> {
        self.in_flight.waits_for()
    }

    fn wait_until(
        &self,
        py: Python<'_>,
        goal: Goal,
        deadline: Deadline,
        why: impl Fn(&str) -> String + Sync,
    ) -> PyResult<bool> {
        let why = || self.waits_for().map_or_else(String::new, |table| why(&table));
        // An error is that of one request: it does not end the wait.
        let poll = |slice| match self.in_flight.wait(goal, slice)? {
            Ok(()) => Some(Ok(None)),
            Err(error) => Some(Ok(Some(error))),
        };
        loop {
            match wait(py, deadline, poll, why)? {
                WaitOutcome::Expired => return Ok(false),
                WaitOutcome::Done(None) => return Ok(true),
                WaitOutcome::Done(Some(error)) => self.note(py, &raise(py, error))?,
            }
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
