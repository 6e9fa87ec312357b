//! What a client does: every method parses, enters the engine through the gate, and wraps what comes back.

use crate::array::{column, numbers};
use crate::checkpoint;
use crate::count::Count;
use crate::enter::{Deadline, Late, copying, detached, finish, late, quick};
use crate::rows::{Priorities, Rows, priority};
use crate::sampler::{Batcher, Reading};
use crate::server::{Server, change, info_dict, why_dict};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use reverie_core::sample::{Draws, MAX_SAMPLES, SampleRequest, Source};
use reverie_core::table::{Inserts, Priority, SharedTable, Tables, Updated};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A client of tables in this process. `reverie.Client` is its subclass, and documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "Client")]
pub struct Client {
    server: Py<Server>,
    timeout: Option<f64>,
    batcher: Batcher,
    rows: Mutex<Vec<Arc<Rows>>>,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (server, *, timeout=None))]
    fn new(server: Py<Server>, timeout: Option<f64>) -> PyResult<Self> {
        Deadline::from_timeout(timeout)?;
        Ok(Self { server, timeout, batcher: Batcher::default(), rows: Mutex::new(Vec::new()) })
    }

    /// The default of `timeout=`, in seconds; None waits.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.timeout
    }

    /// Takes a checkpoint of all tables; where it is.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<String> {
        checkpoint::save(py, self.server.get())
    }

    /// Inserts one step into one or more tables; its bytes are stored once.
    #[pyo3(signature = (data, priorities, *, timeout=None))]
    fn insert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyDict>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = self.deadline(timeout)?;
        let tables = self.tables(py)?;
        let mut targets: SmallVec<[(&Arc<SharedTable>, Priority); 2]> = SmallVec::new();
        for (name, value) in priorities.iter() {
            let Ok(name) = name.cast::<PyString>() else {
                return Err(PyTypeError::new_err(format!("a table's name must be a str, got {}", name.repr()?)));
            };
            let name = name.to_str()?;
            targets.push((quick(py, || tables.get(name))?, priority(&value)?));
        }
        let Some((first, _)) = targets.first() else {
            return Err(PyValueError::new_err("priorities must name at least one table"));
        };
        let rows = self.rows(py, first, false)?;
        let (items, _) = rows.append(py, data)?;
        let item = items.into_iter().next().expect("one row makes one item");
        if targets.len() > 1 {
            // All or nothing: what one table refuses goes into none.
            for (table, priority) in &targets {
                quick(py, || table.check(&[(item.clone(), *priority)]))?;
            }
        }
        let mut waiting: SmallVec<[_; 2]> = SmallVec::new();
        let mut item = Some(item);
        for (index, (table, priority)) in targets.iter().enumerate() {
            let last = index + 1 == targets.len();
            let item = if last { item.take() } else { item.clone() };
            let inserts: Inserts = item.map(|item| (item, *priority)).into_iter().collect();
            let mut ticket = quick(py, || table.insert(inserts))?;
            match ticket.poll() {
                Some(done) => quick(py, || done.map(drop))?,
                None => waiting.push((*table, ticket)),
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        for (table, ticket) in waiting {
            if let Err(left) = finish(py, ticket, deadline.after(start.elapsed()), || table.why().to_string())? {
                return Err(late(py, "insert", &left.why, |_| Ok(())));
            }
        }
        Ok(())
    }

    /// Inserts rows, each an item of its own; returns their keys.
    #[pyo3(signature = (table, data, priorities=None, *, timeout=None))]
    fn insert_batch<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        data: &Bound<'py, PyAny>,
        priorities: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let deadline = self.deadline(timeout)?;
        let table = self.table(py, table)?;
        let rows = self.rows(py, table, true)?;
        let (items, count) = rows.append(py, data)?;
        let inserts: Inserts = match Priorities::read(priorities, count)? {
            Priorities::Same(priority) => items.into_iter().map(|item| (item, priority)).collect(),
            Priorities::Each(values) => {
                let values = values.as_slice().iter().map(|value| Priority::Value(*value));
                items.into_iter().zip(values).collect()
            }
        };
        let ticket = copying(py, count << 8, || table.insert(inserts))?;
        match finish(py, ticket, deadline, || table.why().to_string())? {
            Ok(keys) => column(py, &keys, |key| key.get()),
            Err(left) => Err(late(py, "insert_batch", &left.why, |with| {
                with.set_item("partial", column(py, &left.done, |key| key.get())?)
            })),
        }
    }

    /// Draws items and gathers them into one array per column.
    #[pyo3(signature = (table, batch_size, *, timeout=None, columns=None, ragged=None, without_replacement=false))]
    #[allow(clippy::too_many_arguments)]
    fn sample_batch<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        batch_size: Count,
        timeout: Option<f64>,
        columns: Option<Vec<String>>,
        ragged: Option<&str>,
        without_replacement: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reading = Reading::new(columns, ragged)?;
        let num_samples = batch_size.within("batch_size", 1, MAX_SAMPLES)?;
        let request = SampleRequest { num_samples, without_replacement };
        match self.draw(py, table, request, self.deadline(timeout)?)? {
            Ok(mut draws) => self.batcher.batch_or_singles(py, &mut draws, &reading),
            Err(left) => Err(self.late_draws(py, left, &reading)?),
        }
    }

    /// Draws what can be drawn at once, at least one and at most `at_most`: one batch for each run of items that
    /// look alike, and whether they are single steps.
    #[pyo3(signature = (table, at_most, *, timeout=None))]
    fn _sample_some<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        at_most: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
        let request = |num_samples| SampleRequest { num_samples, without_replacement: false };
        let at_once = self.draw(py, table, request(at_most), Deadline::from_timeout(Some(0.0))?)?;
        let mut draws = at_once.unwrap_or_else(|left| left.done);
        let reading = Reading::new(None, None)?;
        if draws.is_empty() {
            draws = match self.draw(py, table, request(1), self.deadline(timeout)?)? {
                Ok(draws) => draws,
                Err(left) => return Err(self.late_draws(py, left, &reading)?),
            };
        }
        let mut batches = Vec::new();
        while !draws.is_empty() {
            let first = draws.items[0].pattern.clone();
            let alike = draws.items.iter().take_while(|item| item.pattern.same(&first)).count();
            let (rest, timestep) = (draws.split_off(alike), first.timestep);
            batches.push((self.batcher.batch(py, &mut std::mem::replace(&mut draws, rest), &reading)?, timestep));
        }
        Ok(batches)
    }

    /// Sets priorities; keys of items that are gone are counted as stale.
    #[pyo3(signature = (table, keys, priorities, *, if_version=None))]
    fn update_priorities<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = self.table(py, table)?;
        let (keys, priorities) = (numbers::<i64>(keys, "keys")?, numbers::<f64>(priorities, "priorities")?);
        let (keys, priorities) = (keys.as_slice(), priorities.as_slice());
        let versions: Option<Vec<u32>> = match if_version {
            None => None,
            Some(versions) => {
                // A version that no item can have stays one that no item has.
                let versions = numbers::<i64>(versions, "if_version")?;
                Some(versions.as_slice().iter().map(|v| u32::try_from(*v).unwrap_or(u32::MAX)).collect())
            }
        };
        let updated = copying(py, keys.len() << 6, || table.update(keys, priorities, versions.as_deref()))?;
        update_result(py, updated)
    }

    /// Deletes, then updates; the results in the order (updates, deletes).
    fn _mutate<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        deletes: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let table = self.table(py, table)?;
        let (keys, priorities) = (numbers::<i64>(keys, "updates")?, numbers::<f64>(priorities, "updates")?);
        let deletes = numbers::<i64>(deletes, "deletes")?;
        let (keys, priorities, deletes) = (keys.as_slice(), priorities.as_slice(), deletes.as_slice());
        let bytes = (keys.len() + deletes.len()) << 6;
        let (updated, deleted) = copying(py, bytes, || table.mutate((keys, priorities), None, deletes))?;
        Ok((update_result(py, updated)?, update_result(py, deleted)?))
    }

    /// Reads items by their keys.
    #[pyo3(signature = (table, keys, *, columns=None, ragged=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        keys: &Bound<'py, PyAny>,
        columns: Option<Vec<String>>,
        ragged: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reading = Reading::new(columns, ragged)?;
        let (table, keys) = (self.table(py, table)?, numbers::<i64>(keys, "keys")?);
        let keys = keys.as_slice();
        let mut draws = copying(py, keys.len() << 7, || table.get(keys))?;
        self.batcher.batch(py, &mut draws, &reading)
    }

    /// Drops all items of a table and starts its counts anew.
    fn reset(&self, py: Python<'_>, table: &str) -> PyResult<()> {
        let table = self.table(py, table)?;
        detached(py, || table.reset())
    }

    /// Changes limits of a running table.
    #[pyo3(signature = (table, *, max_size=None, rate_limiter=None, max_times_sampled=None))]
    fn configure(
        &self,
        py: Python<'_>,
        table: &str,
        max_size: Option<Count>,
        rate_limiter: Option<&Bound<'_, PyAny>>,
        max_times_sampled: Option<Count>,
    ) -> PyResult<()> {
        let change = change(max_size, rate_limiter, max_times_sampled)?;
        let table = self.table(py, table)?;
        detached(py, || table.configure(change))
    }

    /// True where the limiter would let so many samples go on now.
    #[pyo3(signature = (table, num_samples=Count::of(1)), text_signature = "($self, table, num_samples=1)")]
    fn can_sample(&self, py: Python<'_>, table: &str, num_samples: Count) -> PyResult<bool> {
        let num_samples = num_samples.at_least("num_samples", 0)? as u64;
        let table = self.table(py, table)?;
        quick(py, || Ok(table.can_sample(num_samples)))
    }

    /// True where the limiter would let so many inserts go on now.
    #[pyo3(signature = (table, num_inserts=Count::of(1)), text_signature = "($self, table, num_inserts=1)")]
    fn can_insert(&self, py: Python<'_>, table: &str, num_inserts: Count) -> PyResult<bool> {
        let num_inserts = num_inserts.at_least("num_inserts", 0)? as u64;
        let table = self.table(py, table)?;
        quick(py, || Ok(table.can_insert(num_inserts)))
    }

    /// Closes the chunks that rows are being written to.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        let rows = std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner));
        rows.iter().try_for_each(|rows| rows.close(py))
    }

    /// The figures of every table, by name; under the empty name the server's bytes and their bound.
    fn _info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for table in self.tables(py)?.iter() {
            dict.set_item(table.name(), info_dict(py, &quick(py, || Ok(table.info()))?)?)?;
        }
        let (meter, max_bytes) = self.tables(py)?.bytes();
        dict.set_item("", (meter.live_bytes(), max_bytes))?;
        Ok(dict)
    }

    fn _why<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let table = self.table(py, table)?;
        why_dict(py, &quick(py, || Ok(table.why()))?)
    }
}

