//! The methods of a client: each parses, enters the engine through the gate, and wraps the result.

use crate::batch::Batcher;
use crate::checkpoint;
use crate::count::Count;
use crate::enter::{Deadline, Live, caught, detached, quick, raised};
use crate::reach::{Connection, Reach, TlsFiles, answer, options};
use crate::reading::{Columns, Reading, WindowsArgument};
use crate::rows::Rows;
use crate::server::{Server, change};
use crate::unwatched::{Alone, IN_FLIGHT_BYTES};
use crate::{drawing, figures, inserts, query, updates};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::item::Item;
use reverie_core::replay::Replay;
use reverie_core::sample::{MAX_SAMPLES, SampleRequest};
use std::sync::{Arc, Mutex, PoisonError};

/// A client of tables in this process or over a network. `reverie.Client` is its subclass, and documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "Client")]
pub struct Client {
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

#[pymethods]
impl Client {
    /// A client of a server in this process, or of an address.
    #[new]
    #[pyo3(signature = (server=None, *, timeout=None, address=None, transport="auto", token=None, tls=None,
        patience=10.0, grace=0.05, max_in_flight_bytes=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        server: Option<Py<Server>>,
        timeout: Option<f64>,
        address: Option<String>,
        transport: &str,
        token: Option<String>,
        tls: Option<TlsFiles>,
        patience: f64,
        grace: f64,
        max_in_flight_bytes: Option<Count>,
    ) -> PyResult<Self> {
        Deadline::from_timeout(timeout)?;
        let bytes = max_in_flight_bytes.map(|count| count.at_least("max_in_flight_bytes", 1)).transpose()?;
        let max_in_flight_bytes = bytes.unwrap_or(IN_FLIGHT_BYTES) as u64;
        let reach = match (server, address) {
            (Some(server), _) => Reach::Here(server),
            (None, Some(address)) => Reach::There(Box::new(Connection::new(
                py,
                options(address, transport, token, tls, (patience, grace))?,
            )?)),
            (None, None) => return Err(PyTypeError::new_err("a client needs a server or an address")),
        };
        let kept = Mutex::new(Live::new(Kept::new(max_in_flight_bytes), "client"));
        Ok(Self { reach, timeout, max_in_flight_bytes, batcher: Batcher::default(), kept })
    }

