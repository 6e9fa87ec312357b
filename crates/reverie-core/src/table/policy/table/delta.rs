//! The changes of a table since a journal asked last.

use super::Table;
use crate::table::policy::slots::changed_slots::ChangedSlots;
use crate::table::types::delta::{Counts, TableDelta};
use crate::table::types::limiter::Counters;
use crate::table::types::table_contents::Row;

impl Table {
    /// Notes what changes from now on, for [`Table::delta`].
    pub fn track_changes(&mut self) {
        self.slots.track_changes();
        self.configured = false;
    }

    /// True if [`Table::delta`] would return more than counts.
    pub fn has_delta(&mut self) -> bool {
        self.configured || self.slots.changed().is_some_and(|changed| changed.has_items())
    }

    /// The changes since the last call, as the table would be without the leased draws; with `counts` also priorities
    /// and counts of draws. The owner of its queues fills in the senders.
    ///
    /// A leased draw is undone in these figures, as in [`Table::snapshot`], and its holder is named: a server that starts
    /// from the journal leases it again, see [`Table::lease_again`].
    pub fn delta(&mut self, counts: bool) -> TableDelta {
        let stats = counts.then(|| self.without_leases(|table| table.stats.clone()));
        let (mut cleared, mut items, mut changed, mut leased) = (false, Vec::new(), Vec::new(), Vec::new());
        if let Some(noted) = self.slots.changed() {
            (cleared, items, leased) = (noted.take_cleared(), noted.take_items(), noted.take_leases());
            changed = if counts { ChangedSlots::take_counts(noted) } else { Vec::new() };
        }
        let (mut removed, mut rows) = (Vec::new(), Vec::with_capacity(items.len()));
        for slot in items {
            match self.row(slot) {
                Some(row) => rows.push(row),
                None => removed.push(slot),
            }
        }
        let counts_of = |slot: u32| {
            let Row { slot, generation, priority, version, times_sampled, updated, .. } = self.row(slot)?;
            Some(Counts { slot, generation, priority, version, times_sampled, updated })
        };
        // The end of a lease is a draw that counts, or one that does not: both are in one commit.
        changed.extend(leased.iter().filter(|_| !counts));
        let leases = leased.into_iter().filter(|slot| self.slots.slot(*slot).item.is_some());
        let leases = leases.map(|slot| (slot, self.lessees(slot))).collect();
        TableDelta {
            cleared,
            counters: self.unleased_counters(),
            stats,
            order: self.order,
            allocated: self.slots.allocated(),
            removed,
            counts: changed.into_iter().filter_map(counts_of).collect(),
            rows,
            leases,
            senders: Vec::new(),
            options: std::mem::take(&mut self.configured).then(|| self.options.clone()),
        }
    }

    /// The row of a slot, without its leased draws; `None` if it is free.
    fn row(&self, slot: u32) -> Option<Row> {
        let mut row = self.slots.row(slot)?;
        if self.leases.draws > 0
            && let Some(leased) = self.leases.by_key.get(&self.slots.key(slot))
        {
            row.times_sampled = row.times_sampled.saturating_sub(leased.draws.len() as u32);
        }
        Some(row)
    }

    fn unleased_counters(&self) -> Counters {
        let Counters { inserts, samples, deletes } = self.counters;
        Counters {
            inserts,
            samples: samples - (self.leases.draws - self.leases.removed),
            deletes: deletes - self.leases.used_up,
        }
    }
}
