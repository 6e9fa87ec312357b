//! From draws to a `reverie.Batch` of NumPy arrays.

use crate::array::{Fresh, column};
use crate::enter::{copying, quick};
use crate::nest::Unflattener;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverie_core::batch::{self, Options, Plan, Ragged};
use reverie_core::sample::Draws;
use reverie_core::spec::Structure;
use std::mem::MaybeUninit;
use std::sync::Mutex;

/// What a reader asks of a batch.
#[derive(Clone)]
pub struct Reading {
    columns: Option<Vec<String>>,
    ragged: Ragged,
}

impl Reading {
    /// Reads the arguments `columns=` and `ragged=`.
    pub fn new(columns: Option<Vec<String>>, ragged: Option<&str>) -> PyResult<Self> {
        let ragged = match ragged {
            None => Ragged::Refuse,
            Some("pad") => Ragged::Pad,
            Some("values") => Ragged::Values,
            Some(other) => {
                return Err(PyValueError::new_err(format!("ragged must be None, \"pad\" or \"values\", got {other:?}")));
            }
        };
        Ok(Self { columns, ragged })
    }
}

/// Makes batches; remembers the structure of the last.
#[derive(Default)]
pub struct Batcher(Mutex<Unflattener>);

impl Batcher {
    fn unflatten<'py>(
        &self,
        py: Python<'py>,
        structure: &Structure,
        arrays: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Another thread may be inside (a class's constructor may switch threads): do without memory then.
        match self.0.try_lock() {
            Ok(mut unflattener) => unflattener.unflatten(py, structure, arrays),
            Err(_) => Unflattener::default().unflatten(py, structure, arrays),
        }
    }

    /// The batch of these draws.
    pub fn batch<'py>(&self, py: Python<'py>, draws: Draws, reading: &Reading) -> PyResult<Bound<'py, PyAny>> {
        static BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let options = Options { ragged: reading.ragged, columns: reading.columns.as_deref() };
        let plan = quick(py, || batch::plan(&draws.items, &options))?;
        let mut arrays = Vec::with_capacity(plan.outputs.len());
        for output in &plan.outputs {
            arrays.push(Fresh::new(py, output.dtype, output.itemsize, &output.shape)?);
        }
        gather(py, &plan, &draws, &mut arrays)?;
        let mut arrays = arrays.into_iter().map(Fresh::done);
        let data = self.unflatten(py, &plan.structure, &mut arrays.by_ref().take(plan.structure.num_leaves()))?;
        let none = || py.None().into_bound(py);
        let (mut mask, mut lengths) = (none(), none());
        match reading.ragged {
            Ragged::Refuse => {}
            Ragged::Pad => mask = self.unflatten(py, &plan.structure, &mut arrays)?,
            Ragged::Values => lengths = self.unflatten(py, &plan.structure, &mut arrays)?,
        }
        let info = info(py, &draws)?;
        BATCH.import(py, "reverie.types", "Batch")?.call1((info, data, mask, lengths, draws.smallest_probability))
    }
}

fn gather(py: Python<'_>, plan: &Plan, draws: &Draws, arrays: &mut [Fresh<'_>]) -> PyResult<()> {
    let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(Fresh::bytes).collect();
    let bytes = out.iter().map(|out| out.len()).sum();
    copying(py, bytes, || plan.gather(&draws.items, &mut out))
}

/// The `reverie.BatchInfo` of these draws.
fn info<'py>(py: Python<'py>, draws: &Draws) -> PyResult<Bound<'py, PyAny>> {
    static INFO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    INFO.import(py, "reverie.types", "BatchInfo")?.call1((
        column(py, &draws.keys, |key| key.get())?,
        column(py, &draws.probabilities, |p| *p)?,
        column(py, &draws.priorities, |p| *p)?,
        column(py, &draws.table_sizes, |n| *n as i64)?,
        column(py, &draws.times_sampled, |n| i64::from(*n))?,
        column(py, &draws.versions, |n| i64::from(*n))?,
        column(py, &draws.inserted_at, |nanos| *nanos as f64 * 1e-9)?,
    ))
}
