//! Batches made ahead by a thread of the engine, as an iterator.

use crate::array::{Fresh, Slab};
use crate::client::Client;
use crate::count::Count;
use crate::enter::{Live, Waited, late, quick, wait};
use crate::sampler::{Batcher, Reading};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use reverie_core::sample::{MAX_SAMPLES, Prefetched, Prefetcher, Schedule, Source};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl reverie_core::sample::Memory for Slab {
    fn take(bytes: usize) -> Option<Self> {
        Slab::take(bytes)
    }

    fn bytes(&mut self, bytes: usize) -> &mut [MaybeUninit<u8>] {
        self.first(bytes)
    }
}

/// The engine's side of `reverie.datasets.Batches`, which documents it.
#[pyclass(frozen, module = "reverie._native")]
pub struct Prefetch {
    client: Py<Client>,
    prefetcher: Live<Mutex<Option<Prefetcher<Slab>>>>,
    schedule: Schedule,
    reading: Reading,
    batcher: Batcher,
}

#[pymethods]
impl Prefetch {
    #[new]
    #[pyo3(signature = (client, parts, *, ahead, columns, ragged, max_samples, without_replacement))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        parts: Vec<(String, Count)>,
        ahead: Count,
        columns: Option<Vec<String>>,
        ragged: Option<&str>,
        max_samples: Option<Count>,
        without_replacement: bool,
    ) -> PyResult<Self> {
        let reading = Reading::new(columns, ragged)?;
        let size = |(table, count): (String, Count)| Ok((table, count.within("batch_size", 1, MAX_SAMPLES)?));
        let parts = parts.into_iter().map(size).collect::<PyResult<Vec<_>>>()?;
        let max_samples = max_samples.map(|count| count.at_least("max_samples", 1)).transpose()?;
        let ahead = ahead.at_least("prefetch", 1)?;
        let schedule = Schedule { parts, without_replacement, max_samples, ahead };
        let tables = client.get().tables(py)?;
        for (table, _) in &schedule.parts {
            quick(py, || tables.get(table))?;
        }
        let source: Arc<dyn Source> = Arc::clone(tables) as _;
        let prefetcher = Prefetcher::new(source, schedule.clone(), reading.planner())
            .map_err(|error| PyOSError::new_err(format!("the prefetching thread could not be started: {error}")))?;
        let prefetcher = Live::new(Mutex::new(Some(prefetcher)), "iterator of batches");
        Ok(Self { client, prefetcher, schedule, reading, batcher: Batcher::default() })
    }

    /// The next batch, or None at the end.
    #[pyo3(signature = (timeout))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let deadline = self.client.get().deadline(timeout)?;
        let prefetcher = self.prefetcher.get(py)?;
        let poll = |slice: Duration| {
            let prefetcher = prefetcher.lock().unwrap_or_else(PoisonError::into_inner);
            match prefetcher.as_ref().map_or(Some(None), |prefetcher| prefetcher.next(slice))? {
                None => Some(Ok(None)),
                Some(batch) => Some(batch.map(Some)),
            }
        };
        let tables = self.client.get().tables(py)?;
        let why = || {
            let tables = self.schedule.parts.iter().filter_map(|(table, _)| tables.get(table).ok());
            tables.map(|table| table.why().to_string()).collect::<Vec<_>>().join(" ")
        };
        match wait(py, deadline, poll, why)? {
            Waited::Done(None) => Ok(None),
            Waited::Done(Some(batch)) => self.batch(py, batch).map(Some),
            Waited::Late => Err(late(py, "batches", &why(), |_| Ok(()))),
        }
    }

    /// Stops, and gives back the batches that were drawn and never delivered. Idempotent.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let prefetcher = self.prefetcher.get(py)?;
        let (ready, mut unfinished) = crate::enter::detached(py, || {
            let prefetcher = prefetcher.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok(prefetcher.map(|mut prefetcher| prefetcher.close()).unwrap_or_default())
        })?;
        let mut left: Vec<_> = ready.into_iter().map(|batch| self.batch(py, batch)).collect::<PyResult<_>>()?;
        if !unfinished.is_empty() {
            match self.batcher.batch(py, &mut unfinished, &self.reading) {
                Ok(batch) => left.push(batch),
                // The reader was told by `next`; one by one they would take as much.
                Err(error) if error.is_instance_of::<PyMemoryError>(py) => {}
                Err(_) => left.extend(self.batcher.singles(py, &unfinished, &self.reading)?),
            }
        }
        Ok(left)
    }
}

impl Prefetch {
    fn batch<'py>(&self, py: Python<'py>, batch: Prefetched<Slab>) -> PyResult<Bound<'py, PyAny>> {
        let Prefetched { mut draws, plan, arrays } = batch;
        let mut fresh = Vec::with_capacity(arrays.len());
        for (output, slab) in plan.outputs.iter().zip(arrays) {
            fresh.push(Fresh::over(py, output.dtype, output.itemsize, &output.shape, slab)?);
        }
        self.batcher.wrap(py, &plan, &mut draws, fresh, &self.reading)
    }
}