    #[doc = stub!("Client.timeout")]
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.timeout
    }

    #[doc = stub!("Client.max_in_flight_bytes")]
    #[getter]
    pub fn max_in_flight_bytes(&self) -> u64 {
        self.max_in_flight_bytes
    }

    #[doc = stub!("Client.checkpoint")]
    #[pyo3(signature = (*, timeout=None))]
    fn checkpoint(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        checkpoint::take(self, py, self.deadline(timeout)?)
    }

    #[doc = stub!("Client.insert")]
    #[pyo3(signature = (data, priorities, *, timeout=None))]
    fn insert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyDict>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        inserts::step(self, py, data, priorities, timeout)
    }

    #[doc = stub!("Client.insert_batch")]
    #[pyo3(signature = (table, data, priorities=None, *, timeout=None, wait=true))]
    fn insert_batch<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        data: &Bound<'py, PyAny>,
        priorities: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        wait: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        inserts::batch(self, py, table, (data, priorities), timeout, wait)
    }

    #[doc = stub!("Client.flush")]
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        inserts::flush(self, py, timeout)
    }

    #[doc = stub!("Client.sample_batch")]
    #[pyo3(signature = (table, batch_size, *, timeout=None, columns=None, ragged=None, without_replacement=false))]
    #[allow(clippy::too_many_arguments)]
    fn sample_batch<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        batch_size: Count,
        timeout: Option<f64>,
        columns: Option<Columns>,
        ragged: Option<&str>,
        without_replacement: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reading = Reading::new(columns, ragged)?;
        let num_samples = batch_size.within("batch_size", 1, MAX_SAMPLES)?;
        drawing::batch(
            self,
            py,
            table,
            SampleRequest { num_samples, without_replacement, ..SampleRequest::default() },
            &reading,
            timeout,
        )
    }

    /// Draws windows of items.
    fn _sample_windows<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        batch_size: Count,
        windows: WindowsArgument,
        timeout: Option<f64>,
        columns: Option<Columns>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (num_samples, windows) = (batch_size.within("batch_size", 1, MAX_SAMPLES)?, Some(windows.0));
        let request = SampleRequest { num_samples, windows, ..SampleRequest::default() };
        drawing::batch(self, py, table, request, &Reading::new(columns, None)?, timeout)
    }

    /// Draws what can be drawn at once, at least one and at most `at_most`.
    /// Returns one batch for each run of items of the same form, with whether its items are single steps.
    #[pyo3(signature = (table, at_most, *, timeout=None))]
    fn _sample_some<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        at_most: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        drawing::some(self, py, table, at_most, timeout)
    }

    #[doc = stub!("Client.update_priorities")]
    #[pyo3(signature = (table, keys, priorities, *, if_version=None, neighbours=None, timeout=None, wait=true))]
    #[allow(clippy::too_many_arguments)]
    fn update_priorities<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
        neighbours: Option<(Count, f64)>,
        timeout: Option<f64>,
        wait: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let deadline = self.deadline(timeout)?;
        updates::update(self, py, table, (keys, priorities), (if_version, neighbours), deadline, wait)
    }

    /// Deletes, then updates; returns the results of (updates, deletes).
    fn _mutate<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        deletes: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        updates::mutate(self, py, table, (keys, priorities), deletes, self.deadline(timeout)?)
    }

    #[doc = stub!("Client.query")]
    #[pyo3(signature = (table, r#where=None, *, limit=None, order=None, timeout=None))]
    fn query<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        r#where: Option<&Bound<'py, PyAny>>,
        limit: Option<Count>,
        order: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        query::query(self, py, table, r#where, (limit, order), self.deadline(timeout)?)
    }

    /// Deletes items for which all conditions hold, among those with these keys or among all.
    fn _delete_where<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: Option<&Bound<'py, PyAny>>,
        conditions: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        query::delete_where(self, py, table, keys, conditions, self.deadline(timeout)?)
    }

    #[doc = stub!("Client.get")]
    #[pyo3(signature = (table, keys, *, columns=None, ragged=None, timeout=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        columns: Option<Columns>,
        ragged: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drawing::get(self, py, table, keys, &Reading::new(columns, ragged)?, self.deadline(timeout)?)
    }

    #[doc = stub!("Client.reset")]
    #[pyo3(signature = (table, *, timeout=None))]
    fn reset(&self, py: Python<'_>, table: &str, timeout: Option<f64>) -> PyResult<()> {
        let deadline = self.deadline(timeout)?;
        let replay = self.reach.replay(py)?;
        let ticket = detached(py, || Ok(replay.reset(table)))?;
        answer(py, "reset", &*replay, ticket, deadline)
    }

    #[doc = stub!("Client.configure")]
    #[pyo3(signature = (table, *, max_size=None, rate_limiter=None, max_times_sampled=None, timeout=None))]
    fn configure(
        &self,
        py: Python<'_>,
        table: &str,
        max_size: Option<Count>,
        rate_limiter: Option<&Bound<'_, PyAny>>,
        max_times_sampled: Option<Count>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = self.deadline(timeout)?;
        let change = change(max_size, rate_limiter, max_times_sampled)?;
        let replay = self.reach.replay(py)?;
        let ticket = detached(py, || Ok(replay.configure(table, change)))?;
        answer(py, "configure", &*replay, ticket, deadline)
    }

    #[doc = stub!("Client.can_sample")]
    #[pyo3(signature = (table, num_samples=Count::of(1), *, timeout=None),
        text_signature = "($self, table, num_samples=1, *, timeout=None)")]
    fn can_sample(&self, py: Python<'_>, table: &str, num_samples: Count, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = self.deadline(timeout)?;
        let num_samples = num_samples.at_least("num_samples", 0)? as u64;
        let replay = self.reach.replay(py)?;
        let ticket = quick(py, || Ok(replay.can_sample(table, num_samples)))?;
        answer(py, "can_sample", &*replay, ticket, deadline)
    }

    #[doc = stub!("Client.can_insert")]
    #[pyo3(signature = (table, num_inserts=Count::of(1), *, timeout=None),
        text_signature = "($self, table, num_inserts=1, *, timeout=None)")]
    fn can_insert(&self, py: Python<'_>, table: &str, num_inserts: Count, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = self.deadline(timeout)?;
        let num_inserts = num_inserts.at_least("num_inserts", 0)? as u64;
        let replay = self.reach.replay(py)?;
        let ticket = quick(py, || Ok(replay.can_insert(table, num_inserts)))?;
        answer(py, "can_insert", &*replay, ticket, deadline)
    }

    /// Closes the chunks that rows are being written to, and the connection if there is one.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        let Kept { rows, alone } = std::mem::replace(self.kept().get_mut(py)?, Kept::new(self.max_in_flight_bytes));
        rows.iter().try_for_each(|rows| rows.close(py))?;
        let Reach::There(connection) = &self.reach else { return Ok(()) };
        let deadline = Deadline::from_timeout(Some(1.0))?;
        alone.inserts.flush(py, deadline, |_| String::new())?;
        alone.updates.flush(py, deadline, |_| String::new())?;
        connection.close(py)
    }

    /// The figures of every table, by name; the empty name has the server's bytes, their bound, and the connection.
    #[pyo3(signature = (timeout=None))]
    fn _info<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        figures::info(self, py, timeout)
    }

    fn _why<'py>(&self, py: Python<'py>, table: &str, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        figures::why(self, py, table, self.deadline(timeout)?)
    }

    /// The options of the tables, as dicts.
    #[pyo3(signature = (timeout=None))]
    fn _describe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        figures::tables(self, py, self.deadline(timeout)?)
    }
}

impl Client {
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
    pub fn append(
        &self,
        py: Python<'_>,
        replay: &Arc<dyn Replay>,
        table: &str,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Item> {
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
    pub fn rows(&self, py: Python<'_>, replay: &Arc<dyn Replay>, table: &str, batched: bool) -> PyResult<Arc<Rows>> {
        let mut kept = self.kept();
        let known = &mut kept.get_mut(py)?.rows;
        if let Some(rows) = known.iter().find(|rows| rows.serves(table, batched)) {
            return Ok(Arc::clone(rows));
        }
        let sibling = known.iter().find(|rows| rows.serves(table, !batched));
        let rows = quick(py, || Rows::new(Arc::clone(replay) as _, table, batched, sibling.map(|rows| &**rows)))?;
        known.push(Arc::new(rows));
        Ok(Arc::clone(&known[known.len() - 1]))
    }
}
