//! Unconfirmed inserts into one table.

use super::work::NewInsert;
use crate::items::{self, ITEM_BYTES};
use reverie_core::Result;
use reverie_core::table::{Inserts as Items, Keys, Promise};
use std::collections::VecDeque;

/// Unconfirmed inserts into one table, in the order of their numbers.
#[derive(Default)]
pub(super) struct InsertQueue {
    all: VecDeque<Insert>,
    /// The number of inserts, from the front, that were sent on this connection.
    sent: usize,
    /// Bytes of inserts that were sent and are not confirmed, as the server counts them.
    in_flight: u64,
    /// Entries of `all` that are done but stand behind one that is not.
    done: usize,
    /// The number of the first insert in the planned message.
    planned: Option<u64>,
    /// Bytes that the inserts in that message count for, without the message's bulk bytes.
    planned_bytes: u64,
}

pub(super) struct Insert {
    pub(super) id: u64,
    /// The number of keys in the answer.
    pub(super) count: usize,
    pub(super) items: Items,
    /// `None` if no caller waits any more.
    pub(super) promise: Option<Promise<Keys>>,
    bytes: u64,
    pub(super) state: InsertState,
    /// True if it was sent on this connection.
    pub(super) pushed: bool,
    /// True if it was sent to this server on a connection that was lost: it may be in its table.
    pub(super) may_be_inserted: bool,
    /// True if it was sent on any connection that was lost: a server restored from a checkpoint may have it.
    pub(super) sent_before: bool,
    /// True if it was confirmed by an earlier server that may have lost it: no caller waits.
    pub(super) again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InsertState {
    Waits,
    /// The caller withdrew it: it is not sent again, and the server is asked for its outcome.
    Withdrawn,
    Done,
}

/// The credit, and how much of it all tables use.
#[derive(Clone, Copy)]
pub(super) struct CreditUse {
    pub(super) credit: u64,
    /// Bytes in flight, and the bytes that the planned message counts for.
    pub(super) all: u64,
    /// Bulk bytes of that message, which count for each table in it.
    pub(super) bulk: u64,
}

impl InsertQueue {
    pub(super) fn push(&mut self, new: NewInsert) {
        let NewInsert { id, items, promise, .. } = new;
        let (count, promise) = (items.len(), Some(promise));
        self.all.push_back(Insert { promise, count, ..Insert::new(id, items) });
    }

