//! **Replay**: the operations of one replay buffer, in this process or on a server.
//!
//! The tables of this process and the client of a server both implement [`Replay`]. A request returns a ticket and does
//! not wait. For tables of this process a ticket is done at once, except where the request waits for a table (inserts,
//! draws, [`Replay::changed_tally`]) or for the disk (checkpoints). Callers do not depend on where the tables are.

mod answers;
mod local;

use crate::append::Sink;
use crate::batch::BatchOptions;
use crate::error::Result;
use crate::sample::{ArrayAllocator, DrawnBatch, SampleOutcome, SampleRequest, Schedule};
use crate::table::{Change, ChangeCounts, Condition, Keys, Query, SeenTally, TableOptions, Tally, Ticket, Updates};
use std::sync::Arc;
use std::time::Duration;

pub use answers::{ConnectionInfo, Info, ShardInfo, ShardTable, WaitSummary};

/// The tables of one server, local or remote. Writers reach them as a [`Sink`].
pub trait Replay: Sink {
    /// Completes once the tables are known: over a network, after the first connection.
    fn ready(&self) -> Ticket<()>;

    /// The options of the tables, in the server's order; empty before [`Replay::ready`] completed.
    fn tables(&self) -> Vec<TableOptions>;

    /// Draws items, all of them as one batch. Dropping the ticket withdraws the request.
    ///
    /// `read_options` is for tables that gather the batch elsewhere. `timeout` goes to a server, which then reports why
    /// a draw is late; without it, or if the tables are here, the caller ends the wait itself.
    fn sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome>;

    /// Draws the items that can be drawn at once, at least one and at most `at_most`; see [`SampleOutcome::runs`].
    ///
    /// A batch that is gathered elsewhere is read as [`ONE_BY_ONE`](crate::batch::ONE_BY_ONE).
    fn sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome>;

    /// Like [`Replay::sample_available`], but waits for nothing: an outcome without draws is not an error. `timeout` as
    /// for `try_sample`.
    fn try_sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome>;

    /// Draws only what can be drawn now, and waits for nothing.
    ///
    /// Fewer draws than requested are not an error. The outcome is one batch, which may have no draws; from a server
    /// that does not answer in time it is none. An item that is too short for a window is not replaced by another draw.
    fn try_sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome>;

    /// Batches that are made ahead of their reader. `allocate` returns memory for arrays that are gathered here.
    fn batches(
        self: Arc<Self>,
        schedule: Schedule,
        read_options: &BatchOptions<'_>,
        allocate: ArrayAllocator,
    ) -> Result<Box<dyn Batches>>;

    /// Reads items by key; removes nothing and counts no draws. Dropping the ticket withdraws the request.
    fn get(&self, table: &str, keys: &[i64], read_options: &BatchOptions<'_>) -> Ticket<SampleOutcome>;

    /// Finds items by their metadata in the table. Returns one batch of metadata, without arrays.
    fn query(&self, table: &str, query: &Query) -> Ticket<SampleOutcome>;

    /// The most items of one insert.
    fn max_items(&self) -> usize;

    /// The figures of all tables and of their memory.
    fn info(&self) -> Ticket<Info>;

    /// Takes a checkpoint of all tables; returns its path at each server. It goes on if the ticket is dropped.
    fn checkpoint(&self) -> Ticket<Vec<String>>;

    /// Completes once everything that was done before this call is on the disk of each server, at any `sync`.
    ///
    /// `InvalidArgument` if a server has no journal. Dropping the ticket withdraws the request.
    fn durable(&self) -> Ticket<()>;

    /// The state of the connection; `None` for tables of this process.
    fn link(&self) -> Option<ConnectionInfo>;

    /// The requests that wait at a table, and the reasons.
    fn why(&self, table: &str) -> Ticket<WaitSummary>;

    /// Deletes items, then sets priorities; returns the counts of (updates, deletes).
    ///
    /// Dropping the ticket does not cancel the request. `awaited`: a caller waits for the response; otherwise a network
    /// client may send the request a millisecond later, together with others.
    fn mutate(
        &self,
        table: &str,
        updates: &Updates<'_>,
        deletes: &[i64],
        awaited: bool,
    ) -> Ticket<(ChangeCounts, ChangeCounts)>;

    /// Deletes items for which all conditions hold, of those with `keys`, or of all.
    ///
    /// Dropping the ticket does not cancel the request.
    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<ChangeCounts>;

    /// True if the limiter admits this many draws now.
    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool>;

    /// True if the limiter admits this many inserts now.
    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool>;

    /// Drops all items and resets all counters to zero.
    fn reset(&self, table: &str) -> Ticket<()>;

    /// Changes limits.
    fn configure(&self, table: &str, change: Change) -> Ticket<()>;

    /// Grants inserts to a table that is one of several shards, then returns its figures.
    ///
    /// `grant` is an incarnation and a total number of inserts. See
    /// [`SharedTable::tally`](crate::table::SharedTable::tally).
    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally>;

    /// Returns the tally once the table differs from `seen`.
    ///
    /// Over a network, also after `timeout`. Dropping the ticket withdraws the request.
    fn changed_tally(&self, table: &str, seen: SeenTally, timeout: Duration) -> Ticket<Tally>;

    /// The keys of an insert that failed with [`Error::UnknownOutcome`](crate::error::Error::UnknownOutcome), once they
    /// are known.
    fn insert_outcome(&self, number: u64) -> Ticket<Keys>;

    /// The time after its deadline in which a response may still arrive.
    fn grace(&self) -> Duration;

    /// The time without a response after which a server counts as unreachable; `None` if no message travels.
    fn patience(&self) -> Option<Duration>;

    /// The reason why no response has arrived for this long, when no table holds the request back.
    fn no_response_reason(&self, waited: Duration) -> String;

    /// The shortest round trip of a message; `None` if no message travels and senders need no pacing.
    fn round_trip(&self) -> Option<Duration>;

    /// True if unconfirmed inserts wait for the server itself, not for a connection or a table.
    fn server_lags(&self) -> bool;

    /// The number of times that the server was found restarted, with its unsaved data lost.
    fn restarts(&self) -> u64;
}

/// Batches that are made ahead of their reader.
///
/// Their draws are leased: each is [acknowledged](crate::sample::Lease::try_acknowledge) when the program takes it.
/// Those that it has not taken go back to their tables when they, or the whole, are dropped.
pub trait Batches: Send {
    /// The next batch, after a wait of at most `timeout`: `None` if none is ready, `Some(Ok(None))` at the end.
    ///
    /// The batches end after an error.
    fn next(&mut self, timeout: Duration) -> Option<Result<Option<DrawnBatch>>>;

    /// The batch that [`Batches::next`] returned last is back in its tables, and did not reach its reader: another one
    /// is drawn in its place, unless the tables are closed.
    fn again(&mut self);

    /// Stops, and returns what was drawn and never delivered. Blocks until nothing is on its way. Idempotent.
    fn close(&mut self) -> Vec<DrawnBatch>;
}
