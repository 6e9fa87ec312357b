//! An iterator of prefetched batches: made by a thread of the engine, or by a server with several requests in flight.

use crate::array::Slab;
use crate::batch::Batcher;
use crate::client::Client;
use crate::count::Count;
use crate::enter::{Deadline, WaitOutcome, detached, late, quick, wait};
use crate::process_local::ProcessLocal;
use crate::read_options::{ColumnPaths, ReadOptions, WindowsArgument};
use crate::replay_backend;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use reverie_core::replay::Batches;
use reverie_core::sample::{DrawnBatch, Lease, MAX_SAMPLES, Mixture, Schedule, Share};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A seed; and for each table its first and last share, the batch at which it begins to change, and for how many.
type MixtureArgument = (u64, Vec<(f64, f64, i64, u64)>);

/// The engine's side of `reverie.datasets.Batches`, which documents it.
#[pyclass(frozen, module = "reverie._native")]
pub struct Prefetch {
    client: Py<Client>,
    batches: ProcessLocal<Mutex<Box<dyn Batches>>>,
    tables: Vec<String>,
    read_options: ReadOptions,
    batcher: Batcher,
}

#[pymethods]
impl Prefetch {
    #[new]
    #[pyo3(signature = (client, parts, *, ahead, columns, ragged, max_samples, without_replacement, windows=None,
        widens=false, mixture=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        client: Py<Client>,
        parts: Vec<(String, Count)>,
        ahead: Count,
        columns: Option<ColumnPaths>,
        ragged: Option<&str>,
        max_samples: Option<Count>,
        without_replacement: bool,
        windows: Option<WindowsArgument>,
        widens: bool,
        mixture: Option<MixtureArgument>,
    ) -> PyResult<Self> {
        let read_options = ReadOptions::new(columns, ragged)?;
        let size = |(table, count): (String, Count)| Ok((table, count.within("batch_size", 1, MAX_SAMPLES)?));
        let parts = parts.into_iter().map(size).collect::<PyResult<Vec<_>>>()?;
        let tables = parts.iter().map(|(table, _)| table.clone()).collect();
        let max_samples = max_samples.map(|count| count.at_least("max_samples", 1)).transpose()?;
        let ahead = ahead.at_least("prefetch", 1)?;
        let (windows, budget) =
            (windows.map(|windows| windows.0), widens.then(|| client.get().handle().max_in_flight_bytes()));
        let batch_size = parts.first().map_or(1, |(_, count)| *count);
        let mixture = mixture.map(|(seed, shares)| {
            let share = |(first, last, start, batches)| Share { first, last, start, batches };
            Mixture { shares: shares.into_iter().map(share).collect(), batch_size, seed }
        });
        let schedule = Schedule { parts, mixture, without_replacement, windows, max_samples, ahead, budget };
        let deadline = client.get().handle().deadline(None)?;
        let replay = client.get().handle().backend().known(py, deadline)?;
        let batches = quick(py, || replay.shared().batches(schedule, &read_options.options(), Slab::memory))?;
        let batches = ProcessLocal::new(Mutex::new(batches), "iterator of batches");
        Ok(Self { client, batches, tables, read_options, batcher: Batcher::default() })
    }

    /// The next batch, or None at the end.
    #[pyo3(signature = (timeout))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (client, begun) = (self.client.get().handle(), Instant::now());
        let deadline = client.deadline(timeout)?;
        loop {
            let Some((batch, lease)) = self.next_by(py, deadline.after(begun.elapsed()))? else { return Ok(None) };
            if try_acknowledge(py, lease)? {
                return Ok(Some(batch));
            }
            // It went back to its tables while it was made: others may have it.
            let batches = self.batches.get(py)?;
            detached(py, || {
                locked(batches).again();
                Ok(())
            })?;
        }
    }

    /// Stops, and returns the batches that were drawn and never delivered. Idempotent.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batches = self.batches.get(py)?;
        let mut made = Vec::new();
        for mut drawn in detached(py, || Ok(locked(batches).close()))? {
            let lease = drawn.take_lease();
            let batches = match (self.batcher.batch(py, &mut drawn, &self.read_options), &drawn) {
                (Ok(batch), _) => vec![batch],
                // `next` reported the error to the reader; single batches would take as much memory.
                (Err(error), DrawnBatch::Items(_)) if error.is_instance_of::<PyMemoryError>(py) => continue,
                (Err(_), DrawnBatch::Items(draws)) => match self.batcher.singles(py, draws, &self.read_options) {
                    Ok(singles) => singles,
                    // They go back to their tables.
                    Err(_) => continue,
                },
                (Err(error), _) => return Err(error),
            };
            made.push((batches, lease));
        }
        let mut left = Vec::new();
        for (batches, lease) in made {
            if try_acknowledge(py, lease)? {
                left.extend(batches);
            }
        }
        Ok(left)
    }
}

impl Prefetch {
    /// The next batch, and the lease of its draws.
    fn next_by<'py>(&self, py: Python<'py>, deadline: Deadline) -> PyResult<Option<(Bound<'py, PyAny>, Lease)>> {
        let (batches, replay) = (self.batches.get(py)?, self.client.get().handle().backend().replay(py)?);
        let why = || self.tables.iter().map(|table| replay_backend::why(&*replay, table)).collect::<Vec<_>>().join(" ");
        // Another thread may hold the lock for long, and the first look is made under the GIL.
        let look = |slice: Duration| match slice.is_zero() {
            true => batches.try_lock().ok()?.next(slice),
            false => locked(batches).next(slice),
        };
        let next = match wait(py, deadline, look, why)? {
            WaitOutcome::Done(next) => next,
            WaitOutcome::Expired => {
                let why = detached(py, || Ok(why()))?;
                return Err(late(py, "batches", &why, |_| Ok(())));
            }
        };
        let Some(mut drawn) = next else { return Ok(None) };
        // Draws that become no batch go back to their tables.
        let lease = drawn.take_lease();
        let batch = self.batcher.batch(py, &mut drawn, &self.read_options)?;
        Ok(Some((batch, lease)))
    }
}

/// Tells the table, or its server, that the program has the draws from now on. False if they went back to their tables.
fn try_acknowledge(py: Python<'_>, lease: Lease) -> PyResult<bool> {
    match lease.is_empty() {
        true => Ok(true),
        // A table then serves others, which may take long.
        false => detached(py, || Ok(lease.try_acknowledge())),
    }
}

fn locked(batches: &Mutex<Box<dyn Batches>>) -> MutexGuard<'_, Box<dyn Batches>> {
    batches.lock().unwrap_or_else(PoisonError::into_inner)
}
