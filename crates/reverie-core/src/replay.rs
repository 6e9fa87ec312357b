//! **Replay**: the verbs of one replay, wherever its tables are.
//!
//! The tables of this process implement it, and so does a client of a server. No verb blocks: each returns a ticket,
//! which is done at once where the tables are in this process. A caller asks nowhere where they are.

use crate::append::Sink;
use crate::error::Error;
use crate::table::{Change, Condition, Keys, Seen, Tables, Tally, Ticket, Updated, Updates};
use std::time::Duration;

/// The tables of one server, here or behind a network. Writers reach it as a [`Sink`].
pub trait Replay: Sink {
    /// Deletes items, and then sets priorities: counts of (updates, deletes). The request goes on where its ticket is
    /// dropped. `awaited`: a caller waits for the answer; otherwise a network may send the request a millisecond later,
    /// together with others.
    fn mutate(&self, table: &str, updates: &Updates<'_>, deletes: &[i64], awaited: bool) -> Ticket<(Updated, Updated)>;

    /// Deletes items for which all conditions hold, of those with `keys` or of all. The request goes on where its
    /// ticket is dropped.
    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<Updated>;

    /// True where the limiter would admit so many draws now.
    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool>;

    /// True where the limiter would admit so many inserts now.
    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool>;

    /// Drops all items, and counts from zero again.
    fn reset(&self, table: &str) -> Ticket<()>;

    /// Changes limits.
    fn configure(&self, table: &str, change: Change) -> Ticket<()>;

    /// Figures of a table that is one of several shards, after it was granted inserts: an incarnation, and how many in
    /// all. See [`SharedTable::tally`](crate::table::SharedTable::tally).
    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally>;

    /// The same once the table differs from `seen`, or after `timeout` where a network is between. Withdrawn where the
    /// ticket is dropped.
    fn tally_unlike(&self, table: &str, seen: Seen, timeout: Duration) -> Ticket<Tally>;

    /// The keys of an insert that ended with [`Error::UnknownFate`], once they are known.
    fn fate(&self, number: u64) -> Ticket<Keys>;

    /// How much later than its deadline an answer may arrive.
    fn grace(&self) -> Duration;

    /// Why no answer has arrived for so long, where no table holds the request up.
    fn silence(&self, waited: Duration) -> String;

    /// The shortest time from a message to its answer; `None` where no message travels, and no sender has to pace
    /// itself.
    fn round_trip(&self) -> Option<Duration>;

    /// True where inserts that are not confirmed wait for the server itself: for neither a connection nor a table.
    fn lags(&self) -> bool;

    /// How often the server was found restarted: unsaved data was lost.
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
