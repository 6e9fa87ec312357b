//! Items that a writer has sent and that are not in their tables yet.

use crate::error::Result;
use crate::table::{Keys, Ticket};
use std::collections::VecDeque;
use std::time::Duration;

/// The target of a wait: the most that may stay unconfirmed.
#[derive(Clone, Copy, Debug)]
pub enum Room {
    /// Items.
    Items(usize),
    /// Their bytes.
    Bytes(u64),
}

/// A writer's unconfirmed items. A writer that has more than its limit of bytes waits before it appends.
///
/// A table confirms items in the order in which they were sent, so that `settle` costs time for confirmed items only.
#[derive(Default)]
pub struct InFlight {
    waiting: Vec<Queue>,
    sent: u64,
    bytes: u64,
    items: usize,
}

struct Queue {
    table: String,
    sent: VecDeque<Sent>,
}

struct Sent {
    ticket: Ticket<Keys>,
    /// Its position among all that the writer sent.
    order: u64,
    bytes: u64,
    items: usize,
}

impl InFlight {
    /// Adds a request; one that is done already is not kept. Returns its error.
    pub fn push(&mut self, table: &str, mut ticket: Ticket<Keys>, items: usize, bytes: u64) -> Result<()> {
        if let Some(outcome) = ticket.poll() {
            return outcome.map(|_| ());
        }
        self.bytes += bytes;
        self.items += items;
        self.sent += 1;
        let sent = Sent { ticket, order: self.sent, bytes, items };
        match self.waiting.iter_mut().find(|queue| queue.table == table) {
            Some(queue) => queue.sent.push_back(sent),
            None => self.waiting.push(Queue { table: table.to_owned(), sent: VecDeque::from([sent]) }),
        }
        Ok(())
    }

    /// Removes the requests that are done. Returns the number of unconfirmed items, or the first error of a request.
    pub fn settle(&mut self) -> Result<usize> {
        let mut error = None;
        for queue in &mut self.waiting {
            while let Some(outcome) = queue.sent.front_mut().and_then(|sent| sent.ticket.poll()) {
                let sent = queue.sent.pop_front().expect("the oldest request is there");
                self.bytes -= sent.bytes;
                self.items -= sent.items;
                error = error.or(outcome.err());
            }
        }
        error.map_or(Ok(self.items), Err)
    }

    /// Parks this thread until there may be room, at most for `timeout`; may return early.
    ///
    /// The thread is woken once, by the request at the table of the oldest one whose end makes the room, and not by
    /// each request before it.
    pub fn wait(&mut self, room: Room, timeout: Duration) -> Result<usize> {
        let Some(index) = self.oldest() else { return Ok(0) };
        let queue = &self.waiting[index].sent;
        let mut behind = (0, 0);
        let last = queue.iter().rposition(|sent| {
            behind = (behind.0 + sent.items, behind.1 + sent.bytes);
            match room {
                Room::Items(most) => behind.0 > most,
                Room::Bytes(most) => behind.1 > most,
            }
        });
        let ticket = &queue[last.unwrap_or(0)].ticket;
        ticket.nudge();
        ticket.park(timeout);
        self.settle()
    }

    /// The queue of the oldest request.
    fn oldest(&self) -> Option<usize> {
        let oldest = |index: &usize| self.waiting[*index].sent.front().map_or(u64::MAX, |sent| sent.order);
        (0..self.waiting.len()).filter(|index| !self.waiting[*index].sent.is_empty()).min_by_key(oldest)
    }

    /// Bytes of the unconfirmed items.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Unconfirmed items, as of the last `settle`.
    pub fn len(&self) -> usize {
        self.items
    }

    /// True if no item is unconfirmed.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The table that the oldest request waits for.
    pub fn waits_for(&self) -> Option<&str> {
        self.oldest().map(|index| self.waiting[index].table.as_str())
    }
}
