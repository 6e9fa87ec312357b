//! The number of inserts granted to each shard.

use super::{Model, ModelShard};

/// The ration of a shard without a limit. A signed 64-bit integer holds it.
const UNLIMITED: u64 = i64::MAX as u64;

impl ModelShard {
    /// The ration that may be in force: the larger of the reported one and the one sent since, until that is reported.
    pub(super) fn settle(&mut self) {
        let reported = self.tally.and_then(|tally| tally.ration).unwrap_or(0);
        if self.announced == Some(reported) {
            self.announced = None;
        }
        self.ration = reported.max(self.announced.unwrap_or(0));
    }

    /// The inserts that it may still admit.
    fn unused(&self) -> u64 {
        self.here().map_or(0, |tally| self.ration.saturating_sub(tally.counters.inserts))
    }
}

impl Model {
    /// The ration to send to each shard now: its incarnation, and a total of inserts as its own counters count.
    ///
    /// `None` for shards that have their ration already, that cannot be reached, or whose own limiter decides. `wants`
    /// are inserts that are about to come, in addition to those that wait.
    ///
    /// Never grants what another shard may still use: what is taken back from one is granted at the next call, after
    /// that shard has reported how much it was.
    pub fn rations(&mut self, wants: &[u64]) -> Vec<Option<(u64, u64)>> {
        let most = self.limiter.most_inserts(&self.counters());
        let so_far: u64 = self.shards.iter().map(ModelShard::inserts).sum();
        let promised: u64 = self.shards.iter().fold(so_far, |all, shard| all.saturating_add(shard.unused()));
        let targets = self.targets(most.map_or(UNLIMITED, |most| most.saturating_sub(so_far)), wants);
        let mut free = most.map_or(UNLIMITED, |most| most.saturating_sub(promised));
        let mut sent = vec![None; self.shards.len()];
        for ((shard, target), sent) in self.shards.iter_mut().zip(targets).zip(&mut sent) {
            let Some((tally, reported)) = shard.here().and_then(|tally| Some((*tally, tally.ration?))) else {
                continue;
            };
            let mut ration = match most {
                None => UNLIMITED,
                Some(_) => tally.counters.inserts.saturating_add(target),
            };
            if most.is_some() && ration > shard.ration {
                let more = (ration - shard.ration).min(free);
                free -= more;
                ration = shard.ration + more;
            }
            if ration == reported && shard.announced.is_none() {
                continue;
            }
            shard.announced = Some(ration);
            shard.ration = shard.ration.max(ration);
            *sent = Some((tally.incarnation, ration));
        }
        sent
    }

    /// Distributes inserts: first to shards where some wait, then evenly.
    fn targets(&self, mut left: u64, wants: &[u64]) -> Vec<u64> {
        let rationed = |shard: &ModelShard| shard.here().is_some_and(|tally| tally.ration.is_some());
        let mut targets = vec![0; self.shards.len()];
        let mut wanting: Vec<(usize, u64)> = (self.shards.iter().enumerate())
            .filter(|(_, shard)| rationed(shard))
            .map(|(at, shard)| (at, shard.here().map_or(0, |tally| tally.waiting_inserts).max(wants[at])))
            .filter(|(_, wants)| *wants > 0)
            .collect();
        // The smallest demands first, so that the rest goes to the others.
        wanting.sort_by_key(|(_, wants)| *wants);
        for (served, (at, wants)) in wanting.iter().enumerate() {
            targets[*at] = (*wants).min(left.div_ceil((wanting.len() - served) as u64));
            left -= targets[*at];
        }
        let shards: Vec<usize> = (0..targets.len()).filter(|at| rationed(&self.shards[*at])).collect();
        for (given, at) in shards.iter().enumerate() {
            let part = left / (shards.len() - given) as u64;
            targets[*at] += part;
            left -= part;
        }
        targets
    }

    /// Inserts that the limiter would admit now, over all shards; `None` for no limit.
    pub fn inserts_left(&self) -> Option<u64> {
        let counters = self.counters();
        self.limiter.most_inserts(&counters).map(|most| most.saturating_sub(counters.inserts))
    }
}
