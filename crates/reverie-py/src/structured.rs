//! Structured writing: from steps to the items of configs, into tables or as arrays.

use crate::array::{Cell, NewArray, read};
use crate::client::Client;
use crate::count::Count;
use crate::enter::{locked, quick, reading_cells};
use crate::errors::signature;
use crate::intake::CallColumns;
use crate::nest::{Flattener, Nest, PyStructure, Unflattener};
use crate::notes::{note, step_written};
use crate::process_local::ProcessLocal;
use crate::sending::ItemSender;
use crate::trajectory::{busy, closed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::append::{
    ColumnCells, Config, ConfigNode, CreatedItems, PriorityRule, Quantity, Relation, StepCondition,
    StructuredWriter as Core,
};
use reverie_core::batch::{self, BatchOptions};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::item::{self, Item};
use reverie_core::spec::{ColumnSpec, Structure};
use reverie_core::table::{Inserts, Priority};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A config as `reverie.structured` gives it.
/// The table, the pattern's form, its nodes (field, first step relative to the latest, step between cells, count,
/// squeezed), conditions (quantity, field, modulo, relation, number), and the priority: a constant, or the weight and
/// the field of td errors.
type ConfigArguments<'py> = (
    String,
    PyRef<'py, PyStructure>,
    Vec<(usize, i32, i32, u32, bool)>,
    Vec<(String, usize, Option<i64>, String, i64)>,
    (f64, Option<usize>),
);

fn config((table, structure, nodes, conditions, (number, errors)): ConfigArguments<'_>) -> PyResult<Config> {
    let node = |(field, start, step, len, squeeze)| ConfigNode {
        field,
        cells: item::Cells::Range { start, step, len },
        squeeze,
    };
    let condition = |(quantity, field, modulo, relation, number): (String, usize, Option<i64>, String, i64)| {
        let quantity = match &*quantity {
            "is_end_episode" => return Ok(StepCondition::EndsEpisode),
            "step_index" => Quantity::StepIndex,
            "steps_since_applied" => Quantity::StepsSinceApplied,
            "data" => Quantity::Data(field),
            other => return Err(PyValueError::new_err(format!("no condition is on {other:?}"))),
        };
        let relation = match &*relation {
            "==" => Relation::Equal,
            "!=" => Relation::NotEqual,
            "<" => Relation::Less,
            "<=" => Relation::AtMost,
            ">" => Relation::Greater,
            ">=" => Relation::AtLeast,
            other => return Err(PyValueError::new_err(format!("no condition compares by {other:?}"))),
        };
        Ok(StepCondition::Compare { quantity, modulo, relation, number })
    };
    Ok(Config {
        table,
        structure: Arc::clone(&structure.0),
        nodes: nodes.into_iter().map(node).collect(),
        conditions: conditions.into_iter().map(condition).collect::<PyResult<_>>()?,
        rule: match errors {
            None => PriorityRule::Constant(number),
            Some(field) => PriorityRule::TdError { max_weight: number, field },
        },
    })
}

/// Reads steps and matches them against configs.
struct StepMatcher {
    /// The paths of a step.
    paths: Vec<String>,
    writer: Mutex<Core>,
    /// Used under the GIL only; a second thread is refused.
    forms: Mutex<StructuredForms>,
}

#[derive(Default)]
struct StructuredForms {
    appended: Flattener,
    /// The latest first.
    known: Vec<Form>,
    /// The spec of each field, once it had a value.
    specs: Vec<Option<ColumnSpec>>,
}

/// The form of a step, or of a part of one.
struct Form {
    structure: Arc<Structure>,
    /// The field of every leaf, if a config uses it.
    fields: SmallVec<[Option<usize>; 8]>,
    /// A missing field that a config refers to.
    lacks: Option<String>,
}

/// The number of remembered forms of steps; partial appends alternate between a few.
const REMEMBERED: usize = 8;

impl StepMatcher {
    fn new(
        py: Python<'_>,
        meter: Arc<Meter>,
        compression: Compression,
        paths: Vec<String>,
        configs: Vec<Config>,
        variable: Vec<(String, usize)>,
    ) -> PyResult<Self> {
        let writer = quick(py, || Core::new(meter, compression, paths.clone(), configs))?.of_variable(variable);
        let writer = Mutex::new(writer);
        let specs = vec![None; paths.len()];
        Ok(Self { paths, writer, forms: Mutex::new(StructuredForms { specs, ..StructuredForms::default() }) })
    }

