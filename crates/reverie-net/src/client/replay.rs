//! The methods of a replay, as requests to its server.

use super::Remote;
use super::answer::Answer;
use crate::convert::query::{encode_conditions, encode_neighbours};
use crate::convert::table::{encode_change, encode_seen};
use crate::proto::{self, request::Body};
use reverie_core::replay::Replay;
use reverie_core::table::{Change, Condition, Keys, Seen, Tally, Ticket, Updated, Updates};
use std::time::Duration;

impl Replay for Remote {
    fn mutate(&self, table: &str, updates: &Updates<'_>, deletes: &[i64], awaited: bool) -> Ticket<(Updated, Updated)> {
        let mutate = proto::Mutate {
            table: table.to_owned(),
            keys: updates.keys.to_vec().into(),
            priorities: updates.priorities.to_vec().into(),
            if_version: updates.if_version.unwrap_or_default().to_vec(),
            deletes: deletes.to_vec(),
            neighbours: updates.neighbours.map(encode_neighbours),
        };
        self.outbox.request(Some(Body::Mutate(mutate)), None, (false, !awaited), Answer::Mutated)
    }

    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<Updated> {
        let keys = keys.map(|keys| proto::Keys { keys: keys.to_vec() });
        let delete = proto::Delete { table: table.to_owned(), keys, conditions: encode_conditions(conditions) };
        self.request(Body::Delete(delete), None, false, Answer::Deleted)
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        let can = proto::Can { table: table.to_owned(), count: num_samples, insert: false };
        self.request(Body::Can(can), None, false, Answer::Can)
    }

    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        let can = proto::Can { table: table.to_owned(), count: num_inserts, insert: true };
        self.request(Body::Can(can), None, false, Answer::Can)
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        self.request(Body::Reset(table.to_owned()), None, false, Answer::Done)
    }

    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        self.request(Body::Configure(encode_change(table, &change)), None, false, Answer::Done)
    }

    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally> {
        let (incarnation, ration) = (grant.map_or(0, |(incarnation, _)| incarnation), grant.map(|(_, ration)| ration));
        let grant = proto::Grant { table: table.to_owned(), ration, incarnation, unlike: None };
        self.request(Body::Grant(grant), None, false, Answer::Tally)
    }

    fn tally_unlike(&self, table: &str, seen: Seen, timeout: Duration) -> Ticket<Tally> {
        let unlike = Some(encode_seen(&seen));
        let grant = proto::Grant { table: table.to_owned(), ration: None, incarnation: 0, unlike };
        self.request(Body::Grant(grant), Some(timeout), true, Answer::Tally)
    }

    /// Answers once the server is reachable again. A withdrawn ticket ends with `UnknownFate` again.
    fn fate(&self, number: u64) -> Ticket<Keys> {
        self.outbox.fate(number)
    }

    /// [`Options::grace`](crate::reach::Options::grace), or what the measured round trip needs if that is more.
    fn grace(&self) -> Duration {
        self.options.grace.max(self.outbox.grace())
    }

    fn silence(&self, waited: Duration) -> String {
        match self.outage() {
            Some(outage) => format!("{outage}; does a server run there?"),
            None => {
                let (address, waited) = (&self.options.address, waited.as_secs_f64());
                format!("{address} has not answered for {waited:.1} s; does the server still run?")
            }
        }
    }

    /// The shortest round trip on this connection; zero before the first connection.
    fn round_trip(&self) -> Option<Duration> {
        Some(self.outbox.round_trip())
    }

    fn lags(&self) -> bool {
        self.outbox.server_lags()
    }

    fn restarts(&self) -> u64 {
        self.outbox.server_restarts()
    }
}
