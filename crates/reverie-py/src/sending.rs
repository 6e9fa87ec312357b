//! The sending of items, common to all writers: it waits while too much is unconfirmed.

use crate::client::Client;
use crate::count::Count;
use crate::enter::{Deadline, WaitOutcome, detached, into_py_result, late, locked, locked_then, quick, wait};
use crate::notes::step_written;
use crate::process_local::ProcessLocal;
use crate::replay_backend;
use crate::spans::WriterSpans;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reverie_core::Result;
use reverie_core::append::{InFlight, Load, Pace};
use reverie_core::item::Item;
use reverie_core::replay::Replay;
use reverie_core::table::{Inserts, Keys, Priority};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A writer's connection to its tables.
pub struct ItemSender {
    replay: ProcessLocal<Arc<dyn Replay>>,
    /// [`Replay::restarts`] at the last warning to the user.
    restarts: AtomicU64,
    max_in_flight_bytes: u64,
    timeout: Option<f64>,
    in_flight: InFlight<Keys>,
    /// Locked briefly, and only if there is a network.
    pace: Mutex<Pace>,
    spans: WriterSpans,
}

impl ItemSender {
    /// `max_in_flight_bytes` and `timeout` are the writer's own; without them the client's apply.
    /// Over a network this waits for the server's description.
    pub fn new(client: &Bound<'_, Client>, max_in_flight_bytes: Option<Count>, timeout: Option<f64>) -> PyResult<Self> {
        let (py, spans) = (client.py(), WriterSpans::of(client)?);
        let client = client.get().handle();
        let own = max_in_flight_bytes.map(|count| count.at_least("max_in_flight_bytes", 0)).transpose()?;
        let max_in_flight_bytes = own.map_or(client.max_in_flight_bytes(), |own| own as u64);
        let replay = client.backend().known(py, client.deadline(timeout)?)?.shared();
        Ok(Self {
            restarts: replay.restarts().into(),
            replay: ProcessLocal::new(replay, "writer"),
            max_in_flight_bytes,
            timeout: client.timeout_or_default(timeout),
            in_flight: InFlight::default(),
            pace: Mutex::default(),
            spans,
        })
    }

    /// The replay that the items go to, or ForkedError. Warns once for each restart of the server.
    #[inline]
    pub fn replay<'a>(&'a self, py: Python<'a>) -> PyResult<&'a Arc<dyn Replay>> {
        let replay = self.replay.get(py)?;
        let restarts = replay.restarts();
        if restarts != self.restarts.load(Ordering::Relaxed) {
            self.restarts.store(restarts, Ordering::Relaxed);
            warn(py)?;
        }
        Ok(replay)
    }

    /// Sends items with this many bytes, without waiting.
    pub fn send(&self, py: Python<'_>, table: &str, items: Inserts, bytes: usize) -> PyResult<()> {
        if items.is_empty() {
            return Ok(());
        }
        let replay = self.replay.get(py)?;
        self.spans.of_caller(py, || quick(py, || self.push(&**replay, table, items, bytes)))
    }

    /// Makes an item behind a lock, and sends it once the lock is released, without waiting. `make` also returns the
    /// item's bytes.
    pub fn send_made<S: Send>(
        &self,
        py: Python<'_>,
        table: &str,
        state: &Mutex<S>,
        priority: Priority,
        make: impl FnOnce(&mut S) -> Result<(Item, usize)> + Send,
    ) -> PyResult<()> {
        let replay = self.replay.get(py)?;
        let send = |(item, bytes)| self.push(&**replay, table, Inserts::from_iter([(item, priority)]), bytes);
        self.spans.of_caller(py, || locked_then(py, state, 0, make, send))
    }

    /// Stores a step of `bytes` behind a lock, and sends the items that it made once the lock is released, without
    /// waiting. `store` also returns the items' bytes. Returns how many were sent, and what is unconfirmed then.
    /// The outer error means that nothing was written, the inner one is of the items.
    #[inline]
    pub fn send_stored<S: Send>(
        &self,
        py: Python<'_>,
        table: &str,
        state: &Mutex<S>,
        bytes: usize,
        store: impl FnOnce(&mut S) -> Result<(Inserts, usize)> + Send,
    ) -> PyResult<Result<(usize, Load)>> {
        let replay = self.replay.get(py)?;
        let send = |(items, bytes): (Inserts, usize)| {
            let sent = items.len();
            if sent > 0 {
                self.push(&**replay, table, items, bytes)?;
            }
            Ok((sent, self.unconfirmed()?))
        };
        self.spans.of_caller(py, || locked_then(py, state, bytes, store, |stored| Ok(send(stored))))
    }

    fn push(&self, replay: &dyn Replay, table: &str, items: Inserts, bytes: usize) -> Result<()> {
        let size = Load { items: items.len(), bytes: bytes as u64 };
        self.in_flight.push(table, replay.insert(table, items)?, size)
    }

    /// The inserts that are in flight and not confirmed yet. The error is that of an insert that failed.
    pub fn unconfirmed(&self) -> Result<Load> {
        self.in_flight.remove_confirmed()
    }

