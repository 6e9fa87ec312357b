//! The methods of a client: each parses, enters the engine through the gate, and wraps the result.

use crate::array::Slab;
use crate::checkpoint;
use crate::count::Count;
use crate::enter::{Deadline, detached, quick};
use crate::handle::Handle;
use crate::placing::{at, place};
use crate::read_options::{ColumnPaths, ReadOptions, WindowsArgument};
use crate::replay_backend::{Connection, ShardedConnection, TlsFiles, answer, options};
use crate::server::{Server, change, limiter};
use crate::{drawing, figures, inserts, query, replay_backend, updates};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::sample::{MAX_SAMPLES, SampleRequest};
use reverie_net::sharded::{Shard, ShardedOptions};
use std::time::Instant;

/// A client of tables in this process, over a network, or on several servers.
/// `reverie.Client` is its subclass, and documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "Client")]
pub struct Client {
    handle: Handle,
    /// A client of each server, if there are several.
    shards: Vec<Py<Client>>,
}

/// Clients of several servers, the servers' names, the limits over all of them, `among`, and the seed.
type ShardsArgument<'py> = (Vec<Py<Client>>, Vec<String>, Option<Bound<'py, PyAny>>, (usize, usize), u64);

#[pymethods]
impl Client {
    /// A client of a server in this process, of an address, or of several servers.
    #[new]
    #[pyo3(signature = (server=None, *, timeout=None, address=None, shards=None, transport="auto", token=None, tls=None,
        patience=10.0, grace=0.05, max_in_flight_bytes=None, max_kept_bytes=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        server: Option<Py<Server>>,
        timeout: Option<f64>,
        address: Option<String>,
        shards: Option<ShardsArgument<'_>>,
        transport: &str,
        token: Option<String>,
        tls: Option<TlsFiles>,
        patience: f64,
        grace: f64,
        max_in_flight_bytes: Option<Count>,
        max_kept_bytes: Option<Count>,
    ) -> PyResult<Self> {
        let children = shards
            .as_ref()
            .map_or_else(Vec::new, |(clients, ..)| clients.iter().map(|client| client.clone_ref(py)).collect());
        let handle = Handle::new(py, server, (timeout, max_in_flight_bytes), |py| {
            if let Some(shards) = shards {
                return Self::several(py, shards, timeout).map(Into::into);
            }
            let address = address.ok_or_else(|| PyTypeError::new_err("a client needs a server or an address"))?;
            let options = options(address, transport, token, tls, (patience, grace), max_kept_bytes)?;
            Connection::new(py, options).map(Into::into)
        })?;
        Ok(Self { handle, shards: children })
    }

    #[doc = stub!("Client.timeout")]
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.handle.timeout_or_default(None)
    }

    #[doc = stub!("Client.max_in_flight_bytes")]
    #[getter]
    fn max_in_flight_bytes(&self) -> u64 {
        self.handle.max_in_flight_bytes()
    }

    #[doc = stub!("Client.checkpoint")]
    #[pyo3(signature = (*, timeout=None))]
    fn checkpoint<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let mut paths = checkpoint::take(&self.handle, py, self.handle.deadline(timeout)?)?;
        if self.shards.is_empty() { paths.pop().into_bound_py_any(py) } else { paths.into_bound_py_any(py) }
    }

    #[doc = stub!("Client.insert")]
    #[pyo3(signature = (data, priorities, *, timeout=None, shard=None))]
    fn insert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyDict>,
        timeout: Option<f64>,
        shard: Option<Count>,
    ) -> PyResult<()> {
        if self.shards.is_empty() && shard.is_none() {
            return inserts::step(&self.handle, py, data, priorities, timeout);
        }
        let tables = inserts::tables(priorities);
        let tables: Vec<_> = tables.iter().map(String::as_str).collect();
        at(&self.handle, &self.shard(), py, (shard, &tables, 1), timeout, |client, timeout| {
            inserts::step(client, py, data, priorities, timeout)
        })
    }

    #[doc = stub!("Client.insert_batch")]
    #[pyo3(signature = (table, data, priorities=None, *, timeout=None, wait=true, shard=None))]
    #[allow(clippy::too_many_arguments)]
    fn insert_batch<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        data: &Bound<'py, PyAny>,
        priorities: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        wait: bool,
        shard: Option<Count>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = if self.shards.is_empty() { 0 } else { inserts::num_rows(data)? };
        at(&self.handle, &self.shard(), py, (shard, &[table], rows), timeout, |client, timeout| {
            inserts::batch(client, py, table, (data, priorities), timeout, wait)
        })
    }

    #[doc = stub!("Client.flush")]
    #[pyo3(signature = (timeout=None, *, durable=false))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>, durable: bool) -> PyResult<()> {
        let (deadline, since) = (self.handle.deadline(timeout)?, Instant::now());
        inserts::flush(&self.handle, py, deadline)?;
        let mut shards = self.shards.iter();
        shards.try_for_each(|shard| inserts::flush(&shard.get().handle, py, deadline.after(since.elapsed())))?;
        if !durable {
            return Ok(());
        }
        let left = || deadline.after(since.elapsed());
        replay_backend::durable(py, &*self.handle.backend().known(py, left())?, left())
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
        columns: Option<ColumnPaths>,
        ragged: Option<&str>,
        without_replacement: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let read_options = ReadOptions::new(columns, ragged)?;
        let num_samples = batch_size.within("batch_size", 1, MAX_SAMPLES)?;
        drawing::batch(
            &self.handle,
            py,
            table,
            SampleRequest { num_samples, without_replacement, ..SampleRequest::default() },
            &read_options,
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
        columns: Option<ColumnPaths>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (num_samples, windows) = (batch_size.within("batch_size", 1, MAX_SAMPLES)?, Some(windows.0));
        let request = SampleRequest { num_samples, windows, ..SampleRequest::default() };
        drawing::batch(&self.handle, py, table, request, &ReadOptions::new(columns, None)?, timeout)
    }

    /// Draws what can be drawn at once, at least one and at most `at_most`.
    /// Returns one batch for each run of items of the same form, with whether its items are single steps.
    #[pyo3(signature = (table, at_most, *, timeout=None))]
    fn _sample_available<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        at_most: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        drawing::available(&self.handle, py, table, at_most, timeout)
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
        let deadline = self.handle.deadline(timeout)?;
        updates::update(&self.handle, py, table, (keys, priorities), (if_version, neighbours), deadline, wait)
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
        updates::mutate(&self.handle, py, table, (keys, priorities), deletes, self.handle.deadline(timeout)?)
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
        query::query(&self.handle, py, table, r#where, (limit, order), self.handle.deadline(timeout)?)
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
        query::delete_where(&self.handle, py, table, keys, conditions, self.handle.deadline(timeout)?)
    }

    #[doc = stub!("Client.get")]
    #[pyo3(signature = (table, keys, *, columns=None, ragged=None, timeout=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnPaths>,
        ragged: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drawing::get(&self.handle, py, table, keys, &ReadOptions::new(columns, ragged)?, self.handle.deadline(timeout)?)
    }

    #[doc = stub!("Client.reset")]
    #[pyo3(signature = (table, *, timeout=None))]
    fn reset(&self, py: Python<'_>, table: &str, timeout: Option<f64>) -> PyResult<()> {
        let deadline = self.handle.deadline(timeout)?;
        let replay = self.handle.backend().replay(py)?;
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
        let deadline = self.handle.deadline(timeout)?;
        let change = change(max_size, rate_limiter, max_times_sampled)?;
        let replay = self.handle.backend().replay(py)?;
        let ticket = detached(py, || Ok(replay.configure(table, change)))?;
        answer(py, "configure", &*replay, ticket, deadline)
    }

    #[doc = stub!("Client.can_sample")]
    #[pyo3(signature = (table, num_samples=Count::of(1), *, timeout=None),
        text_signature = "($self, table, num_samples=1, *, timeout=None)")]
    fn can_sample(&self, py: Python<'_>, table: &str, num_samples: Count, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = self.handle.deadline(timeout)?;
        let num_samples = num_samples.at_least("num_samples", 0)? as u64;
        let replay = self.handle.backend().replay(py)?;
        let ticket = quick(py, || Ok(replay.can_sample(table, num_samples)))?;
        answer(py, "can_sample", &*replay, ticket, deadline)
    }

    #[doc = stub!("Client.can_insert")]
    #[pyo3(signature = (table, num_inserts=Count::of(1), *, timeout=None),
        text_signature = "($self, table, num_inserts=1, *, timeout=None)")]
    fn can_insert(&self, py: Python<'_>, table: &str, num_inserts: Count, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = self.handle.deadline(timeout)?;
        let num_inserts = num_inserts.at_least("num_inserts", 0)? as u64;
        let replay = self.handle.backend().replay(py)?;
        let ticket = quick(py, || Ok(replay.can_insert(table, num_inserts)))?;
        answer(py, "can_insert", &*replay, ticket, deadline)
    }

    /// Closes the chunks that rows are being written to, and the connection if there is one.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)?;
        self.shards.iter().try_for_each(|shard| shard.get().handle.close(py))
    }

    /// The number of times that the client has reconnected, and of those to a server that was restarted.
    fn _reconnects(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let link = self.handle.backend().replay(py)?.link();
        Ok(link.map_or((0, 0), |link| (link.reconnects, link.server_restarts)))
    }

    /// Chooses the server of a writer: the given one, or the next of several.
    fn _place(&self, py: Python<'_>, shard: Option<Count>, timeout: Option<f64>) -> PyResult<usize> {
        place(&self.handle, py, (shard, &[], 0), timeout)
    }

    /// Takes note of an exception of a writer at a server.
    fn _failed(&self, py: Python<'_>, shard: usize, error: Bound<'_, PyAny>) -> PyResult<()> {
        self.handle.backend().several().map_or(Ok(()), |several| several.failed(py, shard, &PyErr::from_value(error)))
    }

    /// The figures of every table, of the server's memory, and of the connection; and those of each server of several.
    /// `options`: with the options of each table.
    #[pyo3(signature = (timeout=None, *, options=false))]
    fn _info<'py>(&self, py: Python<'py>, timeout: Option<f64>, options: bool) -> PyResult<Bound<'py, PyDict>> {
        let shards: Vec<_> = self.shards.iter().map(|shard| &shard.get().handle).collect();
        figures::info(&self.handle, &shards, py, timeout, options)
    }

    fn _why<'py>(&self, py: Python<'py>, table: &str, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        figures::why(&self.handle, py, table, self.handle.deadline(timeout)?)
    }

    /// The options of the tables, as dicts.
    #[pyo3(signature = (timeout=None))]
    fn _describe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        figures::tables(&self.handle, py, self.handle.deadline(timeout)?)
    }
}

impl Client {
    /// The state of the client.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
    /// The state of a client that is one of several.
    fn shard<'a>(&'a self) -> impl Fn(usize) -> &'a Handle {
        |shard| &self.shards[shard].get().handle
    }

    /// A client of several servers, made from the clients of each.
    fn several(py: Python<'_>, shards: ShardsArgument<'_>, timeout: Option<f64>) -> PyResult<ShardedConnection> {
        let (clients, names, limits, among, seed) = shards;
        if clients.iter().any(|client| !client.get().shards.is_empty()) {
            return Err(PyValueError::new_err(
                "a client of several servers cannot be one of several: give its addresses",
            ));
        }
        let limiter = limits.map(|limits| limiter(&limits)).transpose()?;
        let options = ShardedOptions { limiter, among, seed, allocate: Slab::memory };
        let reach = move |py: Python<'_>| {
            let shard = |(client, address): (&Py<Client>, &String)| {
                Ok(Shard { replay: client.get().handle.backend().replay(py)?.shared(), address: address.clone() })
            };
            clients.iter().zip(&names).map(shard).collect()
        };
        ShardedConnection::new(py, Box::new(reach), options, Deadline::from_timeout(timeout)?)
    }
}
