//! The cut of a table for a checkpoint, and its restoration from one.

use super::Table;
use crate::error::{Error, Result};
use crate::item::Key;
use crate::table::policy::layout::TableLayout;
use crate::table::policy::options::check_pattern;
use crate::table::policy::selector::{AnySelector, Selector};
use crate::table::policy::slots::page::{Cut, Spares};
use crate::table::types::info::Stats;
use crate::table::types::limiter::Counters;
use crate::table::types::options::TableOptions;
use crate::table::types::senders::{Arrivals, Sender};
use crate::table::types::table_contents::TableContents;

/// A table as it was at one moment. Later changes do not affect it.
#[derive(Clone, Debug)]
pub struct TableCut {
    /// The configuration.
    pub options: TableOptions,
    /// The limiter's counters.
    pub counters: Counters,
    /// The other counts.
    pub stats: Stats,
    /// Insertions and updates so far: the largest position in their order.
    pub order: u64,
    /// The number of slots ever allocated.
    pub allocated: u32,
    /// Number of items.
    pub size: u64,
    /// The items.
    pub items: Cut,
    /// The inserted part of inserts that may be retried, by sender.
    pub sent: Vec<(Sender, Arrivals)>,
}

impl Table {
    /// The table without its leased draws; costs one reference per page. The owner of its queues fills in `sent`.
    pub fn snapshot(&mut self) -> TableCut {
        self.without_leases(Self::cut)
    }

    fn cut(&mut self) -> TableCut {
        TableCut {
            options: self.options.clone(),
            counters: self.counters,
            stats: self.stats.clone(),
            order: self.order,
            allocated: self.slots.allocated(),
            size: self.slots.len() as u64,
            items: self.slots.cut(),
            sent: Vec::new(),
        }
    }

    /// The number of pages of its items.
    pub fn num_pages(&self) -> u64 {
        self.slots.num_pages()
    }

    /// See [`Slots::exchange_spares`](crate::table::policy::slots::Slots::exchange_spares).
    pub fn exchange_spares(&mut self, spares: Spares) -> Spares {
        self.slots.exchange_spares(spares)
    }

    /// Refuses what [`Table::restore`] cannot accept.
    ///
    /// That is: a table in use, items that its signature or its selectors do not allow, keys of another shard.
    pub fn check_restoring(&self, from: &TableContents) -> Result<()> {
        let name = &self.options.name;
        let refuse = |reason: String| Err(Error::InvalidArgument(format!("table '{name}': {reason}")));
        if self.slots.allocated() > 0 || self.counters != Counters::default() {
            return refuse("a checkpoint can be restored only before the first insert".to_owned());
        }
        if from.shard != self.options.shard && !from.rows.is_empty() {
            let (theirs, ours) = (from.shard, self.options.shard);
            return refuse(format!("the checkpoint's keys are of shard {theirs}, the table is shard {ours}"));
        }
        let (size, rows) = (from.counters.inserts.checked_sub(from.counters.deletes), from.rows.len() as u64);
        if size != Some(rows) || from.rows.iter().any(|row| row.slot as usize >= Key::MAX_SLOTS) {
            return refuse(format!("the checkpoint has {rows} items, which its counters or slots contradict"));
        }
        let mut accepted = None;
        for row in &from.rows {
            self.check_priority(row.priority)?;
            let Some(signature) = &self.options.signature else { continue };
            if !accepted.as_ref().is_some_and(|form: &crate::item::Form| form.same(&row.item.pattern)) {
                check_pattern(signature, &row.item.pattern)?;
                accepted = Some(row.item.pattern.clone());
            }
        }
        Ok(())
    }

    /// Inserts a checkpoint's items under their former keys and in their former order.
    ///
    /// Then evicts until the table is within its bounds. [`Table::check_restoring`] must have accepted the items. Slots
    /// that are filled later start at generations from `incarnation`, which is random: keys that were returned after
    /// the checkpoint and lost with the process are stale.
    pub fn restore(&mut self, from: TableContents, incarnation: u64) {
        let TableContents { counters, stats, order, mut rows, .. } = from;
        let mut ages: Vec<(u64, u64, u32, f64)> =
            rows.iter().map(|row| (row.inserted, row.updated, row.slot, row.priority)).collect();
        (self.counters, self.order) = (counters, order);
        self.count_restored();
        (self.incarnation, self.ration) = (incarnation, counters.inserts);
        self.stats = Stats { sampled_present: 0, single_steps: 0, ..stats };
        if self.options.signature.is_none() {
            // The items were alike when they were inserted.
            let mut forms = rows.iter().map(|row| &row.item.pattern);
            self.layout = TableLayout::of(forms.find(|form| form.alike));
        }
        for row in &mut rows {
            self.open_cells.open(self.options.signature.as_ref(), &mut row.item.pattern);
        }
        for row in &rows {
            self.note_priority(row.slot, row.priority);
            self.hold(&row.item);
            self.stats.sampled_present += u64::from(row.times_sampled > 0);
        }
        self.slots.restore(incarnation as u32, rows);
        ages.sort_unstable_by_key(|(inserted, ..)| *inserted);
        for (_, _, slot, _) in &ages {
            self.note_bytes(*slot);
            self.lineage.insert(*slot, self.slots.slot(*slot).item.as_ref().map_or(0, |item| item.stream));
        }
        // A heap's ties follow the order of updates, everything else that of insertions.
        let mut heaps = Vec::new();
        for selector in [&mut self.sampler, &mut self.remover] {
            match selector {
                AnySelector::Heap(heap) => heaps.push(heap),
                other => ages.iter().for_each(|(_, _, slot, priority)| other.insert(*slot, *priority)),
            }
        }
        ages.sort_unstable_by_key(|(_, updated, ..)| *updated);
        for heap in heaps {
            ages.iter().for_each(|(_, _, slot, priority)| heap.insert(*slot, *priority));
        }
        // No other caller uses the table yet.
        if self.options.max_times_sampled > 0 && !self.can_insert() {
            // A queue with unacknowledged draws: its limiter holds inserts back, and nothing is evicted.
            self.spares = self.is_over();
        } else {
            self.evict(usize::MAX);
        }
    }
}