    /// Waits until the bytes in flight are within their bound; mostly this is a quick check.
    /// Pauses if the server lags behind: see [`Pace`].
    pub fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        self.wait_for_room(py, quick(py, || self.unconfirmed())?)
    }

    /// Like [`Self::make_room`], after a step was written: an error reports it. `unconfirmed` as of then, or the error
    /// of an item.
    #[inline]
    pub fn room_after_step(&self, py: Python<'_>, unconfirmed: Result<Load>) -> PyResult<()> {
        let room = into_py_result(py, Ok(unconfirmed)).and_then(|unconfirmed| self.wait_for_room(py, unconfirmed));
        room.map_err(|error| step_written(py, error))
    }

    /// Like [`Self::make_room`], for a caller that has counted the unconfirmed bytes.
    #[inline]
    pub fn wait_for_room(&self, py: Python<'_>, Load { bytes, .. }: Load) -> PyResult<()> {
        let replay = self.replay.get(py)?;
        if bytes > self.max_in_flight_bytes {
            let most = Load::bytes(self.max_in_flight_bytes);
            return self.spans.during(py, "append", || self.wait_until(py, "append", most, self.timeout));
        }
        let Some(round_trip) = replay.round_trip() else { return Ok(()) };
        let aim = locked(py, &self.pace, 0, |pace| Ok(pace.is_due(bytes).then(|| pace.aim())))?;
        aim.map_or(Ok(()), |aim| self.pause(py, &**replay, round_trip, bytes, aim))
    }

    #[cold]
    fn pause(&self, py: Python<'_>, replay: &dyn Replay, round_trip: Duration, before: u64, aim: u64) -> PyResult<()> {
        if !replay.server_lags() {
            return locked(py, &self.pace, 0, |pace| {
                pace.passed(before);
                Ok(())
            });
        }
        let (start, most) = (Instant::now(), (Pace::PAUSE + round_trip).as_secs_f64());
        let deadline = Deadline::from_timeout(Some(self.timeout.map_or(most, |timeout| timeout.min(most))))?;
        let poll = |slice| self.poll(Load::bytes(aim), slice).or_else(|| (!replay.server_lags()).then_some(Ok(())));
        wait(py, deadline, poll, String::new)?;
        let (after, helps) = (self.in_flight.load().bytes, replay.server_lags());
        locked(py, &self.pace, 0, |pace| {
            if helps {
                pace.paused(before, after, start.elapsed(), round_trip);
            } else {
                pace.passed(after);
            }
            Ok(())
        })
    }

    /// Waits until at most `num_items` items are unconfirmed; with `durable` also until the others are on the disk.
    pub fn flush(&self, py: Python<'_>, num_items: Count, timeout: Option<f64>, durable: bool) -> PyResult<()> {
        let num_items = num_items.at_least("block_until_num_items", 0)?;
        let (timeout, target) = (timeout.or(self.timeout), Load::items(num_items));
        let flush = || {
            let since = Instant::now();
            self.wait_until(py, "flush", target, timeout)?;
            if !durable {
                return Ok(());
            }
            let deadline = Deadline::from_timeout(timeout)?.after(since.elapsed());
            replay_backend::durable(py, &**self.replay.get(py)?, deadline)
        };
        // A flush that has nothing to wait for has no span: some writers flush before each item.
        let waits = self.spans.is_on() && (durable || self.num_in_flight(py)? > num_items);
        if waits { self.spans.during(py, "flush", flush) } else { flush() }
    }

    /// The seconds that its calls may wait where they are given no others; None means no limit.
    pub fn timeout(&self) -> Option<f64> {
        self.timeout
    }

    /// Items that are not in their tables yet.
    pub fn num_in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.replay(py)?;
        quick(py, || Ok(self.unconfirmed()?.items))
    }

    fn wait_until(&self, py: Python<'_>, what: &str, target: Load, timeout: Option<f64>) -> PyResult<()> {
        self.replay(py)?;
        let (replay, deadline) = (self.replay.get(py)?, Deadline::from_timeout(timeout)?);
        let why = || {
            let table = self.in_flight.waits_for();
            table.map_or_else(
                || "the last item went in meanwhile".to_owned(),
                |table| replay_backend::why(&**replay, &table),
            )
        };
        match wait(py, deadline, |slice| self.poll(target, slice), why)? {
            WaitOutcome::Done(()) => Ok(()),
            WaitOutcome::Expired => {
                let why = detached(py, || Ok(why()))?;
                Err(late(py, what, &why, |_| Ok(())))
            }
        }
    }

    /// Waits for at most `slice`. The first of several errors counts.
    fn poll(&self, target: Load, slice: Duration) -> Option<Result<()>> {
        let done = self.in_flight.wait(target.into(), slice);
        if let Some(Err(_)) = done {
            let _ = self.in_flight.remove_confirmed();
        }
        done
    }
}

#[cold]
fn warn(py: Python<'_>) -> PyResult<()> {
    let class = PyModule::import(py, "reverie.errors")?.getattr("ServerRestartedWarning")?;
    let text = "the server was found restarted: unsaved data is lost; what it had not confirmed was sent again";
    let arguments = PyTuple::new(py, [text.into_pyobject(py)?.into_any(), class])?;
    PyModule::import(py, "warnings")?.call_method1("warn", arguments).map(drop)
}
