//! Inserts: from messages to items, from items to tables, and keys back.

use super::super::latencies::{RequestKind, Stopwatch};
use super::super::outcomes::RequestStatus;
use super::super::samples::{WaitLimit, wait};
use super::super::session::{CancellableRequest, FinishedRequest, Session};
use super::super::waits;
use crate::convert;
use crate::items::ArrivedInsert;
use crate::proto::server_message::Body;
use crate::proto::{self, Bulk};
use reverie_core::table::{Keys, SentInsert, SharedTable, Ticket};
use reverie_core::{Error, Result};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The keys of requests with consecutive numbers.
struct ConsecutiveKeys {
    first: u64,
    keys: Vec<Keys>,
    /// The arrival of their message.
    stopwatch: Stopwatch,
}

impl ConsecutiveKeys {
    fn new(stopwatch: Stopwatch) -> Self {
        Self { first: 0, keys: Vec::new(), stopwatch }
    }
}

impl Session {
    /// Inserts the requests of a message into their tables. `Protocol` if the message breaks a rule.
    pub(super) fn insert(&mut self, mut message: proto::Insert) -> Result<()> {
        let stopwatch = Stopwatch::now(RequestKind::Insert);
        let Some(link) = &mut self.link else { return Ok(()) };
        let granted = self.credit.granted();
        if let Some(run) = message.runs.iter().find(|run| !self.inserts.has_share(run.table, granted)) {
            return Err(Error::Protocol(format!(
                "an insert beyond the credit: {:?} bytes in flight of table number {}, {} of all, {granted} granted",
                self.inserts.in_flight_of.get(&run.table),
                run.table,
                self.inserts.in_flight
            )));
        }
        let bulk = message.bulk.take().unwrap_or(Bulk { place: None });
        // Before memory is allocated for cells.
        link.decoder.hold_at_most(self.charge.room());
        let unconfirmed = message.in_flight_bytes;
        let arrived = link.decoder.insert(message, &*link.connection.bulk(&bulk)?)?;
        link.connection.consumed(&bulk);
        let mut run = ConsecutiveKeys::new(stopwatch);
        let whole = arrived.into_iter().try_for_each(|request| self.insert_one(request, &mut run));
        // Also if a later insert ends the connection: these are in their tables.
        self.confirm(&mut run);
        whole?;
        if let Some(link) = &mut self.link {
            link.decoder.settle();
        }
        let in_flight = self.inserts.in_flight.max(unconfirmed);
        if let Some(insert_credit_bytes) = self.credit.raise(in_flight, self.charge.room()) {
            self.send(Body::Credit(proto::Credit { insert_credit_bytes }));
        }
        self.notify_held();
        Ok(())
    }

    /// Notifies the client when its inserts start or stop waiting for their tables.
    pub(super) fn notify_held(&mut self) {
        if let Some(held) = self.inserts.held().filter(|_| self.id.is_some()) {
            self.send(Body::Held(proto::Held { held }));
        }
    }

    fn insert_one(&mut self, arrived: ArrivedInsert, run: &mut ConsecutiveKeys) -> Result<()> {
        if self.inserts.waiting.get(&arrived.id).is_some_and(|waiting| waiting.abandoned) {
            self.inserts.returned.insert(arrived.id, arrived);
            return Ok(());
        }
        let ArrivedInsert { id, table: number, mut items, size_bytes, waiting_bytes } = arrived;
        let mut before = Keys::new();
        match self.outcomes.look_up(id) {
            RequestStatus::Received => return Ok(()),
            RequestStatus::Keys(keys) if keys.len() < items.len() => {
                // A checkpoint contains the first of them.
                before = keys.clone();
                items.drain(..before.len());
                self.outcomes.resume_insert(id)?;
            }
            RequestStatus::Keys(keys) => {
                let keys = keys.clone();
                self.send_inserted(id, &[keys]);
                return Ok(());
            }
            RequestStatus::Other => {
                return match self.send_again(id) {
                    true => Ok(()),
                    false => {
                        Err(Error::Protocol(format!("request {id} was sent before as something else than an insert")))
                    }
                };
            }
            RequestStatus::New if self.cancels.contains_key(&id) => {
                return self.inserts.received_again(id, size_bytes);
            }
            RequestStatus::New => {}
        }
        let num_items = before.len() + items.len();
        self.keep_to_credit();
        let table = match self.shared.tables.iter().nth(number as usize) {
            Some(table) => Arc::clone(table),
            None => return Err(Error::Protocol(format!("an insert into table number {number}, which does not exist"))),
        };
        self.begin_insert_span(id, &table);
        let in_before = before.clone();
        let inserted = match self.id {
            Some(sender) => {
                self.inserts.note_table(&table);
                table.insert_sent(items, SentInsert { sender, number: id }, before)
            }
            None => table.insert(items),
        };
        match inserted {
            // Inserted items stay: an insert that repeats them would be a second one.
            Err(error) => self.refuse_insert(id, &error.with_part(in_before)),
            Ok(mut ticket) => match ticket.poll() {
                Some(Ok(keys)) => {
                    if run.first + run.keys.len() as u64 != id {
                        self.confirm(run);
                        run.first = id;
                    }
                    run.keys.push(keys);
                }
                Some(Err(error)) => self.refuse_insert(id, &error.with_part(in_before)),
                None => {
                    self.inserts.add(id, number, num_items, (size_bytes, waiting_bytes));
                    self.wait_for_insert(id, table, (ticket, in_before), run.stopwatch);
                }
            },
        }
        Ok(())
    }

