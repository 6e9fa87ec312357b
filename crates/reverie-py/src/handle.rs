//! What a client holds: the way to its tables, defaults, and state that it keeps from one call to the next.

use crate::batch::Batcher;
use crate::count::Count;
use crate::enter::{Deadline, Live, caught, quick, raised};
use crate::reach::{Reach, Reached};
use crate::rows::Rows;
use crate::server::Server;
use crate::unwatched::{Alone, IN_FLIGHT_BYTES};
use pyo3::prelude::*;
use reverie_core::item::Item;
use std::sync::{Arc, Mutex, PoisonError};

/// What the methods of a client share.
pub struct Handle {
    reach: Reach,
    timeout: Option<f64>,
    max_in_flight_bytes: u64,
    /// Makes batches of draws.
    pub batcher: Batcher,
    /// Locked under the GIL, and never held while the GIL is released.
    kept: Mutex<Live<Kept>>,
}

/// The state kept from one call to the next; a forked child starts with a new one.
struct Kept {
    rows: Vec<Arc<Rows>>,
    alone: Arc<Alone>,
}

impl Kept {
    /// Nothing yet.
    fn new(max_in_flight_bytes: u64) -> Self {
        Self { rows: Vec::new(), alone: Arc::new(Alone::new(max_in_flight_bytes)) }
    }
}

impl Handle {
    /// Reaches a server of this process, or else what `connect` makes.
    pub fn new(
        py: Python<'_>,
        server: Option<Py<Server>>,
        (timeout, max_in_flight_bytes): (Option<f64>, Option<Count>),
        connect: impl FnOnce(Python<'_>) -> PyResult<Reach>,
    ) -> PyResult<Self> {
        Deadline::from_timeout(timeout)?;
        let bytes = max_in_flight_bytes.map(|count| count.at_least("max_in_flight_bytes", 1)).transpose()?;
        let max_in_flight_bytes = bytes.unwrap_or(IN_FLIGHT_BYTES) as u64;
        let reach = match server {
            Some(server) => Reach::here(py, server)?,
            None => connect(py)?,
        };
        let kept = Mutex::new(Live::new(Kept::new(max_in_flight_bytes), "client"));
        Ok(Self { reach, timeout, max_in_flight_bytes, batcher: Batcher::default(), kept })
    }

    /// The most bytes of unconfirmed requests.
    pub fn max_in_flight_bytes(&self) -> u64 {
        self.max_in_flight_bytes
    }

    /// Closes the chunks that rows are being written to, and the connection if there is one.
    /// Before a connection is closed, waits at most a second each for inserts and updates with `wait=False`.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Kept { rows, alone } = std::mem::replace(self.kept().get_mut(py)?, Kept::new(self.max_in_flight_bytes));
        rows.iter().try_for_each(|rows| rows.close(py))?;
        let deadline = Deadline::from_timeout(Some(1.0))?;
        if !matches!(self.reach, Reach::Here { .. }) {
            alone.inserts.flush(py, deadline, |_| String::new())?;
            alone.updates.flush(py, deadline, |_| String::new())?;
        }
        match &self.reach {
            Reach::Here { .. } => Ok(()),
            Reach::There(connection) => connection.close(py),
            Reach::Several(several) => several.close(py),
        }
    }

    /// How the tables are reached.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The deadline of a call: its own `timeout=`, or else the client's.
    pub fn deadline(&self, timeout: Option<f64>) -> PyResult<Deadline> {
        Deadline::from_timeout(self.or_own(timeout))
    }

    /// A call's `timeout=`, or else the client's.
    pub fn or_own(&self, timeout: Option<f64>) -> Option<f64> {
        timeout.or(self.timeout)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Live<Kept>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.here() {
            *kept = Live::new(Kept::new(self.max_in_flight_bytes), "client");
        }
        kept
    }

    /// The requests that no caller waits for.
    pub fn alone(&self, py: Python<'_>) -> PyResult<Arc<Alone>> {
        Ok(Arc::clone(&self.kept().get(py)?.alone))
    }

    /// Stores a single step for a table; returns its item.
    #[inline]
    pub fn append(&self, py: Python<'_>, replay: &Reached<'_>, table: &str, data: &Bound<'_, PyAny>) -> PyResult<Item> {
        let known = {
            let mut kept = self.kept();
            let rows = kept.get_mut(py)?.rows.iter().find(|rows| rows.serves(table, false));
            rows.map(|rows| caught(|| rows.append_known(data)))
        };
        if let Some(item) = known.map_or(Ok(None), |known| raised(py, known))? {
            return Ok(item);
        }
        let (items, ..) = self.rows(py, replay, table, false)?.append(py, data)?;
        Ok(items.into_iter().next().expect("one row makes one item"))
    }

    /// The row writer for a table.
    pub fn rows(&self, py: Python<'_>, replay: &Reached<'_>, table: &str, batched: bool) -> PyResult<Arc<Rows>> {
        let mut kept = self.kept();
        let known = &mut kept.get_mut(py)?.rows;
        if let Some(rows) = known.iter().find(|rows| rows.serves(table, batched)) {
            return Ok(Arc::clone(rows));
        }
        let sibling = known.iter().find(|rows| rows.serves(table, !batched));
        let rows = quick(py, || Rows::new(replay.shared(), table, batched, sibling.map(|rows| &**rows)))?;
        known.push(Arc::new(rows));
        Ok(Arc::clone(&known[known.len() - 1]))
    }
}
