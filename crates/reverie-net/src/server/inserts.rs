//! Inserts: from messages to items, from items to tables, and keys back.

use crate::items::{self, ArrivedInsert};
use reverie_core::table::SharedTable;
use reverie_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// The inserts of a session.
#[derive(Default)]
pub(super) struct SessionInserts {
    /// The inserts that wait for their tables, by number.
    pub(super) waiting: HashMap<u64, WaitingInsert>,
    /// Bytes of the waiting inserts that this connection sent, as its client counts them.
    pub(super) in_flight: u64,
    /// Bytes of the waiting inserts for each table, by its number.
    pub(super) in_flight_of: HashMap<u32, u64>,
    /// Bytes of the waiting inserts that the connection before this one sent last. The client sends the wanted ones
    /// again.
    before: u64,
    /// Bytes of those that only still earlier connections sent.
    older: u64,
    /// The memory that the waiting inserts use without their chunks, which the session counts.
    held_bytes: u64,
    connection: u32,
    /// Inserts that were sent again while they were being withdrawn.
    pub(super) returned: HashMap<u64, ArrivedInsert>,
    /// True if the client was notified that inserts wait.
    held: bool,
    /// The tables that this session inserted into, now or before a checkpoint.
    pub(super) tables: Vec<Arc<SharedTable>>,
}

/// An insert that waits for its table.
pub(super) struct WaitingInsert {
    table: u32,
    /// The number of its items, also of those that are in the table already.
    num_items: usize,
    size_bytes: u64,
    held_bytes: u64,
    /// The connection that sent it last.
    connection: u32,
    /// True if it is withdrawn because its client did not send it again.
    pub(super) abandoned: bool,
}

