//! Inserts: messages to items, items to tables, keys back.

use super::memory::Known;
use super::samples::{Patience, wait};
use super::session::{Finished, Session};
use crate::convert;
use crate::items::Arrived;
use crate::proto::server_message::Body;
use crate::proto::{self, Bulk};
use reverie_core::table::{Keys, Sent, SharedTable};
use reverie_core::{Error, Result};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a session has of inserts.
#[derive(Default)]
pub(super) struct Inserts {
    /// Bytes that wait for their tables.
    in_flight: u64,
    /// Those of them that came by earlier connections, which the client of this one does not count: it sends again what
    /// was not confirmed, and its credit begins anew.
    before: u64,
    waiting: usize,
    /// Whether the client was told that some wait.
    held: bool,
    /// The tables that were inserted into, or had been before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

impl Inserts {
    pub(super) fn new(tables: Vec<Arc<SharedTable>>) -> Self {
        Self { tables, ..Self::default() }
    }

    fn note_table(&mut self, table: &Arc<SharedTable>) {
        if !self.tables.iter().any(|known| Arc::ptr_eq(known, table)) {
            self.tables.push(Arc::clone(table));
        }
    }

    /// A connection takes the place of another.
    pub(super) fn reconnected(&mut self) {
        self.before = self.in_flight;
        self.held = false;
    }

    /// Whether some wait, where the client has to be told.
    fn held(&mut self) -> Option<bool> {
        let held = self.waiting > 0;
        (std::mem::replace(&mut self.held, held) != held).then_some(held)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// Keys of requests with consecutive numbers.
#[derive(Default)]
struct Run {
    first: u64,
    keys: Vec<Keys>,
}

impl Session {
    /// Puts the requests of a message into their tables. `Protocol` where the message breaks a rule.
    pub(super) fn insert(&mut self, mut message: proto::Insert) -> Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let in_flight = self.inserts.in_flight - self.inserts.before;
        if in_flight > 0 && in_flight >= self.credit.granted() {
            return Err(Error::Protocol(format!(
                "an insert beyond the credit: {in_flight} bytes in flight, {} granted",
                self.credit.granted()
            )));
        }
        let bulk = message.bulk.take().unwrap_or(Bulk { place: None });
        let unconfirmed = message.in_flight_bytes;
        let arrived = link.decoder.insert(message, &*link.way.bulk(&bulk)?)?;
        link.way.consumed(&bulk);
        let mut run = Run::default();
        let whole = arrived.into_iter().try_for_each(|request| self.insert_one(request, &mut run));
        // Also where a later one ends the connection: these are in their tables.
        self.confirm(&mut run);
        whole?;
        if let Some(insert_credit_bytes) = self.credit.raise(self.inserts.in_flight.max(unconfirmed)) {
            self.send(Body::Credit(proto::Credit { insert_credit_bytes }));
        }
        self.tell_held();
        Ok(())
    }

    /// Tells the client where its inserts begin to wait for their tables, or cease to.
    pub(super) fn tell_held(&mut self) {
        if let Some(held) = self.inserts.held().filter(|_| self.id.is_some()) {
            self.send(Body::Held(proto::Held { held }));
        }
    }

    fn insert_one(&mut self, arrived: Arrived, run: &mut Run) -> Result<()> {
        let Arrived { id, table, mut items, size_bytes } = arrived;
        let mut before = Keys::new();
        match self.memory.look_up(id) {
            Known::Received => return Ok(()),
            Known::Keys(keys) if keys.len() < items.len() => {
                // A checkpoint had the first of them.
                before = keys.clone();
                items.drain(..before.len());
                self.memory.go_on(id);
            }
            Known::Keys(keys) => {
                let keys = keys.clone();
                self.send_inserted(id, &[keys]);
                return Ok(());
            }
            Known::Other(outcome) => {
                let outcome = outcome.clone();
                self.send_again(outcome);
                return Ok(());
            }
            Known::No if self.cancels.contains_key(&id) => return Ok(()),
            Known::No => {}
        }
        let table = match self.shared.tables.iter().nth(table as usize) {
            Some(table) => Arc::clone(table),
            None => return Err(Error::Protocol(format!("an insert into table number {table}"))),
        };
        let inserted = match self.id {
            Some(sender) => {
                self.inserts.note_table(&table);
                table.insert_sent(items, Sent { sender, number: id }, before)
            }
            None => table.insert(items),
        };
        match inserted {
            Err(error) => self.refuse_insert(id, &error),
            Ok(mut ticket) => match ticket.poll() {
                Some(Ok(keys)) => {
                    if run.first + run.keys.len() as u64 != id {
                        self.confirm(run);
                        run.first = id;
                    }
                    run.keys.push(keys);
                }
                Some(Err(error)) => self.refuse_insert(id, &error),
                None => self.wait_for_insert(id, table, ticket, size_bytes),
            },
        }
        Ok(())
    }

    fn wait_for_insert(
        &mut self,
        id: u64,
        table: Arc<SharedTable>,
        ticket: reverie_core::table::Ticket<Keys>,
        size_bytes: u64,
    ) {
        self.inserts.waiting += 1;
        self.inserts.in_flight += size_bytes;
        let (sender, cancel) = oneshot::channel();
        self.cancels.insert(id, sender);
        let retry = self.shared.tables.bytes().1.is_some();
        self.waiting.push(Box::pin(async move {
            let mut patience = Patience::new(None, cancel);
            match wait(&table, ticket, &mut patience, retry).await {
                Ok(keys) => Finished::Insert { id, keys, late: None, size_bytes },
                Err((keys, why)) => Finished::Insert { id, keys, late: Some(why), size_bytes },
            }
        }));
    }

    /// An insert that waited is done, or withdrawn.
    pub(super) fn inserted_late(&mut self, id: u64, keys: Result<Keys>, late: Option<String>, size_bytes: u64) {
        self.cancels.remove(&id);
        self.inserts.waiting -= 1;
        self.inserts.in_flight -= size_bytes;
        self.inserts.before = self.inserts.before.min(self.inserts.in_flight);
        match (keys, late) {
            (Ok(keys), None) => self.confirm(&mut Run { first: id, keys: vec![keys] }),
            (Err(error), _) => self.refuse_insert(id, &error),
            (Ok(keys), Some(why)) => {
                let keys = keys.iter().map(|key| key.get()).collect();
                let deadline = proto::Deadline { why, keys };
                let error = proto::ErrorDetail { kind: Some(proto::error_detail::Kind::Deadline(deadline)) };
                self.reply(proto::Reply { id, body: Some(proto::reply::Body::Error(error)) }, true);
            }
        }
        self.tell_held();
    }

    fn refuse_insert(&mut self, id: u64, error: &Error) {
        if matches!(error, Error::Closed { .. }) && self.id.is_some() && self.shared.stops() {
            // Its table did not refuse it: without an answer the client keeps it, for the server that comes next.
            return;
        }
        let body = Some(proto::reply::Body::Error(convert::error::encode(error)));
        self.reply(proto::Reply { id, body }, true);
    }

    /// Tells the client of a run, and remembers it.
    fn confirm(&mut self, run: &mut Run) {
        if run.keys.is_empty() {
            return;
        }
        self.send_inserted(run.first, &run.keys);
        self.memory.inserted(run.first, std::mem::take(&mut run.keys));
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
