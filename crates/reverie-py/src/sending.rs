//! What every writer does with its items: sends them, and waits where too much is unconfirmed.

use crate::client::Client;
use crate::enter::{Deadline, Waited, late, locked, quick, wait};
use pyo3::prelude::*;
use reverie_core::append::InFlight;
use reverie_core::table::{Inserts, SharedTable, Tables};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A writer's way to its tables.
pub struct Sending {
    client: Py<Client>,
    max_in_flight_bytes: u64,
    timeout: Option<f64>,
    in_flight: Mutex<InFlight>,
}

/// What may be left unconfirmed.
#[derive(Clone, Copy)]
enum Room {
    Items(usize),
    Bytes(u64),
}

impl Sending {
    /// `timeout` is the writer's own; without one the client's counts.
    pub fn new(client: Py<Client>, max_in_flight_bytes: u64, timeout: Option<f64>) -> PyResult<Self> {
        Deadline::from_timeout(timeout)?;
        Ok(Self { client, max_in_flight_bytes, timeout, in_flight: Mutex::default() })
    }

    /// The tables, or ForkedError.
    pub fn tables<'a>(&'a self, py: Python<'a>) -> PyResult<&'a Arc<Tables>> {
        self.client.get().tables(py)
    }

    /// Sends items, `bytes` of them, without waiting.
    pub fn send(&self, py: Python<'_>, table: &Arc<SharedTable>, items: Inserts, bytes: usize) -> PyResult<()> {
        if items.is_empty() {
            return Ok(());
        }
        let count = items.len();
        let ticket = quick(py, || table.insert(items))?;
        locked(py, &self.in_flight, 0, |in_flight| in_flight.push(table.name(), ticket, count, bytes as u64))
    }

    /// Waits until the bytes in flight are within their bound; the usual case is a look.
    pub fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        if locked(py, &self.in_flight, 0, |in_flight| Ok(in_flight.is_empty()))? {
            return Ok(());
        }
        self.settle(py, "append", Room::Bytes(self.max_in_flight_bytes), self.timeout)
    }

    /// Waits until at most so many items are unconfirmed.
    pub fn flush(&self, py: Python<'_>, num_items: usize, timeout: Option<f64>) -> PyResult<()> {
        self.settle(py, "flush", Room::Items(num_items), timeout.or(self.timeout))
    }

    /// Items that are not in their tables yet.
    pub fn num_in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.tables(py)?;
        locked(py, &self.in_flight, 0, InFlight::settle)
    }

    fn settle(&self, py: Python<'_>, what: &str, room: Room, timeout: Option<f64>) -> PyResult<()> {
        let tables = self.tables(py)?;
        let deadline = self.client.get().deadline(timeout)?;
        let poll = |slice: Duration| {
            let mut in_flight = self.lock();
            let settled = if slice.is_zero() { in_flight.settle() } else { in_flight.wait(slice) };
            match (settled, room) {
                (Err(error), _) => Some(Err(error)),
                (Ok(items), Room::Items(limit)) => (items <= limit).then_some(Ok(())),
                (Ok(_), Room::Bytes(limit)) => (in_flight.bytes() <= limit).then_some(Ok(())),
            }
        };
        let why = || match self.lock().waits_for().map(|table| tables.get(table)) {
            Some(Ok(table)) => table.why().to_string(),
            _ => "the last item went in meanwhile".to_owned(),
        };
        match wait(py, deadline, poll, why)? {
            Waited::Done(()) => Ok(()),
            Waited::Late => Err(late(py, what, &why(), |_| Ok(()))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
