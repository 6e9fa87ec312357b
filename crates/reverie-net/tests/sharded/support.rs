//! Model as their tallies tell of them.

use reverie_core::table::Tally;
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::Mass;
use reverie_net::sharded::Model;

/// The tally of a table with so many items, each inserted once, and this mass.
pub fn tally(total: f64, zeros: u64, size: u64) -> Tally {
    let counters = Counters { inserts: size, samples: 0, deletes: 0 };
    let smallest_probability = (size > 0).then_some(1.0 / size.max(1) as f64);
    Tally { incarnation: 1, size, mass: Mass { total, zeros }, smallest_probability, counters, ..Tally::default() }
}

/// The model of shards with these tallies, and a limiter that never delays.
pub fn shards(tallies: &[Tally]) -> Model {
    let mut shards = Model::new(tallies.len(), Limiter::min_size(1).unwrap(), 3);
    tallies.iter().enumerate().for_each(|(shard, tally)| shards.heard(shard, *tally));
    shards
}
