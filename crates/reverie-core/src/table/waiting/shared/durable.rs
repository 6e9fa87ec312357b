//! A shared table's part in a journal.

use super::SharedTable;
use crate::error::Result;
use crate::item::Item;
use crate::sample::Draws;
use crate::sync::{Arc, lock};
use crate::table::types::delta::{SenderChange, TableDelta};
use crate::table::types::journal::JournalInfo;
use crate::table::waiting::consumed::{DurableDraws, durably_consumed};
use crate::table::waiting::durable::{DurableRequest, Outcome, TableJournal};
use crate::table::waiting::ticket::Ticket;
use std::collections::HashSet;

impl SharedTable {
    /// Notes what changes from now on, for [`SharedTable::delta`].
    pub fn track_changes(&self) {
        let mut state = lock(&self.state);
        state.table.track_changes();
        state.senders.track_changes();
    }

    /// Completes inserts and consuming draws from now on only once they are durable. False if that was set before.
    pub fn set_durable(&self, durable: Arc<dyn TableJournal>) -> bool {
        self.durable.set(durable).is_ok()
    }

    /// The changes since the last call, with `counts` also priorities and counts of draws; `None` if there are none.
    ///
    /// An insert that waits with a part of its items in the table is among the senders' changes with that part.
    pub fn delta(&self, counts: bool) -> Option<TableDelta> {
        let mut state = lock(&self.state);
        if !counts && !state.table.has_delta() && !state.senders.has_changes() {
            return None;
        }
        let mut delta = state.table.delta(counts);
        delta.senders = state.senders.take_changes();
        let begun = state.inserts.begun().filter_map(|pending| Some((pending.origin?, &pending.keys)));
        let begun = begun.filter_map(|(origin, keys)| Some((state.senders.known(origin)?, keys)));
        delta.senders.extend(begun.map(|(sent, keys)| SenderChange::Arrived(sent.sender, sent.number, keys.clone())));
        Some(delta)
    }

    /// See [`TableJournal::barrier`], for a task; `None` without a journal.
    pub fn barrier(&self) -> Option<Ticket<()>> {
        let durable = self.durable.get()?;
        let barrier = durable.barrier();
        durable.wake_committer();
        Some(barrier)
    }

    /// See [`TableJournal::is_durable_later`]; false without a journal.
    pub fn is_durable_later(&self) -> bool {
        self.durable.get().is_some_and(|durable| durable.is_durable_later())
    }

    /// See [`TableJournal::durable`]; `None` without a journal.
    pub fn durable(&self, at_once: bool) -> Option<Ticket<()>> {
        self.durable.get().map(|durable| durable.durable(at_once))
    }

    /// The figures of the journal; `None` without one.
    pub fn journal(&self) -> Option<JournalInfo> {
        self.durable.get().map(|durable| durable.info())
    }

    /// Fails if what is done here can no longer be made durable. A closed table reports that it is closed.
    pub(super) fn check_durable(&self) -> Result<()> {
        let checked = self.durable.get().map_or(Ok(()), |durable| durable.check());
        checked.or_else(|error| lock(&self.state).check_open(&self.name).and(Err(error)))
    }

    /// Fails if a journal could not write these items: a chunk on the disk that it has to write cannot be read.
    ///
    /// It reads such chunks, each once: it must not be called under a lock. Without a journal it returns at once.
    pub(super) fn check_writable<'a>(&self, items: impl Iterator<Item = &'a Item>) -> Result<()> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        let mut seen = HashSet::new();
        let mut on_disk = items.flat_map(Item::chunks).filter(|chunk| chunk.is_on_disk());
        on_disk.try_for_each(|chunk| match seen.insert(Arc::as_ptr(chunk)) {
            true => chunk.check_on_disk(|| durable.has(chunk)),
            false => Ok(()),
        })
    }

    /// This request, which is done once it is durable.
    pub fn durable_request<T: Outcome + Send + Sync + Unpin + 'static>(&self, ticket: Ticket<T>) -> Ticket<T> {
        let Some(durable) = self.durable.get().map(Arc::clone) else { return ticket };
        Ticket::pending(Box::new(DurableRequest::new(ticket, durable)))
    }

    /// These draws, which are done once it is durable that their items are used up.
    pub fn durable_draws(&self, mut ticket: Ticket<Draws>) -> Ticket<Draws> {
        let Some(durable) = self.durable.get() else { return ticket };
        match ticket.poll() {
            Some(outcome) => durably_consumed(outcome, durable),
            None => Ticket::pending(Box::new(DurableDraws::new(ticket, Arc::clone(durable)))),
        }
    }
}