    /// Appends a step, or a part of one; returns the items that it completes.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, partial: bool) -> PyResult<CreatedItems> {
        let mut forms = self.forms.try_lock().map_err(|_| busy())?;
        let StructuredForms { appended, known, specs } = &mut *forms;
        let (mut leaves, nest) = appended.flatten(data)?;
        let same = |form: &Form| Arc::ptr_eq(&form.structure, &nest.structure) || form.structure == nest.structure;
        match known.iter().position(same) {
            Some(at) => known[..=at].rotate_right(1),
            None => {
                known.truncate(REMEMBERED - 1);
                known.insert(0, self.form(py, nest)?);
            }
        }
        let form = &known[0];
        if let (Some(path), false) = (&form.lacks, partial)
            && !self.step_is_open(py)?
        {
            let want = "every field that configs refer to in a whole step; give None where it has no value";
            return Err(signature(py, path, "nothing", want));
        }
        let mut fields: SmallVec<[usize; 8]> = SmallVec::with_capacity(form.fields.len());
        let mut cells: SmallVec<[Cell<'_>; 8]> = SmallVec::with_capacity(form.fields.len());
        let mut fresh: Vec<(usize, ColumnSpec)> = Vec::new();
        for (index, (slot, field)) in leaves.slots().zip(&form.fields).enumerate() {
            let (Some(field), Some(leaf)) = (*field, slot.as_ref()) else { continue };
            if leaf.is_none() {
                continue;
            }
            let leaf = leaf.clone();
            fields.push(field);
            if let Some(cell) = specs[field].as_ref().and_then(|spec| Cell::taken(slot, spec, None)) {
                cells.push(cell);
                continue;
            }
            let known = specs[field].as_ref();
            let leaf = read(&leaf, known.map(|spec| spec.dtype), &|| nest.path(index))?;
            let path = self.paths[field].clone();
            let spec = ColumnSpec { path, dtype: leaf.dtype, shape: leaf.shape.to_vec() };
            if known != Some(&spec) {
                fresh.push((field, spec));
            }
            cells.push(leaf.cell);
        }
        if !fresh.is_empty() {
            let (fields, columns): (Vec<usize>, Vec<ColumnSpec>) = fresh.into_iter().unzip();
            locked(py, &self.writer, 0, |writer| writer.resolve(&fields, &columns))?;
            fields.into_iter().zip(columns).for_each(|(field, spec)| specs[field] = Some(spec));
        }
        let cells: CallColumns<'_> =
            cells.iter().map(|cell| ColumnCells { itemsize: cell.itemsize, bytes: cell.bytes() }).collect();
        let bytes = cells.iter().map(|cells| cells.bytes.len()).sum();
        locked(py, &self.writer, bytes, |writer| writer.append(&fields, &cells, partial))
    }

    fn form(&self, py: Python<'_>, nest: &Nest) -> PyResult<Form> {
        let paths = nest.structure.paths();
        let mut fields = SmallVec::with_capacity(paths.len());
        // If the step structure of the configs is one leaf, they name no field: they take the first of any step, as in
        // dm-reverb.
        let unnamed = self.paths.len() == 1 && self.paths[0].is_empty() && paths.iter().any(|path| !path.is_empty());
        for (at, path) in paths.iter().enumerate() {
            if unnamed {
                fields.push((at == 0).then_some(0));
                continue;
            }
            let Some(field) = self.paths.iter().position(|known| known == path) else {
                let want = format!("the step structure of the configs: {}", self.paths.join(", "));
                return Err(signature(py, path, "a field that the configs do not know", &want));
            };
            let wanted = locked(py, &self.writer, 0, |writer| Ok(writer.wants(field)))?;
            fields.push(wanted.then_some(field));
        }
        let missing = |field: &usize| !unnamed && !paths.contains(&self.paths[*field]);
        let lacks = locked(py, &self.writer, 0, |writer| {
            Ok((0..self.paths.len()).filter(missing).find(|field| writer.wants(*field)))
        })?;
        let lacks = lacks.map(|field| self.paths[field].clone());
        Ok(Form { structure: Arc::clone(&nest.structure), fields, lacks })
    }

    fn end_episode(&self, py: Python<'_>, clear_buffers: bool) -> PyResult<CreatedItems> {
        locked(py, &self.writer, 0, |writer| writer.end_episode(clear_buffers))
    }

    fn step_is_open(&self, py: Python<'_>) -> PyResult<bool> {
        locked(py, &self.writer, 0, |writer| Ok(writer.step_is_open()))
    }
}

/// The engine's side of `reverie.writers.StructuredWriter`, which documents it.
#[pyclass(frozen, subclass, module = "reverie._native", name = "StructuredWriter")]
pub struct StructuredWriter {
    sending: ItemSender,
    steps: StepMatcher,
    /// The table of each config.
    tables: Vec<String>,
    closed: AtomicBool,
}

