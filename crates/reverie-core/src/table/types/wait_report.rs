//! The requests that wait at a table, since when and for what. `waiting/reason.rs` puts it into words.

use super::blocks::{InsertBlock, SampleBlock};
use super::limiter::Counters;
use std::time::Duration;

/// The reason why an insert waits.
#[derive(Clone, Debug, PartialEq)]
pub enum InsertReason {
    /// The rate limiter.
    Limiter(InsertBlock),
    /// The tables of the server hold as many bytes as allowed.
    Bytes {
        /// Bytes of the chunks that tables hold, each chunk counted once.
        held: u64,
        /// Bytes that the first waiting item would add.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The tables hold as many bytes of memory as allowed, and chunks must move to the disk first.
    Memory {
        /// Bytes of memory of the chunks that tables hold, each chunk counted once.
        held: u64,
        /// Bytes of memory that the first waiting item would add.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
        /// The part of `held` that no move to the disk frees, if it leaves too little for the item.
        unmovable: Option<UnmovableBytes>,
        /// The reason why no chunk can move now; `None` if chunks move.
        stall_reason: Option<String>,
    },
    /// The journal waits for room on the disk. The insert may be in the table already.
    Journal(String),
    /// The request waits only behind others in the queue.
    Turn,
}

/// Bytes of memory that no move to the disk frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmovableBytes {
    /// The index of the chunks that are there.
    pub index: u64,
    /// Chunks that are still being written.
    pub open: u64,
}

/// The reason why a sample waits.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleReason {
    /// The rate limiter.
    Limiter(SampleBlock),
    /// Too few items that the request did not draw already (sampling without replacement).
    TooFewItems {
        /// Items in the table.
        size: u64,
    },
    /// The request waits only behind others in the queue.
    Turn,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEntry {
    /// The time for which it has waited.
    pub since: Duration,
    /// Items or draws that it requested.
    pub wanted: u64,
    /// The number of them that are done.
    pub done: u64,
}

/// Requests of a queue that are reported one by one: a list of very many would hold the table's lock for long.
pub const MOST_REPORTED: usize = 1000;

/// The requests that wait at a table, since when, for what, and what would unblock them.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitReport {
    /// The table.
    pub table: String,
    /// Number of items.
    pub size: u64,
    /// The largest number of items.
    pub max_size: u64,
    /// The table is closed: it accepts no inserts or samples.
    pub closed: bool,
    /// Draws that clients have not acknowledged yet; a draw that does not reach its client is returned to the table.
    pub leased: u64,
    /// The limiter's counters.
    pub counters: Counters,
    /// The number of insert requests that wait.
    pub num_inserts: u64,
    /// The number of sample requests that wait.
    pub num_samples: u64,
    /// The first of the inserts, in order of arrival, at most [`MOST_REPORTED`].
    pub inserts: Vec<WaitEntry>,
    /// The first of the samples, likewise.
    pub samples: Vec<WaitEntry>,
    /// The reason why a single insert would wait now; `None` if it would not.
    pub insert_reason: Option<InsertReason>,
    /// The reason why a single draw would wait now; `None` if it would not.
    pub sample_reason: Option<SampleReason>,
    /// Both sides are blocked, and no request that waits can change that.
    pub stuck: bool,
    /// The error that stopped the journal: inserts are refused.
    pub journal_error: Option<String>,
    /// Requests of all tables that wait for the disk, and the bytes of the journal that may not be on it.
    pub waiting_for_disk: Option<(u64, u64)>,
}

/// Bytes that an insert waits for.
pub(in crate::table) struct ByteShortage {
    pub(in crate::table) of: ByteLimit,
    pub(in crate::table) held: u64,
    pub(in crate::table) needed: u64,
    pub(in crate::table) budget: u64,
    /// The bytes that cannot move to the disk, see [`InsertReason::Memory`].
    pub(in crate::table) unmovable: Option<UnmovableBytes>,
}

/// A limit of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum ByteLimit {
    /// The limit on all bytes of the server's tables.
    Total,
    /// The limit on the bytes in memory; the others are on the disk.
    Memory,
}
