//! The figures that a shard reports to the client that draws from several shards.

use super::limiter::Counters;
use super::selector::Mass;
use std::time::Duration;

/// The figures of one shard at one moment, for a client that draws from several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// The shard encoded in the table's keys.
    pub shard: u8,
    /// A random number; changes on a reset or restart, when the counters start at zero or at a checkpoint's values.
    pub incarnation: u64,
    /// Number of items.
    pub size: u64,
    /// The total weight of its items for its sampler.
    pub mass: Mass,
    /// See [`Draws::smallest_probability`](crate::sample::Draws::smallest_probability).
    pub smallest_probability: Option<f64>,
    /// The limiter's counters.
    pub counters: Counters,
    /// The total number of granted inserts; `None` if the table's own limiter decides.
    pub ration: Option<u64>,
    /// Inserts that wait.
    pub waiting_inserts: u64,
    /// The reading of the table's clock.
    pub now: Duration,
}

/// The figures that a client has seen of a shard, when it waits for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenTally {
    /// See [`Tally::incarnation`].
    pub incarnation: u64,
    /// A larger number of inserts is a change.
    pub inserts: u64,
    /// See [`Tally::ration`].
    pub ration: Option<u64>,
    /// See [`Tally::waiting_inserts`].
    pub waiting_inserts: u64,
}

impl Tally {
    /// The seen state of this tally; inserts count as a change once they have grown by `more`, at least 1.
    pub fn seen(&self, more: u64) -> SeenTally {
        let inserts = self.counters.inserts.saturating_add(more.saturating_sub(1));
        SeenTally { incarnation: self.incarnation, inserts, ration: self.ration, waiting_inserts: self.waiting_inserts }
    }
}
