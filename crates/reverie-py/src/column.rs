//! The columns of a writer's history, and of trajectories.

use crate::array::{NewArray, descr};
use crate::enter::{locked, reading_cells};
use crate::index::Index;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};
use reverie_core::append::{ItemColumn, StepWriter};
use reverie_core::batch::{self, BatchOptions};
use reverie_core::item::Cells;
use reverie_core::spec::{ANY_SIZE, Structure};
use std::sync::{Arc, Mutex, OnceLock};

/// The chunks and the history of a writer, which its columns read.
pub type SharedWriter = Arc<Mutex<StepWriter>>;

/// All steps of one column; a slice of it is a TrajectoryColumn.
#[pyclass(frozen, module = "reverie._native")]
pub struct HistoryColumn {
    steps: SharedWriter,
    path: String,
    /// The column's number, once it is known.
    column: OnceLock<usize>,
}

#[pymethods]
impl HistoryColumn {
    /// Steps since the history was cleared, including those that expired.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        locked(py, &self.steps, 0, |steps| Ok(self.extent(steps).1))
    }

    /// `[i]` is one cell without a time axis, `[a:b:c]` and `[[i, j]]` are several.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<TrajectoryColumn> {
        let path = self.path.as_str();
        let index = Index::read(key, path)?;
        let item = locked(key.py(), &self.steps, 0, |steps| {
            let (column, len, base) = self.extent(steps);
            let chosen = index.begins_within(len, path).and_then(|()| index.resolve(len, path));
            let Ok((start, cells, squeeze)) = chosen else { return Ok(chosen.map(|_| None)) };
            let Some(column) = column else { return Ok(Ok(None)) };
            let start = base + start;
            cells.iter().try_for_each(|cell| steps.check_cell(column, start as i64 + cell))?;
            Ok(Ok(Some(ItemColumn { column, start, cells, squeeze })))
        })??;
        let Some(item) = item else {
            return Err(PyValueError::new_err(format!("column '{path}': it holds no value (None) in any step")));
        };
        Ok(TrajectoryColumn { steps: Arc::clone(&self.steps), path: self.path.clone(), item })
    }

    /// Every step as a TrajectoryColumn of one cell; None if it has no value, or if it has expired.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let (column, len, base, held) = locked(py, &self.steps, 0, |steps| {
            let (column, len, base) = self.extent(steps);
            let held = |step| column.is_some_and(|column| steps.check_cell(column, step as i64).is_ok());
            Ok((column, len, base, (base..base + len as u64).map(held).collect::<Vec<_>>()))
        })?;
        let cell = |at: usize| {
            let column = column.filter(|_| held[at])?;
            let item = ItemColumn { column, start: base + at as u64, cells: Cells::one(0), squeeze: true };
            Some(TrajectoryColumn { steps: Arc::clone(&self.steps), path: self.path.clone(), item })
        };
        PyList::new(py, (0..len).map(cell))?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("HistoryColumn('{}', {} steps)", self.path, self.__len__(py)?))
    }
}

impl HistoryColumn {
    /// The history of the column at `path`.
    pub fn new(steps: SharedWriter, path: String) -> Self {
        Self { steps, path, column: OnceLock::new() }
    }

    /// The column's number, its length, and the step at which the history begins.
    fn extent(&self, steps: &StepWriter) -> (Option<usize>, usize, u64) {
        let known = self.column.get().copied();
        let column = known.or_else(|| steps.column(&self.path).map(|found| *self.column.get_or_init(|| found)));
        // All columns have the same length: one without a value in the open step yet holds none there.
        (column, steps.num_steps() as usize, steps.base())
    }
}

/// Some steps of one column, for use in items.
#[pyclass(frozen, module = "reverie._native")]
pub struct TrajectoryColumn {
    /// The steps of the writer.
    pub steps: SharedWriter,
    path: String,
    /// The cells.
    pub item: ItemColumn,
}

