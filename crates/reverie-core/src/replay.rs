//! **Replay**: the operations of one replay buffer, in this process or on a server.
//!
//! The tables of this process and the client of a server both implement [`Replay`]. No operation blocks: each returns a
//! ticket, which is done at once for tables of this process. Callers do not depend on where the tables are.

use crate::append::Sink;
use crate::error::Error;
use crate::table::{Change, Condition, Keys, Seen, Tables, Tally, Ticket, Updated, Updates};
use std::time::Duration;

/// The tables of one server, local or remote. Writers reach them as a [`Sink`].
pub trait Replay: Sink {
    /// Deletes items, then sets priorities; returns the counts of (updates, deletes).
    ///
    /// Dropping the ticket does not cancel the request. `awaited`: a caller waits for the response; otherwise a network
    /// client may send the request a millisecond later, together with others.
    fn mutate(&self, table: &str, updates: &Updates<'_>, deletes: &[i64], awaited: bool) -> Ticket<(Updated, Updated)>;

    /// Deletes items for which all conditions hold, of those with `keys`, or of all.
    ///
    /// Dropping the ticket does not cancel the request.
    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<Updated>;

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
    fn tally_unlike(&self, table: &str, seen: Seen, timeout: Duration) -> Ticket<Tally>;

    /// The keys of an insert that failed with [`Error::UnknownFate`], once they are known.
    fn fate(&self, number: u64) -> Ticket<Keys>;

    /// How long after its deadline a response may still arrive.
    fn grace(&self) -> Duration;

    /// The reason why no response has arrived for this long, when no table holds the request back.
    fn silence(&self, waited: Duration) -> String;

    /// The shortest round trip of a message; `None` where no message travels and senders need no pacing.
    fn round_trip(&self) -> Option<Duration>;

    /// True if unconfirmed inserts wait for the server itself, not for a connection or a table.
    fn lags(&self) -> bool;

    /// How often the server was found restarted, with its unsaved data lost.
    fn restarts(&self) -> u64;
}

impl Replay for Tables {
    fn mutate(&self, table: &str, updates: &Updates<'_>, deletes: &[i64], _: bool) -> Ticket<(Updated, Updated)> {
        Ticket::done(self.get(table).and_then(|table| table.mutate(updates, deletes)))
    }

    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<Updated> {
        Ticket::done(self.get(table).and_then(|table| table.delete_where(keys, conditions)))
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        Ticket::done(self.get(table).map(|table| table.can_sample(num_samples)))
    }

    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        Ticket::done(self.get(table).map(|table| table.can_insert(num_inserts)))
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        Ticket::done(self.get(table).and_then(|table| table.reset()))
    }

    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        Ticket::done(self.get(table).and_then(|table| table.configure(change)))
    }

    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally> {
        Ticket::done(self.get(table).and_then(|table| table.tally(grant)))
    }

    fn tally_unlike(&self, table: &str, seen: Seen, _: Duration) -> Ticket<Tally> {
        self.get(table)
            .and_then(|table| table.tally_unlike(None, seen))
            .unwrap_or_else(|error| Ticket::done(Err(error)))
    }

    fn fate(&self, number: u64) -> Ticket<Keys> {
        Ticket::done(Err(Error::InvalidArgument(format!("no insert with the number {number} has an unknown fate"))))
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn silence(&self, _: Duration) -> String {
        "the tables of this process have not answered".to_owned()
    }

    fn round_trip(&self) -> Option<Duration> {
        None
    }

    fn lags(&self) -> bool {
        false
    }

    fn restarts(&self) -> u64 {
        0
    }
}
