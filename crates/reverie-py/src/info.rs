//! The metadata of a batch's draws: arrays that are created when they are first read.

use crate::array::{column, numbers};
use crate::enter::quick;
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use reverie_core::sample::{Draws, weights};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The engine's side of `reverie.BatchInfo`, which documents it: a training loop reads two or three of the fields.
#[pyclass(frozen, subclass, module = "reverie._native")]
#[derive(Default)]
pub struct DrawInfo {
    /// The draws without items; never set if Python made the object.
    draws: OnceLock<Draws>,
    /// Guards the fields that were created, or set from Python, so far. No Python code runs under the lock.
    fields: Mutex<[Option<Py<PyAny>>; FIELDS]>,
}

const FIELDS: usize = 7;

#[derive(Clone, Copy)]
enum InfoField {
    Key,
    Probability,
    Priority,
    TableSize,
    TimesSampled,
    Version,
    InsertedAt,
}

#[pymethods]
impl DrawInfo {
    /// Empty: a subclass's `__init__` sets the fields, or the engine does.
    #[new]
    #[pyo3(signature = (*_args, **_keywords))]
    fn new(_args: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::Key)
    }

    #[setter]
    fn set_key(&self, value: Py<PyAny>) {
        self.set(InfoField::Key, value);
    }

    #[getter]
    fn probability(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::Probability)
    }

    #[setter]
    fn set_probability(&self, value: Py<PyAny>) {
        self.set(InfoField::Probability, value);
    }

    #[getter]
    fn priority(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::Priority)
    }

    #[setter]
    fn set_priority(&self, value: Py<PyAny>) {
        self.set(InfoField::Priority, value);
    }

    #[getter]
    fn table_size(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::TableSize)
    }

    #[setter]
    fn set_table_size(&self, value: Py<PyAny>) {
        self.set(InfoField::TableSize, value);
    }

    #[getter]
    fn times_sampled(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::TimesSampled)
    }

    #[setter]
    fn set_times_sampled(&self, value: Py<PyAny>) {
        self.set(InfoField::TimesSampled, value);
    }

    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::Version)
    }

    #[setter]
    fn set_version(&self, value: Py<PyAny>) {
        self.set(InfoField::Version, value);
    }

    #[getter]
    fn inserted_at(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, InfoField::InsertedAt)
    }

    #[setter]
    fn set_inserted_at(&self, value: Py<PyAny>) {
        self.set(InfoField::InsertedAt, value);
    }

    /// `reverie.Batch.weights`; without a bound N is under the exponent.
    #[pyo3(signature = (beta, bound))]
    fn _weights<'py>(&self, py: Python<'py>, beta: f64, bound: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        // A field that Python has read or set may have been changed in place: then its value counts.
        let as_drawn =
            self.draws.get().filter(|_| !self.has(InfoField::Probability) && !self.has(InfoField::TableSize));
        let weights = match as_drawn {
            Some(draws) => quick(py, || weights(&draws.probabilities, |at| draws.table_sizes[at] as f64, beta, bound)),
            None => {
                let probability = numbers::<f64>(self.get(py, InfoField::Probability)?.bind(py), "probability")?;
                let sizes = numbers::<f64>(self.get(py, InfoField::TableSize)?.bind(py), "table_size")?;
                let sizes = sizes.as_slice();
                quick(py, || weights(probability.as_slice(), |at| sizes[at], beta, bound))
            }
        }?;
        column(py, &weights, |weight| *weight)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // If it is locked, another running thread holds it: this thread never gets here while it holds the lock.
        let Ok(fields) = self.fields.try_lock() else { return Ok(()) };
        fields.iter().flatten().try_for_each(|field| visit.call(field))
    }

    fn __clear__(&self) {
        // Outside the lock: dropping the fields may run Python code.
        let fields = std::mem::take(&mut *self.fields.lock().unwrap_or_else(PoisonError::into_inner));
        drop(fields);
    }
}

impl DrawInfo {
    /// The `reverie.BatchInfo` of these draws. Takes the draws, and drops their items.
    pub fn of<'py>(py: Python<'py>, draws: &mut Draws) -> PyResult<Bound<'py, PyAny>> {
        let info = Self::empty(py)?;
        Self::fill(&info, draws);
        Ok(info)
    }

    /// A `reverie.BatchInfo`, to be filled.
    pub fn empty(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static NEW: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
        let (class, new) = NEW.get_or_try_init(py, || -> PyResult<_> {
            let class = PyModule::import(py, "reverie.types")?.getattr("BatchInfo")?;
            let new = class.getattr("__new__")?;
            Ok((class.unbind(), new.unbind()))
        })?;
        new.bind(py).call1((class.bind(py),))
    }

    /// Moves the draws into an empty `reverie.BatchInfo`, and drops their items. Cannot fail.
    pub fn fill(info: &Bound<'_, PyAny>, draws: &mut Draws) {
        let mut draws = std::mem::take(draws);
        draws.items = Vec::new();
        // It was made here and is empty, so both hold.
        if let Ok(info) = info.cast::<Self>() {
            let _ = info.get().draws.set(draws);
        }
    }

    fn has(&self, field: InfoField) -> bool {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)[field as usize].is_some()
    }

    fn set(&self, field: InfoField, value: Py<PyAny>) {
        let old = self.fields.lock().unwrap_or_else(PoisonError::into_inner)[field as usize].replace(value);
        drop(old);
    }

    fn get(&self, py: Python<'_>, field: InfoField) -> PyResult<Py<PyAny>> {
        let known = || self.fields.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &known()[field as usize] {
            return Ok(value.clone_ref(py));
        }
        let Some(draws) = self.draws.get() else {
            return Err(PyAttributeError::new_err("a BatchInfo whose fields were never set"));
        };
        let made = match field {
            InfoField::Key => column(py, &draws.keys, |key| key.get()),
            InfoField::Probability => column(py, &draws.probabilities, |p| *p),
            InfoField::Priority => column(py, &draws.priorities, |p| *p),
            InfoField::TableSize => column(py, &draws.table_sizes, |n| *n as i64),
            InfoField::TimesSampled => column(py, &draws.times_sampled, |n| i64::from(*n)),
            InfoField::Version => column(py, &draws.versions, |n| i64::from(*n)),
            InfoField::InsertedAt => column(py, &draws.inserted_at, |nanos| *nanos as f64 * 1e-9),
        }?;
        // Another thread may have created it meanwhile: then that one is the field.
        Ok(known()[field as usize].get_or_insert(made.unbind()).clone_ref(py))
    }
}