#[pymethods]
impl StructuredWriter {
    #[new]
    #[pyo3(signature = (client, paths, configs, *, max_in_flight_bytes, timeout, variable=Vec::new()))]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        paths: Vec<String>,
        configs: Vec<ConfigArguments<'_>>,
        max_in_flight_bytes: Option<Count>,
        timeout: Option<f64>,
        variable: Vec<(String, usize)>,
    ) -> PyResult<Self> {
        let configs: Vec<Config> = configs.into_iter().map(config).collect::<PyResult<_>>()?;
        let sending = ItemSender::new(client.bind(py), max_in_flight_bytes, timeout)?;
        let sink = sending.replay(py)?;
        let mut compression = None;
        for config in &configs {
            let of_table = quick(py, || sink.compression(&config.table))?;
            if let PriorityRule::Constant(priority) = config.rule {
                quick(py, || sink.check_priority(&config.table, Priority::Value(priority)))?;
            }
            let agreed = compression.is_none_or(|known| known == of_table);
            compression = Some(if agreed { of_table } else { Compression::Auto });
        }
        let tables = configs.iter().map(|config| config.table.clone()).collect();
        let compression = compression.unwrap_or(Compression::Auto);
        let steps = StepMatcher::new(py, Arc::clone(sink.meter()), compression, paths, configs, variable)?;
        Ok(Self { sending, steps, tables, closed: AtomicBool::new(false) })
    }

    #[doc = stub!("StructuredWriter.append")]
    #[pyo3(signature = (data, *, partial_step=false))]
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, partial_step: bool) -> PyResult<()> {
        self.open(py)?;
        let sent = self.send(py, self.steps.append(py, data, partial_step)?);
        sent.and_then(|()| self.sending.make_room(py)).map_err(|error| step_written(py, error))
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
        self.open(py)?;
        self.send(py, self.steps.end_episode(py, clear_buffers)?)
    }

    /// The seconds that its calls may wait, the client's default included; None means no limit.
    #[getter]
    fn _timeout(&self) -> Option<f64> {
        self.sending.timeout()
    }

    /// Refuses later calls and releases the chunks, without making items of them. Idempotent.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        self.sending.replay(py)?;
        match self.closed.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => self.steps.end_episode(py, true).map(drop),
        }
    }

    #[doc = stub!("StructuredWriter.step_is_open")]
    #[getter]
    fn step_is_open(&self, py: Python<'_>) -> PyResult<bool> {
        self.steps.step_is_open(py)
    }

    #[doc = stub!("StructuredWriter.num_in_flight")]
    #[getter]
    fn num_in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.sending.num_in_flight(py)
    }
}

impl StructuredWriter {
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        self.sending.replay(py)?;
        match self.closed.load(Ordering::Relaxed) {
            true => Err(closed(py)),
            false => Ok(()),
        }
    }

    /// Sends every item, also after one that is refused; then raises the first error, which notes the others.
    fn send(&self, py: Python<'_>, makes: CreatedItems) -> PyResult<()> {
        let mut first: Option<PyErr> = None;
        for made in makes {
            let (table, items) = (&self.tables[made.config], Inserts::from_iter([(made.item, made.priority)]));
            let Err(error) = self.sending.send(py, table, items, made.bytes) else { continue };
            match &first {
                None => first = Some(error),
                Some(first) => note(py, first, &format!("table '{table}' has no item of it, either: {error}")),
            }
        }
        first.map_or(Ok(()), Err)
    }
}

/// The engine's side of `reverie.PatternDataset`: the items of configs as arrays, without tables.
#[pyclass(frozen, module = "reverie._native", name = "Patterns")]
pub struct Patterns {
    steps: ProcessLocal<StepMatcher>,
    /// Used under the GIL only.
    nests: Mutex<Unflattener>,
}

#[pymethods]
impl Patterns {
    #[new]
    fn new(py: Python<'_>, paths: Vec<String>, configs: Vec<ConfigArguments<'_>>) -> PyResult<Self> {
        let configs = configs.into_iter().map(config).collect::<PyResult<_>>()?;
        let steps = StepMatcher::new(py, Arc::new(Meter::default()), Compression::None, paths, configs, Vec::new())?;
        Ok(Self { steps: ProcessLocal::new(steps, "iterator"), nests: Mutex::default() })
    }

    /// Appends a whole step; returns the trajectories that it completes.
    fn append<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let makes = self.steps.get(py)?.append(py, data, false)?;
        self.trajectories(py, makes)
    }

    /// Ends the episode; returns the trajectories that this completes.
    fn end_episode<'py>(&self, py: Python<'py>, clear_buffers: bool) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let makes = self.steps.get(py)?.end_episode(py, clear_buffers)?;
        self.trajectories(py, makes)
    }
}

impl Patterns {
    fn trajectories<'py>(&self, py: Python<'py>, makes: CreatedItems) -> PyResult<Vec<Bound<'py, PyAny>>> {
        makes.into_iter().map(|made| self.trajectory(py, made.item)).collect()
    }

    /// The arrays of an item, in its structure.
    fn trajectory<'py>(&self, py: Python<'py>, item: Item) -> PyResult<Bound<'py, PyAny>> {
        let items = [item];
        let plan = quick(py, || batch::plan(&items, &BatchOptions::default()))?;
        // A batch of one: the same bytes without the leading axis.
        let fresh =
            plan.outputs.iter().map(|output| NewArray::new(py, output.dtype, output.itemsize, &output.shape[1..]));
        let mut fresh: Vec<NewArray<'py>> = fresh.collect::<PyResult<_>>()?;
        let bytes = plan.outputs.iter().map(batch::OutputArray::bytes).sum();
        let mut out: Vec<_> = fresh.iter_mut().map(NewArray::bytes).collect();
        reading_cells(py, &items, bytes, || plan.gather(&items, &mut out))?;
        let mut nests = self.nests.try_lock().map_err(|_| busy())?;
        nests.unflatten(py, &items[0].pattern.structure, &mut fresh.into_iter().map(NewArray::done))
    }
}