#[pymethods]
impl TrajectoryColumn {
    /// A column made of single cells, as iterating over columns returns them; `path` is for ported code.
    #[new]
    #[pyo3(signature = (data_references, *, squeeze=false, path=None))]
    fn new(data_references: Vec<Bound<'_, PyAny>>, squeeze: bool, path: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let _ = path;
        let mut cells: Vec<PyRef<'_, Self>> = Vec::with_capacity(data_references.len());
        for reference in &data_references {
            if reference.is_none() {
                return Err(PyValueError::new_err("data_references cannot contain None: that step holds no value"));
            }
            match reference.extract::<PyRef<'_, Self>>() {
                Ok(cell) if cell.item.squeeze => cells.push(cell),
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "data_references must be single cells of a writer's history, got {}",
                        reference.repr()?
                    )));
                }
            }
        }
        let Some(first) = cells.first().filter(|_| !squeeze || cells.len() == 1) else {
            let want = if squeeze { "exactly one cell with squeeze=True" } else { "at least one cell" };
            return Err(PyValueError::new_err(format!("data_references must be {want}, got {}", cells.len())));
        };
        let same =
            |cell: &PyRef<'_, Self>| Arc::ptr_eq(&cell.steps, &first.steps) && cell.item.column == first.item.column;
        if let Some(other) = cells.iter().find(|cell| !same(cell)) {
            return Err(PyValueError::new_err(format!(
                "data_references must be of one column of one writer, got '{}' and '{}'",
                first.path, other.path
            )));
        }
        let steps: Vec<i64> = cells.iter().map(|cell| cell.step()).collect();
        let cells = if squeeze { Cells::one(0) } else { list(&steps, steps[0]) };
        let item = ItemColumn { column: first.item.column, start: steps[0] as u64, cells, squeeze };
        Ok(Self { steps: Arc::clone(&first.steps), path: first.path.clone(), item })
    }

    #[doc = stub!("TrajectoryColumn.expired")]
    #[getter]
    fn expired(&self, py: Python<'_>) -> PyResult<bool> {
        let ItemColumn { column, start, cells, .. } = &self.item;
        locked(py, &self.steps, 0, |steps| {
            Ok(cells.iter().any(|cell| steps.check_cell(*column, *start as i64 + cell).is_err()))
        })
    }

    fn __len__(&self) -> usize {
        self.item.cells.len()
    }

    /// A part of the column, by the rules of the history.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        if self.item.squeeze {
            return Err(PyTypeError::new_err(format!("column '{}' is one step without a time axis", self.path)));
        }
        let (start, chosen, squeeze) = Index::read(key, &self.path)?.resolve(self.item.cells.len(), &self.path)?;
        let steps: Vec<i64> = chosen.iter().map(|at| self.item.cells.get((start as i64 + at) as usize)).collect();
        let first = steps.first().copied().unwrap_or(0);
        let cells = if squeeze { Cells::one(0) } else { list(&steps, first) };
        let start = (self.item.start as i64 + first) as u64;
        let item = ItemColumn { column: self.item.column, start, cells, squeeze };
        Ok(Self { steps: Arc::clone(&self.steps), path: self.path.clone(), item })
    }

    #[doc = stub!("TrajectoryColumn.is_squeezed")]
    #[getter]
    fn is_squeezed(&self) -> bool {
        self.item.squeeze
    }

    #[doc = stub!("TrajectoryColumn.path")]
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    #[doc = stub!("TrajectoryColumn.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut shape = locked(py, &self.steps, 0, |steps| Ok(steps.spec(self.item.column).shape.clone()))?;
        if !self.item.squeeze {
            shape.insert(0, self.item.cells.len());
        }
        PyTuple::new(py, shape.into_iter().map(|size| (size != ANY_SIZE).then_some(size)))
    }

    #[doc = stub!("TrajectoryColumn.dtype")]
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dtype = locked(py, &self.steps, 0, |steps| Ok(steps.spec(self.item.column).dtype))?;
        descr(py, dtype, 0)
    }

    #[doc = stub!("TrajectoryColumn.numpy")]
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let leaf = Arc::new(Structure::Leaf);
        let steps = &*self.steps;
        let item = locked(py, steps, 0, |steps| steps.item(&leaf, std::slice::from_ref(&self.item)))
            .map_err(|error| PyRuntimeError::new_err(error.value(py).to_string()))?;
        let items = [item];
        let plan = crate::enter::quick(py, || batch::plan(&items, &BatchOptions::default()))?;
        let output = &plan.outputs[0];
        // A batch of one: the same bytes without the leading axis.
        let mut fresh = NewArray::new(py, output.dtype, output.itemsize, &output.shape[1..])?;
        let mut out = [fresh.bytes()];
        reading_cells(py, &items, output.bytes(), || plan.gather(&items, &mut out))?;
        Ok(fresh.done())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("TrajectoryColumn('{}', shape={}, dtype={})", self.path, self.shape(py)?, self.dtype(py)?))
    }
}

impl TrajectoryColumn {
    /// The step of a single cell.
    fn step(&self) -> i64 {
        self.item.start as i64 + self.item.cells.get(0)
    }
}

/// Steps relative to the first, as a range where they are one.
fn list(steps: &[i64], first: i64) -> Cells {
    let step = steps.get(1).map_or(1, |second| second - first);
    let is_range = step != 0 && steps.windows(2).all(|pair| pair[1] - pair[0] == step);
    match is_range {
        true => Cells::Range { start: 0, step: step as i32, len: steps.len() as u32 },
        false => Cells::List(steps.iter().map(|step| (step - first) as i32).collect()),
    }
}
