//! Who waits at a table, since when and for what, as data: `waiting/reason.rs` says it in words.

use super::blocks::{InsertBlock, SampleBlock};
use super::limiter::Counters;
use std::time::Duration;

/// Why an insert waits.
#[derive(Clone, Debug, PartialEq)]
pub enum InsertReason {
    /// The rate limiter.
    Limiter(InsertBlock),
    /// The tables of the server hold as many bytes as they may.
    Bytes {
        /// Bytes of the chunks that tables hold, each chunk counted once.
        held: u64,
        /// Bytes that the first waiting item would add.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// It stands behind others in the queue and nothing else holds it.
    Turn,
}

/// Why a sample waits.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleReason {
    /// The rate limiter.
    Limiter(SampleBlock),
    /// There are too few items that the request did not get already (without replacement).
    TooFewItems {
        /// Items in the table.
        size: u64,
    },
    /// It stands behind others in the queue and nothing else holds it.
    Turn,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For how long it has waited.
    pub since: Duration,
    /// Items or draws that it asked for.
    pub wanted: u64,
    /// How many of them are done.
    pub done: u64,
}

/// Requests of a queue that are reported one by one: listing all of very many would hold a table's lock for long.
pub const MOST_REPORTED: usize = 1000;

/// Who waits at a table, since when, for what, and what would free them.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// The table.
    pub table: String,
    /// Number of items.
    pub size: u64,
    /// Its bound.
    pub max_size: u64,
    /// It takes and gives nothing any more.
    pub closed: bool,
    /// Draws that clients have not acknowledged yet; those that do not reach their client come back.
    pub leased: u64,
    /// The limiter's counters.
    pub counters: Counters,
    /// Inserts that wait, as requests.
    pub num_inserts: u64,
    /// Samples that wait, as requests.
    pub num_samples: u64,
    /// The first of the inserts, in order of arrival, at most [`MOST_REPORTED`].
    pub inserts: Vec<Waiting>,
    /// The first of the samples, likewise.
    pub samples: Vec<Waiting>,
    /// What holds a single insert back now; `None` where one could go on.
    pub insert_reason: Option<InsertReason>,
    /// What holds a single draw back now; `None` where one could go on.
    pub sample_reason: Option<SampleReason>,
    /// Both sides are held back, and nothing that is asked for now can change it.
    pub stuck: bool,
}

/// Bytes that an insert waits for.
pub(in crate::table) struct Starved {
    pub(in crate::table) held: u64,
    pub(in crate::table) needed: u64,
    pub(in crate::table) budget: u64,
}