impl Client {
    /// The tables behind the client.
    pub fn tables<'a>(&'a self, py: Python<'a>) -> PyResult<&'a Arc<Tables>> {
        self.server.get().tables(py)
    }

    /// The table of that name.
    pub fn table<'a>(&'a self, py: Python<'a>, name: &str) -> PyResult<&'a Arc<SharedTable>> {
        let tables = self.tables(py)?;
        quick(py, || tables.get(name))
    }

    /// The deadline of a call: its own `timeout=`, or else the client's.
    pub fn deadline(&self, timeout: Option<f64>) -> PyResult<Deadline> {
        Deadline::from_timeout(timeout.or(self.timeout))
    }

    fn draw(
        &self,
        py: Python<'_>,
        table: &str,
        request: SampleRequest,
        deadline: Deadline,
    ) -> PyResult<Result<Draws, Late<Draws>>> {
        let tables = self.tables(py)?;
        let ticket = copying(py, request.num_samples << 8, || tables.sample(table, request))?;
        finish(py, ticket, deadline, || tables.get(table).map_or_else(|e| e.to_string(), |t| t.why().to_string()))
    }

    fn late_draws(&self, py: Python<'_>, left: Late<Draws>, reading: &Reading) -> PyResult<PyErr> {
        let Late { mut done, why } = left;
        let partial = if done.is_empty() { None } else { Some(self.batcher.batch_or_singles(py, &mut done, reading)?) };
        Ok(late(py, "sample", &why, |with| with.set_item("partial", partial)))
    }

    /// The rows on their way into a table.
    fn rows(&self, py: Python<'_>, table: &Arc<SharedTable>, batched: bool) -> PyResult<Arc<Rows>> {
        let mut known = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = known.iter().find(|rows| rows.serves(table, batched)) {
            return Ok(Arc::clone(rows));
        }
        let sibling = known.iter().find(|rows| rows.serves(table, !batched));
        let sink = Arc::clone(self.tables(py)?) as _;
        let rows = Arc::new(Rows::new(sink, table, batched, sibling.map(|rows| &**rows)));
        known.push(Arc::clone(&rows));
        Ok(rows)
    }
}

fn update_result(py: Python<'_>, updated: Updated) -> PyResult<Bound<'_, PyAny>> {
    static RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    RESULT.import(py, "reverie.types", "UpdateResult")?.call1((updated.applied, updated.stale))
}
