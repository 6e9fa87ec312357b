//! The changes of a table since a journal asked last: the present state of the slots that changed.

use super::info::Stats;
use super::inserts::Keys;
use super::lessee::Lessee;
use super::limiter::Counters;
use super::options::TableOptions;
use super::senders::Sender;
use super::table_contents::Row;

/// The changes of one table. Applied in order to the rows of a checkpoint, they give the table as it was.
#[derive(Clone, Debug)]
pub struct TableDelta {
    /// The configuration, if it changed.
    pub options: Option<TableOptions>,
    /// All items left before the other changes.
    pub cleared: bool,
    /// The limiter's counters, without leased draws.
    pub counters: Counters,
    /// The other counts, without leased draws; only with `counts`.
    pub stats: Option<Stats>,
    /// See [`TableCut::order`](crate::table::TableCut::order).
    pub order: u64,
    /// The number of slots ever allocated.
    pub allocated: u32,
    /// Slots that are free now.
    pub removed: Vec<u32>,
    /// The rows of slots that got another item.
    pub rows: Vec<Row>,
    /// The counts of items that stayed.
    pub counts: Vec<Counts>,
    /// The requests that hold draws of items, by slot, where that changed.
    pub leases: Vec<(u32, Vec<Lessee>)>,
    /// The changes of the inserts that may be retried, in order.
    pub senders: Vec<SenderChange>,
}

/// The counts of an item that is in its table already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// The item's slot.
    pub slot: u32,
    /// The generation of its key.
    pub generation: u32,
    /// The priority.
    pub priority: f64,
    /// The number of updates of the priority.
    pub version: u32,
    /// The number of draws.
    pub times_sampled: u32,
    /// Position in the order of insertions and updates.
    pub updated: u64,
}

/// A change of the inserts that a sender may retry.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderChange {
    /// The items of an insert, or its first items, are in the table under these keys.
    Arrived(Sender, u64, Keys),
    /// The sender has received the outcome of the inserts with a number below the first, and of those with these
    /// numbers.
    Received(Sender, u64, Vec<u64>),
    /// The sender is forgotten.
    Forgotten(Sender),
}
