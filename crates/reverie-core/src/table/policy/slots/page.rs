//! Pages of slots, cuts that refer to pages, and spare pages for copies.

use super::slot::{Age, Slot};
use crate::item::{Item, Key};
use std::sync::Arc;

pub(super) const PAGE_BITS: u32 = 8;
pub(super) const PAGE: usize = 1 << PAGE_BITS;

/// Consecutive slots that are stored together.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) slots: [Slot; PAGE],
    pub(super) ages: [Age; PAGE],
    /// If a slot holds a copy of another table's item: the original's key per slot, [`NO_COPY`] for the others.
    pub(super) copies: Option<Box<[i64; PAGE]>>,
}

impl Clone for Page {
    fn clone(&self) -> Self {
        self.prefetch_counts();
        Self { slots: self.slots.clone(), ages: self.ages.clone(), copies: self.copies.clone() }
    }

    /// Clones slot by slot into the memory of `self`.
    fn clone_from(&mut self, other: &Self) {
        other.prefetch_counts();
        self.slots.clone_from(&other.slots);
        self.ages.clone_from(&other.ages);
        self.copies.clone_from(&other.copies);
    }
}

/// A number that is the key of no item.
pub(super) const NO_COPY: i64 = -1;

impl Page {
    pub(super) fn empty(generation: u32) -> Self {
        let slots = std::array::from_fn(|_| Slot::empty(generation));
        Self { slots, ages: std::array::from_fn(|_| Age::default()), copies: None }
    }

    /// Prefetches the reference counts that a page copy changes: a miss for each item, unless items share a chunk.
    fn prefetch_counts(&self) {
        self.slots.iter().filter_map(|slot| slot.item.as_ref()).for_each(Item::prefetch_count);
    }

    pub(super) fn copy_of(&self, within: usize) -> Option<Key> {
        let key = self.copies.as_ref().map_or(NO_COPY, |copies| copies[within]);
        (key != NO_COPY).then(|| Key::from(key))
    }
}

/// A consistent cut: slots as they were at one moment. Later changes of the table do not affect it.
#[derive(Clone, Debug)]
pub struct Cut {
    pages: Vec<Arc<Page>>,
    /// Slots that are skipped, ascending.
    hidden: Vec<u32>,
}

impl Cut {
    pub(super) fn of(pages: Vec<Arc<Page>>) -> Self {
        Self { pages, hidden: Vec::new() }
    }

    /// Skips these slots from now on.
    pub fn hide(&mut self, mut slots: Vec<u32>) {
        slots.sort_unstable();
        self.hidden = slots;
    }

    /// The key of an occupied slot's item, in a table of that shard.
    pub fn key(&self, slot: u32, shard: u8) -> Key {
        let page = &self.pages[(slot >> PAGE_BITS) as usize];
        let within = slot as usize & (PAGE - 1);
        page.copy_of(within).unwrap_or_else(|| Key::new(shard, page.slots[within].generation, slot))
    }

    /// The slots of copies, in slot order, with the keys that their items have in the original tables.
    pub fn copies(&self) -> impl Iterator<Item = (u32, Key)> {
        self.pages.iter().enumerate().filter(|(_, page)| page.copies.is_some()).flat_map(|(index, page)| {
            (0..PAGE).filter_map(move |within| Some(((index * PAGE + within) as u32, page.copy_of(within)?)))
        })
    }

    /// Every occupied slot, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot, &Age)> {
        self.pages.iter().enumerate().flat_map(|(page_index, page)| {
            page.slots
                .iter()
                .zip(&page.ages)
                .enumerate()
                .filter(|(_, (slot, _))| slot.item.is_some())
                .map(move |(index, (slot, age))| ((page_index * PAGE + index) as u32, slot, age))
                .filter(|(index, ..)| self.hidden.is_empty() || self.hidden.binary_search(index).is_err())
        })
    }
}

/// Empty pages whose memory was touched. A page that is changed while a cut holds it is copied to one of them.
#[derive(Debug, Default)]
pub struct Spares(Vec<Arc<Page>>);

impl Spares {
    /// Bytes of one page.
    pub const PAGE_BYTES: u64 = size_of::<Page>() as u64;

    /// Creates this many pages. Takes as long as touching their memory: do not call it under a lock.
    pub fn new(pages: u64) -> Self {
        Self((0..pages).map(|_| Arc::new(Page::empty(0))).collect())
    }

    pub(super) fn of(pages: Vec<Arc<Page>>) -> Self {
        Self(pages)
    }

    pub(super) fn into_pages(self) -> Vec<Arc<Page>> {
        self.0
    }

    /// The number of pages left.
    pub fn pages(&self) -> u64 {
        self.0.len() as u64
    }
}
