//! Requests other than inserts.

use super::super::batches::heavy;
use super::super::latencies::{RequestKind, Stopwatch};
use super::super::outcomes::{RequestOutcome, RequestStatus};
use super::super::read_options::ReadOptions;
use super::super::samples::{DRAW_BYTES, DrawDelivery, WaitLimit, cost, draw, wait};
use super::super::session::{CancellableRequest, DrawRequest, FinishedRequest, Session};
use super::super::waits;
use crate::convert;
use crate::proto::{self, Done, reply::Body, request};
use futures_util::FutureExt;
use reverie_core::batch::INFO_ARRAYS;
use reverie_core::replay::WaitSummary;
use reverie_core::table::{Lessee, Tally, Updates};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// Mutations of more keys move the runtime's other tasks to another thread.
const MANY_KEYS: usize = 4096;
/// The bytes of each draw's metadata in a batch.
const INFO_BYTES: usize = 8 * INFO_ARRAYS;

impl Session {
    /// Executes a request, or lets it wait. `Protocol` if it breaks a rule.
    pub(super) fn request(&mut self, request: proto::Request) -> Result<()> {
        let id = request.id;
        match self.outcomes.look_up(id) {
            RequestStatus::Received => return Ok(()),
            RequestStatus::Keys(_) => {
                return Err(Error::Protocol(format!("request {id} was sent before as an insert")));
            }
            RequestStatus::Other => {
                if self.send_again(id) {
                    return Ok(());
                }
            }
            RequestStatus::New => {}
        }
        if self.cancels.contains_key(&id) || self.ready.iter().any(|answer| answer.id == id) {
            return Ok(());
        }
        let most = self.shared.limits.max_pending_requests;
        if self.waiting.len() + self.ready.len() - self.inserts.waiting() >= most {
            return Err(Error::Protocol(format!("more than {most} requests wait")));
        }
        self.begin_span(&request);
        let timeout = match timeout(request.timeout) {
            Ok(timeout) => timeout,
            Err(error) => {
                self.reply(refusal(id, &error), false);
                return Ok(());
            }
        };
        let stopwatch = Stopwatch::now(request.body.as_ref().map_or(RequestKind::Other, verb));
        match request.body {
            None => self.reply(refusal(id, &Error::InvalidArgument("the request has no body".to_owned())), false),
            Some(request::Body::Sample(sample)) => self.sample(id, sample, timeout, stopwatch),
            Some(request::Body::Get(get)) => match self.get(id, get) {
                Ok((answer, asked)) => self.answer_with(answer, asked, stopwatch),
                Err(error) => self.reply(refusal(id, &error), false),
            },
            Some(request::Body::Query(query)) => match self.query(id, query) {
                Ok((answer, asked)) => self.answer_with(answer, asked, stopwatch),
                Err(error) => self.reply(refusal(id, &error), false),
            },
            Some(request::Body::Checkpoint(_)) => self.checkpoint(id, stopwatch),
            Some(request::Body::Durable(proto::Durable { later })) => self.durable(id, later, timeout, stopwatch),
            Some(request::Body::Grant(grant)) if grant.unlike.is_some() => self.changed_tally(id, grant, timeout),
            Some(body) => {
                let table = changed_table(&body).and_then(|name| self.shared.tables.get(name).ok().cloned());
                let (done, keep) = self.at_once(body);
                let reply = done.map_or_else(|error| refusal(id, &error), |body| proto::Reply { id, body: Some(body) });
                match table.and_then(|table| Some((table.barrier()?, table))) {
                    None => {
                        self.reply(reply, keep);
                        self.note_done(stopwatch, 1);
                    }
                    Some(barrier) => self.reply_once_durable(reply, barrier, stopwatch),
                }
            }
        }
        Ok(())
    }

    /// Sends the remembered outcome of a request again. False if the request must be executed again: the draws that it
    /// held before the server was restarted are undone.
    pub(super) fn send_again(&mut self, id: u64) -> bool {
        match self.outcomes.take(id) {
            Some(RequestOutcome::Reply(reply)) => self.reply(*reply, true),
            Some(RequestOutcome::Draws(answer)) => self.answer(*answer),
            Some(RequestOutcome::Held(_)) => return false,
            None => {}
        }
        true
    }

