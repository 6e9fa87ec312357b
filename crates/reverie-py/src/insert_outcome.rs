//! The outcome of an insert that was reported as unknown.

use crate::array::column;
use crate::enter::{Deadline, finish};
use crate::process_local::ProcessLocal;
use crate::replay_backend::ReplayRef;
use pyo3::prelude::*;
use reverie_core::replay::Replay;
use std::sync::Arc;
use std::time::Instant;

/// A query for the outcome, bound to the client that sent the insert.
#[pyclass(frozen, module = "reverie._native")]
pub struct InsertOutcome {
    replay: ProcessLocal<Arc<dyn Replay>>,
    number: u64,
}

#[pymethods]
impl InsertOutcome {
    /// The keys that are in the table, once the server is reachable again.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (deadline, replay, since) = (Deadline::from_timeout(timeout)?, self.replay.get(py)?, Instant::now());
        match finish(py, &mut replay.insert_outcome(self.number).into(), deadline, |_| {
            replay.no_response_reason(since.elapsed())
        })? {
            Ok(keys) => column(py, &keys, |key| key.get()),
            Err(left) => Err(left.raise(py, "outcome", |_, _| Ok(()))),
        }
    }
}

/// Adds the items known to be inserted, if there are any, and to an UnknownOutcomeError its query.
pub fn with_means<'py>(
    py: Python<'py>,
    replay: &ReplayRef<'_>,
    error: PyErr,
    partial: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    let added = || {
        let partial = partial()?;
        let mut names_partial = partial.len()? > 0;
        if let Ok(number) = error.value(py).getattr("number").and_then(|number| number.extract::<u64>()) {
            let outcome = InsertOutcome { replay: ProcessLocal::new(replay.shared(), "client"), number };
            error.value(py).setattr("outcome", Bound::new(py, outcome)?)?;
            names_partial = true;
        }
        if names_partial {
            error.value(py).setattr("partial", partial)?;
        }
        PyResult::Ok(())
    };
    added().err().unwrap_or(error)
}
