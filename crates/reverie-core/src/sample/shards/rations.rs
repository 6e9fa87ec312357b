//! How many inserts each shard may let in.

use super::{Shard, Shards};

/// What a shard that nothing limits is told. A signed 64-bit integer holds it.
const UNLIMITED: u64 = i64::MAX as u64;

impl Shard {
    /// What may be in force there: what it says, and what was told since, until it says that.
    pub(super) fn settle(&mut self) {
        let says = self.tally.and_then(|tally| tally.ration).unwrap_or(0);
        if self.told == Some(says) {
            self.told = None;
        }
        self.ration = says.max(self.told.unwrap_or(0));
    }

    /// Inserts that it may still let in.
    fn unused(&self) -> u64 {
        self.here().map_or(0, |tally| self.ration.saturating_sub(tally.counters.inserts))
    }
}

impl Shards {
    /// What each shard is to be told now: its incarnation, and the inserts that it may let in, counted as its own
    /// counters do. `None` for those that know it, that cannot be reached, or whose own limiter decides. `wants` are
    /// inserts that are about to come, beside those that wait.
    ///
    /// Nothing is given that another shard may still use: what is taken back from one is given at the next call, when
    /// that shard has said how much it was.
    pub fn rations(&mut self, wants: &[u64]) -> Vec<Option<(u64, u64)>> {
        let most = self.limiter.most_inserts(&self.counters());
        let so_far: u64 = self.shards.iter().map(Shard::inserts).sum();
        let promised: u64 = self.shards.iter().fold(so_far, |all, shard| all.saturating_add(shard.unused()));
        let targets = self.targets(most.map_or(UNLIMITED, |most| most.saturating_sub(so_far)), wants);
        let mut free = most.map_or(UNLIMITED, |most| most.saturating_sub(promised));
        let mut told = vec![None; self.shards.len()];
        for ((shard, target), told) in self.shards.iter_mut().zip(targets).zip(&mut told) {
            let Some((tally, says)) = shard.here().and_then(|tally| Some((*tally, tally.ration?))) else { continue };
            let mut ration = match most {
                None => UNLIMITED,
                Some(_) => tally.counters.inserts.saturating_add(target),
            };
            if most.is_some() && ration > shard.ration {
                let more = (ration - shard.ration).min(free);
                free -= more;
                ration = shard.ration + more;
            }
            if ration == says && shard.told.is_none() {
                continue;
            }
            shard.told = Some(ration);
            shard.ration = shard.ration.max(ration);
            *told = Some((tally.incarnation, ration));
        }
        told
    }

    /// Spreads inserts: first to those that wait, then evenly.
    fn targets(&self, mut left: u64, wants: &[u64]) -> Vec<u64> {
        let rationed = |shard: &Shard| shard.here().is_some_and(|tally| tally.ration.is_some());
        let mut targets = vec![0; self.shards.len()];
        let mut wanting: Vec<(usize, u64)> = (self.shards.iter().enumerate())
            .filter(|(_, shard)| rationed(shard))
            .map(|(at, shard)| (at, shard.here().map_or(0, |tally| tally.waiting_inserts).max(wants[at])))
            .filter(|(_, wants)| *wants > 0)
            .collect();
        // Those that want least first, so that what they leave goes to the others.
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

    /// Inserts that the limiter would let in now, over all shards; `None`: no end.
    pub fn inserts_left(&self) -> Option<u64> {
        let counters = self.counters();
        self.limiter.most_inserts(&counters).map(|most| most.saturating_sub(counters.inserts))
    }
}
