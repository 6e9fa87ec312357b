//! Inserts: from messages to items, from items to tables, and keys back.

use crate::items::{self, Arrived};
use reverie_core::table::SharedTable;
use std::collections::HashMap;
use std::sync::Arc;

/// The bytes of a waiting insert without its items: its task, its place in the table's queue, and its tickets.
const WAITING_BYTES: u64 = 1024;
/// The bytes of a waiting item without its cells.
const WAITING_ITEM_BYTES: u64 = 256;

/// The inserts of a session.
#[derive(Default)]
pub(super) struct Inserts {
    /// The inserts that wait for their tables, by number.
    pub(super) waiting: HashMap<u64, Waiting>,
    /// Bytes of the waiting inserts that this connection sent, as its client counts them.
    pub(super) in_flight: u64,
    /// The same for each table, by its number.
    pub(super) in_flight_of: HashMap<u32, u64>,
    /// Bytes of the waiting inserts that only earlier connections sent. The client sends the wanted ones again.
    pub(super) before: u64,
    /// The memory that the waiting inserts use, which is more than they count for against the credit.
    held_bytes: u64,
    connection: u32,
    /// Inserts that were sent again while they were being withdrawn.
    pub(super) returned: HashMap<u64, Arrived>,
    /// Whether the client was notified that inserts wait.
    held: bool,
    /// The tables that this session inserted into, now or before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

/// An insert that waits for its table.
pub(super) struct Waiting {
    table: u32,
    size_bytes: u64,
    held_bytes: u64,
    /// The connection that sent it last.
    connection: u32,
    /// True if it is withdrawn because its client did not send it again.
    pub(super) left: bool,
}

impl Inserts {
    pub(super) fn new(tables: Vec<Arc<SharedTable>>) -> Self {
        Self { tables, ..Self::default() }
    }

    pub(super) fn note_table(&mut self, table: &Arc<SharedTable>) {
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
    pub(super) fn has_share(&self, table: u32, credit: u64) -> bool {
        items::has_share(self.in_flight_of.get(&table).copied().unwrap_or(0), self.in_flight, credit)
    }

    pub(super) fn add(&mut self, id: u64, (table, items): (u32, usize), size_bytes: u64) {
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
    pub(super) fn came_again(&mut self, id: u64, size_bytes: u64) {
        let connection = self.connection;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let (table, before) = (waiting.table, std::mem::replace(&mut waiting.size_bytes, size_bytes));
        let since = std::mem::replace(&mut waiting.connection, connection);
        self.count_off(table, before, since);
        self.count(table, size_bytes);
    }

    /// Removes a waiting insert. True if it was withdrawn because it was not sent again.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        self.held_bytes -= waiting.held_bytes;
        self.count_off(waiting.table, waiting.size_bytes, waiting.connection);
        waiting.left
    }

    /// Returns the inserts that neither this connection nor the one before it sent.
    /// They no longer count, and are to be withdrawn.
    pub(super) fn leave_behind(&mut self) -> Vec<u64> {
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
    pub(super) fn held(&mut self) -> Option<bool> {
        let held = !self.waiting.is_empty();
        (std::mem::replace(&mut self.held, held) != held).then_some(held)
    }

    /// The number of waiting inserts.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
