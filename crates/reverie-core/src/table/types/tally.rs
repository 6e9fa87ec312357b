//! What a table that is one of several shards reports to the client that draws from all of them.

use super::limiter::Counters;
use super::selector::Mass;
use std::time::Duration;

/// What one who draws from several shards has to know of each, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// The shard that the table's keys name.
    pub shard: u8,
    /// Random; another after a reset or a restart, when the counters began anew or stand where a checkpoint left them.
    pub incarnation: u64,
    /// Number of items.
    pub size: u64,
    /// What its items weigh together to its sampler.
    pub mass: Mass,
    /// See [`Draws::smallest_probability`](crate::sample::Draws::smallest_probability).
    pub smallest_probability: Option<f64>,
    /// The limiter's counters.
    pub counters: Counters,
    /// How many inserts were admitted in all; `None` where the table's own limiter decides.
    pub ration: Option<u64>,
    /// Inserts that wait.
    pub waiting_inserts: u64,
    /// The reading of the table's clock.
    pub now: Duration,
}

/// What somebody knows of a shard who waits for it to be another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// See [`Tally`], here and below.
    pub incarnation: u64,
    /// More inserts than these are a change, less this one.
    pub inserts: u64,
    /// See [`Tally`].
    pub ration: Option<u64>,
    /// See [`Tally`].
    pub waiting_inserts: u64,
}

impl Tally {
    /// What whoever heard this knows; another number of inserts is news once it is larger by `more`, at least 1.
    pub fn seen(&self, more: u64) -> Seen {
        let inserts = self.counters.inserts.saturating_add(more.saturating_sub(1));
        Seen { incarnation: self.incarnation, inserts, ration: self.ration, waiting_inserts: self.waiting_inserts }
    }
}
