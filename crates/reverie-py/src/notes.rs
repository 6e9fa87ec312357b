//! Notes on exceptions: facts that their text lacks, because another part of the call has them.

use pyo3::prelude::*;

/// Adds a note to an exception.
#[cold]
pub fn note(py: Python<'_>, error: &PyErr, text: &str) {
    // Without memory for it, the exception counts more than its note.
    let _ = error.value(py).call_method1("add_note", (text,));
}

/// Marks an exception of `append` as raised after the step was written: see `ReplayError.step_written`.
#[cold]
pub fn step_written(py: Python<'_>, error: PyErr) -> PyErr {
    let errors = PyModule::import(py, "reverie.errors");
    let _ = errors.and_then(|errors| errors.call_method1("_mark_step_written", (error.value(py),)));
    error
}