    /// Adds inserts that a server confirmed which was restarted since; nothing was sent on this connection yet.
    pub(super) fn push_again(&mut self, confirmed: impl Iterator<Item = (u64, Items)>) {
        // A confirmed insert may still stand here, behind one that is not done.
        self.all.retain(|insert| !insert.is_done());
        self.done = 0;
        self.all.extend(confirmed.map(|(id, items)| Insert {
            sent_before: true,
            again: true,
            ..Insert::new(id, items)
        }));
        self.all.make_contiguous().sort_by_key(|insert| insert.id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The smallest unconfirmed number.
    pub(super) fn first_id(&self) -> Option<u64> {
        self.all.front().map(|insert| insert.id)
    }

    /// The inserts that are not done.
    pub(super) fn open(&self) -> impl Iterator<Item = &Insert> {
        self.all.iter().filter(|insert| insert.state != InsertState::Done)
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Insert> {
        self.all.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn at(&self, at: usize) -> &Insert {
        &self.all[at]
    }

    pub(super) fn at_mut(&mut self, at: usize) -> &mut Insert {
        &mut self.all[at]
    }

    /// The position of an insert that is not done.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let is_front = self.all.front().is_some_and(|insert| insert.id == id);
        let at = if is_front { Some(0) } else { self.all.binary_search_by_key(&id, |insert| insert.id).ok() };
        at.filter(|at| self.all[*at].state != InsertState::Done)
    }

    /// True if some are not sent yet, and the table may have more in flight.
    pub(super) fn can_send(&self, used: CreditUse) -> bool {
        let planned = if self.planned.is_some() { self.planned_bytes + used.bulk } else { 0 };
        self.sent < self.all.len() && items::has_share(self.in_flight + planned, used.all, used.credit)
    }

    /// The next insert to send; skips those that are not to be sent any more.
    pub(super) fn next(&mut self) -> Option<&mut Insert> {
        while self.all.get(self.sent).is_some_and(|insert| insert.state != InsertState::Waits) {
            self.sent += 1;
        }
        self.all.get_mut(self.sent)
    }

    /// Adds the next insert to the planned message; returns its bytes, and whether it is the first of its table.
    pub(super) fn plan_next(&mut self) -> (u64, bool) {
        let insert = &mut self.all[self.sent];
        insert.pushed = true;
        insert.bytes = insert.count as u64 * ITEM_BYTES;
        self.sent += 1;
        let first = self.planned.is_none();
        self.planned.get_or_insert(insert.id);
        self.planned_bytes += insert.bytes;
        (insert.bytes, first)
    }

    /// Skips the next insert on this connection.
    pub(super) fn pass_next(&mut self) {
        self.sent += 1;
    }

    /// Refuses the next insert, which can never be sent.
    pub(super) fn refuse_next(&mut self, outcome: Result<Keys>) {
        self.end(self.sent, outcome);
        self.sent += 1;
    }

    /// Marks the planned message as sent; returns the bytes that it put in flight.
    /// Its first insert counts for the bulk bytes.
    pub(super) fn sent(&mut self, bulk: u64) -> u64 {
        self.planned_bytes = 0;
        let Some(first) = self.planned.take() else { return 0 };
        let from = self.all.partition_point(|insert| insert.id < first);
        let mut planned = self.all.range_mut(from..self.sent).filter(|insert| insert.pushed && !insert.is_done());
        let Some(first) = planned.next() else { return 0 };
        first.bytes += bulk;
        let bytes = first.bytes + planned.map(|insert| insert.bytes).sum::<u64>();
        self.in_flight += bytes;
        bytes
    }

    /// Answers an insert; returns the bytes that are no longer in flight.
    pub(super) fn end(&mut self, at: usize, outcome: Result<Keys>) -> u64 {
        let insert = &mut self.all[at];
        let was_sent = self.planned.is_none_or(|first| insert.id < first);
        let bytes = insert.finish(outcome);
        self.done += 1;
        if !was_sent {
            return 0;
        }
        self.in_flight -= bytes;
        bytes
    }

    /// Marks all inserts as unsent after the connection was lost, except those that were withdrawn.
    pub(super) fn lost(&mut self) {
        for insert in &mut self.all {
            insert.bytes = 0;
            insert.may_be_inserted |= std::mem::take(&mut insert.pushed);
            insert.sent_before |= insert.may_be_inserted;
        }
        (self.sent, self.in_flight, self.planned, self.planned_bytes) = (0, 0, None, 0);
        self.settle();
    }

    /// Drops the finished inserts at the front, and all finished inserts if they are the majority.
    pub(super) fn settle(&mut self) {
        while self.all.front().is_some_and(Insert::is_done) {
            self.all.pop_front();
            self.sent = self.sent.saturating_sub(1);
            self.done -= 1;
        }
        if self.done > 1024 && self.done > self.all.len() / 2 {
            let sent = self.all.iter().take(self.sent).filter(|insert| !insert.is_done()).count();
            self.all.retain(|insert| !insert.is_done());
            (self.sent, self.done) = (sent, 0);
        }
    }
}

impl Insert {
    fn new(id: u64, items: Items) -> Self {
        let (count, state) = (items.len(), InsertState::Waits);
        let (pushed, may_be_inserted, sent_before, again) = (false, false, false, false);
        Self { id, count, items, promise: None, bytes: 0, state, pushed, may_be_inserted, sent_before, again }
    }

    /// Takes the items out, with the bytes that they count for, to keep them.
    pub(super) fn take_items(&mut self) -> (Items, u64) {
        (std::mem::take(&mut self.items), self.bytes)
    }

    fn is_done(&self) -> bool {
        self.state == InsertState::Done
    }

    /// Answers, and releases the chunks; returns the bytes that the insert counted for.
    fn finish(&mut self, outcome: Result<Keys>) -> u64 {
        self.state = InsertState::Done;
        self.items = Items::new();
        if let Some(promise) = self.promise.take() {
            promise.fill(outcome);
        }
        std::mem::take(&mut self.bytes)
    }
}
