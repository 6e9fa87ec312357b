//! Draws to a `reverie.Batch` of NumPy arrays.

use crate::array::Fresh;
use crate::count::Count;
use crate::enter::{copying, quick};
use crate::info::DrawInfo;
use crate::nest::Unflattener;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use reverie_core::batch::{Options, Output, Plan, Planner, Ragged, Role};
use reverie_core::sample::{Borders, Draws, Windows};
use reverie_core::spec::Structure;
use std::mem::MaybeUninit;
use std::sync::Mutex;

/// The read options of a batch.
#[derive(Clone, PartialEq)]
pub struct Reading {
    /// Paths; `None` for all.
    pub columns: Option<Vec<String>>,
    /// The handling of unequal lengths.
    pub ragged: Ragged,
}

impl Reading {
    /// Reads the arguments `columns=` and `ragged=`.
    pub fn new(columns: Option<Columns>, ragged: Option<&str>) -> PyResult<Self> {
        let ragged = match ragged {
            None => Ragged::Refuse,
            Some("pad") => Ragged::Pad,
            Some("values") => Ragged::Values,
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "ragged must be None, \"pad\" or \"values\", got {other:?}"
                )));
            }
        };
        Ok(Self { columns: columns.map(|columns| columns.0), ragged })
    }

    /// A planner of batches with these options.
    pub fn planner(&self) -> Planner {
        Planner::new(&Options { ragged: self.ragged, columns: self.columns.as_deref() })
    }
}

/// The argument `columns=`: paths, at least one.
pub struct Columns(Vec<String>);

impl<'py> FromPyObject<'_, 'py> for Columns {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let paths = if value.is_instance_of::<PyString>() { None } else { value.extract::<Vec<String>>().ok() };
        match paths {
            Some(paths) if paths.is_empty() => {
                Err(PyValueError::new_err("columns: an empty list selects nothing; leave it out to read all"))
            }
            Some(paths) => Ok(Self(paths)),
            None => {
                let got = value.repr()?;
                Err(PyTypeError::new_err(format!(
                    "columns must be a list of paths, as [\"obs\", \"action\"], got {got}"
                )))
            }
        }
    }
}

/// `(length, burn_in, borders)`.
pub struct WindowsArgument(pub Windows);

impl<'py> FromPyObject<'_, 'py> for WindowsArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (length, burn_in, borders) = value.extract::<(Count, Count, String)>()?;
        let borders = match borders.as_str() {
            "drop" => Borders::Drop,
            "pad" => Borders::Pad,
            "cross" => Borders::Cross,
            other => {
                let reason = format!("borders must be \"drop\", \"pad\" or \"cross\", got \"{other}\"");
                return Err(PyValueError::new_err(reason));
            }
        };
        let (length, burn_in) = (length.at_least("length", 1)?, burn_in.at_least("burn_in", 0)?);
        quick(value.py(), || Windows::new(length as u64, burn_in as u64, borders)).map(Self)
    }
}

/// Makes batches; the last plan and structure mostly serve the next batch.
#[derive(Default)]
pub struct Batcher(Mutex<Option<Prepared>>);

struct Prepared {
    reading: Reading,
    planner: Planner,
    unflattener: Unflattener,
}

impl Batcher {
    /// The `reverie.Batch` of these draws, which are taken; draws that cannot become one are left in place.
    pub fn batch<'py>(&self, py: Python<'py>, draws: &mut Draws, reading: &Reading) -> PyResult<Bound<'py, PyAny>> {
        // Another thread may be inside, as building a structure may run Python code: then prepare without memory.
        let (mut kept, mut fresh) = (self.0.try_lock(), None);
        let slot = kept.as_deref_mut().unwrap_or(&mut fresh);
        let prepared = Prepared::for_reading(slot, reading);
        let plan = quick(py, || prepared.planner.plan_draws(draws))?;
        let mut arrays = room(py, &plan.outputs)?;
        gather(py, &plan, draws, &mut arrays)?;
        prepared.wrap(py, &plan, draws, arrays)
    }

    /// The `reverie.Batch` of these draws.
    /// If they cannot become one, the error's `drawn` has each as its own batch, as draws of a consuming table have
    /// left the table. Not if memory ran out: that would take more.
    pub fn batch_or_singles<'py>(
        &self,
        py: Python<'py>,
        draws: &mut Draws,
        reading: &Reading,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.batch(py, draws, reading).or_else(|error| {
            if error.is_instance_of::<PyMemoryError>(py) {
                return Err(error);
            }
            error.value(py).setattr("drawn", self.singles(py, draws, reading)?)?;
            Err(error)
        })
    }

    /// Every draw as a batch of its own.
    pub fn singles<'py>(&self, py: Python<'py>, draws: &Draws, reading: &Reading) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut rest = draws.clone().without_windows();
        let mut singles = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let behind = rest.split_off(1);
            singles.push(self.batch(py, &mut std::mem::replace(&mut rest, behind), reading)?);
        }
        Ok(singles)
    }

    /// The `reverie.Batch` of filled arrays; it takes the draws.
    pub fn wrap<'py>(
        &self,
        py: Python<'py>,
        plan: &Plan,
        draws: &mut Draws,
        arrays: Vec<Fresh<'py>>,
        reading: &Reading,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (mut kept, mut fresh) = (self.0.try_lock(), None);
        let slot = kept.as_deref_mut().unwrap_or(&mut fresh);
        Prepared::for_reading(slot, reading).wrap(py, plan, draws, arrays)
    }
}

