//! Inserts: from messages to items, from items to tables, and keys back.

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

/// The bytes of a waiting insert without its items: its task, its place in the table's queue, and its tickets.
const WAITING_BYTES: u64 = 1024;
/// The bytes of a waiting item without its cells.
const WAITING_ITEM_BYTES: u64 = 256;

/// The inserts of a session.
#[derive(Default)]
pub(super) struct Inserts {
    /// The inserts that wait for their tables, by number.
    waiting: HashMap<u64, Waiting>,
    /// Bytes of the waiting inserts that this connection sent, as its client counts them.
    in_flight: u64,
    /// The same for each table, by its number.
    in_flight_of: HashMap<u32, u64>,
    /// Bytes of the waiting inserts that only earlier connections sent. The client sends the wanted ones again.
    before: u64,
    /// The memory that the waiting inserts use, which is more than they count for against the credit.
    held_bytes: u64,
    connection: u32,
    /// Inserts that were sent again while they were being withdrawn.
    returned: HashMap<u64, Arrived>,
    /// Whether the client was notified that inserts wait.
    held: bool,
    /// The tables that this session inserted into, now or before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

/// An insert that waits for its table.
struct Waiting {
    table: u32,
    size_bytes: u64,
    held_bytes: u64,
    /// The connection that sent it last.
    connection: u32,
    /// True if it is withdrawn because its client did not send it again.
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

    /// Starts the count of a new connection, which replaces another.
    pub(super) fn reconnected(&mut self) {
        self.before += std::mem::take(&mut self.in_flight);
        self.in_flight_of.clear();
        self.connection = self.connection.wrapping_add(1);
        self.held = false;
    }

    /// True if the client may send more into the table.
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

    /// Removes an insert from the counts.
    fn count_off(&mut self, table: u32, size_bytes: u64, connection: u32) {
        if connection != self.connection {
            self.before -= size_bytes;
            return;
        }
        self.in_flight -= size_bytes;
        *self.in_flight_of.entry(table).or_default() -= size_bytes;
    }

    /// The memory that the waiting inserts use.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Notes that a waiting insert was sent again, with its size as the client counts it now.
    fn came_again(&mut self, id: u64, size_bytes: u64) {
        let connection = self.connection;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let (table, before) = (waiting.table, std::mem::replace(&mut waiting.size_bytes, size_bytes));
        let since = std::mem::replace(&mut waiting.connection, connection);
        self.count_off(table, before, since);
        self.count(table, size_bytes);
    }

    /// Removes a waiting insert. True if it was withdrawn because it was not sent again.
    fn remove(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        self.held_bytes -= waiting.held_bytes;
        self.count_off(waiting.table, waiting.size_bytes, waiting.connection);
        waiting.left
    }

    /// Returns the inserts that neither this connection nor the one before it sent.
    /// They no longer count, and are to be withdrawn.
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

    /// Notes that the client asks for the outcome of an insert. True if it is reported when the withdrawal ends.
    pub(super) fn is_asked_for(&mut self, id: u64) -> bool {
        let waiting = self.waiting.get_mut(&id).filter(|waiting| waiting.left);
        waiting.is_some_and(|waiting| std::mem::take(&mut waiting.left))
    }

    /// Whether inserts wait, if the client must be notified of a change.
    fn held(&mut self) -> Option<bool> {
        let held = !self.waiting.is_empty();
        (std::mem::replace(&mut self.held, held) != held).then_some(held)
    }

    /// The number of waiting inserts.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The keys of requests with consecutive numbers.
#[derive(Default)]
struct Run {
    first: u64,
    keys: Vec<Keys>,
}

impl Session {
    /// Inserts the requests of a message into their tables. `Protocol` if the message breaks a rule.
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
        // Before memory is allocated for cells.
        link.decoder.hold_at_most(self.charge.room());
        let unconfirmed = message.in_flight_bytes;
        let arrived = link.decoder.insert(message, &*link.way.bulk(&bulk)?)?;
        link.way.consumed(&bulk);
        let mut run = Run::default();
        let whole = arrived.into_iter().try_for_each(|request| self.insert_one(request, &mut run));
        // Also if a later insert ends the connection: these are in their tables.
        self.confirm(&mut run);
        whole?;
        if let Some(insert_credit_bytes) = self.credit.raise(self.inserts.in_flight.max(unconfirmed)) {
            self.send(Body::Credit(proto::Credit { insert_credit_bytes }));
        }
        self.tell_held();
        Ok(())
    }

    /// Notifies the client when its inserts start or stop waiting for their tables.
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
                // A checkpoint contains the first of them.
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

    /// Withdraws old inserts when new ones take the session beyond its credit.
    /// Before a client sends something new into a table, it sends again, in order, the inserts into that table that are
    /// not confirmed and that it still wants. Inserts that it did not send again for two connections are withdrawn:
    /// otherwise each connection would bring another credit. So a session uses two credits at most. There is no reply
    /// for a withdrawn insert of which nothing is in its table: if its table had too small a share until now, it is
    /// sent again, and is new.
    fn keep_to_credit(&mut self) {
        let Inserts { in_flight, before, .. } = self.inserts;
        if before == 0 || in_flight + before < self.credit.granted() {
            return;
        }
        for id in self.inserts.leave_behind() {
            if let Some(cancel) = self.cancels.remove(&id) {
                // If the receiver is gone, the insert is done.
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

    /// Handles a waiting insert that is done or withdrawn.
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

    /// Answers the withdrawal of an insert that does not wait here: it is done, was refused, or never arrived.
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
            // Its table did not refuse it: without an answer the client keeps it, and sends it to the next server.
            return;
        }
        let body = Some(proto::reply::Body::Error(convert::error::encode(error)));
        self.reply(proto::Reply { id, body }, true);
    }

    /// Confirms a run to the client, and remembers it.
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
