//! A shared table's copies: offered at the first draw, inserted at the target.

use super::SharedTable;
use crate::error::Error;
use crate::item::{Item, Key};
use crate::sync::lock;
use crate::table::types::copies::{CopyStats, FirstDraw, InsertOnSample, MOST_WAITING};
use crate::table::types::inserts::{Keys, Priority};
use crate::table::waiting::budget::Budget;
use crate::table::waiting::copies::{CopyExtension, CopyTarget, InsertedCopy};
use crate::table::waiting::insert_queue::PendingInsert;
use crate::table::waiting::promise::OutcomeCell;
use crate::table::waiting::queues::TableState;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl SharedTable {
    /// Sets the tables that get its copies; called once, before the table is used.
    pub(in crate::table::waiting) fn copy_to(&self, extensions: &[InsertOnSample], all: &[Arc<SharedTable>]) {
        let found = |name: &str| all.iter().find(|table| table.name() == name);
        let copying = |extension: &InsertOnSample| {
            let target: Weak<SharedTable> =
                Arc::downgrade(found(&extension.target).expect("the extensions were checked"));
            CopyExtension { target, timeout: extension.timeout, counts: Arc::default() }
        };
        if !extensions.is_empty() {
            lock(&self.state).table.note_first_draws();
            // Only just made, so it cannot have been set.
            let _ = self.copying.set(extensions.iter().map(copying).collect());
        }
    }

    /// Offers first draws to the tables that accept copies. Called without the lock.
    ///
    /// True if that freed bytes, and true if an insert there waits for bytes.
    pub(in crate::table::waiting) fn copy(&self, first: Vec<FirstDraw>) -> (bool, bool) {
        let (mut freed, mut starves) = (false, false);
        for copying in self.copying.get().into_iter().flatten() {
            let Some(target) = copying.target.upgrade() else {
                copying.counts.dropped.fetch_add(first.len() as u64, Relaxed);
                continue;
            };
            let (more, waits) = target.offer(&first, copying);
            (freed, starves) = (freed | more, starves | waits);
        }
        (freed, starves)
    }

    /// Counts of the copies, for each extension.
    pub(in crate::table::waiting) fn copied(&self) -> Vec<CopyStats> {
        let all = self.copying.get().into_iter().flatten();
        all.map(|copying| {
            if let Some(target) = copying.target.upgrade() {
                target.drop_late();
            }
            copying.counts.get()
        })
        .collect()
    }

    /// Resets the counts of copies.
    pub(in crate::table::waiting) fn forget_copied(&self) {
        self.copying.get().into_iter().flatten().for_each(|copying| copying.counts.clear());
    }

    /// The time until the first waiting copy times out, and inserts behind it may continue; `None` without one.
    ///
    /// Nothing else that an insert waits for happens by the passing of time alone.
    pub fn drops_late_in(&self) -> Option<Duration> {
        let late_at = lock(&self.state).inserts.late_at()?;
        Some(late_at.saturating_sub(self.clock.now()))
    }

    /// Drops copies that timed out, so that figures are as if that had been done in time.
    pub(in crate::table::waiting) fn drop_late(&self) {
        if self.drops_late_in().is_some_and(|left| left.is_zero()) {
            self.decide(|_, _| ());
        }
    }
}

impl CopyTarget for SharedTable {
    fn offer(&self, first: &[FirstDraw], how: &CopyExtension) -> (bool, bool) {
        let budget = self.budget.as_deref();
        // A chunk that cannot be read now may be whole: it ends the journal where it is written, and is not dropped here.
        let is_damaged = |draw: &&FirstDraw| {
            matches!(self.check_writable(std::iter::once(&draw.item)), Err(Error::DamagedFile { .. }))
        };
        let damaged: Vec<Key> = first.iter().filter(is_damaged).map(|draw| draw.key).collect();
        let offered = || first.iter().filter(|draw| !damaged.contains(&draw.key));
        how.counts.dropped.fetch_add(damaged.len() as u64, Relaxed);
        let (refused, freed, starves) = self.decide_alone(|state, now| state.offer(offered(), how, now, budget));
        drop(refused);
        (freed, starves)
    }

    fn drop_late(&self) {
        SharedTable::drop_late(self);
    }
}

impl TableState {
    /// Inserts or queues copies. Returns those that were refused, to be dropped without the lock.
    fn offer<'a>(
        &mut self,
        first: impl Iterator<Item = &'a FirstDraw>,
        how: &CopyExtension,
        now: Duration,
        budget: Option<&Budget>,
    ) -> Vec<(Item, Priority)> {
        let mut refused = Vec::new();
        for FirstDraw { item, priority, key } in first {
            let offered = (item.clone(), Priority::Value(*priority));
            self.forget_unused_layout();
            if self.closed || self.table.admit(item, *priority).is_err() {
                how.counts.end(false);
                refused.push(offered);
                continue;
            }
            let until = how.timeout.map(|timeout| now.saturating_add(timeout));
            let copy = InsertedCopy { key: *key, until, counts: Arc::clone(&how.counts) };
            copy.counts.waiting.fetch_add(1, Relaxed);
            let mut keys = Keys::new();
            let next = match self.inserts.is_empty() {
                true => self.admit(&mut std::iter::empty(), &mut keys, Some(offered), Some(&copy), now, budget),
                false => Some(offered),
            };
            let Some(next) = next else { continue };
            if until.is_some_and(|until| until <= now) || how.counts.waiting.load(Relaxed) > MOST_WAITING {
                copy.end(false);
                refused.push(next);
                continue;
            }
            let (id, items) = (self.take_id(), smallvec::SmallVec::new().into_iter());
            let (next, copy, cell) = (Some(next), Some(copy), OutcomeCell::new());
            self.inserts.put(PendingInsert { id, items, next, keys, origin: None, since: now, cell, copy });
        }
        refused
    }
}
