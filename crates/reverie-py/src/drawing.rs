//! Draws that a caller waits for, as batches.

use crate::array::numbers;
use crate::enter::{Deadline, ExpiredRequest, ITEM_BYTES, READ_BYTES, issue};
use crate::errors::raise;
use crate::handle::Handle;
use crate::read_options::ReadOptions;
use crate::replay_backend::{answer, drawn};
use crate::undelivered::no_batch;
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::batch::ONE_BY_ONE;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest};

/// `Client.sample_batch`.
pub fn batch<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    request: SampleRequest,
    read_options: &ReadOptions,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let (deadline, replay) = (client.deadline(timeout)?, client.backend().replay(py)?);
    let bytes = request.num_samples.saturating_mul(ITEM_BYTES);
    let issued = issue(py, bytes, || Ok(replay.sample(table, request, &read_options.options(), deadline.limit())))?;
    match drawn(py, &*replay, table, issued, deadline)? {
        Ok(sampled) => client.batcher.whole(py, "sample", sampled, read_options),
        Err(left) => Err(late_draws(client, py, left, read_options)),
    }
}

/// `Client._sample_available`.
pub fn available<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    at_most: usize,
    timeout: Option<f64>,
) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
    let (deadline, replay) = (client.deadline(timeout)?, client.backend().replay(py)?);
    let (read_options, batcher) = (ReadOptions { ragged: ONE_BY_ONE.ragged, columns: None }, &client.batcher);
    let issued = issue(py, at_most.saturating_mul(ITEM_BYTES), || {
        Ok(replay.sample_available(table, at_most, deadline.limit()))
    })?;
    let SampleOutcome { batches, error } = match drawn(py, &*replay, table, issued, deadline)? {
        Ok(sampled) => sampled,
        Err(left) => return Err(late_draws(client, py, left, &read_options)),
    };
    let is_fatal = |error: &Error| batches.is_empty() || matches!(error, Error::NotCommitted { .. });
    match error.filter(is_fatal) {
        Some(error) => Err(batcher.failed(py, "sample", batches, error, &read_options)?),
        // Return the draws, and drop any other error: if its cause lasts, the next call raises it.
        None => {
            let one_step = batches.iter().map(DrawnBatch::is_one_step).collect::<Vec<_>>();
            Ok(batcher.each(py, batches, &read_options)?.into_iter().zip(one_step).collect())
        }
    }
}

/// `Client.get`.
pub fn get<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    keys: &Bound<'py, PyAny>,
    read_options: &ReadOptions,
    deadline: Deadline,
) -> PyResult<Bound<'py, PyAny>> {
    let (replay, keys) = (client.backend().replay(py)?, numbers::<i64>(keys, "keys")?);
    let keys = keys.as_slice();
    let issued = issue(py, keys.len() * READ_BYTES, || Ok(replay.get(table, keys, &read_options.options())))?;
    let SampleOutcome { batches, error } = answer(py, "get", &*replay, issued, deadline)?;
    match (error, batches.into_iter().next()) {
        // No draws are lost: a read by keys removes nothing.
        (Some(error), _) => Err(raise(py, error)),
        (None, Some(mut drawn)) => client.batcher.batch(py, &mut drawn, read_options),
        (None, None) => Err(raise(py, no_batch())),
    }
}

/// The error of a wait that ended early, with the draws made so far.
fn late_draws(
    client: &Handle,
    py: Python<'_>,
    mut left: ExpiredRequest<SampleOutcome>,
    read_options: &ReadOptions,
) -> PyErr {
    if let Some(Error::NotCommitted { why, .. }) = &left.done.error {
        // In addition to what the other draws wait for.
        left.why = [left.why.as_str(), why].into_iter().filter(|why| !why.is_empty()).collect::<Vec<_>>().join("; ");
    }
    left.raise(py, "sample", |done, with| client.batcher.partial(py, done, read_options, with))
}
