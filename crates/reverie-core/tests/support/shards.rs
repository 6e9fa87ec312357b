//! Shards as their tallies tell of them.

use reverie_core::sample::Shards;
use reverie_core::table::Tally;
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::Mass;

/// Of a table of so many items, each inserted once, of that mass in all.
pub fn tally(total: f64, zeros: u64, size: u64) -> Tally {
    let counters = Counters { inserts: size, samples: 0, deletes: 0 };
    let smallest_probability = (size > 0).then_some(1.0 / size.max(1) as f64);
    Tally { incarnation: 1, size, mass: Mass { total, zeros }, smallest_probability, counters, ..Tally::default() }
}

/// Shards that were heard of, with a limiter that holds nobody up.
pub fn shards(tallies: &[Tally]) -> Shards {
    let mut shards = Shards::new(tallies.len(), Limiter::min_size(1).unwrap(), 3);
    tallies.iter().enumerate().for_each(|(shard, tally)| shards.heard(shard, *tally));
    shards
}
