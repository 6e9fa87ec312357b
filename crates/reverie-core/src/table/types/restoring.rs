//! A table's items and counts as a checkpoint has them.

use super::info::Stats;
use super::limiter::Counters;
use super::senders::{Arrivals, Sender};
use crate::item::{Item, Key};

/// One item as a checkpoint had it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The references.
    pub item: Item,
    /// The slot and the generation of its key.
    pub slot: u32,
    /// See `slot`.
    pub generation: u32,
    /// As it was given.
    pub priority: f64,
    /// Updates of the priority.
    pub version: u32,
    /// Draws.
    pub times_sampled: u32,
    /// Nanoseconds of the clock of the table that it goes into.
    pub inserted_at: u64,
    /// Position in the order of insertions.
    pub inserted: u64,
    /// Position in the order of insertions and updates.
    pub updated: u64,
    /// The key of another table's item that this is a copy of.
    pub copy_of: Option<Key>,
}

/// A table's items and counts, to be put into a table that is empty. The table's own options stay.
#[derive(Clone, Debug, Default)]
pub struct Restoring {
    /// The limiter's counters.
    pub counters: Counters,
    /// The other counts; those of present items are counted anew.
    pub stats: Stats,
    /// See [`TableCut::order`].
    pub order: u64,
    /// The shard of the keys.
    pub shard: u8,
    /// The items, each in a slot of its own.
    pub rows: Vec<Row>,
    /// See [`TableCut::sent`].
    pub sent: Vec<(Sender, Arrivals)>,
}
