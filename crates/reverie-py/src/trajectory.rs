//! Trajectories: steps that may be appended in parts, and items over any kept cells.

use crate::array::{Cell, Leaf, read};
use crate::client::Client;
use crate::column::{HistoryColumn, SharedWriter, TrajectoryColumn};
use crate::count::Count;
use crate::enter::{locked, locked_then, quick};
use crate::errors::{exception, raise, signature};
use crate::intake::CallColumns;
use crate::nest::{Builder, Flattener, refuse_ambiguous};
use crate::rows::priority;
use crate::sending::ItemSender;
use crate::server::compression;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::append::{ColumnCells, ItemColumn, StepWriter, WriterOptions};
use reverie_core::spec::{ColumnSpec, Schema, Structure};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// The engine's side of `reverie.writers.TrajectoryWriter`, which documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "TrajectoryWriter")]
pub struct TrajectoryWriter {
    sending: ItemSender,
    options: WriterOptions,
    /// The chunks and the history.
    steps: SharedWriter,
    /// Used under the GIL only; a second thread is refused.
    forms: Mutex<TrajectoryForms>,
}

/// The forms of nests that the writer has seen.
#[derive(Default)]
struct TrajectoryForms {
    appended: Flattener,
    trajectories: Flattener,
    resolved: Vec<ResolvedForm>,
    /// All appended structures, merged; and the history in this structure, once it was requested.
    merged: Option<Structure>,
    history: Option<Py<PyAny>>,
    closed: bool,
}

/// A form of a step, and its columns in the writer.
struct ResolvedForm {
    structure: Arc<Structure>,
    /// True for every leaf that has a value.
    present: SmallVec<[bool; 8]>,
    specs: Vec<ColumnSpec>,
    columns: Vec<usize>,
}

/// The number of forms of steps that a writer remembers; partial appends alternate between a few.
const REMEMBERED: usize = 8;

