//! A request to one shard: made without waiting, and waited for after all are made.

use crate::enter::{Deadline, copying, quick};
use crate::errors::raise;
use crate::handle::Handle;
use crate::reach::reported;
use crate::reading::Reading;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::sample::{Drawn, SampleRequest, Sampled};
use reverie_core::table::{Seen, Tally, Ticket};
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
    Draws(Ticket<Sampled>),
    Tally(Ticket<Tally>),
}

/// The outcome of a request.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) source: Option<Drawn>,
    pub(super) tally: Option<Tally>,
    pub(super) error: Option<PyErr>,
}

impl Asked {
    /// Makes a request. `reading` has the read options of its draws.
    pub(super) fn make(
        py: Python<'_>,
        client: &Handle,
        table: &str,
        request: Request,
        reading: &Reading,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let replay = client.reach().replay(py)?;
        match request {
            Request::Draws(request) => {
                let bytes = request.num_samples << 8;
                let ask = || Ok(replay.sample_now(table, request, &reading.options(), timeout));
                Ok(Self::Draws(copying(py, bytes, ask)?))
            }
            Request::Tally(grant) => Ok(Self::Tally(quick(py, || Ok(replay.tally(table, grant)))?)),
        }
    }

    /// Waits for the outcome. `Err` if a signal ended the wait; an error of the shard is in the outcome.
    pub(super) fn wait(
        self,
        py: Python<'_>,
        client: &Handle,
        reading: &Reading,
        deadline: Deadline,
    ) -> PyResult<Outcome> {
        let replay = client.reach().replay(py)?;
        let waited = match self {
            Self::Draws(ticket) => {
                let sampled = reported(py, "a shard", &*replay, ticket, deadline);
                sampled.and_then(|sampled| drawn(py, client, reading, sampled))
            }
            Self::Tally(ticket) => {
                let tally = reported(py, "a shard", &*replay, ticket, deadline);
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
    client: &Handle,
    table: &str,
    seen: Seen,
    timeout: Duration,
) -> PyResult<Ticket<Tally>> {
    let replay = client.reach().replay(py)?;
    quick(py, || Ok(replay.tally_unlike(table, seen, timeout)))
}

/// The outcome of draws that arrived.
fn drawn(py: Python<'_>, client: &Handle, reading: &Reading, sampled: Sampled) -> PyResult<Outcome> {
    let Sampled { mut batches, error } = sampled;
    match error {
        None if batches.len() <= 1 => {
            let source = batches.pop();
            let tally = source.as_ref().and_then(Drawn::tally);
            Ok(Outcome { source, tally, error: None })
        }
        None => Err(raise(py, Error::Protocol("several batches for one request".to_owned()))),
        Some(error) => Err(client.batcher.failed(py, "sample", batches, error, reading)?),
    }
}
