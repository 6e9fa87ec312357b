//! Inserts that wait for their table, in order of arrival, and the number of their items: no call visits all of them.

use super::copies::InsertedCopy;
use super::promise::OutcomeCell;
use super::senders::Origin;
use crate::error::Error;
use crate::item::Item;
use crate::sync::Arc;
use crate::table::types::inserts::{Keys, Priority};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) struct PendingInsert {
    pub(super) id: u64,
    pub(super) items: smallvec::IntoIter<[(Item, Priority); 1]>,
    pub(super) next: Option<(Item, Priority)>,
    pub(super) keys: Keys,
    pub(super) origin: Option<Origin>,
    pub(super) since: Duration,
    pub(super) cell: Arc<OutcomeCell<Keys>>,
    /// Set for a copy, for which no caller waits.
    pub(super) copy: Option<InsertedCopy>,
}

impl PendingInsert {
    pub(super) fn next(&self) -> Option<&Item> {
        self.next.as_ref().map(|(item, _)| item)
    }

    pub(super) fn left(&self) -> u64 {
        self.items.len() as u64 + u64::from(self.next.is_some())
    }

    /// Fails the insert after it was taken out of the queue; its remaining items are not inserted. The error names
    /// those that are.
    pub(super) fn fail(self, reason: Error) {
        if let Some(copy) = &self.copy {
            copy.end(false);
        }
        self.cell.fill(Err(reason.with_part(self.keys)));
    }

    /// The time at which the insert is dropped if it still waits.
    fn until(&self) -> Option<Duration> {
        self.copy.as_ref().and_then(InsertedCopy::until)
    }
}

/// The queue of inserts. Every call is O(log n) of the n waiting inserts, except for those that return all of them.
#[derive(Default)]
pub(super) struct InsertQueue {
    /// The waiting inserts by id; ids ascend in the order of arrival.
    waiting: BTreeMap<u64, PendingInsert>,
    /// The number of all items that are not inserted yet.
    items: u64,
    /// Inserts with some items inserted.
    begun: BTreeSet<u64>,
    /// Inserts that have a timeout.
    timed: BTreeSet<(Duration, u64)>,
}

impl InsertQueue {
    /// Puts an insert at the place of its id: a new one at the end, one that was the first in front.
    pub(super) fn put(&mut self, pending: PendingInsert) {
        let id = pending.id;
        self.items += pending.left();
        if !pending.keys.is_empty() {
            self.begun.insert(id);
        }
        if let Some(until) = pending.until() {
            self.timed.insert((until, id));
        }
        self.waiting.insert(id, pending);
    }

    pub(super) fn pop_first(&mut self) -> Option<PendingInsert> {
        let (_, pending) = self.waiting.pop_first()?;
        Some(self.taken(pending))
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<PendingInsert> {
        let pending = self.waiting.remove(&id)?;
        Some(self.taken(pending))
    }

    /// Removes the first insert that has timed out at `now`.
    pub(super) fn remove_late(&mut self, now: Duration) -> Option<PendingInsert> {
        let (until, id) = *self.timed.first()?;
        if until <= now { self.remove(id) } else { None }
    }

    fn taken(&mut self, pending: PendingInsert) -> PendingInsert {
        self.items -= pending.left();
        self.begun.remove(&pending.id);
        if let Some(until) = pending.until() {
            self.timed.remove(&(until, pending.id));
        }
        pending
    }

    /// The time at which the next timeout expires.
    pub(super) fn late_at(&self) -> Option<Duration> {
        self.timed.first().map(|(until, _)| *until)
    }

    pub(super) fn first(&self) -> Option<&PendingInsert> {
        self.waiting.first_key_value().map(|(_, pending)| pending)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &PendingInsert> {
        self.waiting.values()
    }

    /// Inserts with some items inserted, in order.
    pub(super) fn begun(&self) -> impl Iterator<Item = &PendingInsert> {
        self.begun.iter().filter_map(|id| self.waiting.get(id))
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = PendingInsert> {
        self.waiting.into_values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of items that wait.
    pub(super) fn items(&self) -> u64 {
        self.items
    }
}
