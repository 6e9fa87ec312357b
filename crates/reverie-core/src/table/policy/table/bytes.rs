//! The accounting of bytes and episodes of a table's items.
//!
//! The first item that refers to a chunk charges the chunk to the table's account; when the last such item leaves, the
//! charge is removed. The chunk's memory is freed when the item is dropped, after the lock is released.

use super::Table;
use crate::item::Item;
use crate::table::policy::largest_item::LargestItem;

impl Table {
    #[inline(always)]
    pub(super) fn hold(&mut self, item: &Item) {
        for chunk in item.chunks() {
            chunk.table_ref(&self.account);
        }
        if item.episode == 0 {
            self.stats.single_steps += 1;
        } else {
            self.hold_episodes(item);
        }
    }

    /// Keeps the bytes of the largest item from now on, for a budget in which the table has this number. Called before the
    /// first item comes in.
    pub fn keep_largest_item(&mut self, number: usize) {
        self.largest_item = Some(LargestItem::new(number));
    }

    /// The bytes of the largest present item; 0 if they are not kept.
    pub fn largest_item(&self) -> u64 {
        self.largest_item.as_ref().map_or(0, LargestItem::get)
    }

    /// The table's number in the budget for which it keeps its largest item.
    pub fn number_in_budget(&self) -> Option<usize> {
        self.largest_item.as_ref().map(|largest| largest.number)
    }

    #[inline]
    pub(super) fn note_bytes(&mut self, slot: u32) {
        if let (Some(largest), Some(item)) = (&mut self.largest_item, &self.slots.slot(slot).item) {
            largest.set(slot, item);
        }
    }

    fn hold_episodes(&mut self, item: &Item) {
        for episode in std::iter::once(&item.episode).chain(item.further_episodes()) {
            *self.episodes.entry(*episode).or_insert(0) += 1;
        }
    }

    #[inline(always)]
    pub(super) fn release(&mut self, item: &Item) {
        for chunk in item.chunks() {
            chunk.table_unref(&self.account);
        }
        if item.episode == 0 {
            self.stats.single_steps -= 1;
            self.stats.deleted_episodes += 1;
        } else {
            self.release_episodes(item);
        }
    }

    fn release_episodes(&mut self, item: &Item) {
        for episode in std::iter::once(&item.episode).chain(item.further_episodes()) {
            let Some(count) = self.episodes.get_mut(episode) else { continue };
            *count -= 1;
            if *count == 0 {
                self.episodes.remove(episode);
                self.stats.deleted_episodes += 1;
            }
        }
    }

    /// Like `hold`, for an item whose removal was counted.
    pub(super) fn hold_again(&mut self, item: &Item) {
        if item.episode == 0 {
            self.stats.deleted_episodes -= 1;
        } else {
            let all = std::iter::once(&item.episode).chain(item.further_episodes());
            self.stats.deleted_episodes -= all.filter(|episode| !self.episodes.contains_key(episode)).count() as u64;
        }
        self.hold(item);
    }
}
