//! One round of draws: requests to servers at once, and their answers.

use super::calls::RequestEnd;
use super::join::ShardedReadOptions;
use super::table::Table;
use reverie_core::sample::{DrawnBatch, SampleOutcome, SampleRequest};
use reverie_core::{Error, Result};
use std::sync::Arc;

/// The answers of one round.
#[derive(Default)]
pub(super) struct Round {
    pub(super) drawn: Vec<(usize, DrawnBatch)>,
    /// Servers that were lost, or restarted: no draw of theirs is used.
    pub(super) lost: Vec<usize>,
    /// A server did not answer in time, or refused.
    pub(super) error: Option<Error>,
}

/// A request to one server.
pub(super) enum ShardRequest {
    Draws(SampleRequest),
    Tally,
}

impl Round {
    /// Asks servers at once, and waits for all of them; takes in their tallies.
    pub(super) async fn ask(
        table: &Table,
        end: &RequestEnd,
        read_options: &ShardedReadOptions,
        asks: Vec<(usize, ShardRequest)>,
    ) -> Self {
        let (asked_at, timeout) = (table.now(), end.answer());
        let (mut draws, mut tallies) = (Vec::new(), Vec::new());
        for (shard, ask) in asks {
            let replay = Arc::clone(table.members().replay(shard));
            match ask {
                ShardRequest::Draws(request) => {
                    let ticket = replay.try_sample(&table.name, request, &read_options.options(), timeout);
                    draws.push((shard, replay, ticket));
                }
                ShardRequest::Tally => {
                    let ticket = replay.tally(&table.name, None);
                    tallies.push((shard, replay, ticket));
                }
            }
        }
        let (draws, tallies) = (end.all(draws).await, end.all(tallies).await);
        let mut round = Self::default();
        for (shard, outcome) in draws {
            if table.members().is_restarted(shard) {
                round.lost.push(shard);
                continue;
            }
            let (batches, error) = match outcome {
                Ok(SampleOutcome { batches, error }) => (batches, error),
                Err(error) => (Vec::new(), Some(error)),
            };
            for drawn in batches {
                if let Some(tally) = drawn.tally() {
                    table.received(shard, tally, asked_at);
                }
                round.drawn.push((shard, drawn));
            }
            round.note(table, shard, error);
        }
        for (shard, outcome) in tallies {
            match outcome {
                Ok(tally) => table.received(shard, tally, asked_at),
                Err(error) => round.note(table, shard, Some(error)),
            }
        }
        round
    }

    /// Takes note of a server's error: one that cannot be reached is left out.
    pub(super) fn note(&mut self, table: &Table, shard: usize, error: Option<Error>) {
        match error {
            None => {}
            Some(error) if table.members().missed(shard, &error) => self.lost.push(shard),
            // It made its draws. This is reported although another server did not answer in time.
            Some(error @ Error::NotCommitted { .. }) => match &self.error {
                None | Some(Error::Deadline(_)) => self.error = Some(error),
                Some(_) => {}
            },
            Some(error) => {
                self.lost.push(shard);
                self.error.get_or_insert(error);
            }
        }
    }
}

impl Round {
    /// Makes the chances those of servers chosen among the ones that made their draws; true if one was empty.
    ///
    /// A draw that met a failed or an empty server is repeated, so the others were chosen among themselves. `gives`: a
    /// server with items makes each draw.
    pub(super) fn among_others(&self, counts: &[u64], probabilities: &mut [f64], gives: bool) -> bool {
        let mut is_any_empty = false;
        for (shard, chance) in probabilities.iter_mut().enumerate() {
            let (is_lost, gave) =
                (self.lost.contains(&shard), self.drawn.iter().any(|(of, drawn)| *of == shard && !drawn.is_empty()));
            let is_empty = gives && counts[shard] > 0 && !gave && !is_lost;
            is_any_empty |= is_empty;
            if is_lost || is_empty {
                *chance = 0.0;
            }
        }
        let left: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|chance| *chance /= left);
        is_any_empty
    }
}

/// The error, if there is one.
pub(super) fn fail(error: Option<Error>) -> Result<()> {
    error.map_or(Ok(()), Err)
}

/// A request for draws with default options.
pub(super) fn plain(count: u64) -> SampleRequest {
    SampleRequest { num_samples: count as usize, ..SampleRequest::default() }
}

/// Requests to the servers that have draws to make.
pub(super) fn asks(counts: &[u64], request: impl Fn(u64) -> SampleRequest) -> Vec<(usize, ShardRequest)> {
    let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    some.map(|(shard, count)| (shard, ShardRequest::Draws(request(*count)))).collect()
}
