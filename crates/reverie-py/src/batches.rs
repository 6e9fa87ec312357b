//! An iterator of prefetched batches: made by a thread of the engine, or by a server with several requests in flight.

use crate::array::{Fresh, Slab};
use crate::client::Client;
use crate::count::Count;
use crate::enter::{Live, Waited, detached, late, quick, wait};
use crate::reach::Way;
use crate::remote::{Wrapper, form};
use crate::sampler::{Batcher, Columns, Reading, WindowsArgument};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use reverie_core::Result;
use reverie_core::append::Sink;
use reverie_core::sample::{MAX_SAMPLES, Prefetched, Prefetcher, Schedule, Source};
use reverie_net::client::{Pipeline, ReadAhead};
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
    ahead: Ahead,
    schedule: Schedule,
    reading: Reading,
    batcher: Batcher,
    wrapper: Wrapper,
}

/// The producer of the batches.
enum Ahead {
    Here(Live<Mutex<Option<Prefetcher<Slab>>>>),
    There(Box<Live<Mutex<Pipeline>>>),
}

#[pymethods]
impl Prefetch {
    #[new]
    #[pyo3(signature = (client, parts, *, ahead, columns, ragged, max_samples, without_replacement, windows=None,
        widens=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        parts: Vec<(String, Count)>,
        ahead: Count,
        columns: Option<Columns>,
        ragged: Option<&str>,
        max_samples: Option<Count>,
        without_replacement: bool,
        windows: Option<WindowsArgument>,
        widens: bool,
    ) -> PyResult<Self> {
        let reading = Reading::new(columns, ragged)?;
        let size = |(table, count): (String, Count)| Ok((table, count.within("batch_size", 1, MAX_SAMPLES)?));
        let parts = parts.into_iter().map(size).collect::<PyResult<Vec<_>>>()?;
        let max_samples = max_samples.map(|count| count.at_least("max_samples", 1)).transpose()?;
        let ahead = ahead.at_least("prefetch", 1)?;
        let windows = windows.map(|windows| windows.0);
        let schedule = Schedule { parts, without_replacement, windows, max_samples, ahead };
        let deadline = client.get().deadline(None)?;
        let ahead = match client.get().reach().known(py, deadline)? {
            Way::Here(tables) => {
                for (table, _) in &schedule.parts {
                    quick(py, || tables.get(table))?;
                }
                let source: Arc<dyn Source> = Arc::clone(tables) as _;
                let prefetcher = Prefetcher::new(source, schedule.clone(), reading.planner()).map_err(|error| {
                    PyOSError::new_err(format!("the prefetching thread could not be started: {error}"))
                })?;
                Ahead::Here(Live::new(Mutex::new(Some(prefetcher)), "iterator of batches"))
            }
            Way::There(far) => {
                for (table, _) in &schedule.parts {
                    quick(py, || far.remote.compression(table))?;
                }
                let form = form(&reading, without_replacement, windows);
                let ahead = match widens {
                    true => ReadAhead::within(ahead, client.get().max_in_flight_bytes()),
                    false => ReadAhead::fixed(ahead),
                };
                let pipeline = Pipeline::new(far.remote, schedule.clone(), form, ahead);
                Ahead::There(Box::new(Live::new(Mutex::new(pipeline), "iterator of batches")))
            }
        };
        Ok(Self { client, ahead, schedule, reading, batcher: Batcher::default(), wrapper: Wrapper::default() })
    }

    /// The next batch, or None at the end.
    #[pyo3(signature = (timeout))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.ahead {
            Ahead::Here(prefetcher) => {
                let prefetcher = prefetcher.get(py)?;
                let poll = |slice: Duration| {
                    let prefetcher = prefetcher.lock().unwrap_or_else(PoisonError::into_inner);
                    match prefetcher.as_ref().map_or(Some(None), |prefetcher| prefetcher.next(slice))? {
                        None => Some(Ok(None)),
                        Some(batch) => Some(batch.map(Some)),
                    }
                };
                self.await_next(py, timeout, poll)?.map(|batch| self.batch(py, batch)).transpose()
            }
            Ahead::There(pipeline) => {
                let pipeline = pipeline.get(py)?;
                let poll = |slice: Duration| pipeline.lock().unwrap_or_else(PoisonError::into_inner).next(slice);
                self.await_next(py, timeout, poll)?.map(|batch| self.wrapper.batch(py, &batch)).transpose()
            }
        }
    }

    /// Stops, and returns the batches that were drawn and never delivered. Idempotent.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let prefetcher = match &self.ahead {
            Ahead::Here(prefetcher) => prefetcher.get(py)?,
            Ahead::There(pipeline) => {
                let pipeline = pipeline.get(py)?;
                let left = detached(py, || Ok(pipeline.lock().unwrap_or_else(PoisonError::into_inner).close()))?;
                return self.wrapper.batches(py, &left);
            }
        };
        let (ready, mut unfinished) = detached(py, || {
            let prefetcher = prefetcher.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok(prefetcher.map(|mut prefetcher| prefetcher.close()).unwrap_or_default())
        })?;
        let mut left: Vec<_> = ready.into_iter().map(|batch| self.batch(py, batch)).collect::<PyResult<_>>()?;
        if !unfinished.is_empty() {
            match self.batcher.batch(py, &mut unfinished, &self.reading) {
                Ok(batch) => left.push(batch),
                // `next` reported the error to the reader; single batches would take as much memory.
                Err(error) if error.is_instance_of::<PyMemoryError>(py) => {}
                Err(_) => left.extend(self.batcher.singles(py, &unfinished, &self.reading)?),
            }
        }
        Ok(left)
    }
}

impl Prefetch {
    fn await_next<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        poll: impl FnMut(Duration) -> Option<Result<Option<T>>> + Send,
    ) -> PyResult<Option<T>> {
        let client = self.client.get();
        let (way, deadline) = (client.reach().way(py)?, client.deadline(timeout)?);
        let reasons = way.reasons();
        let why = || {
            let tables = self.schedule.parts.iter().map(|(table, _)| reasons.why(table));
            tables.collect::<Vec<_>>().join(" ")
        };
        match wait(py, deadline, poll, why)? {
            Waited::Done(next) => Ok(next),
            Waited::Late => {
                let why = detached(py, || Ok(why()))?;
                Err(late(py, "batches", &why, |_| Ok(())))
            }
        }
    }

    fn batch<'py>(&self, py: Python<'py>, batch: Prefetched<Slab>) -> PyResult<Bound<'py, PyAny>> {
        let Prefetched { mut draws, plan, arrays } = batch;
        let mut fresh = Vec::with_capacity(arrays.len());
        for (output, slab) in plan.outputs.iter().zip(arrays) {
            fresh.push(Fresh::over(py, output.dtype, output.itemsize, &output.shape, slab)?);
        }
        self.batcher.wrap(py, &plan, &mut draws, fresh, &self.reading)
    }
}
