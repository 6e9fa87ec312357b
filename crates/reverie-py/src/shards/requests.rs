//! A request to one shard: made without waiting, and waited for after all are made.

use super::gather::Source;
use crate::client::Client;
use crate::enter::{Deadline, copying, quick};
use crate::errors::raise;
use crate::reach::Way;
use crate::remote;
use crate::sampler::Reading;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::sample::{SampleRequest, Source as _, Windows};
use reverie_core::table::{Seen, Tally, Ticket};
use reverie_net::client::{RemoteBatch, Sampled};
use std::time::Duration;

/// The kind of a request to a shard.
pub(super) enum Request {
    /// Draws, at least one.
    Draws(SampleRequest),
    /// The shard's tally, after admitting inserts to it: the incarnation that they are meant for, and how many.
    Tally(Option<(u64, u64)>),
}

/// A request that was made.
pub(super) enum Asked {
    /// Done already.
    Here(Box<Outcome>),
    Draws(Ticket<Sampled>),
    Tally(Ticket<Tally>),
}

/// The outcome of a request.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) source: Option<Source>,
    pub(super) tally: Option<Tally>,
    pub(super) error: Option<PyErr>,
}

impl Asked {
    /// Makes a request. `reading` has the read options of draws.
    pub(super) fn make(
        py: Python<'_>,
        client: &Client,
        table: &str,
        request: Request,
        reading: Option<&Reading>,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        match (client.reach().way(py)?, request, reading) {
            (Way::Here(tables), Request::Draws(request), _) => {
                let request = SampleRequest { windows: request.windows.map(Windows::once), ..request };
                let draws = copying(py, request.num_samples << 8, || {
                    let mut ticket = tables.sample(table, request)?;
                    ticket.poll().unwrap_or_else(|| ticket.cancel())
                })?;
                let tally = draws.tally;
                Ok(Self::Here(Box::new(Outcome { source: Some(Source::Here(draws)), tally, error: None })))
            }
            (Way::There(far), Request::Draws(request), Some(reading)) => {
                let plain = remote::request(table, reading, &request);
                let request = reverie_net::client::SampleRequest { only_now: true, ..plain };
                Ok(Self::Draws(far.remote.sample(request, timeout)))
            }
            (way, Request::Tally(grant), _) => Ok(Self::Tally(quick(py, || Ok(way.replay().tally(table, grant)))?)),
            (Way::There(_), Request::Draws(_), None) => {
                Err(raise(py, Error::InvalidArgument("draws that nobody reads".to_owned())))
            }
        }
    }

    /// Waits for the outcome. `Err` if a signal ended the wait; an error of the shard is in the outcome.
    pub(super) fn wait(self, py: Python<'_>, client: &Client, deadline: Deadline) -> PyResult<Outcome> {
        let waited = match self {
            Self::Here(outcome) => return Ok(*outcome),
            Self::Draws(ticket) => {
                let sampled = client.reach().way(py)?.reported(py, "a shard", ticket, deadline);
                sampled.and_then(|sampled| drawn(py, client, sampled))
            }
            Self::Tally(ticket) => {
                let tally = client.reach().way(py)?.reported(py, "a shard", ticket, deadline);
                tally.map(|tally| Outcome { tally: Some(tally), ..Outcome::default() })
            }
        };
        match waited {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                Ok(Outcome { error: Some(error), ..Outcome::default() })
            }
            waited => waited,
        }
    }
}

/// Asks the shard to answer when it differs from `seen`, or after `timeout`; never waits.
pub(super) fn look(
    py: Python<'_>,
    client: &Client,
    table: &str,
    seen: Seen,
    timeout: Duration,
) -> PyResult<Ticket<Tally>> {
    let way = client.reach().way(py)?;
    quick(py, || Ok(way.replay().tally_unlike(table, seen, timeout)))
}

/// The outcome of draws that arrived. Fewer draws than requested are no error, as none were to be waited for.
fn drawn(py: Python<'_>, client: &Client, sampled: Sampled) -> PyResult<Outcome> {
    let Sampled { mut batches, error } = sampled;
    match error {
        None | Some(Error::Deadline(_)) if batches.len() <= 1 => {
            let batch: Option<RemoteBatch> = batches.pop();
            let tally = batch.as_ref().and_then(|batch| batch.tally);
            Ok(Outcome { source: batch.map(Source::There), tally, error: None })
        }
        None | Some(Error::Deadline(_)) => {
            Err(raise(py, Error::Protocol("several batches for one request".to_owned())))
        }
        Some(error) => Err(client.wrapper.failed(py, "sample", &batches, error)?),
    }
}
