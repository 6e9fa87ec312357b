//! Where items lie: fixed pages behind reference counts, so that a consistent cut is a copy of the page
//! list; a page that a cut still holds is copied at its first change.

use crate::item::{Item, Key};
use std::collections::VecDeque;
use std::sync::Arc;

const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;
/// Free slots are reused in order of release, and only once this many wait, so that a short queue does not
/// run through the generations of one slot.
const FREE_BEFORE_REUSE: usize = 2048;
const GENERATION_MASK: u32 = (1 << Key::GENERATION_BITS) - 1;

/// One item and what the table knows of it. Exactly one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Slot {
    /// The item; none in a free slot.
    pub item: Option<Item>,
    /// The priority as it was given.
    pub priority: f64,
    /// Nanoseconds of the table's clock.
    pub inserted_at: u64,
    /// Tells tenants of the slot apart.
    pub generation: u32,
    /// Counts the updates of the priority.
    pub version: u32,
    /// Counts the draws.
    pub times_sampled: u32,
}

/// What only ties, cuts and statistics ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Age {
    /// Position in the table's order of insertion.
    pub inserted: u64,
    /// Position in the table's order of insertions and updates.
    pub updated: u64,
}

#[derive(Clone, Debug)]
struct Page {
    slots: Vec<Slot>,
    ages: Vec<Age>,
}

/// A consistent cut: slots as they were, whatever the table does afterwards.
#[derive(Clone, Debug)]
pub struct Cut {
    pages: Vec<Arc<Page>>,
}

impl Cut {
    /// Every occupied slot, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot, &Age)> {
        self.pages.iter().enumerate().flat_map(|(page_index, page)| {
            page.slots
                .iter()
                .zip(&page.ages)
                .enumerate()
                .filter(|(_, (slot, _))| slot.item.is_some())
                .map(move |(index, (slot, age))| ((page_index * PAGE + index) as u32, slot, age))
        })
    }
}

/// The slots of one table.
#[derive(Debug)]
pub struct Slots {
    pages: Vec<Arc<Page>>,
    free: VecDeque<u32>,
    len: usize,
    allocated: u32,
    first_generation: u32,
    shard: u8,
}

impl Slots {
    /// No slots; `first_generation` should be random, so that keys of another incarnation are not ours.
    pub fn new(shard: u8, first_generation: u32) -> Self {
        let first_generation = first_generation & GENERATION_MASK;
        Self { pages: Vec::new(), free: VecDeque::new(), len: 0, allocated: 0, first_generation, shard }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The key of the slot's present tenant.
    #[inline]
    pub fn key(&self, slot: u32) -> Key {
        Key::new(self.shard, self.slot(slot).generation, slot)
    }

    /// The slot of a key whose item is still here.
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        let index = key.slot();
        if index >= self.allocated || key.get() < 0 || key.shard() != self.shard {
            return None;
        }
        let slot = self.slot(index);
        (slot.generation == key.generation() && slot.item.is_some()).then_some(index)
    }

    /// The slot at `index`, which must have been given out before.
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        &self.pages[(index >> PAGE_BITS) as usize].slots[index as usize & (PAGE - 1)]
    }

    /// The same to change; copies the page where a cut holds it.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> &mut Slot {
        let page = Arc::make_mut(&mut self.pages[(index >> PAGE_BITS) as usize]);
        &mut page.slots[index as usize & (PAGE - 1)]
    }

    /// The same for an update: notes it in the order of updates.
    #[inline]
    pub fn slot_mut_updated(&mut self, index: u32, updated: u64) -> &mut Slot {
        let page = Arc::make_mut(&mut self.pages[(index >> PAGE_BITS) as usize]);
        let within = index as usize & (PAGE - 1);
        page.ages[within].updated = updated;
        &mut page.slots[within]
    }

    /// Slots ever given out: every index below can be looked at.
    pub fn allocated(&self) -> u32 {
        self.allocated
    }

    /// Puts an item into a free slot.
    pub fn insert(&mut self, item: Item, priority: f64, inserted_at: u64, order: u64) -> u32 {
        let index = match self.free.len() > FREE_BEFORE_REUSE {
            true => self.free.pop_front().expect("the list is not empty"),
            false => self.allocate(),
        };
        let page = Arc::make_mut(&mut self.pages[(index >> PAGE_BITS) as usize]);
        let within = index as usize & (PAGE - 1);
        let slot = &mut page.slots[within];
        slot.item = Some(item);
        slot.priority = priority;
        slot.inserted_at = inserted_at;
        slot.version = 0;
        slot.times_sampled = 0;
        page.ages[within] = Age { inserted: order, updated: order };
        self.len += 1;
        index
    }

    fn allocate(&mut self) -> u32 {
        let index = self.allocated;
        if index as usize & (PAGE - 1) == 0 {
            let generation = self.first_generation;
            let empty = Slot { item: None, priority: 0.0, inserted_at: 0, generation, version: 0, times_sampled: 0 };
            self.pages.push(Arc::new(Page { slots: vec![empty; PAGE], ages: vec![Age::default(); PAGE] }));
        }
        self.allocated += 1;
        index
    }

    /// Takes the item out; its key is stale from now on.
    pub fn remove(&mut self, index: u32) -> Item {
        let slot = self.slot_mut(index);
        let item = slot.item.take().expect("the slot holds an item");
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push_back(index);
        self.len -= 1;
        item
    }

    /// Takes everything out and starts at another generation; the pages are the caller's to drop.
    pub fn clear(&mut self, first_generation: u32) -> Cut {
        let pages = std::mem::take(&mut self.pages);
        *self = Self::new(self.shard, first_generation);
        Cut { pages }
    }

    /// A consistent cut, at the cost of one reference per page.
    pub fn cut(&self) -> Cut {
        Cut { pages: self.pages.clone() }
    }

    /// Every occupied slot, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pages.iter().enumerate().flat_map(|(page_index, page)| {
            page.slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.item.is_some())
                .map(move |(index, slot)| ((page_index * PAGE + index) as u32, slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(std::mem::size_of::<Slot>(), 64);
    }
}