#[pymethods]
impl TrajectoryWriter {
    #[new]
    #[pyo3(signature = (client, num_keep_alive_refs, *, chunk_length, compression, max_in_flight_bytes, timeout,
        timesteps=false, alike=false, variable=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        num_keep_alive_refs: Count,
        chunk_length: Option<Count>,
        compression: &str,
        max_in_flight_bytes: Option<Count>,
        timeout: Option<f64>,
        timesteps: bool,
        alike: bool,
        variable: Vec<(String, usize)>,
    ) -> PyResult<Self> {
        let compression = self::compression(compression)?;
        let keep_alive = num_keep_alive_refs.at_least("num_keep_alive_refs", 1)?;
        let chunk_length = chunk_length.map(|count| count.at_least("chunk_length", 1)).transpose()?;
        let options = WriterOptions { keep_alive, chunk_length, compression };
        let sending = ItemSender::new(client.bind(py), max_in_flight_bytes, timeout)?;
        let sink = Arc::clone(sending.replay(py)?);
        let steps = quick(py, || StepWriter::new(sink, options))?.of_variable(variable);
        let steps = if timesteps { steps.of_timesteps() } else { steps };
        let steps = Arc::new(Mutex::new(if alike { steps.of_alike() } else { steps }));
        Ok(Self { sending, options, steps, forms: Mutex::default() })
    }

    #[doc = stub!("TrajectoryWriter.append")]
    #[pyo3(signature = (data, *, partial_step=false))]
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, partial_step: bool) -> PyResult<()> {
        let unconfirmed = self.write(py, data, partial_step, |_| self.sending.unconfirmed())?;
        self.sending.room_after_step(py, unconfirmed)
    }

    /// `append` of a whole step that only writes: it neither waits nor raises errors of items.
    /// Returns the number of steps in the episode. `_make_room` is then due.
    fn _store(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.write(py, data, false, Ok)?.map_err(|error| raise(py, error))
    }

    /// The rest of `append` after `_store`: raises errors of items that were sent, and waits for room.
    fn _make_room(&self, py: Python<'_>) -> PyResult<()> {
        self.sending.room_after_step(py, quick(py, || Ok(self.sending.unconfirmed()))?)
    }

    #[doc = stub!("TrajectoryWriter.history")]
    #[getter]
    fn history(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let mut forms = this.forms.try_lock().map_err(|_| busy())?;
        let Some(merged) = &forms.merged else {
            return Err(PyRuntimeError::new_err("there is no history before the first append"));
        };
        if forms.history.is_none() {
            let columns = merged.paths().into_iter().map(|path| HistoryColumn::new(Arc::clone(&this.steps), path));
            let columns: Vec<Bound<'_, PyAny>> =
                columns.map(|column| Ok(Bound::new(py, column)?.into_any())).collect::<PyResult<_>>()?;
            let nest = Builder::new(py, merged)?.build(py, &mut columns.into_iter())?;
            forms.history = Some(nest.unbind());
        }
        Ok(forms.history.as_ref().map_or_else(|| py.None(), |history| history.clone_ref(py)))
    }

    #[doc = stub!("TrajectoryWriter.create_item")]
    #[pyo3(signature = (table, priority, trajectory))]
    fn create_item(
        &self,
        py: Python<'_>,
        table: &str,
        priority: &Bound<'_, PyAny>,
        trajectory: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.sending.replay(py)?;
        let priority = self::priority(priority)?;
        let mut forms = self.open(py)?;
        let (leaves, nest) = forms.trajectories.flatten(trajectory)?;
        let mut columns: SmallVec<[ItemColumn; 8]> = SmallVec::with_capacity(leaves.len());
        for (index, leaf) in leaves.iter().enumerate() {
            let Ok(column) = leaf.cast::<TrajectoryColumn>() else {
                let of = nest.path(index);
                return Err(PyTypeError::new_err(format!(
                    "{} must be a TrajectoryColumn, a slice of writer.history; got a {}",
                    if of.is_empty() {
                        "the trajectory".to_owned()
                    } else {
                        format!("column '{of}' of the trajectory")
                    },
                    leaf.get_type().name()?
                )));
            };
            let column = column.get();
            if !Arc::ptr_eq(&column.steps, &self.steps) {
                return Err(PyValueError::new_err(format!("column '{}' is of another writer", nest.path(index))));
            }
            columns.push(column.item.clone());
        }
        let structure = &nest.structure;
        self.sending.send_made(py, table, &self.steps, priority, |steps| {
            let item = steps.item(structure, &columns)?;
            let bytes = columns.iter().map(|c| c.cells.len() * steps.cell_bytes(c.column)).sum();
            Ok((item, bytes))
        })
    }

    #[pyo3(signature = (block_until_num_items, timeout, durable=false))]
    fn _flush(
        &self,
        py: Python<'_>,
        block_until_num_items: Count,
        timeout: Option<f64>,
        durable: bool,
    ) -> PyResult<()> {
        self.sending.flush(py, block_until_num_items, timeout, durable)
    }

    fn _end_episode(&self, py: Python<'_>, clear_buffers: bool) -> PyResult<()> {
        drop(self.open(py)?);
        locked(py, &self.steps, 0, |steps| {
            steps.end_episode(clear_buffers);
            Ok(())
        })
    }

    fn _configure(
        &self,
        py: Python<'_>,
        path: &str,
        num_keep_alive_refs: Count,
        max_chunk_length: Option<Count>,
    ) -> PyResult<()> {
        let keep_alive = num_keep_alive_refs.at_least("num_keep_alive_refs", 1)?;
        let chunk_length = max_chunk_length.map(|count| count.at_least("max_chunk_length", 1)).transpose()?;
        let options = WriterOptions { keep_alive, chunk_length, ..self.options };
        locked(py, &self.steps, 0, |steps| steps.configure(path, options))
    }

    /// The seconds that its calls may wait, the client's default included; None means no limit.
    #[getter]
    fn _timeout(&self) -> Option<f64> {
        self.sending.timeout()
    }

    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        self.forms.try_lock().map_err(|_| busy())?.closed = true;
        locked(py, &self.steps, 0, |steps| {
            steps.end_episode(true);
            Ok(())
        })
    }

    #[doc = stub!("TrajectoryWriter.episode_steps")]
    #[getter]
    fn episode_steps(&self, py: Python<'_>) -> PyResult<u64> {
        locked(py, &self.steps, 0, |steps| Ok(steps.episode_steps()))
    }

    #[doc = stub!("TrajectoryWriter.step_is_open")]
    #[getter]
    fn step_is_open(&self, py: Python<'_>) -> PyResult<bool> {
        locked(py, &self.steps, 0, |steps| Ok(steps.step_is_open()))
    }

    /// The history references its writer.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        match self.forms.try_lock() {
            Ok(forms) => visit.call(&forms.history),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Ok(mut forms) = self.forms.try_lock() {
            forms.history = None;
        }
    }

    #[doc = stub!("TrajectoryWriter.num_in_flight")]
    #[getter]
    fn num_in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.sending.num_in_flight(py)
    }
}

