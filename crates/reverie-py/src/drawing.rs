//! Draws that a caller waits for, as batches.

use crate::array::numbers;
use crate::client::Client;
use crate::enter::{Deadline, Late, copying, finish};
use crate::errors::raise;
use crate::reach::{Way, answer};
use crate::remote::request as ask;
use crate::sampler::Reading;
use pyo3::prelude::*;
use reverie_core::sample::{Draws, SampleRequest, Source};
use reverie_core::table::Tables;
use std::sync::Arc;

/// `Client.sample_batch`.
pub fn batch<'py>(
    client: &Client,
    py: Python<'py>,
    table: &str,
    request: SampleRequest,
    reading: &Reading,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let deadline = client.deadline(timeout)?;
    let tables = match client.reach().way(py)? {
        Way::Here(tables) => tables,
        Way::There(far) => {
            let asked = ask(table, reading, &request);
            return match far.ended(py, far.remote.sample(asked, deadline.limit()), deadline)? {
                Ok(sampled) => client.wrapper.whole(py, "sample", sampled),
                Err(left) => {
                    Err(left.raise(py, "sample", |done, with| client.wrapper.partial(py, &done.batches, with)))
                }
            };
        }
    };
    match draw(py, tables, table, request, deadline)? {
        Ok(mut draws) => client.batcher.batch_or_singles(py, &mut draws, reading),
        Err(left) => Err(late_draws(client, py, left, reading)),
    }
}

/// `Client._sample_some`.
pub fn some<'py>(
    client: &Client,
    py: Python<'py>,
    table: &str,
    at_most: usize,
    timeout: Option<f64>,
) -> PyResult<Vec<(Bound<'py, PyAny>, bool)>> {
    let (reading, deadline) = (Reading::new(None, None)?, client.deadline(timeout)?);
    let request = |num_samples| SampleRequest { num_samples, ..SampleRequest::default() };
    let tables = match client.reach().way(py)? {
        Way::Here(tables) => tables,
        Way::There(far) => {
            let asked = reverie_net::client::SampleRequest { at_once: true, ..ask(table, &reading, &request(at_most)) };
            let ended = far.ended(py, far.remote.sample(asked, deadline.limit()), deadline)?;
            let sampled = match ended {
                Ok(sampled) => sampled,
                Err(left) => {
                    return Err(left.raise(py, "sample", |done, with| client.wrapper.partial(py, &done.batches, with)));
                }
            };
            return match sampled.error.filter(|_| sampled.batches.is_empty()) {
                Some(error) => Err(client.wrapper.failed(py, "sample", &[], error)?),
                // Return the draws; the next call gets the error.
                None => sampled.batches.iter().map(|b| Ok((client.wrapper.batch(py, b)?, b.head.timestep))).collect(),
            };
        }
    };
    let at_once = draw(py, tables, table, request(at_most), Deadline::from_timeout(Some(0.0))?)?;
    let mut draws = at_once.unwrap_or_else(|left| left.done);
    if draws.is_empty() {
        draws = match draw(py, tables, table, request(1), deadline)? {
            Ok(draws) => draws,
            Err(left) => return Err(late_draws(client, py, left, &reading)),
        };
    }
    let mut batches = Vec::new();
    while !draws.is_empty() {
        let first = draws.items[0].pattern.clone();
        let alike = draws.items.iter().take_while(|item| item.pattern.same(&first)).count();
        let (rest, timestep) = (draws.split_off(alike), first.is_one_step());
        batches.push((client.batcher.batch(py, &mut std::mem::replace(&mut draws, rest), &reading)?, timestep));
    }
    Ok(batches)
}

/// `Client.get`.
pub fn get<'py>(
    client: &Client,
    py: Python<'py>,
    table: &str,
    keys: &Bound<'py, PyAny>,
    reading: &Reading,
    deadline: Deadline,
) -> PyResult<Bound<'py, PyAny>> {
    let (way, keys) = (client.reach().way(py)?, numbers::<i64>(keys, "keys")?);
    let keys = keys.as_slice();
    match way {
        Way::Here(tables) => {
            let mut draws = copying(py, keys.len() << 7, || tables.get(table)?.get(keys))?;
            client.batcher.batch(py, &mut draws, reading)
        }
        Way::There(far) => {
            let ticket = far.remote.get(table, keys, reading.columns.clone(), reading.ragged);
            let sampled = answer(py, "get", &*far.remote, ticket, deadline)?;
            // No draws are lost: a read by keys removes nothing.
            match sampled.error {
                Some(error) => Err(raise(py, error)),
                None => client.wrapper.whole(py, "get", sampled),
            }
        }
    }
}

/// The error of a wait that ended early, with the draws made so far.
fn late_draws(client: &Client, py: Python<'_>, left: Late<Draws>, reading: &Reading) -> PyErr {
    left.raise(py, "sample", |mut done, with| {
        let partial =
            if done.is_empty() { None } else { Some(client.batcher.batch_or_singles(py, &mut done, reading)?) };
        with.set_item("partial", partial)
    })
}

fn draw(
    py: Python<'_>,
    tables: &Arc<Tables>,
    table: &str,
    request: SampleRequest,
    deadline: Deadline,
) -> PyResult<Result<Draws, Late<Draws>>> {
    let ticket = copying(py, request.num_samples << 8, || tables.sample(table, request))?;
    finish(py, ticket, deadline, || Way::Here(tables).reasons().why(table))
}
