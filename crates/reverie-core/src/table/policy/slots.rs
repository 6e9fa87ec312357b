//! Storage of items: fixed pages behind reference counts.
//!
//! A consistent cut copies the list of pages; a page that a cut still holds is copied at its first change.

pub(in crate::table) mod changed_slots;
pub(in crate::table) mod page;
pub(in crate::table) mod slot;

use super::pages::Pages;
use crate::item::{Item, Key};
use crate::prefetch::prefetch;
use crate::table::types::table_contents::Row;
use changed_slots::ChangedSlots;
use page::{Cut, NO_COPY, PAGE, PAGE_BITS, Page, Spares};
use slot::{Age, Slot};
use std::collections::{HashMap, VecDeque};

/// Free slots are reused in order of release, and only while more than this many wait.
///
/// So a short queue does not use up the generations of one slot.
const FREE_BEFORE_REUSE: usize = 2048;
const GENERATION_MASK: u32 = (1 << Key::GENERATION_BITS) - 1;

/// The slots of one table.
#[derive(Debug)]
pub struct Slots {
    pages: Pages<Page>,
    free: VecDeque<u32>,
    len: usize,
    allocated: u32,
    first_generation: u32,
    /// One bit per slot, set while it holds an item of a checkpoint. Empty in a table that was not restored.
    restored: Vec<u64>,
    /// The slots of copied items, by the keys of the originals.
    copies: HashMap<i64, u32>,
    /// The slots that changed, if a journal asks for them.
    changed: Option<Box<ChangedSlots>>,
    shard: u8,
}

impl Slots {
    /// Empty slots; `first_generation` should be random, so that keys of another incarnation do not match.
    pub fn new(shard: u8, first_generation: u32) -> Self {
        let first_generation = first_generation & GENERATION_MASK;
        Self {
            pages: Pages::new(),
            free: VecDeque::new(),
            len: 0,
            allocated: 0,
            first_generation,
            restored: Vec::new(),
            copies: HashMap::new(),
            changed: None,
            shard,
        }
    }

    /// Notes the slots that change from now on.
    pub fn track_changes(&mut self) {
        self.changed = Some(Box::default());
    }

    /// The slots that changed; `None` if nothing is noted.
    pub fn changed(&mut self) -> Option<&mut ChangedSlots> {
        self.changed.as_deref_mut()
    }

    #[inline]
    fn note_item(&mut self, index: u32) {
        if let Some(changed) = &mut self.changed {
            changed.item(index);
        }
    }

    /// Notes that a draw of the slot's item was leased, or that its lease ended.
    #[inline]
    pub fn note_leases(&mut self, index: u32) {
        if let Some(changed) = &mut self.changed {
            changed.leases(index);
        }
    }

    #[inline]
    fn note_counts(&mut self, index: u32) {
        if let Some(changed) = &mut self.changed {
            changed.counts(index);
        }
    }

    /// The slot as a row; `None` if it is free.
    pub fn row(&self, index: u32) -> Option<Row> {
        let (slot, age) = (self.slot(index), self.age(index));
        Some(Row {
            item: slot.item.clone()?,
            slot: index,
            generation: slot.generation,
            priority: slot.priority,
            version: slot.version,
            times_sampled: slot.times_sampled,
            inserted_at: slot.inserted_at,
            inserted: age.inserted,
            updated: age.updated,
            copy_of: self.copy_of(index),
        })
    }

