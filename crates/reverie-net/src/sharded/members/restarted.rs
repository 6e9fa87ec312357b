//! Servers that were restarted: how the client notices it, and admits them again before it uses their answers.

use super::super::calls::{RequestEnd, ShardOutcomes};
use super::Members;
use reverie_core::replay::Info;
use reverie_core::{Error, Result};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Members {
    fn in_use(&self) -> MutexGuard<'_, HashSet<String>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a table that is used: a server that is admitted later must have it.
    pub(in crate::sharded) fn uses(&self, table: &str) {
        let mut in_use = self.in_use();
        if !in_use.contains(table) {
            in_use.insert(table.to_owned());
        }
    }

    /// True from when another server answers, or the same one after a restart, until it is admitted.
    pub(in crate::sharded) fn is_restarted(&self, shard: usize) -> bool {
        let member = &self.members[shard];
        member.replay.restarts() > member.restarts.load(Ordering::Relaxed)
    }

    /// True if a server answers that it does not have a table with which it was admitted.
    pub(super) fn lacks(&self, shard: usize, error: &Error) -> bool {
        let Error::UnknownTable { name, .. } = error else { return false };
        let state = self.state();
        state[shard].tables.as_ref().is_some_and(|tables| tables.iter().any(|table| table.name == *name))
    }

    /// Takes in a server that was lost or restarted. If its tables are not those of the others, it keeps what was
    /// known of it, and the reason is logged once.
    pub(super) fn admit_again(&self, shard: usize, info: &Info, restarts: u64) -> Result<()> {
        let before = {
            let known = &self.state()[shard];
            (known.number, known.tables.clone())
        };
        let in_use: Vec<String> = self.in_use().iter().cloned().collect();
        let fits = self.admit(shard, info, restarts);
        let fits = fits.and_then(|()| in_use.iter().try_for_each(|table| self.table(table).map(drop)));
        let refusal = {
            let known = &mut self.state()[shard];
            if fits.is_err() {
                (known.number, known.tables) = before;
            }
            std::mem::replace(&mut known.refusal, fits.clone().err())
        };
        // Once for each reason.
        if let Some(error) = fits.as_ref().err().filter(|error| refusal.as_ref() != Some(*error)) {
            tracing::error!("{} is not used: {error}", self.name(shard));
        }
        fits
    }

    /// The reason why a server is not used although it answers, as an error.
    pub(in crate::sharded) fn refuse_unfit(&self, shard: usize) -> Result<()> {
        self.state()[shard].refusal.clone().map_or(Ok(()), Err)
    }

    /// Takes note of the numbers of several servers before any of them is admitted: they may have exchanged them.
    pub(in crate::sharded) fn note_numbers(&self, outcomes: &ShardOutcomes<Info>) {
        let mut state = self.state();
        for (shard, outcome) in outcomes {
            let info = outcome.as_ref().ok();
            if let Some(table) = info.and_then(|info| info.tables.first()) {
                state[*shard].reported = Some(table.options.shard);
            }
        }
    }

    /// Admits those of the servers that were restarted: one that does not fit the others, or fails, is lost.
    ///
    /// One that does not answer in time stays as it is: its answers are not used.
    pub(in crate::sharded) async fn check_restarted(
        self: &Arc<Self>,
        end: &RequestEnd,
        shards: impl IntoIterator<Item = usize>,
    ) {
        let restarted = shards.into_iter().filter(|shard| self.is_restarted(*shard) && !self.is_lost(*shard));
        let restarted: Vec<(usize, u64)> = restarted.map(|shard| (shard, self.replay(shard).restarts())).collect();
        if restarted.is_empty() {
            return;
        }
        let asked = restarted.iter().map(|(shard, _)| {
            let replay = self.replay(*shard);
            (*shard, Arc::clone(replay), replay.info())
        });
        let asked = asked.collect();
        let outcomes = end.all(asked).await;
        self.note_numbers(&outcomes);
        for ((shard, outcome), (_, restarts)) in outcomes.into_iter().zip(restarted) {
            match outcome.and_then(|info| self.admit_again(shard, &info, restarts)) {
                Ok(()) => {}
                Err(error @ Error::Deadline(_)) => _ = self.missed(shard, &error),
                Err(error) => self.lose(shard, &error),
            }
        }
    }
}
