//! Copies of items in another table: the extension that asks for them, and their counts.

use crate::item::{Item, Key};
use std::time::Duration;

/// Copies that may wait for one extension; further ones are dropped at once.
pub const MOST_WAITING: u64 = 1024;

/// An extension of a table: an item sampled for the first time is also inserted into another table of the same server.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertOnSample {
    /// The other table.
    pub target: String,
    /// The time for which a copy may wait to be admitted before it is dropped; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// Counts of the copies of one extension, since the start or the last reset of its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Copies that were inserted.
    pub inserted: u64,
    /// Copies that were dropped: timed out, too many waiting, refused by the other table, that table was closed, or a
    /// chunk that a start left on the disk is damaged.
    pub dropped: u64,
    /// Copies that wait now.
    pub waiting: u64,
}

/// An item that was drawn for the first time.
#[derive(Clone, Debug)]
pub struct FirstDraw {
    /// The references.
    pub item: Item,
    /// The item's priority at the draw.
    pub priority: f64,
    /// The item's key.
    pub key: Key,
}
