//! The state of a client: the way to its tables, defaults, and state that it keeps from one call to the next.

use crate::batch::Batcher;
use crate::count::Count;
use crate::enter::{Deadline, catch_panic, into_py_result, quick};
use crate::process_local::ProcessLocal;
use crate::replay_backend::{ReplayBackend, ReplayRef};
use crate::rows::Rows;
use crate::server::Server;
use crate::unawaited::{IN_FLIGHT_BYTES, UnawaitedRequests};
use pyo3::prelude::*;
use reverie_core::item::Item;
use std::sync::{Arc, Mutex, PoisonError};

/// The state that the methods of a client share.
pub struct Handle {
    backend: ReplayBackend,
    timeout: Option<f64>,
    max_in_flight_bytes: u64,
    /// Makes batches of draws.
    pub batcher: Batcher,
    /// Locked under the GIL, and never held while the GIL is released.
    state: Mutex<ProcessLocal<CallState>>,
}

/// The state that is kept from one call to the next; a forked child starts with a new one.
struct CallState {
    rows: Vec<Arc<Rows>>,
    unawaited: Arc<UnawaitedRequests>,
}

impl CallState {
    /// Nothing yet.
    fn new(max_in_flight_bytes: u64) -> Self {
        Self { rows: Vec::new(), unawaited: Arc::new(UnawaitedRequests::new(max_in_flight_bytes)) }
    }
}

impl Handle {
    /// Reaches a server of this process, or else what `connect` makes.
    pub fn new(
        py: Python<'_>,
        server: Option<Py<Server>>,
        (timeout, max_in_flight_bytes): (Option<f64>, Option<Count>),
        connect: impl FnOnce(Python<'_>) -> PyResult<ReplayBackend>,
    ) -> PyResult<Self> {
        Deadline::from_timeout(timeout)?;
        let bytes = max_in_flight_bytes.map(|count| count.at_least("max_in_flight_bytes", 1)).transpose()?;
        let max_in_flight_bytes = bytes.unwrap_or(IN_FLIGHT_BYTES) as u64;
        let backend = match server {
            Some(server) => ReplayBackend::local(py, server)?,
            None => connect(py)?,
        };
        let state = Mutex::new(ProcessLocal::new(CallState::new(max_in_flight_bytes), "client"));
        Ok(Self { backend, timeout, max_in_flight_bytes, batcher: Batcher::default(), state })
    }

    /// The most bytes of unconfirmed requests.
    pub fn max_in_flight_bytes(&self) -> u64 {
        self.max_in_flight_bytes
    }

    /// Closes the chunks that rows are being written to, and the connection if there is one.
    /// Before a connection is closed, waits at most a second each for inserts and updates with `wait=False`.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let CallState { rows, unawaited } =
            std::mem::replace(self.state().get_mut(py)?, CallState::new(self.max_in_flight_bytes));
        rows.iter().try_for_each(|rows| rows.close(py))?;
        let deadline = Deadline::from_timeout(Some(1.0))?;
        if !matches!(self.backend, ReplayBackend::Local { .. }) {
            unawaited.inserts.flush(py, deadline, |_| String::new())?;
            unawaited.updates.flush(py, deadline, |_| String::new())?;
        }
        match &self.backend {
            ReplayBackend::Local { .. } => Ok(()),
            ReplayBackend::Remote(connection) => connection.close(py),
            ReplayBackend::Several(several) => several.close(py),
        }
    }

    /// The backend through which the tables are reached.
    pub fn backend(&self) -> &ReplayBackend {
        &self.backend
    }

    /// The deadline of a call: its own `timeout=`, or else the client's.
    pub fn deadline(&self, timeout: Option<f64>) -> PyResult<Deadline> {
        Deadline::from_timeout(self.timeout_or_default(timeout))
    }

    /// A call's `timeout=`, or else the client's.
    pub fn timeout_or_default(&self, timeout: Option<f64>) -> Option<f64> {
        timeout.or(self.timeout)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ProcessLocal<CallState>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.here() {
            *state = ProcessLocal::new(CallState::new(self.max_in_flight_bytes), "client");
        }
        state
    }

    /// The requests that no caller waits for.
    pub fn unawaited(&self, py: Python<'_>) -> PyResult<Arc<UnawaitedRequests>> {
        Ok(Arc::clone(&self.state().get(py)?.unawaited))
    }

    /// Stores a single step for a table; returns its item.
    #[inline]
    pub fn append(
        &self,
        py: Python<'_>,
        replay: &ReplayRef<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Item> {
        let known = {
            let mut state = self.state();
            let rows = state.get_mut(py)?.rows.iter().find(|rows| rows.serves(table, false));
            rows.map(|rows| catch_panic(py, || rows.append_known(data)))
        };
        if let Some(item) = known.map_or(Ok(None), |known| into_py_result(py, known))? {
            return Ok(item);
        }
        let (items, ..) = self.rows(py, replay, table, false)?.append(py, data)?;
        Ok(items.into_iter().next().expect("one row makes one item"))
    }

    /// The row writer for a table.
    pub fn rows(&self, py: Python<'_>, replay: &ReplayRef<'_>, table: &str, batched: bool) -> PyResult<Arc<Rows>> {
        let mut state = self.state();
        let known = &mut state.get_mut(py)?.rows;
        if let Some(rows) = known.iter().find(|rows| rows.serves(table, batched)) {
            return Ok(Arc::clone(rows));
        }
        let sibling = known.iter().find(|rows| rows.serves(table, !batched));
        let rows = quick(py, || Rows::new(replay.shared(), table, batched, sibling.map(|rows| &**rows)))?;
        known.push(Arc::new(rows));
        Ok(Arc::clone(&known[known.len() - 1]))
    }
}