impl SessionInserts {
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
        self.older += std::mem::replace(&mut self.before, std::mem::take(&mut self.in_flight));
        self.in_flight_of.clear();
        self.connection = self.connection.wrapping_add(1);
        // The client sends them again on this connection, too.
        self.returned.clear();
        self.held = false;
    }

    /// True if the client may send more into the table.
    pub(super) fn has_share(&self, table: u32, credit: u64) -> bool {
        items::has_share(self.in_flight_of.get(&table).copied().unwrap_or(0), self.in_flight, credit)
    }

    /// Adds an insert of `num_items` that waits; it counts `size_bytes` against the credit, and holds `held_bytes`
    /// without its chunks.
    pub(super) fn add(&mut self, id: u64, table: u32, num_items: usize, (size_bytes, held_bytes): (u64, u64)) {
        self.remove(id);
        let connection = self.connection;
        self.count(table, size_bytes);
        self.held_bytes += held_bytes;
        self.waiting
            .insert(id, WaitingInsert { table, num_items, size_bytes, held_bytes, connection, abandoned: false });
    }

    fn count(&mut self, table: u32, size_bytes: u64) {
        self.in_flight += size_bytes;
        *self.in_flight_of.entry(table).or_default() += size_bytes;
    }

    /// Removes an insert from the counts.
    fn count_off(&mut self, table: u32, size_bytes: u64, connection: u32) {
        match self.connection.wrapping_sub(connection) {
            0 => {
                self.in_flight -= size_bytes;
                *self.in_flight_of.entry(table).or_default() -= size_bytes;
            }
            1 => self.before -= size_bytes,
            _ => self.older -= size_bytes,
        }
    }

    /// The memory that the waiting inserts use without their chunks.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Notes that a waiting insert was sent again on a new connection, with its size as the client counts it now.
    /// `Protocol` if this connection sent it already: it would count for less than it holds.
    pub(super) fn received_again(&mut self, id: u64, size_bytes: u64) -> Result<()> {
        let connection = self.connection;
        let Some(waiting) = self.waiting.get_mut(&id) else { return Ok(()) };
        if waiting.connection == connection {
            return Err(Error::Protocol(format!("the insert {id} was sent twice on one connection")));
        }
        let (table, before) = (waiting.table, std::mem::replace(&mut waiting.size_bytes, size_bytes));
        let since = std::mem::replace(&mut waiting.connection, connection);
        self.count_off(table, before, since);
        self.count(table, size_bytes);
        Ok(())
    }

    /// The number of the table that an insert waits for, and that of its items.
    pub(super) fn table_and_items(&self, id: u64) -> Option<(u32, usize)> {
        self.waiting.get(&id).map(|waiting| (waiting.table, waiting.num_items))
    }

    /// Marks a waiting insert of no bytes as withdrawn: its client did not send it again.
    pub(super) fn mark_abandoned(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.abandoned = true;
        }
    }

    /// Notes that the client has not sent a waiting insert of no bytes on this connection or the one before it.
    pub(super) fn mark_older(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.connection = self.connection.wrapping_sub(2);
        }
    }

    /// Removes a waiting insert. True if it was withdrawn because it was not sent again.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        self.held_bytes -= waiting.held_bytes;
        self.count_off(waiting.table, waiting.size_bytes, waiting.connection);
        waiting.abandoned
    }

    /// Returns the inserts that neither this connection nor the one before it sent, if all together exceed the credit.
    /// They no longer count, and are to be withdrawn.
    pub(super) fn abandon_older(&mut self, credit: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        // Without old ones nothing is searched: this is asked for each insert.
        if self.older == 0 || self.in_flight + self.before + self.older < credit {
            return numbers;
        }
        for (id, waiting) in &mut self.waiting {
            if self.connection.wrapping_sub(waiting.connection) > 1 && !waiting.abandoned {
                waiting.size_bytes = 0;
                waiting.abandoned = true;
                numbers.push(*id);
            }
        }
        self.older = 0;
        numbers
    }

    /// Notes that the client asks for the outcome of an insert. True if it is reported when the withdrawal ends.
    pub(super) fn note_question(&mut self, id: u64) -> bool {
        let waiting = self.waiting.get_mut(&id).filter(|waiting| waiting.abandoned);
        waiting.is_some_and(|waiting| std::mem::take(&mut waiting.abandoned))
    }

    /// True if inserts wait, and `None` if the client need not be notified of a change.
    pub(super) fn held(&mut self) -> Option<bool> {
        let held = !self.waiting.is_empty();
        (std::mem::replace(&mut self.held, held) != held).then_some(held)
    }

    /// The number of waiting inserts.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_of_older_connections_are_searched_for_once() {
        let mut inserts = SessionInserts::default();
        let mut next = 1;
        let mut wait = |inserts: &mut SessionInserts, number: u64| {
            for id in next..next + number {
                inserts.add(id, 0, 1, (100, 7));
            }
            next += number;
        };
        wait(&mut inserts, 3);
        inserts.reconnected();
        wait(&mut inserts, 6);
        assert_eq!((inserts.older, inserts.abandon_older(800)), (0, vec![]), "all are of this connection or the last");
        inserts.received_again(2, 70).unwrap();
        assert!(matches!(inserts.received_again(2, 0), Err(Error::Protocol(_))));
        inserts.reconnected();
        wait(&mut inserts, 2);
        assert_eq!((inserts.in_flight, inserts.before, inserts.older), (200, 670, 200));
        assert_eq!(inserts.abandon_older(1071), [0; 0], "they are within the credit");
        let mut left = inserts.abandon_older(1070);
        left.sort_unstable();
        assert_eq!((left, inserts.older, inserts.abandon_older(1)), (vec![1, 3], 0, vec![]));
        assert!(inserts.remove(1) && !inserts.remove(2) && inserts.remove(3));
        (4..next).for_each(|id| assert!(!inserts.remove(id)));
        assert_eq!((inserts.in_flight, inserts.before, inserts.older, inserts.held_bytes()), (0, 0, 0, 0));
    }
}
