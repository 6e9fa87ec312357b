//! Engine objects behind Python handles, and what becomes of them in a forked child.

use crate::errors::forked;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Python calls this in a forked child before anything else runs there.
#[pyfunction]
fn _after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    reverie_core::inherited::close_inherited();
}

/// An engine object behind a Python handle, usable only in the process that created it.
/// In a forked child it is leaked, not dropped: its threads do not exist there, and its locks may be held forever.
pub struct ProcessLocal<T> {
    /// `Some` until the drop.
    value: Option<T>,
    forks: u32,
    what: &'static str,
}

impl<T> ProcessLocal<T> {
    /// Marks a value as living in this process; `what` names it in errors.
    pub fn new(value: T, what: &'static str) -> Self {
        Self { value: Some(value), forks: FORKS.load(Ordering::Relaxed), what }
    }

    /// False in a forked child.
    pub fn here(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// The value, or ForkedError.
    #[inline]
    pub fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.here() => Ok(value),
            _ => Err(forked(py, self.what)),
        }
    }

    /// The value, to change; or ForkedError.
    pub fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        let here = self.here();
        match &mut self.value {
            Some(value) if here => Ok(value),
            _ => Err(forked(py, self.what)),
        }
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.here() {
            drop(value);
        } else {
            std::mem::forget(value);
        }
    }
}

/// Adds the fork guard to the interpreter.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let hook = wrap_pyfunction!(_after_fork, module)?;
    let keywords = PyDict::new(py);
    keywords.set_item("after_in_child", hook)?;
    PyModule::import(py, "os")?.call_method("register_at_fork", (), Some(&keywords))?;
    Ok(())
}
