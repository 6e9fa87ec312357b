//! What happens to bytes as items come and go: each chunk is charged to the table once, by the first item that refers
//! to it, and taken off its account when the last such item goes. The memory is freed where that item is dropped, which
//! is after the lock is released.

use super::Table;
use crate::item::Item;

impl Table {
    pub(super) fn hold(&mut self, item: &Item) {
        for chunk in item.chunks() {
            chunk.table_ref(&self.account);
        }
        if item.episode == 0 {
            self.stats.single_steps += 1;
            return;
        }
        for episode in std::iter::once(&item.episode).chain(item.further_episodes()) {
            *self.episodes.entry(*episode).or_insert(0) += 1;
        }
    }

    pub(super) fn release(&mut self, item: &Item) {
        for chunk in item.chunks() {
            chunk.table_unref(&self.account);
        }
        if item.episode == 0 {
            self.stats.single_steps -= 1;
            self.stats.deleted_episodes += 1;
            return;
        }
        for episode in std::iter::once(&item.episode).chain(item.further_episodes()) {
            let Some(count) = self.episodes.get_mut(episode) else { continue };
            *count -= 1;
            if *count == 0 {
                self.episodes.remove(episode);
                self.stats.deleted_episodes += 1;
            }
        }
    }

    /// As `hold`, of an item whose leaving was counted.
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
