//! Several tables sampled and rate-limited as one: the draws from each shard, and the inserts granted to each.
//!
//! These are pure decisions over the shards' tallies; the client that makes the requests holds this.
//!
//! An item of shard s has the probability `chance(s) * P(item | s)`: the first is the shard's share of the mass of all
//! shards in their last tallies; the second is the probability that the shard returned with the draw. The product is
//! the probability that was used, even if a mass has changed meanwhile.
//!
//! One limiter applies to all, over summed counters. Each shard admits inserts up to a *ration*, so that no two have to
//! agree on an insert: the rations in force never add up to more than the limiter allows in total, and the unused part
//! of one shard's ration is taken back first and only then given to another. (A limiter per shard would stop for ever
//! if draws go to the shards 60/40 and inserts 50/50.)

mod clocks;
mod rations;
mod split;

use clocks::Clocks;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use reverie_core::table::Tally;
use reverie_core::table::limiter::{Counters, Limiter, SampleBlock};
use std::time::Duration;

pub use split::{KeptDraws, Split};

/// The shards of one table.
#[derive(Debug)]
pub struct Model {
    limiter: Limiter,
    random: Xoshiro256PlusPlus,
    shards: Vec<ModelShard>,
    /// Other clients draw under the same limiter.
    among_others: bool,
}

#[derive(Clone, Debug, Default)]
struct ModelShard {
    /// The shard's last tally; `None` before the first.
    tally: Option<Tally>,
    /// False while it cannot be reached: its counters count, its items do not.
    present: bool,
    /// Inserts and samples of earlier incarnations.
    past: Counters,
    /// The counters of the present incarnation when they began to count here.
    start: Counters,
    /// The largest ration that may be in force at the shard.
    ration: u64,
    /// The ration that was last sent to it and is not confirmed yet.
    announced: Option<u64>,
    /// Draws of this incarnation that the shard counted and no caller received.
    discarded: u64,
    /// The bounds of its clock's offset.
    clocks: Clocks,
}

impl ModelShard {
    fn inserts(&self) -> u64 {
        let now = self.tally.map_or(0, |tally| tally.counters.inserts);
        self.past.inserts + now.saturating_sub(self.start.inserts)
    }

    fn samples(&self) -> u64 {
        let now = self.tally.map_or(0, |tally| tally.counters.samples);
        self.past.samples + now.saturating_sub(self.start.samples + self.discarded)
    }

    /// The shard's last tally, while it can be reached.
    fn here(&self) -> Option<&Tally> {
        self.tally.as_ref().filter(|_| self.present)
    }
}

impl Model {
    /// Shards without a tally yet. `seed` fixes which shards are drawn from.
    pub fn new(num_shards: usize, limiter: Limiter, seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { limiter, random, shards: vec![ModelShard::default(); num_shards], among_others: false }
    }

    /// This model as that of one of several clients under this limiter, each with tallies of its own.
    ///
    /// All of them have to count alike, whenever they began: earlier incarnations are forgotten, and only the shards'
    /// own counters count.
    pub fn among_others(self) -> Self {
        Self { among_others: true, ..self }
    }

    /// The number of shards, unreachable ones included.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// True if there are no shards.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Takes in a shard's tally; the shard is reachable from now on.
    ///
    /// Counters of another incarnation count from their present values: those of a checkpoint were counted before they
    /// were lost, and a new shard admits nothing before its first tally.
    pub fn received(&mut self, shard: usize, tally: Tally) {
        let (shard, forgets) = (&mut self.shards[shard], self.among_others);
        let known = shard.tally.map(|tally| tally.incarnation);
        if known.is_some_and(|known| known != tally.incarnation) {
            if forgets {
                *shard = ModelShard::default();
            } else {
                shard.past = Counters { inserts: shard.inserts(), samples: shard.samples(), deletes: 0 };
                shard.start = tally.counters;
            }
            (shard.announced, shard.discarded, shard.clocks) = (None, 0, Clocks::default());
        }
        shard.tally = Some(tally);
        shard.present = true;
        shard.settle();
    }

    /// Marks a shard as unreachable: its mass leaves the distribution, and its unused ration goes to the others.
    pub fn lost(&mut self, shard: usize) {
        self.shards[shard].present = false;
    }

    /// True while the shard can be reached.
    pub fn is_present(&self, shard: usize) -> bool {
        self.shards[shard].present
    }