impl Prepared {
    fn for_reading<'a>(slot: &'a mut Option<Self>, reading: &Reading) -> &'a mut Self {
        let fits = slot.take().filter(|prepared| prepared.reading == *reading);
        slot.insert(fits.unwrap_or_else(|| Self {
            reading: reading.clone(),
            planner: reading.planner(),
            unflattener: Unflattener::default(),
        }))
    }

    fn wrap<'py>(
        &mut self,
        py: Python<'py>,
        plan: &Plan,
        draws: &mut Draws,
        arrays: Vec<Fresh<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arrays = arrays.into_iter().map(Fresh::done);
        let parts = assemble(py, &mut self.unflattener, &plan.structure, plan.num_columns, &plan.outputs, arrays)?;
        let smallest_probability = draws.smallest_probability;
        made(DrawInfo::of(py, draws)?, parts, smallest_probability)
    }
}

/// `Batch.data`, `.mask`, `.lengths`, `.is_first` and `.start`.
pub type Parts<'py> = [Bound<'py, PyAny>; 5];

/// Puts the arrays of a batch into their places.
pub fn assemble<'py>(
    py: Python<'py>,
    unflattener: &mut Unflattener,
    structure: &Structure,
    num_columns: usize,
    outputs: &[Output],
    mut arrays: impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Parts<'py>> {
    let data = unflattener.unflatten(py, structure, &mut arrays.by_ref().take(num_columns))?;
    let none = || py.None().into_bound(py);
    let (mut mask, mut lengths, mut is_first, mut start) = (none(), none(), none(), none());
    for (output, array) in outputs[num_columns..].iter().zip(arrays) {
        let (target, column) = match output.role {
            Role::Mask(column) => (&mut mask, column),
            Role::Lengths(column) => (&mut lengths, column),
            Role::First => (&mut is_first, None),
            Role::Start => (&mut start, None),
            Role::Column => continue,
        };
        // One array if it applies to all columns, else one for each column's path.
        match column {
            None => *target = array,
            Some(column) => {
                if target.is_none() {
                    *target = PyDict::new(py).into_any();
                }
                target.set_item(&outputs[column].path, array)?;
            }
        }
    }
    Ok([data, mask, lengths, is_first, start])
}

/// The `reverie.Batch` made of its parts.
pub fn made<'py>(
    info: Bound<'py, PyAny>,
    parts: Parts<'py>,
    smallest_probability: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    static BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let [data, mask, lengths, is_first, start] = parts;
    let class = BATCH.import(info.py(), "reverie.types", "Batch")?;
    class.call1((info, data, mask, lengths, smallest_probability, is_first, start))
}

/// Memory for the arrays.
pub fn room<'py>(py: Python<'py>, outputs: &[Output]) -> PyResult<Vec<Fresh<'py>>> {
    outputs.iter().map(|output| Fresh::new(py, output.dtype, output.itemsize, &output.shape)).collect()
}

/// Gathers the draws' items into arrays made for their plan.
pub fn gather(py: Python<'_>, plan: &Plan, draws: &Draws, arrays: &mut [Fresh<'_>]) -> PyResult<()> {
    let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(Fresh::bytes).collect();
    let bytes = out.iter().map(|out| out.len()).sum();
    copying(py, bytes, || plan.gather_draws(draws, &mut out))
}