    fn sample(&mut self, id: u64, sample: proto::Sample, timeout: Option<Duration>, stopwatch: Stopwatch) {
        let (asked, tables) = cost(&self.shared, &sample.parts);
        let drawing = DrawRequest { tables, connection: self.connection };
        let consumes = drawing.consumes();
        let draws = sample.parts.iter().map(|part| u64::from(part.num_samples)).sum();
        if consumes {
            self.recount_if_full();
        }
        if let Err(error) = self.check_draws(draws, asked, consumes) {
            return self.reply(refusal(id, &error), false);
        }
        self.requested_bytes += asked;
        let (sender, cancel) = oneshot::channel();
        // A client without a session cannot acknowledge.
        let lessee = self.id.map(|sender| Lessee { sender, request: id });
        let patience = WaitLimit::new(timeout, cancel);
        let traced = self.traced_tables(id, &sample.parts);
        let mut drawn = Box::pin(draw(Arc::clone(&self.shared), id, sample, patience, lessee));
        // The draws can mostly be made at once. If not, the future is polled again among the others.
        if let Poll::Ready(answer) = drawn.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            return self.answer(DrawDelivery { requested_bytes: asked, stopwatch: Some(stopwatch), ..answer });
        }
        if !traced.is_empty() {
            self.spans.waits(id, waits::sample(&traced, self.shared.tables.journal().is_some()));
        }
        let drawing = Arc::new(drawing);
        self.cancels.insert(id, CancellableRequest::of_draws(sender, Arc::clone(&drawing)));
        let drawn = drawn.map(move |answer| {
            FinishedRequest::Draws(
                DrawDelivery { requested_bytes: asked, stopwatch: Some(stopwatch), ..answer },
                drawing,
            )
        });
        self.waiting.push(Box::pin(drawn));
    }

    /// Refuses a request before its draws are made.
    /// It does if all draws under way for the session would be more than one answer may hold; and, if the session uses
    /// too much memory, for draws that must be kept until they are received.
    fn check_draws(&self, draws: u64, bytes: u64, consumes: bool) -> Result<()> {
        let (needed, budget) = (self.requested_bytes.saturating_add(bytes), self.shared.limits.session_batch_bytes);
        if consumes && self.charge.is_full() {
            return Err(self.charge.refusal());
        }
        if needed <= budget {
            return Ok(());
        }
        let others = if self.requested_bytes == 0 { "" } else { " in addition to those under connection" };
        Err(Error::ResourceExhausted {
            what: format!("a request for {draws} draws{others}"),
            needed,
            budget,
            hint: "ask for fewer samples at a time, or keep fewer requests under connection".to_owned(),
        })
    }

    /// Sends an answer that was made at once.
    fn answer_with(&mut self, answer: DrawDelivery, requested_bytes: u64, stopwatch: Stopwatch) {
        self.requested_bytes += requested_bytes;
        self.answer(DrawDelivery { requested_bytes, stopwatch: Some(stopwatch), ..answer });
    }

    /// Answers a grant when the table differs from what the client has seen.
    fn changed_tally(&mut self, id: u64, grant: proto::Grant, timeout: Option<Duration>) {
        let seen = grant.unlike.as_ref().map(convert::table::decode_seen).unwrap_or_default();
        let asked = self.shared.tables.get(&grant.table).and_then(|table| {
            let ration = grant.ration.map(|ration| (grant.incarnation, ration));
            Ok((Arc::clone(table), table.changed_tally(ration, seen)?))
        });
        let (table, mut ticket) = match asked {
            Ok(asked) => asked,
            Err(error) => return self.reply(refusal(id, &error), false),
        };
        let reply_with = move |tally: Result<Tally>| match tally {
            Ok(tally) => proto::Reply { id, body: Some(Body::Tally(convert::table::encode_tally(&tally))) },
            Err(error) => refusal(id, &error),
        };
        if let Some(tally) = ticket.poll() {
            return self.reply(reply_with(tally), false);
        }
        let (sender, cancel) = oneshot::channel();
        self.cancels.insert(id, CancellableRequest::new(sender));
        self.waiting.push(Box::pin(async move {
            let mut patience = WaitLimit::new(timeout, cancel);
            // The table's state at the deadline is an answer, too.
            let tally = wait(&table, ticket, &mut patience, false).await.unwrap_or_else(|(tally, _)| tally);
            FinishedRequest::Reply(reply_with(tally), None)
        }));
    }

    fn get(&self, id: u64, get: proto::Get) -> Result<(DrawDelivery, u64)> {
        if get.keys.is_empty() {
            let reason = "a batch of no items has no columns; ask for at least one".to_owned();
            return Err(Error::InvalidArgument(reason));
        }
        let read_options = ReadOptions::decode(get.reading)?;
        let table = self.shared.tables.get(&get.table)?;
        let keys = convert::numbers::decode(&get.keys, "keys")?;
        let (count, asked) = (keys.len() as u64, keys.len() as u64 * DRAW_BYTES);
        self.check_draws(count, asked, false)?;
        let draws = heavy(keys.len() * 256, || table.get(&keys))?;
        Ok((DrawDelivery::whole(id, read_options, draws), asked))
    }

    fn query(&self, id: u64, query: proto::Query) -> Result<(DrawDelivery, u64)> {
        let (table, query) = convert::query::decode_query(query)?;
        // The query may look at millions of items.
        let draws = heavy(usize::MAX, || self.shared.tables.get(&table)?.query(&query))?;
        let (needed, budget) = ((draws.len() * INFO_BYTES) as u64, self.shared.limits.session_batch_bytes);
        if needed > budget {
            return Err(Error::ResourceExhausted {
                what: format!("information about {} items", draws.len()),
                needed,
                budget,
                hint: "ask for fewer with limit=".to_owned(),
            });
        }
        let (count, asked) = (draws.len() as u64, needed);
        self.check_draws(count, asked, false)?;
        Ok((DrawDelivery::whole(id, ReadOptions::decode(None)?, draws), asked))
    }

    fn checkpoint(&mut self, id: u64, stopwatch: Stopwatch) {
        let Some(checkpoints) = &self.shared.checkpoints else {
            let error = Error::InvalidArgument("this server has no checkpointer; give it one at its start".to_owned());
            return self.reply(refusal(id, &error), false);
        };
        self.cancels.insert(id, CancellableRequest::never());
        let taken = checkpoints.ask();
        self.waiting.push(Box::pin(async move {
            let reply = match taken.await {
                Ok(path) => proto::Reply { id, body: Some(Body::Checkpoint(path)) },
                Err(error) => refusal(id, &error),
            };
            FinishedRequest::Reply(reply, Some(stopwatch))
        }));
    }

    /// Answers once the journal is on the disk.
    fn durable(&mut self, id: u64, later: bool, timeout: Option<Duration>, stopwatch: Stopwatch) {
        let ticket = self.shared.tables.durable(!later);
        let Some(table) = self.shared.tables.iter().next().cloned() else {
            let reason = "this server has no tables, and so nothing that could become durable".to_owned();
            return self.reply(refusal(id, &Error::InvalidArgument(reason)), false);
        };
        let (sender, cancel) = oneshot::channel();
        self.cancels.insert(id, CancellableRequest::new(sender));
        self.spans.waits(id, waits::journal());
        let shared = Arc::clone(&self.shared);
        self.waiting.push(Box::pin(async move {
            let mut patience = WaitLimit::new(timeout, cancel);
            let in_time = tokio::select! {
                biased;
                durable = wait(&table, ticket, &mut patience, false) => Some(durable),
                // A stop waits for the disk in any case, and not for the end of an interval.
                () = shared.stopping(), if later => None,
            };
            let durable = match in_time {
                Some(durable) => durable,
                None => wait(&table, shared.tables.durable(true), &mut patience, false).await,
            };
            let reply = match durable.unwrap_or_else(|(_, why)| Err(Error::Deadline(why))) {
                Ok(()) => proto::Reply { id, body: Some(Body::Done(Done {})) },
                Err(error) => refusal(id, &error),
            };
            FinishedRequest::Reply(reply, Some(stopwatch))
        }));
    }

    /// Executes a request that needs no waiting. True if executing it again would have a second effect.
    fn at_once(&self, body: request::Body) -> (Result<Body>, bool) {
        let tables = &self.shared.tables;
        match body {
            request::Body::Mutate(mutate) => (self.mutate(mutate), true),
            request::Body::Delete(delete) => (self.delete(&delete), true),
            request::Body::Can(proto::Can { table, count, insert }) => {
                let can = tables.get(&table).map(|table| match insert {
                    true => table.can_insert(count),
                    false => table.can_sample(count),
                });
                (can.map(Body::Can), false)
            }
            request::Body::Reset(table) => {
                // Dropping many items takes long.
                let done = tables.get(&table).and_then(|table| heavy(usize::MAX, || table.reset()));
                (done.map(|()| Body::Done(Done {})), true)
            }
            request::Body::Configure(configure) => {
                let done = convert::table::decode_change(configure).and_then(|(table, change)| {
                    let table = tables.get(&table)?;
                    heavy(usize::MAX, || table.configure(change))
                });
                (done.map(|()| Body::Done(Done {})), true)
            }
            request::Body::Grant(proto::Grant { table, ration, incarnation, .. }) => {
                let grant = ration.map(|ration| (incarnation, ration));
                let tally = tables.get(&table).and_then(|table| table.tally(grant));
                (tally.map(|tally| Body::Tally(convert::table::encode_tally(&tally))), false)
            }
            request::Body::Info(_) => (Ok(Body::Info(self.shared.info())), false),
            request::Body::Why(table) => (
                tables
                    .get(&table)
                    .map(|table| Body::Why(convert::table::encode_waits(WaitSummary::from(&table.why())))),
                false,
            ),
            // The caller handles these.
            request::Body::Sample(_)
            | request::Body::Get(_)
            | request::Body::Query(_)
            | request::Body::Durable(_)
            | request::Body::Checkpoint(_) => (Err(Error::Protocol("this request must wait".to_owned())), false),
        }
    }

    fn delete(&self, delete: &proto::Delete) -> Result<Body> {
        let table = self.shared.tables.get(&delete.table)?;
        let conditions = convert::query::decode_conditions(&delete.conditions)?;
        let keys = delete.keys.as_ref().map(|keys| convert::numbers::decode(&keys.keys, "keys")).transpose()?;
        if keys.is_none() && conditions.is_empty() {
            return Err(Error::InvalidArgument(
                "delete: neither keys nor conditions; reset drops all items".to_owned(),
            ));
        }
        let deleted = heavy(usize::MAX, || table.delete_where(keys.as_deref(), &conditions))?;
        let (deleted, stale_deletes) = (deleted.applied, deleted.stale);
        Ok(Body::Mutated(proto::Mutated { deleted, stale_deletes, ..Default::default() }))
    }

    fn mutate(&self, mutate: proto::Mutate) -> Result<Body> {
        let table = self.shared.tables.get(&mutate.table)?;
        let proto::Mutate { keys, priorities, if_version, deletes, neighbours, .. } = mutate;
        let keys = convert::numbers::decode(&keys, "keys")?;
        let priorities = convert::numbers::decode(&priorities, "priorities")?;
        let if_version = convert::numbers::decode(&if_version, "versions")?;
        let deletes = convert::numbers::decode(&deletes, "keys")?;
        let neighbours = neighbours.map(convert::query::decode_neighbours).transpose()?;
        let updates = Updates {
            keys: &keys,
            priorities: &priorities,
            if_version: (!if_version.is_empty()).then_some(&if_version),
            neighbours,
        };
        let num_nodes = neighbours.map_or(1, |neighbours| neighbours.parts().0 as usize + 1);
        let many = if keys.len() * num_nodes + deletes.len() > MANY_KEYS { usize::MAX } else { 0 };
        let (updated, deleted) = heavy(many, || table.mutate(&updates, &deletes))?;
        Ok(Body::Mutated(proto::Mutated {
            applied: updated.applied,
            stale: updated.stale,
            deleted: deleted.applied,
            stale_deletes: deleted.stale,
        }))
    }
}

