//! The methods of a replay, as requests to its server.

use super::answer::RequestPromise;
use super::pipeline::Pipeline;
use super::remote::{self, Remote};
use super::work::Handling;
use crate::convert::batch::encode_read_options;
use crate::convert::numbers;
use crate::convert::query::{encode_conditions, encode_neighbours, encode_query};
use crate::convert::table::{encode_change, encode_seen};
use crate::items::MAX_ITEMS;
use crate::proto::{self, request::Body};
use reverie_core::Result;
use reverie_core::append::Sink;
use reverie_core::batch::{BatchOptions, ONE_BY_ONE};
use reverie_core::item::Item;
use reverie_core::replay::{Batches, ConnectionInfo, Info, Replay, WaitSummary};
use reverie_core::sample::{ArrayAllocator, SampleOutcome, SampleRequest, Schedule, Windows};
use reverie_core::table::{
    Change, ChangeCounts, Condition, Inserts, Keys, Priority, Query, SeenTally, TableOptions, Tally, Ticket, Updates,
};
use std::sync::Arc;
use std::time::Duration;

/// A request for draws from one table.
fn one(table: &str, request: SampleRequest, read_options: &BatchOptions<'_>) -> remote::SampleRequest {
    let parts = vec![(table.to_owned(), request.num_samples)];
    let leases = request.lessee.is_some();
    remote::SampleRequest { parts, leases, ..form(request.without_replacement, request.windows, read_options) }
}

/// The way in which draws are made and read, as a request without tables.
fn form(without_replacement: bool, windows: Option<Windows>, read_options: &BatchOptions<'_>) -> remote::SampleRequest {
    let (columns, ragged) = (read_options.columns.map(<[String]>::to_vec), read_options.ragged);
    remote::SampleRequest {
        parts: Vec::new(),
        columns,
        ragged,
        without_replacement,
        windows,
        at_once: false,
        only_now: false,
        leases: false,
    }
}

impl Replay for Remote {
    fn ready(&self) -> Ticket<()> {
        self.describe().map(drop)
    }

    fn tables(&self) -> Vec<TableOptions> {
        self.outbox.described().map_or_else(Vec::new, |described| described.tables.clone())
    }

