//! The state machine of one table: decisions only, without lock, clock or waiting.

mod bytes;
mod change;
mod copy;
mod delta;
mod draw;
mod drawn_once;
mod lease;
mod ration;
pub(in crate::table) mod restore;
mod windows;

use super::discarded_items::{DiscardedItems, RemovedItems};
use super::largest_item::LargestItem;
use super::largest_priority::LargestPriority;
use super::layout::TableLayout;
use super::leases::Leases;
use super::lineage::Lineage;
use super::open_cells::OpenCells;
use super::options::check_pattern;
use super::selector::{AnySelector, Pick, Random, Selector};
use super::slots::Slots;
use crate::chunk::Account;
use crate::error::{Error, Result};
use crate::item::{Form, Item, Key};
use crate::sample::Draws;
use crate::table::types::copies::FirstDraw;
use crate::table::types::info::Stats;
use crate::table::types::limiter::{Counters, Limiter};
use crate::table::types::options::{Change, TableOptions};
use std::collections::HashMap;
use std::sync::Arc;

/// Items evicted in one decision after the table's bounds became smaller: some milliseconds of work.
const EVICTED_AT_ONCE: usize = 4096;
/// Items evicted at once for one insert, which may be larger than they are. Few: many inserts may come together.
const EVICTED_BY_INSERT: usize = 4;

/// A table. Every method is a decision.
///
/// Items that leave the table are collected for [`Table::take_dropped`]; the caller drops them without holding a lock.
#[derive(Debug)]
pub struct Table {
    options: TableOptions,
    /// The items' chunks are charged to it, each chunk once.
    account: Arc<Account>,
    counters: Counters,
    slots: Slots,
    sampler: AnySelector,
    remover: AnySelector,
    /// The largest priority, if no selector tracks it.
    largest: Option<LargestPriority>,
    /// If the table is in a budget of bytes.
    largest_item: Option<LargestItem>,
    lineage: Lineage,
    /// Draws that may be returned.
    leases: Leases,
    /// Returned items put the table above its bounds: nothing is evicted before the next insert.
    spares: bool,
    /// A random number; changes on a reset or restart.
    incarnation: u64,
    /// The total number of granted inserts, if the limiter is rationed.
    ration: u64,
    order: u64,
    episodes: HashMap<u32, u32>,
    stats: Stats,
    dropped: RemovedItems,
    emptied: Vec<DiscardedItems>,
    /// Items drawn for the first time since the last call of [`Table::take_first_draws`], if these are collected.
    first_draws: Option<Vec<FirstDraw>>,
    /// The options changed since the last [`Table::delta`].
    configured: bool,
    /// The last form that matched the signature or the layout: items of one writer share it.
    accepted: Option<Form>,
    /// The layout of the items of a table without a signature.
    layout: TableLayout,
    /// The open cells of a table with a signature.
    open_cells: OpenCells,
    picks: Vec<Pick>,
    /// Chooses where windows begin.
    positions: Random,
}

