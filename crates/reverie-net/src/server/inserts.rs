//! Inserts: messages to items, items to tables, keys back.

use super::memory::Known;
use super::samples::{Patience, wait};
use super::session::{Cancel, Finished, Session};
use crate::convert;
use crate::items::Arrived;
use crate::proto::server_message::Body;
use crate::proto::{self, Bulk};
use reverie_core::table::{Keys, Sent, SharedTable};
use reverie_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What an insert that waits takes beside its items: its task, its place in the table's queue, and its tickets.
const WAITING_BYTES: u64 = 1024;
/// What an item takes that waits, beside its cells.
const WAITING_ITEM_BYTES: u64 = 256;

/// What a session has of inserts.
#[derive(Default)]
pub(super) struct Inserts {
    /// Those that wait for their tables, by number.
    waiting: HashMap<u64, Waiting>,
    /// Bytes of those of them that came, or came again, by this connection: as its client counts them.
    in_flight: u64,
    /// Bytes of those of them that came by earlier connections only. The client sends again what it still wants.
    before: u64,
    /// What those that wait make the server hold, which is more than what they count for against the credit.
    held_bytes: u64,
    connection: u32,
    /// Whether the client was told that some wait.
    held: bool,
    /// The tables that were inserted into, or had been before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

/// An insert that waits for its table.
struct Waiting {
    size_bytes: u64,
    held_bytes: u64,
    /// By which connection it came last.
    connection: u32,
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
        self.before += std::mem::take(&mut self.in_flight);
        self.connection = self.connection.wrapping_add(1);
        self.held = false;
    }

    fn add(&mut self, id: u64, items: usize, size_bytes: u64) {
        self.remove(id);
        let held_bytes = size_bytes + WAITING_BYTES + items as u64 * WAITING_ITEM_BYTES;
        self.in_flight += size_bytes;
        self.held_bytes += held_bytes;
        self.waiting.insert(id, Waiting { size_bytes, held_bytes, connection: self.connection });
    }

    /// What those that wait make the server hold.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// One that waits was sent again: it counts as the client counts it now.
    fn came_again(&mut self, id: u64, size_bytes: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            let before = std::mem::replace(&mut waiting.size_bytes, size_bytes);
            match waiting.connection == self.connection {
                true => self.in_flight -= before,
                false => self.before -= before,
            }
            waiting.connection = self.connection;
            self.in_flight += size_bytes;
        }
    }

    /// One waits no longer, or counts no longer.
    fn remove(&mut self, id: u64) {
        let Some(Waiting { size_bytes, held_bytes, connection }) = self.waiting.remove(&id) else { return };
        self.held_bytes -= held_bytes;
        match connection == self.connection {
            true => self.in_flight -= size_bytes,
            false => self.before -= size_bytes,
        }
    }

    /// The numbers of those that the client sent neither by this connection nor by the one before.
    fn left_behind(&self) -> Vec<u64> {
        let old = |waiting: &Waiting| self.connection.wrapping_sub(waiting.connection) > 1;
        self.waiting.iter().filter(|(_, waiting)| old(waiting)).map(|(id, _)| *id).collect()
    }

    /// Whether some wait, where the client has to be told.
    fn held(&mut self) -> Option<bool> {
        let held = !self.waiting.is_empty();
        (std::mem::replace(&mut self.held, held) != held).then_some(held)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
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
        let in_flight = self.inserts.in_flight;
        if in_flight > 0 && in_flight >= self.credit.granted() {
            return Err(Error::Protocol(format!(
                "an insert beyond the credit: {in_flight} bytes in flight, {} granted",
                self.credit.granted()
            )));
        }
        let bulk = message.bulk.take().unwrap_or(Bulk { place: None });
        // Before memory is set aside for cells.
        link.decoder.hold_at_most(self.charge.room());
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
            Known::Other => {
                self.send_again(id);
                return Ok(());
            }
            Known::No if self.cancels.contains_key(&id) => {
                self.inserts.came_again(id, size_bytes);
                return Ok(());
            }
            Known::No => {}
        }
        self.keep_to_credit();
        let table = match self.shared.tables.iter().nth(table as usize) {
            Some(table) => Arc::clone(table),
            None => return Err(Error::Protocol(format!("an insert into table number {table}"))),
        };
        let count = items.len();
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
                None => self.wait_for_insert(id, table, ticket, (count, size_bytes)),
            },
        }
        Ok(())
    }

    /// A client sends again, in order, what is not confirmed and what it still wants, before it sends anything new. When
    /// something new takes the session beyond its credit, what it has not sent again for two connections is withdrawn:
    /// else each connection would bring another credit. So a session holds two credits at most.
    fn keep_to_credit(&mut self) {
        let Inserts { in_flight, before, .. } = self.inserts;
        if before == 0 || in_flight + before < self.credit.granted() {
            return;
        }
        for id in self.inserts.left_behind() {
            self.inserts.before -= self.inserts.waiting.get(&id).map_or(0, |waiting| waiting.size_bytes);
            if let Some(waiting) = self.inserts.waiting.get_mut(&id) {
                waiting.size_bytes = 0;
            }
            if let Some(cancel) = self.cancels.remove(&id) {
                // Where nothing listens any more, it is done.
                let _ = cancel.sender.send(());
            }
        }
    }

    fn wait_for_insert(
        &mut self,
        id: u64,
        table: Arc<SharedTable>,
        ticket: reverie_core::table::Ticket<Keys>,
        (items, size_bytes): (usize, u64),
    ) {
        self.inserts.add(id, items, size_bytes);
        let (sender, cancel) = oneshot::channel();
        self.cancels.insert(id, Cancel { sender, consumes: false });
        self.waiting.push(Box::pin(async move {
            let mut patience = Patience::new(None, cancel);
            match wait(&table, ticket, &mut patience, true).await {
                Ok(keys) => Finished::Insert { id, keys, late: None },
                Err((keys, why)) => Finished::Insert { id, keys, late: Some(why) },
            }
        }));
    }

    /// An insert that waited is done, or withdrawn.
    pub(super) fn inserted_late(&mut self, id: u64, keys: Result<Keys>, late: Option<String>) {
        self.cancels.remove(&id);
        self.inserts.remove(id);
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

    /// The client takes an insert back that does not wait here: it is in, or was refused, or never came.
    pub(super) fn withdraw_insert(&mut self, id: u64) {
        let keys = match self.memory.look_up(id) {
            Known::Keys(keys) => keys.iter().map(|key| key.get()).collect(),
            Known::Other => return self.send_again(id),
            Known::Received => return,
            Known::No => Vec::new(),
        };
        let deadline = proto::Deadline { why: "the insert was withdrawn".to_owned(), keys };
        let error = proto::ErrorDetail { kind: Some(proto::error_detail::Kind::Deadline(deadline)) };
        self.reply(proto::Reply { id, body: Some(proto::reply::Body::Error(error)) }, false);
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
