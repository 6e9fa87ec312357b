//! Requests to the shards of one table, and the draws that they return.

use super::requests::{Asked, Outcome, Request};
use super::{Failures, ShardDraws, Shards};
use crate::enter::Deadline;
use crate::reading::Reading;
use pyo3::prelude::*;
use reverie_core::sample::{Drawn, SampleRequest, Shards as Model, Split};
use reverie_core::table::Tally;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

impl Shards {
    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, shard: usize, tally: Tally, asked: Duration) {
        let mut model = self.model();
        model.heard(shard, tally);
        model.heard_clock(shard, asked, self.began.elapsed(), tally.now);
    }

    /// The split of draws by the known tallies; `None` if the shards must be asked first.
    /// That is if a tally is missing, if there are no items or the limiter allows fewer draws, or if a shard is in this
    /// process, where asking costs no more than drawing.
    pub(super) fn known(&self, num_draws: u64) -> Option<Split> {
        let mut model = self.model();
        let mut present = (0..model.len()).filter(|shard| model.is_present(*shard));
        let known = present.all(|shard| model.tally(shard).is_some());
        if !known || model.size() == 0 || model.allowed(num_draws) < num_draws {
            return None;
        }
        if !self.is_remote {
            return None;
        }
        model.split(num_draws)
    }

    /// The first draws of each source, as many as given, with the chances of their shards.
    pub(super) fn made(&self, drawn: Vec<(usize, usize, Drawn)>, chances: &[f64]) -> Vec<ShardDraws> {
        let model = self.model();
        let (size, smallest) = (model.size(), model.smallest_probability(chances));
        let some = drawn.into_iter().filter(|(_, len, _)| *len > 0);
        some.map(|(shard, len, source)| ShardDraws {
            source: Mutex::new(Some(source)),
            len,
            chance: chances[shard],
            size,
            smallest,
        })
        .collect()
    }

    /// Makes all requests, then waits for each; updates the tallies.
    pub(super) fn request(
        &self,
        py: Python<'_>,
        requests: Vec<(usize, Request)>,
        reading: &Reading,
        timeout: Option<f64>,
    ) -> PyResult<(Vec<(usize, Drawn)>, Failures)> {
        let deadline = Deadline::from_timeout(timeout)?;
        let (mut waiting, mut drawn, mut failures) = (Vec::new(), Vec::new(), Failures::new());
        let began = self.began.elapsed();
        for (shard, request) in requests {
            match Asked::make(py, self.clients[shard].get().handle(), &self.table, request, reading, deadline.limit()) {
                Ok(asked) => waiting.push((shard, asked)),
                Err(error) => failures.push((shard, error)),
            }
        }
        for (shard, asked) in waiting {
            let Outcome { source, tally, error } =
                asked.wait(py, self.clients[shard].get().handle(), reading, deadline)?;
            if let Some(tally) = tally {
                self.heard(shard, tally, began);
            }
            drawn.extend(source.map(|source| (shard, source)));
            failures.extend(error.map(|error| (shard, error)));
        }
        Ok((drawn, failures))
    }
}

/// A request for draws with default options.
pub(super) fn plain(num_draws: u64) -> SampleRequest {
    SampleRequest { num_samples: num_draws as usize, ..SampleRequest::default() }
}