impl Table {
    /// An empty table. `incarnation` must be random, so that keys of an earlier table are recognised.
    pub fn new(options: TableOptions, incarnation: u64) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            account: Arc::new(Account::new()),
            counters: Counters::default(),
            slots: Slots::new(options.shard, incarnation as u32),
            sampler: AnySelector::new(&options.sampler, options.sampler_seed),
            remover: AnySelector::new(&options.remover, options.remover_seed),
            largest: (!options.knows_largest()).then(LargestPriority::default),
            largest_item: None,
            lineage: Lineage::default(),
            leases: Leases::default(),
            spares: false,
            incarnation,
            ration: 0,
            order: 0,
            episodes: HashMap::new(),
            stats: Stats::default(),
            dropped: RemovedItems::new(),
            emptied: Vec::new(),
            first_draws: None,
            configured: false,
            accepted: None,
            layout: TableLayout::default(),
            open_cells: OpenCells::default(),
            picks: Vec::new(),
            // The sampler's own random numbers do not change.
            positions: Random::new(options.sampler_seed.rotate_left(32) ^ 0x5bd1_e995_9d1c_3a27),
            options,
        })
    }

    /// The configuration as it is now.
    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// The limiter's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The limiter as it is now.
    pub fn limiter(&self) -> &Limiter {
        &self.options.limiter
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.slots.len() - self.num_used_up()
    }

    /// True without items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if this many inserts (at least 1), with this many bytes of chunks, would evict an item.
    pub fn makes_room_for(&self, items: u64, bytes: u64) -> bool {
        let size = self.len() as u64 + items;
        let over = |budget| self.bytes() + bytes > budget && size > 1;
        size > self.options.max_size || self.options.max_bytes.is_some_and(over)
    }

    /// Bytes of the chunks that the items keep alive, each chunk once.
    pub fn bytes(&self) -> u64 {
        self.account.bytes()
    }

    /// Counts since the start or the last reset.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The number of episodes that the present items belong to.
    pub fn num_episodes(&self) -> u64 {
        self.episodes.len() as u64 + self.stats.single_steps
    }

    /// The items that left the table since the last call; the caller drops them outside the lock.
    pub fn take_dropped(&mut self) -> (RemovedItems, Vec<DiscardedItems>) {
        (std::mem::take(&mut self.dropped), std::mem::take(&mut self.emptied))
    }

    /// True if items wait to be dropped.
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty() || !self.emptied.is_empty()
    }

    /// Checks an item that is to be inserted, see [`Table::check`]: without a signature, the first one sets the layout.
    pub fn admit(&mut self, item: &Item, priority: f64) -> Result<()> {
        if self.options.signature.is_none()
            && !self.accepted.as_ref().is_some_and(|accepted| accepted.same(&item.pattern))
        {
            self.admit_form(&item.pattern)?;
        }
        self.check(item, priority)
    }

    #[inline(never)]
    fn admit_form(&mut self, form: &Form) -> Result<()> {
        self.layout.admit(&self.options.name, form)?;
        self.accepted = Some(form.clone());
        Ok(())
    }

    /// Refuses an item that this table can never take, because of its priority, its columns or its size.
    pub fn check(&mut self, item: &Item, priority: f64) -> Result<()> {
        self.check_priority(priority)?;
        if let Some(signature) = &self.options.signature
            && !self.accepted.as_ref().is_some_and(|accepted| accepted.same(&item.pattern))
        {
            check_pattern(signature, &item.pattern)?;
            self.accepted = Some(item.pattern.clone());
        }
        if let Some(budget) = self.options.max_bytes {
            let needed = item.size_bytes();
            if needed > budget {
                return Err(Error::ResourceExhausted {
                    what: format!("an item of table '{}'", self.options.name),
                    needed,
                    budget,
                    hint: "raise the table's max_bytes, or write shorter chunks or smaller steps".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// True if an item has set the table's layout.
    #[inline]
    pub fn has_layout(&self) -> bool {
        self.layout.is_set()
    }

    /// The next item sets the table's layout again. For a caller that inserts no item of the layout after all.
    pub fn forget_layout(&mut self) {
        (self.layout, self.accepted) = (TableLayout::default(), None);
    }

    /// Refuses a priority that one of the selectors does not accept.
    #[inline]
    pub fn check_priority(&self, priority: f64) -> Result<()> {
        // Every selector accepts these: no need to ask each.
        if (0.0..f64::INFINITY).contains(&priority) {
            return Ok(());
        }
        self.ask_selectors(priority)
    }

    #[cold]
    fn ask_selectors(&self, priority: f64) -> Result<()> {
        let refuse = |error| match error {
            Error::InvalidArgument(reason) => {
                Error::InvalidArgument(format!("table '{}': {reason}", self.options.name))
            }
            other => other,
        };
        self.sampler.check(priority).and_then(|()| self.remover.check(priority)).map_err(refuse)
    }

    /// The largest priority of the present items; 1 if the table is empty.
    pub fn max_priority(&mut self) -> f64 {
        match self.sampler.max_slot().or_else(|| self.remover.max_slot()) {
            Some(slot) => self.slots.slot(slot).priority(),
            None => self.largest.as_ref().and_then(LargestPriority::get).unwrap_or(1.0),
        }
    }

    /// The priority of a new item that came without one: the largest if items are drawn in proportion to their
    /// priorities, so that each is soon drawn once (Schaul et al. 2016, algorithm 1); else 1.
    pub fn default_priority(&mut self) -> f64 {
        if self.options.sampler.is_proportional() { self.max_priority() } else { 1.0 }
    }

    /// Inserts the item, then evicts items until the table is within its bounds; the new item itself may be evicted.
    ///
    /// If very many items must leave, some remain for [`Table::evict_some`]. The limiter must allow the insert, and
    /// [`Table::check`] must accept it.
    pub fn insert(&mut self, item: Item, priority: f64, now: u64) -> Key {
        self.take_in(item, priority, now, None)
    }

    fn take_in(&mut self, mut item: Item, priority: f64, now: u64, copy: Option<Key>) -> Key {
        self.open_cells.open(self.options.signature.as_ref(), &mut item.pattern);
        self.hold(&item);
        self.order += 1;
        let stream = item.stream;
        let slot = match copy {
            None => self.slots.insert(item, priority, now, self.order),
            Some(key) => self.slots.insert_copy(item, priority, now, self.order, key),
        };
        self.sampler.insert(slot, priority);
        self.remover.insert(slot, priority);
        self.note_priority(slot, priority);
        self.note_bytes(slot);
        self.lineage.insert(slot, stream);
        self.counters.inserts += 1;
        let key = self.slots.key(slot);
        self.spares = false;
        if self.is_over() {
            self.evict(EVICTED_BY_INSERT);
        }
        key
    }

    #[inline]
    fn note_priority(&mut self, slot: u32, priority: f64) {
        if let Some(largest) = &mut self.largest {
            largest.set(slot, priority);
        }
    }

    /// True if more items must leave than one decision removes: [`Table::evict_some`] continues.
    #[inline]
    pub fn is_over(&self) -> bool {
        let budget = self.options.max_bytes.unwrap_or(u64::MAX);
        !self.spares
            && (self.len() as u64 > self.options.max_size || (self.account.bytes() > budget && !self.is_empty()))
    }

    /// Evicts some of the items that are above the table's bounds.
    pub fn evict_some(&mut self) {
        self.evict(EVICTED_AT_ONCE);
    }

    fn evict(&mut self, most: usize) {
        let mut left = most;
        while left > 0 && self.is_over() {
            let Some(pick) = self.remover.draw() else { break };
            self.remove_undrawn(pick.slot);
            self.stats.evicted += 1;
            left -= 1;
        }
    }

    fn remove(&mut self, slot: u32) {
        self.note_removed(slot);
        self.uncount(slot);
        self.sampler.remove(slot);
        self.remover.remove(slot);
        let item = self.slots.remove(slot);
        self.lineage.remove(slot, item.stream);
        self.release(&item);
        self.dropped.push(item);
    }

    /// Updates the counts for an item that leaves the slot.
    #[inline(always)]
    fn uncount(&mut self, slot: u32) {
        let leaving = self.slots.slot(slot);
        let times = leaving.times_sampled();
        self.stats.sampled_present -= u64::from(times > 0);
        self.stats.note_left(times);
        if let Some(largest) = &mut self.largest {
            largest.remove(slot);
        }
        if let Some(largest) = &mut self.largest_item {
            largest.remove(slot);
        }
        self.counters.deletes += 1;
    }

    /// Looks items up without sampling them: nothing is counted, and the probabilities are zero.
    pub fn get(&self, keys: &[i64]) -> Result<Draws> {
        let mut found = Draws::with_capacity(keys.len());
        for key in keys.iter().map(|key| Key::from(*key)) {
            let Some(index) = self.find(key) else {
                return Err(Error::UnknownKey { table: self.options.name.clone(), key });
            };
            let slot = self.slots.slot(index);
            found.keys.push(key);
            found.items.push(slot.item.clone().expect("a found slot holds an item"));
            found.probabilities.push(0.0);
            found.priorities.push(slot.priority());
            found.table_sizes.push(self.len() as u64);
            found.times_sampled.push(slot.times_sampled());
            found.versions.push(slot.version());
            found.inserted_at.push(slot.inserted_at);
        }
        Ok(found)
    }

    /// Drops all items and resets all counts; every key returned so far becomes stale.
    pub fn reset(&mut self, incarnation: u64) {
        self.drop_leased();
        let account = std::mem::replace(&mut self.account, Arc::new(Account::new()));
        self.emptied.push(DiscardedItems { items: self.slots.clear(incarnation as u32), account });
        self.sampler.clear();
        self.remover.clear();
        self.episodes.clear();
        self.largest = self.largest.is_some().then(LargestPriority::default);
        self.largest_item.iter_mut().for_each(LargestItem::clear);
        self.lineage.clear();
        self.counters = Counters::default();
        self.stats = Stats::default();
        (self.incarnation, self.ration) = (incarnation, 0);
    }

    /// Changes limits while the table is in use.
    ///
    /// A smaller size evicts a limited number of items: while [`Table::is_over`], the caller calls
    /// [`Table::evict_some`].
    pub fn configure(&mut self, change: Change) -> Result<()> {
        let mut options = self.options.clone();
        options.constructed.get_or_insert(self.options.limits());
        options.max_size = change.max_size.unwrap_or(options.max_size);
        options.limiter = change.limiter.unwrap_or(options.limiter);
        options.max_times_sampled = change.max_times_sampled.unwrap_or(options.max_times_sampled);
        options.validate()?;
        if options.limiter.is_rationed() && !self.options.limiter.is_rationed() {
            // The inserts so far count as granted.
            self.ration = self.counters.inserts;
        }
        let before = std::mem::replace(&mut self.options, options);
        self.count_after(&before);
        self.configured = true;
        self.spares = false;
        self.evict_some();
        Ok(())
    }
}
