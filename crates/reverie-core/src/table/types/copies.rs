//! Copies of items in another table: which a table asks for, and what became of them.

use crate::item::{Item, Key};
use std::time::Duration;

/// Copies that may wait for one extension; beyond, they are dropped at once.
pub const MOST_WAITING: u64 = 1024;

/// An extension of a table: what is sampled the first time goes into another table of the same server, too.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertOnSample {
    /// The other table.
    pub target: String,
    /// For how long a copy may wait to be let in, then it is dropped; `None` for as long as it takes.
    pub timeout: Option<Duration>,
}

/// What became of the copies of one extension, since the start or the last reset of the table that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Went in.
    pub inserted: u64,
    /// Did not: their time was over, too many waited, the other table refused them or was closed.
    pub dropped: u64,
    /// Wait now.
    pub waiting: u64,
}

/// An item that was drawn for the first time.
#[derive(Clone, Debug)]
pub struct FirstDraw {
    /// The references.
    pub item: Item,
    /// Its priority at the draw.
    pub priority: f64,
    /// Its key.
    pub key: Key,
}