    /// Fills the slots, which must be empty, with a checkpoint's items, each in the slot that it had.
    ///
    /// The other slots start at `first_generation`, and so do the slots of restored items once these are gone.
    pub fn restore(&mut self, first_generation: u32, rows: Vec<Row>) {
        debug_assert!(self.allocated == 0, "slots are restored before any is given out");
        *self = Self::new(self.shard, first_generation);
        let allocated = rows.iter().map(|row| row.slot + 1).max().unwrap_or(0);
        (0..allocated).for_each(|_| _ = self.allocate());
        self.restored = vec![0; (allocated as usize).div_ceil(64)];
        self.len = rows.len();
        for row in rows {
            let (page, within) = (self.page_mut(row.slot), row.slot as usize & (PAGE - 1));
            page.slots[within] = Slot {
                item: Some(row.item),
                inserted_at: row.inserted_at,
                generation: row.generation & GENERATION_MASK,
                priority: row.priority,
                version: row.version,
                times_sampled: row.times_sampled,
            };
            page.ages[within] = Age { inserted: row.inserted, updated: row.updated };
            if let Some(key) = row.copy_of {
                self.note_copy(row.slot, key);
            }
            self.restored[row.slot as usize / 64] |= 1 << (row.slot % 64);
        }
        let taken = |slot: u32| self.restored[slot as usize / 64] & (1 << (slot % 64)) != 0;
        self.free = (0..allocated).filter(|slot| !taken(*slot)).collect();
    }

    /// The generation of the slot's next item.
    ///
    /// After a restored item it is not the next number: the process that ended may have used that one since the
    /// checkpoint.
    fn generation_after(&mut self, index: u32, generation: u32) -> u32 {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.restored.get(word).is_some_and(|bits| bits & bit != 0) {
            self.restored[word] &= !bit;
            if self.first_generation != generation {
                return self.first_generation;
            }
        }
        (generation + 1) & GENERATION_MASK
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The key of the slot's present item.
    #[inline]
    pub fn key(&self, slot: u32) -> Key {
        self.copy_of(slot).unwrap_or_else(|| Key::new(self.shard, self.slot(slot).generation, slot))
    }

    fn copy_of(&self, slot: u32) -> Option<Key> {
        match self.has_copies() {
            true => self.page(slot).copy_of(slot as usize & (PAGE - 1)),
            false => None,
        }
    }

    /// True while a slot holds a copy of another table's item.
    #[inline]
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// True if the slot's item is a copy.
    pub fn is_copy(&self, slot: u32) -> bool {
        self.copy_of(slot).is_some()
    }

    fn note_copy(&mut self, index: u32, key: Key) {
        let page = self.page_mut(index);
        page.copies.get_or_insert_with(|| Box::new([NO_COPY; PAGE]))[index as usize & (PAGE - 1)] = key.get();
        self.copies.insert(key.get(), index);
    }

    /// The slot of a key whose item is still present.
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        if self.has_copies()
            && let Some(index) = self.copies.get(&key.get())
        {
            return Some(*index);
        }
        let index = key.slot();
        if index >= self.allocated || key.get() < 0 || key.shard() != self.shard {
            return None;
        }
        let slot = self.slot(index);
        (slot.generation == key.generation() && slot.item.is_some() && !self.is_copy(index)).then_some(index)
    }

