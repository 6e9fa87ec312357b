//! The items and counts of a table, as read from a checkpoint.

use super::info::Stats;
use super::limiter::Counters;
use super::senders::{Arrivals, Sender};
use crate::item::{Item, Key};

/// One item as a checkpoint had it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The references.
    pub item: Item,
    /// The slot of its key.
    pub slot: u32,
    /// The generation of its key.
    pub generation: u32,
    /// The priority as it was given.
    pub priority: f64,
    /// The number of updates of the priority.
    pub version: u32,
    /// The number of draws.
    pub times_sampled: u32,
    /// The time of the insert, in nanoseconds of the clock of the restored table.
    pub inserted_at: u64,
    /// Position in the order of insertions.
    pub inserted: u64,
    /// Position in the order of insertions and updates.
    pub updated: u64,
    /// The key of another table's item that this is a copy of.
    pub copy_of: Option<Key>,
}

/// A slot whose item a client held when the journal ended, with the generation of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedSlot {
    /// The slot.
    pub slot: u32,
    /// The generation of the item's key.
    pub generation: u32,
}

/// A table's items and counts, to restore into an empty table. The table's own options stay.
#[derive(Clone, Debug, Default)]
pub struct TableContents {
    /// The limiter's counters.
    pub counters: Counters,
    /// The other counts; those of present items are computed again.
    pub stats: Stats,
    /// See [`TableCut::order`](crate::table::TableCut::order).
    pub order: u64,
    /// The shard encoded in the keys.
    pub shard: u8,
    /// The items, each in its own slot.
    pub rows: Vec<Row>,
    /// See [`TableCut::sent`](crate::table::TableCut::sent).
    pub sent: Vec<(Sender, Arrivals)>,
}
