//! Draws for which a batch has no memory, one at a time.

use crate::batch::Batcher;
use crate::reading::Reading;
use pyo3::prelude::*;
use reverie_core::sample::{Drawn, Draws};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An iterator that makes a batch of each draw when it is asked for it.
#[pyclass(frozen, module = "reverie._native")]
pub struct Singles {
    rest: Mutex<Draws>,
    reading: Reading,
    batcher: Batcher,
}

impl Singles {
    /// Takes a copy of the draws; a lease of theirs stays where it is.
    pub fn new(draws: &Draws, reading: &Reading) -> Self {
        let rest = Mutex::new(draws.clone().without_windows());
        Self { rest, reading: reading.clone(), batcher: Batcher::default() }
    }

    fn rest(&self) -> MutexGuard<'_, Draws> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Singles {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __len__(&self) -> usize {
        self.rest().len()
    }

    /// The next draw as a batch of one. One that has no memory either stays, for the next call.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut first = {
            let mut rest = self.rest();
            if rest.is_empty() {
                return Ok(None);
            }
            let behind = rest.split_off(1);
            Drawn::Items(std::mem::replace(&mut *rest, behind))
        };
        let batch = self.batcher.batch(py, &mut first, &self.reading);
        if let (Err(_), Drawn::Items(first)) = (&batch, first) {
            let mut rest = self.rest();
            let behind = std::mem::replace(&mut *rest, first);
            rest.append(behind);
        }
        batch.map(Some)
    }
}