    /// The shard's last tally.
    pub fn tally(&self, shard: usize) -> Option<&Tally> {
        self.shards[shard].tally.as_ref()
    }

    /// Resets all counts, after all tables were reset; nothing is known of a shard until its next tally.
    pub fn reset(&mut self) {
        self.shards.fill(ModelShard::default());
    }

    /// The counters of all shards as those of one table, of the items that can be reached.
    pub fn counters(&self) -> Counters {
        let inserts: u64 = self.shards.iter().map(ModelShard::inserts).sum();
        let samples = self.shards.iter().map(ModelShard::samples).sum();
        Counters { inserts, samples, deletes: inserts.saturating_sub(self.size()) }
    }

    /// The number of reachable items: the N of importance weights.
    pub fn size(&self) -> u64 {
        self.present().map(|(_, tally)| tally.size).sum()
    }

    /// The limiter of all shards.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Replaces the limiter of all shards; the counts continue.
    pub fn set_limiter(&mut self, limiter: Limiter) {
        self.limiter = limiter;
    }

    /// The number of new inserts of any one shard above which [`Model::allowed`] may change, if nothing else does.
    pub fn patience(&self) -> u64 {
        let needed = self.limiter.inserts_until_sample(&self.counters()).unwrap_or(1);
        let present = self.present().count().max(1) as u64;
        // Before there are that many in total, at least one shard has its part of them.
        needed.div_ceil(present).max(1)
    }

    /// The number of draws, up to `wanted`, that are allowed now.
    pub fn allowed(&self, wanted: u64) -> u64 {
        let counters = self.counters();
        let open = |n: u64| self.limiter.can_sample(&counters, n);
        if open(wanted) {
            return wanted;
        }
        let (mut least, mut most) = (0, wanted);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if open(middle) { least = middle } else { most = middle }
        }
        least
    }

    /// The reason why no draw is allowed now; `None` if one is.
    pub fn blocked_sample(&self) -> Option<SampleBlock> {
        self.limiter.blocked_sample(&self.counters())
    }

    /// The probability of each shard: that of its items in one table of them all; `None` if nothing can be drawn.
    ///
    /// Items of infinite weight come first, and if no item has weight, all are equally likely.
    pub fn probabilities(&self) -> Option<Vec<f64>> {
        let masses = || self.shards.iter().map(|shard| shard.here().map(|tally| tally.mass).unwrap_or_default());
        let largest = masses().map(|mass| mass.total).fold(0.0, f64::max);
        // Divided by the largest: a sum of several large masses may overflow.
        let mut probabilities: Vec<f64> = if largest.is_infinite() {
            masses().map(|mass| if mass.total.is_infinite() { mass.zeros as f64 } else { 0.0 }).collect()
        } else if largest > 0.0 {
            masses().map(|mass| mass.total / largest).collect()
        } else {
            masses().map(|mass| mass.zeros as f64).collect()
        };
        let all: f64 = probabilities.iter().sum();
        if all <= 0.0 {
            return None;
        }
        probabilities.iter_mut().for_each(|chance| *chance /= all);
        Some(probabilities)
    }

    /// The smallest probability of any item, if shards are chosen with these chances.
    ///
    /// `None` if there are no items, or a selector has no smallest probability.
    pub fn smallest_probability(&self, probabilities: &[f64]) -> Option<f64> {
        let shards = self.shards.iter().zip(probabilities).filter(|(_, chance)| **chance > 0.0);
        let least = shards.map(|(shard, chance)| Some(shard.tally?.smallest_probability? * chance));
        least.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    /// Takes in a reading of a shard's clock, taken between these two times of the client's clock.
    pub fn received_clock(&mut self, shard: usize, asked: Duration, answered: Duration, shown: Duration) {
        self.shards[shard].clocks.add(asked, answered, shown);
    }

    /// The number of seconds by which the shard's clock is ahead of the client's; 0 without a reading.
    ///
    /// The error is at most half of the shortest round trip.
    pub fn clock_ahead(&self, shard: usize) -> f64 {
        self.shards[shard].clocks.ahead()
    }

    fn present(&self) -> impl Iterator<Item = (&ModelShard, &Tally)> {
        self.shards.iter().filter_map(|shard| Some((shard, shard.here()?)))
    }
}
