//! Several tables drawn from, and limited, as one: which shard gives how many draws, and how many inserts each may let
//! in. Pure decisions over what the shards told; whoever makes the requests holds this.
//!
//! An item of shard s has the probability `chance(s) * P(item | s)`: the first is the shard's mass over that of all, as
//! they were last heard of; the second is what the shard says of the draw. The product is the probability that was used,
//! also where a mass has changed meanwhile.
//!
//! One limiter holds for all, over summed counters. Each shard admits inserts up to a *ration*, so that no two have to
//! agree on an insert: the rations in force never add up to more than the limiter allows in all, and what one shard does
//! not use is taken back, and then given to another. (A limiter per shard would stop for ever where draws go to the
//! shards 60/40 and inserts 50/50.)

mod clocks;
mod rations;
mod split;

use crate::table::Tally;
use crate::table::limiter::{Counters, Limiter, SampleBlock};
use clocks::Clocks;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

pub use split::{Kept, Split};

/// The shards of one table.
#[derive(Debug)]
pub struct Shards {
    limiter: Limiter,
    random: Xoshiro256PlusPlus,
    shards: Vec<Shard>,
    /// Others draw by the same limiter.
    among_others: bool,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// As it was last heard of; `None` before the first time.
    tally: Option<Tally>,
    /// False while it cannot be reached: it counts with what it did, and without its items.
    present: bool,
    /// Inserts and samples of incarnations that are gone.
    past: Counters,
    /// What the present incarnation's counters stood at when they began to count here.
    start: Counters,
    /// The largest ration that may be in force there.
    ration: u64,
    /// The ration that it was told last.
    told: Option<u64>,
    /// Draws of this incarnation that it counted and nobody was given.
    discarded: u64,
    /// What its clock shows.
    clocks: Clocks,
}

impl Shard {
    fn inserts(&self) -> u64 {
        let now = self.tally.map_or(0, |tally| tally.counters.inserts);
        self.past.inserts + now.saturating_sub(self.start.inserts)
    }

    fn samples(&self) -> u64 {
        let now = self.tally.map_or(0, |tally| tally.counters.samples);
        self.past.samples + now.saturating_sub(self.start.samples + self.discarded)
    }

    /// What it tells, while it can be reached.
    fn here(&self) -> Option<&Tally> {
        self.tally.as_ref().filter(|_| self.present)
    }
}

impl Shards {
    /// So many shards, none of which was heard of. `seed` fixes which shards are drawn from.
    pub fn new(num_shards: usize, limiter: Limiter, seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { limiter, random, shards: vec![Shard::default(); num_shards], among_others: false }
    }

    /// The same as one of several who draw by this limiter, each with what it heard by itself. All of them have to count
    /// alike, whenever they began: so incarnations that are gone are forgotten, and what shards count is all.
    pub fn among_others(self) -> Self {
        Self { among_others: true, ..self }
    }

    /// How many shards there are, those that cannot be reached included.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// True without shards.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// A shard told what it is; it is there from now on. Counters of another incarnation count from where they stand:
    /// a checkpoint's were counted before they were lost, and a new shard admits nothing before it was heard of.
    pub fn heard(&mut self, shard: usize, tally: Tally) {
        let (shard, forgets) = (&mut self.shards[shard], self.among_others);
        let known = shard.tally.map(|tally| tally.incarnation);
        if known.is_some_and(|known| known != tally.incarnation) {
            if forgets {
                *shard = Shard::default();
            } else {
                shard.past = Counters { inserts: shard.inserts(), samples: shard.samples(), deletes: 0 };
                shard.start = tally.counters;
            }
            (shard.told, shard.discarded, shard.clocks) = (None, 0, Clocks::default());
        }
        shard.tally = Some(tally);
        shard.present = true;
        shard.settle();
    }

    /// A shard cannot be reached: its mass leaves the distribution, and what it may still admit goes to the others.
    pub fn lost(&mut self, shard: usize) {
        self.shards[shard].present = false;
    }