impl TrajectoryWriter {
    /// Writes a step, or a part of one. The outer error means that nothing was written; `then` gets the number of steps
    /// in the episode, and runs in the same entry.
    fn write<T: Send>(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        partial_step: bool,
        then: impl FnOnce(u64) -> Result<T> + Send,
    ) -> PyResult<Result<T>> {
        self.sending.replay(py)?;
        let mut forms = self.open(py)?;
        let TrajectoryForms { appended, resolved, merged, history, .. } = &mut *forms;
        let (leaves, nest) = appended.flatten(data)?;
        let present: SmallVec<[bool; 8]> = leaves.iter().map(|leaf| !leaf.is_none()).collect();
        let known = resolved.iter().position(|known| {
            (Arc::ptr_eq(&known.structure, &nest.structure) || known.structure == nest.structure)
                && known.present == present
        });
        let mut cells: SmallVec<[Cell<'_>; 8]> = SmallVec::new();
        if let Some(at) = known {
            resolved[..=at].rotate_right(1);
            for (leaf, spec) in leaves.iter().filter(|leaf| !leaf.is_none()).zip(&resolved[0].specs) {
                let Some(cell) = Cell::known(leaf, spec, None) else { break };
                cells.push(cell);
            }
        }
        if known.is_none_or(|_| cells.len() < resolved[0].specs.len()) {
            let known = known.map(|_| &resolved[0]);
            let mut read_leaves: SmallVec<[Leaf<'_>; 8]> = SmallVec::with_capacity(leaves.len());
            for (index, leaf) in leaves.iter().enumerate().filter(|(index, _)| present[*index]) {
                let want = known.map(|known| known.specs[read_leaves.len()].dtype);
                read_leaves.push(read(leaf, want, &|| nest.path(index))?);
            }
            let fits = |known: &ResolvedForm| {
                let mut pairs = known.specs.iter().zip(&read_leaves);
                pairs.all(|(spec, leaf)| spec.dtype == leaf.dtype && spec.shape[..] == leaf.shape[..])
            };
            if !known.is_some_and(fits) {
                let made = self.resolve(py, &nest.structure, present, &read_leaves)?;
                let all = match merged.as_ref() {
                    None => (*made.structure).clone(),
                    Some(before) => before
                        .merged(&made.structure, &|path| self.has(path))
                        .map_err(|path| signature(py, &path, "another structure", "that of the steps before"))?,
                };
                if merged.as_ref() != Some(&all) {
                    refuse_ambiguous(py, &all)?;
                    (*merged, *history) = (Some(all), None);
                }
                if known.is_some() {
                    resolved.remove(0); // Cells of other sizes: the latest ones are expected again.
                }
                resolved.truncate(REMEMBERED - 1);
                resolved.insert(0, made);
            }
            cells = read_leaves.into_iter().map(|leaf| leaf.cell).collect();
        }
        let columns = &resolved[0].columns[..];
        let cells: CallColumns<'_> =
            cells.iter().map(|cell| ColumnCells { itemsize: cell.itemsize, bytes: cell.bytes() }).collect();
        let bytes = cells.iter().map(|cells| cells.bytes.len()).sum();
        let append = |steps: &mut StepWriter| {
            steps.append(columns, &cells, partial_step)?;
            Ok(steps.episode_steps())
        };
        locked_then(py, &self.steps, bytes, append, |steps| Ok(then(steps)))
    }

    fn open(&self, py: Python<'_>) -> PyResult<std::sync::MutexGuard<'_, TrajectoryForms>> {
        let forms = self.forms.try_lock().map_err(|_| busy())?;
        if forms.closed {
            return Err(closed(py));
        }
        Ok(forms)
    }

    fn has(&self, path: &str) -> bool {
        self.steps.lock().is_ok_and(|steps| steps.column(path).is_some())
    }

    fn resolve(
        &self,
        py: Python<'_>,
        structure: &Arc<Structure>,
        present: SmallVec<[bool; 8]>,
        cells: &[Leaf<'_>],
    ) -> PyResult<ResolvedForm> {
        let paths = structure.paths().into_iter().zip(&present).filter_map(|(path, present)| present.then_some(path));
        let columns: Vec<ColumnSpec> = paths
            .zip(cells)
            .map(|(path, leaf)| ColumnSpec { path, dtype: leaf.dtype, shape: leaf.shape.to_vec() })
            .collect();
        let schema = Schema { columns, structure: (**structure).clone() };
        let columns = locked(py, &self.steps, 0, |steps| steps.resolve(&schema))?;
        Ok(ResolvedForm { structure: Arc::clone(structure), present, specs: schema.columns, columns })
    }
}

/// The exception for a closed writer.
pub fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", "this writer is closed; make another", |with| with.set_item("name", "writer"))
}

/// The exception for two threads in one writer.
pub fn busy() -> PyErr {
    PyRuntimeError::new_err("two threads use one writer at once; give each thread a writer of its own")
}
