//! Items that a writer has sent and that are not in their table yet.

use crate::error::Result;
use crate::table::{Keys, Ticket};
use std::collections::VecDeque;
use std::time::Duration;

/// A writer's unconfirmed items, bounded in bytes: beyond, appending has to wait.
#[derive(Default)]
pub struct InFlight {
    waiting: VecDeque<Sent>,
    bytes: u64,
    items: usize,
}

struct Sent {
    ticket: Ticket<Keys>,
    table: String,
    bytes: u64,
    items: usize,
}

impl InFlight {
    /// Notes a request; one that is done already costs nothing. Its error, if it has one, is returned.
    pub fn push(&mut self, table: &str, mut ticket: Ticket<Keys>, items: usize, bytes: u64) -> Result<()> {
        if let Some(outcome) = ticket.poll() {
            return outcome.map(|_| ());
        }
        self.bytes += bytes;
        self.items += items;
        self.waiting.push_back(Sent { ticket, table: table.to_owned(), bytes, items });
        Ok(())
    }

    /// Items that are not confirmed, after a look at which are; the first error of a request is returned.
    pub fn settle(&mut self) -> Result<usize> {
        let mut error = None;
        let (bytes, items) = (&mut self.bytes, &mut self.items);
        self.waiting.retain_mut(|sent| match sent.ticket.poll() {
            None => true,
            Some(outcome) => {
                *bytes -= sent.bytes;
                *items -= sent.items;
                error = error.take().or(outcome.err());
                false
            }
        });
        error.map_or(Ok(self.items), Err)
    }

    /// Parks this thread until the oldest request is done, at most for `timeout`; may return early.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize> {
        if let Some(sent) = self.waiting.front_mut() {
            if let Some(outcome) = sent.ticket.wait(timeout) {
                let sent = self.waiting.pop_front().expect("the oldest request is there");
                self.bytes -= sent.bytes;
                self.items -= sent.items;
                outcome?;
            }
        }
        self.settle()
    }

    /// Bytes of the items that are not confirmed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Items that are not confirmed, as far as was looked.
    pub fn len(&self) -> usize {
        self.items
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The table that the oldest request waits for.
    pub fn waits_for(&self) -> Option<&str> {
        self.waiting.front().map(|sent| sent.table.as_str())
    }
}