    fn sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        self.draw(one(table, request, read_options), timeout)
    }

    fn sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        let request = SampleRequest { num_samples: at_most, ..SampleRequest::default() };
        self.draw(remote::SampleRequest { at_once: true, ..one(table, request, &ONE_BY_ONE) }, timeout)
    }

    fn try_sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        let request = SampleRequest { num_samples: at_most, ..SampleRequest::default() };
        let request = one(table, request, &ONE_BY_ONE);
        self.draw(remote::SampleRequest { at_once: true, only_now: true, ..request }, timeout)
            .map(SampleOutcome::of_now)
    }

    fn try_sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        self.draw(remote::SampleRequest { only_now: true, ..one(table, request, read_options) }, timeout)
            .map(SampleOutcome::of_now)
    }

    fn batches(
        self: Arc<Self>,
        schedule: Schedule,
        read_options: &BatchOptions<'_>,
        _: ArrayAllocator,
    ) -> Result<Box<dyn Batches>> {
        schedule.parts.iter().try_for_each(|(table, _)| self.compression(table).map(drop))?;
        let form = form(schedule.without_replacement, schedule.windows, read_options);
        let form = remote::SampleRequest { leases: true, ..form };
        Ok(Box::new(Pipeline::new(self, schedule, form)))
    }

    fn get(&self, table: &str, keys: &[i64], read_options: &BatchOptions<'_>) -> Ticket<SampleOutcome> {
        let read_options = Some(encode_read_options(read_options.columns, read_options.ragged));
        let get = proto::Get { table: table.to_owned(), keys: numbers::encode(keys), reading: read_options };
        self.request(Body::Get(get), None, true, RequestPromise::Sampled)
    }

    fn query(&self, table: &str, query: &Query) -> Ticket<SampleOutcome> {
        self.request(Body::Query(encode_query(table, query)), None, true, RequestPromise::Sampled)
    }

    fn info(&self) -> Ticket<Info> {
        self.request(Body::Info(proto::InfoRequest {}), None, false, RequestPromise::Info)
    }

    fn max_items(&self) -> usize {
        MAX_ITEMS
    }

    fn checkpoint(&self) -> Ticket<Vec<String>> {
        let path = self.request(Body::Checkpoint(proto::CheckpointRequest {}), None, false, RequestPromise::Checkpoint);
        path.map(|path: String| vec![path])
    }

    fn durable(&self) -> Ticket<()> {
        self.request(Body::Durable(proto::Durable { later: false }), None, true, RequestPromise::Done)
    }

    fn link(&self) -> Option<ConnectionInfo> {
        Some(Remote::link(self))
    }

    fn why(&self, table: &str) -> Ticket<WaitSummary> {
        self.request(Body::Why(table.to_owned()), None, false, RequestPromise::Waits)
    }

    fn mutate(
        &self,
        table: &str,
        updates: &Updates<'_>,
        deletes: &[i64],
        awaited: bool,
    ) -> Ticket<(ChangeCounts, ChangeCounts)> {
        let mutate = proto::Mutate {
            table: table.to_owned(),
            keys: numbers::encode(updates.keys),
            priorities: numbers::encode(updates.priorities),
            if_version: numbers::encode(updates.if_version.unwrap_or_default()),
            deletes: numbers::encode(deletes),
            neighbours: updates.neighbours.map(encode_neighbours),
        };
        let handling = Handling { unawaited: !awaited, ..Handling::default() };
        self.outbox.request(Some(Body::Mutate(mutate)), None, handling, RequestPromise::Mutated)
    }

    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<ChangeCounts> {
        let keys = keys.map(|keys| proto::Keys { keys: numbers::encode(keys) });
        let delete = proto::Delete { table: table.to_owned(), keys, conditions: encode_conditions(conditions) };
        self.request(Body::Delete(delete), None, false, RequestPromise::Deleted)
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        let can = proto::Can { table: table.to_owned(), count: num_samples, insert: false };
        self.request(Body::Can(can), None, false, RequestPromise::Can)
    }

    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        let can = proto::Can { table: table.to_owned(), count: num_inserts, insert: true };
        self.request(Body::Can(can), None, false, RequestPromise::Can)
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        self.request(Body::Reset(table.to_owned()), None, false, RequestPromise::Done)
    }

    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        self.request(Body::Configure(encode_change(table, &change)), None, false, RequestPromise::Done)
    }

    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally> {
        let (incarnation, ration) = (grant.map_or(0, |(incarnation, _)| incarnation), grant.map(|(_, ration)| ration));
        let grant = proto::Grant { table: table.to_owned(), ration, incarnation, unlike: None };
        self.request(Body::Grant(grant), None, false, RequestPromise::Tally)
    }

    fn changed_tally(&self, table: &str, seen: SeenTally, timeout: Duration) -> Ticket<Tally> {
        let unlike = Some(encode_seen(&seen));
        let grant = proto::Grant { table: table.to_owned(), ration: None, incarnation: 0, unlike };
        self.request(Body::Grant(grant), Some(timeout), true, RequestPromise::Tally)
    }

    /// Answers once the server is reachable again. A withdrawn ticket ends with `UnknownOutcome` again.
    fn insert_outcome(&self, number: u64) -> Ticket<Keys> {
        self.outbox.insert_outcome(number)
    }

    /// [`EndpointOptions::grace`](crate::endpoint::EndpointOptions::grace), or what the measured round trip needs if
    /// that is more.
    fn grace(&self) -> Duration {
        self.options.grace.max(self.outbox.grace())
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.options.patience)
    }

    fn no_response_reason(&self, waited: Duration) -> String {
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

    fn server_lags(&self) -> bool {
        self.outbox.server_lags()
    }

    fn restarts(&self) -> u64 {
        self.outbox.server_restarts()
    }
}

/// Writers reach the server through this. `Unavailable` until the server was described.
impl Sink for Remote {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.outbox.insert(table, items)
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.outbox.check(table, items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.outbox.options(table, |checker| match priority {
            Priority::Value(value) => checker.check_priority(value),
            Priority::Max | Priority::Default => Ok(()),
        })?
    }

    fn signature(&self, table: &str) -> Result<Option<reverie_core::spec::Signature>> {
        self.outbox.options(table, |table| table.options().signature.clone())
    }

    fn wait_reason(&self, table: &str) -> Ticket<String> {
        match self.outbox.outage() {
            Some(outage) => {
                Ticket::done(Ok(format!("{outage}; unconfirmed inserts are kept, and sent when the server is back")))
            }
            None => self.request(Body::Why(table.to_owned()), None, false, RequestPromise::Sentence),
        }
    }

    fn compression(&self, table: &str) -> Result<reverie_core::chunk::Compression> {
        self.outbox.options(table, |table| table.options().compression)
    }

    fn meter(&self) -> &Arc<reverie_core::chunk::Meter> {
        &self.meter
    }
}