    /// When new inserts take the session beyond its credit, withdraws those that neither this connection nor the one
    /// before it sent; otherwise every reconnect would bring another credit. So at most two credits are in use.
    /// The client gets no reply for such an insert. If it still wants it and had no credit yet to send it again, it sends
    /// it later, and the insert is new here.
    fn keep_to_credit(&mut self) {
        for id in self.inserts.abandon_older(self.credit.granted()) {
            if let Some(mut cancel) = self.cancels.remove(&id) {
                cancel.withdraw();
            }
        }
    }

    /// Waits for an insert that is among those that wait; with the keys of its items that were in its table before.
    pub(super) fn wait_for_insert(
        &mut self,
        id: u64,
        table: Arc<SharedTable>,
        (ticket, in_before): (Ticket<Keys>, Keys),
        stopwatch: Stopwatch,
    ) {
        if self.spans.has(id) {
            self.spans.waits(id, waits::insert(&table, ticket.needs_commit()));
        }
        // Without a session no client asks for it again.
        let ticket = if self.id.is_none() { ticket.withdrawn_on_drop() } else { ticket };
        let (sender, cancel) = oneshot::channel();
        self.cancels.insert(id, CancellableRequest::new(sender));
        self.waiting.push(Box::pin(async move {
            let mut patience = WaitLimit::new(None, cancel);
            let (keys, late) = match wait(&table, ticket, &mut patience, true).await {
                Ok(keys) => (keys, None),
                Err((keys, why)) => (keys, Some(why)),
            };
            FinishedRequest::Insert { id, keys: keys.map_err(|error| error.with_part(in_before)), late, stopwatch }
        }));
    }

    /// Handles a waiting insert that is done or withdrawn.
    pub(super) fn inserted_late(&mut self, id: u64, keys: Result<Keys>, late: Option<String>, stopwatch: Stopwatch) {
        self.cancels.remove(&id);
        let of = self.inserts.table_and_items(id);
        let left = self.inserts.remove(id);
        match (keys, late) {
            (Ok(keys), Some(_)) if left => {
                self.spans.abandon(id, "the client did not send it again on a new connection");
                // Its client gets no reply, as above. If it sends the insert again, the rest goes in.
                if !keys.is_empty() {
                    self.outcomes.inserted(id, vec![keys]);
                }
            }
            (Err(Error::NotCommitted { keys, .. }), _) if left => {
                // No reply either. It is confirmed once it is committed, or its rest goes in from then on: if its client
                // sends it again, it waits for that.
                self.wait_for_commit(id, of, keys, stopwatch);
            }
            (Ok(keys), None) => self.confirm(&mut ConsecutiveKeys { first: id, keys: vec![keys], stopwatch }),
            (Err(error), _) => self.refuse_insert(id, &error),
            (Ok(keys), Some(why)) => {
                let keys = keys.iter().map(|key| key.get()).collect();
                let deadline = proto::Deadline { why, keys, not_committed: false };
                let error = proto::error_detail::Kind::Deadline(deadline).into();
                self.reply(proto::Reply { id, body: Some(proto::reply::Body::Error(error)) }, true);
            }
        }
        if let Some(arrived) = self.inserts.returned.remove(&id) {
            let mut run = ConsecutiveKeys::new(stopwatch);
            let inserted = self.insert_one(arrived, &mut run);
            self.confirm(&mut run);
            if let Err(error) = inserted {
                return self.send_goodbye(error, false);
            }
        }
        self.notify_held();
    }

    /// Answers the withdrawal of an insert that does not wait here: it is done, was refused, or never arrived.
    pub(super) fn withdraw_insert(&mut self, id: u64) {
        let keys = match self.outcomes.look_up(id) {
            RequestStatus::Keys(keys) => keys.iter().map(|key| key.get()).collect(),
            RequestStatus::Other => {
                self.send_again(id);
                return;
            }
            RequestStatus::Received => return,
            RequestStatus::New => Vec::new(),
        };
        let deadline = proto::Deadline { why: "the insert was withdrawn".to_owned(), keys, not_committed: false };
        let error = proto::error_detail::Kind::Deadline(deadline).into();
        self.reply(proto::Reply { id, body: Some(proto::reply::Body::Error(error)) }, false);
    }

    fn refuse_insert(&mut self, id: u64, error: &Error) {
        let refusal = if let Error::PartlyInserted { error, .. } = error { &**error } else { error };
        if matches!(refusal, Error::Closed { .. }) && self.id.is_some() && self.shared.is_stopping() {
            // Its table did not refuse it: without an answer the client keeps it, and sends it to the next server.
            return;
        }
        let body = Some(proto::reply::Body::Error(convert::error::encode(error)));
        self.reply(proto::Reply { id, body }, true);
    }

    /// Confirms a run to the client, and remembers it.
    fn confirm(&mut self, run: &mut ConsecutiveKeys) {
        if run.keys.is_empty() {
            return;
        }
        self.send_inserted(run.first, &run.keys);
        self.spans.end_all(run.first, run.keys.len() as u64);
        self.note_done(run.stopwatch, run.keys.len() as u64);
        self.outcomes.inserted(run.first, std::mem::take(&mut run.keys));
    }

    fn send_inserted(&mut self, first_id: u64, keys: &[Keys]) {
        let inserted = proto::Inserted {
            first_id,
            requests: keys.len() as u32,
            keys: keys.iter().flatten().map(|key| key.get()).collect(),
        };
        self.send(Body::Inserted(inserted));
    }
}
