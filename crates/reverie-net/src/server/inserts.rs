//! Inserts: messages to items, items to tables, keys back.

use super::memory::Known;
use super::samples::{Patience, wait};
use super::session::{Cancel, Finished, Session};
use crate::convert;
use crate::items::{self, Arrived};
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
    /// The same of each table, by its number.
    in_flight_of: HashMap<u32, u64>,
    /// Bytes of those of them that came by earlier connections only. The client sends again what it still wants.
    before: u64,
    /// What those that wait make the server hold, which is more than what they count for against the credit.
    held_bytes: u64,
    connection: u32,
    /// Those that came again while they were withdrawn.
    returned: HashMap<u64, Arrived>,
    /// Whether the client was told that some wait.
    held: bool,
    /// The tables that were inserted into, or had been before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

/// An insert that waits for its table.
struct Waiting {
    table: u32,
    size_bytes: u64,
    held_bytes: u64,
    /// By which connection it came last.
    connection: u32,
    /// It is withdrawn as one that its client did not send again.
    left: bool,
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
        self.in_flight_of.clear();
        self.connection = self.connection.wrapping_add(1);
        self.held = false;
    }

    /// True where the client may send more into the table.
    fn has_share(&self, table: u32, credit: u64) -> bool {
        items::has_share(self.in_flight_of.get(&table).copied().unwrap_or(0), self.in_flight, credit)
    }

    fn add(&mut self, id: u64, (table, items): (u32, usize), size_bytes: u64) {
        self.remove(id);
        let held_bytes = size_bytes + WAITING_BYTES + items as u64 * WAITING_ITEM_BYTES;
        let connection = self.connection;
        self.count(table, size_bytes);
        self.held_bytes += held_bytes;
        self.waiting.insert(id, Waiting { table, size_bytes, held_bytes, connection, left: false });
    }

    fn count(&mut self, table: u32, size_bytes: u64) {
        self.in_flight += size_bytes;
        *self.in_flight_of.entry(table).or_default() += size_bytes;
    }

    /// It counts no longer.
    fn count_off(&mut self, table: u32, size_bytes: u64, connection: u32) {
        if connection != self.connection {
            self.before -= size_bytes;
            return;
        }
        self.in_flight -= size_bytes;
        *self.in_flight_of.entry(table).or_default() -= size_bytes;
    }

    /// What those that wait make the server hold.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// One that waits was sent again: it counts as the client counts it now.
    fn came_again(&mut self, id: u64, size_bytes: u64) {
        let connection = self.connection;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let (table, before) = (waiting.table, std::mem::replace(&mut waiting.size_bytes, size_bytes));
        let since = std::mem::replace(&mut waiting.connection, connection);
        self.count_off(table, before, since);
        self.count(table, size_bytes);
    }

    /// One waits no longer, or counts no longer. True where it was withdrawn as one that was not sent again.
    fn remove(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        self.held_bytes -= waiting.held_bytes;
        self.count_off(waiting.table, waiting.size_bytes, waiting.connection);
        waiting.left
    }

    /// Gives the numbers of those that the client sent neither by this connection nor by the one before: they count no
    /// more, and are to be withdrawn.
    fn leave_behind(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (id, waiting) in &mut self.waiting {
            if self.connection.wrapping_sub(waiting.connection) > 1 && !waiting.left {
                self.before -= std::mem::take(&mut waiting.size_bytes);
                waiting.left = true;
                numbers.push(*id);
            }
        }
        numbers
    }

    /// The client asks what becomes of one: true where that is to be said when it is withdrawn.
    pub(super) fn is_asked_for(&mut self, id: u64) -> bool {
        let waiting = self.waiting.get_mut(&id).filter(|waiting| waiting.left);
        waiting.is_some_and(|waiting| std::mem::take(&mut waiting.left))
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
        if self.inserts.waiting.get(&arrived.id).is_some_and(|waiting| waiting.left) {
            self.inserts.returned.insert(arrived.id, arrived);
            return Ok(());
        }
        let Arrived { id, table: number, mut items, size_bytes } = arrived;
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
        let table = match self.shared.tables.iter().nth(number as usize) {
            Some(table) => Arc::clone(table),
            None => return Err(Error::Protocol(format!("an insert into table number {number}"))),
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
                None => self.wait_for_insert(id, (number, table), ticket, (count, size_bytes)),
            },
        }
        Ok(())
    }

    /// A client sends again, in the order of each table, what is not confirmed and what it still wants, before it sends
    /// anything new into that table. When something new takes the session beyond its credit, what it has not sent again
    /// for two connections is withdrawn: else each connection would bring another credit. So a session holds two credits
    /// at most. Nothing is said of one of which nothing is in: where its table had too small a share until now, it comes
    /// again, and is new.
    fn keep_to_credit(&mut self) {
        let Inserts { in_flight, before, .. } = self.inserts;
        if before == 0 || in_flight + before < self.credit.granted() {
            return;
        }
        for id in self.inserts.leave_behind() {
            if let Some(cancel) = self.cancels.remove(&id) {
                // Where nothing listens any more, it is done.
                let _ = cancel.sender.send(());
            }
        }
    }

    fn wait_for_insert(
        &mut self,
        id: u64,
        (number, table): (u32, Arc<SharedTable>),
        ticket: reverie_core::table::Ticket<Keys>,
        (items, size_bytes): (usize, u64),
    ) {
        self.inserts.add(id, (number, items), size_bytes);
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
        let left = self.inserts.remove(id);
        match (keys, late) {
            (Ok(keys), Some(_)) if left && keys.is_empty() => {}
            (Ok(keys), None) => self.confirm(&mut Run { first: id, keys: vec![keys] }),
            (Err(error), _) => self.refuse_insert(id, &error),
            (Ok(keys), Some(why)) => {
                let keys = keys.iter().map(|key| key.get()).collect();
                let deadline = proto::Deadline { why, keys };
                let error = proto::ErrorDetail { kind: Some(proto::error_detail::Kind::Deadline(deadline)) };
                self.reply(proto::Reply { id, body: Some(proto::reply::Body::Error(error)) }, true);
            }
        }
        if let Some(arrived) = self.inserts.returned.remove(&id) {
            let mut run = Run::default();
            let inserted = self.insert_one(arrived, &mut run);
            self.confirm(&mut run);
            if let Err(error) = inserted {
                return self.say_goodbye(error, false);
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