    /// True while the shard can be reached.
    pub fn is_present(&self, shard: usize) -> bool {
        self.shards[shard].present
    }

    /// What the shard told last.
    pub fn tally(&self, shard: usize) -> Option<&Tally> {
        self.shards[shard].tally.as_ref()
    }

    /// Starts counting anew, after all tables were reset; nothing is known of any shard until it is heard of.
    pub fn reset(&mut self) {
        self.shards.fill(Shard::default());
    }

    /// The counters of all shards as those of one table, of the items that can be reached.
    pub fn counters(&self) -> Counters {
        let inserts: u64 = self.shards.iter().map(Shard::inserts).sum();
        let samples = self.shards.iter().map(Shard::samples).sum();
        Counters { inserts, samples, deletes: inserts.saturating_sub(self.size()) }
    }

    /// Items that can be reached: the N of importance weights.
    pub fn size(&self) -> u64 {
        self.present().map(|(_, tally)| tally.size).sum()
    }

    /// The limiter of all shards.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Another limiter of all shards; the counts go on.
    pub fn set_limiter(&mut self, limiter: Limiter) {
        self.limiter = limiter;
    }

    /// More inserts of any one shard than these may change what [`Shards::allowed`] says of a draw, if nothing else does.
    pub fn patience(&self) -> u64 {
        let needed = self.limiter.inserts_until_sample(&self.counters()).unwrap_or(1);
        let present = self.present().count().max(1) as u64;
        // So many in all are not there before one shard has its part of them.
        needed.div_ceil(present).max(1)
    }

    /// How many of `wanted` draws may be made now.
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

    /// Why no draw may be made now; `None` where one may.
    pub fn blocked_sample(&self) -> Option<SampleBlock> {
        self.limiter.blocked_sample(&self.counters())
    }

    /// The probability of each shard: that of its items together in one table of them all. So items of infinite weight
    /// come first, and where nothing weighs anything every item is as likely as the others.
    pub fn chances(&self) -> Option<Vec<f64>> {
        let masses = || self.shards.iter().map(|shard| shard.here().map(|tally| tally.mass).unwrap_or_default());
        let largest = masses().map(|mass| mass.total).fold(0.0, f64::max);
        // Over the largest: a sum of several large ones may be none.
        let mut chances: Vec<f64> = if largest.is_infinite() {
            masses().map(|mass| if mass.total.is_infinite() { mass.zeros as f64 } else { 0.0 }).collect()
        } else if largest > 0.0 {
            masses().map(|mass| mass.total / largest).collect()
        } else {
            masses().map(|mass| mass.zeros as f64).collect()
        };
        let all: f64 = chances.iter().sum();
        if all <= 0.0 {
            return None;
        }
        chances.iter_mut().for_each(|chance| *chance /= all);
        Some(chances)
    }

    /// The smallest probability of any item, where shards are chosen with these chances. `None` where there is none, or
    /// a selector has none.
    pub fn smallest_probability(&self, chances: &[f64]) -> Option<f64> {
        let shards = self.shards.iter().zip(chances).filter(|(_, chance)| **chance > 0.0);
        let least = shards.map(|(shard, chance)| Some(shard.tally?.smallest_probability? * chance));
        least.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    /// A shard's answer, which came between these moments of one's own clock, had this reading of its clock.
    pub fn heard_clock(&mut self, shard: usize, asked: Duration, answered: Duration, shown: Duration) {
        self.shards[shard].clocks.heard(asked, answered, shown);
    }

    /// By how many seconds the shard's clock is ahead of one's own: to half of the shortest round trip at worst. 0 where
    /// nothing was heard.
    pub fn clock_ahead(&self, shard: usize) -> f64 {
        self.shards[shard].clocks.ahead()
    }

    fn present(&self) -> impl Iterator<Item = (&Shard, &Tally)> {
        self.shards.iter().filter_map(|shard| Some((shard, shard.here()?)))
    }
}