    /// The slot at `index`, which must be allocated.
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        &self.page(index).slots[index as usize & (PAGE - 1)]
    }

    #[inline]
    fn page(&self, index: u32) -> &Page {
        self.pages.get((index >> PAGE_BITS) as usize)
    }

    #[inline]
    fn page_mut(&mut self, index: u32) -> &mut Page {
        self.pages.own((index >> PAGE_BITS) as usize)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.page_mut(index).slots[index as usize & (PAGE - 1)]
    }

    /// Counts a draw, which is the last one that the returned slot has counted. Saturates.
    #[inline(always)]
    pub fn count_draw(&mut self, index: u32) -> &Slot {
        self.note_counts(index);
        let slot = self.slot_mut(index);
        slot.times_sampled = slot.times_sampled.saturating_add(1);
        slot
    }

    /// Undoes a count; returns the item's number of draws, without this one.
    pub fn uncount_draw(&mut self, index: u32) -> u32 {
        self.note_counts(index);
        let slot = self.slot_mut(index);
        slot.times_sampled = slot.times_sampled.saturating_sub(1);
        slot.times_sampled
    }

    /// The slot's positions in the orders of insertions and updates.
    pub fn age(&self, index: u32) -> &Age {
        &self.page(index).ages[index as usize & (PAGE - 1)]
    }

    /// Sets the priority; `order` is the update's position in the order of updates.
    #[inline]
    pub fn set_priority(&mut self, index: u32, priority: f64, order: u64) {
        self.note_counts(index);
        let (page, within) = (self.page_mut(index), index as usize & (PAGE - 1));
        let slot = &mut page.slots[within];
        slot.priority = priority;
        slot.version = slot.version.wrapping_add(1);
        page.ages[within].updated = order;
    }

    /// Prefetches both cache lines of a slot.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        let slot = self.slot(index);
        prefetch(slot);
        prefetch(&slot.times_sampled);
    }

    /// Prefetches the memory that [`Slots::set_priority`] changes.
    #[inline]
    pub fn prefetch_update(&self, index: u32) {
        self.prefetch(index);
        prefetch(&self.page(index).ages[index as usize & (PAGE - 1)]);
    }

    /// The number of slots ever allocated: every index below it is valid.
    pub fn allocated(&self) -> u32 {
        self.allocated
    }

    /// Puts an item into a free slot.
    pub fn insert(&mut self, item: Item, priority: f64, inserted_at: u64, order: u64) -> u32 {
        let index = match self.free.len() > FREE_BEFORE_REUSE {
            true => self.free.pop_front().expect("the list is not empty"),
            false => self.allocate(),
        };
        self.note_item(index);
        let page = self.page_mut(index);
        let within = index as usize & (PAGE - 1);
        let generation = page.slots[within].generation;
        page.slots[within] = Slot { item: Some(item), inserted_at, priority, ..Slot::empty(generation) };
        page.ages[within] = Age { inserted: order, updated: order };
        self.len += 1;
        index
    }

    /// Inserts a copy of another table's item. It counts as drawn once, and is found by the original's key.
    pub fn insert_copy(&mut self, item: Item, priority: f64, inserted_at: u64, order: u64, key: Key) -> u32 {
        let index = self.insert(item, priority, inserted_at, order);
        self.count_draw(index);
        self.note_copy(index, key);
        index
    }

    fn allocate(&mut self) -> u32 {
        let index = self.allocated;
        if index as usize & (PAGE - 1) == 0 {
            self.add_page();
        }
        self.allocated += 1;
        index
    }

    /// A separate function, for the same reason as `Pages::copy_shared`.
    #[cold]
    #[inline(never)]
    fn add_page(&mut self) {
        self.pages.push(Page::empty(self.first_generation));
    }

    /// Removes and returns the item; its key is stale from now on.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Item {
        let next = self.generation_after(index, self.slot(index).generation);
        if let Some(key) = self.copy_of(index) {
            self.copies.remove(&key.get());
            let copies = self.page_mut(index).copies.as_mut().expect("a page that has a copy notes it");
            copies[index as usize & (PAGE - 1)] = NO_COPY;
        }
        let slot = self.slot_mut(index);
        let item = slot.item.take().expect("the slot holds an item");
        slot.generation = next;
        self.note_item(index);
        self.free.push_back(index);
        self.len -= 1;
        item
    }

    /// Removes all items and starts at another generation; the caller drops the returned pages.
    pub fn clear(&mut self, first_generation: u32) -> Cut {
        let mut emptied = std::mem::replace(self, Self::new(self.shard, first_generation));
        self.exchange_spares(emptied.exchange_spares(Spares::default()));
        self.changed = emptied.changed.take();
        if let Some(changed) = &mut self.changed {
            changed.clear();
        }
        Cut::of(emptied.pages.into_shared())
    }

    /// A consistent cut; costs one reference per page.
    pub fn cut(&mut self) -> Cut {
        Cut::of(self.pages.share())
    }

    /// The number of pages.
    pub fn num_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Replaces the spare pages; the caller drops the old ones.
    pub fn exchange_spares(&mut self, spares: Spares) -> Spares {
        Spares::of(self.pages.exchange_spares(spares.into_pages()))
    }
}