fn verb(body: &request::Body) -> RequestKind {
    match body {
        request::Body::Sample(_) => RequestKind::Sample,
        request::Body::Get(_) => RequestKind::Get,
        request::Body::Query(_) => RequestKind::Query,
        request::Body::Mutate(_) => RequestKind::Mutate,
        request::Body::Delete(_) => RequestKind::Delete,
        request::Body::Checkpoint(_) => RequestKind::Checkpoint,
        _ => RequestKind::Other,
    }
}

/// The reply that refuses a request.
pub(super) fn refusal(id: u64, error: &Error) -> proto::Reply {
    proto::Reply { id, body: Some(Body::Error(convert::error::encode(error))) }
}

/// The table that a request changes so that its reply must wait until the change is durable, if there is a journal.
fn changed_table(body: &request::Body) -> Option<&str> {
    match body {
        // Priorities are written in intervals.
        request::Body::Mutate(mutate) => (!mutate.deletes.is_empty()).then_some(&mutate.table),
        request::Body::Delete(delete) => Some(&delete.table),
        request::Body::Reset(table) => Some(table),
        request::Body::Configure(configure) => Some(&configure.table),
        _ => None,
    }
}

fn timeout(seconds: Option<f64>) -> Result<Option<Duration>> {
    match seconds {
        None => Ok(None),
        // Longer than a duration can hold: no timeout.
        Some(seconds) if seconds >= 0.0 => Ok(Duration::try_from_secs_f64(seconds).ok()),
        Some(seconds) => Err(Error::InvalidArgument(format!("timeout must be at least 0 seconds, got {seconds}"))),
    }
}
