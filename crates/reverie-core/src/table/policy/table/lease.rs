//! Draws that may be returned.
//!
//! A leased draw that uses up its item takes the item out of the selectors; the slot keeps it until all of its draws
//! are acknowledged. A draw that is returned is undone: the item gets its former place.

use super::Table;
use crate::item::Key;
use crate::table::policy::leases::{ItemLeases, LeasedItemState};
use crate::table::policy::selector::Selector;
use crate::table::policy::slots::page::Cut;
use crate::table::types::lessee::Lessee;
use crate::table::types::table_contents;
use std::collections::hash_map::Entry;

impl Table {
    /// Draws that the clients have not acknowledged yet.
    pub fn leased(&self) -> u64 {
        self.leases.draws
    }

    /// True if the slot's item is used up and waits for the acknowledgement of its draws.
    fn is_leased_out(&self, slot: u32) -> bool {
        let leased = || self.leases.by_key.get(&self.slots.key(slot));
        self.leases.used_up > 0 && leased().is_some_and(|leased| leased.out().is_some())
    }

    /// The slot of a key whose item can be drawn, read and changed.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        self.slots.find(key).filter(|slot| !self.is_leased_out(*slot))
    }

    /// The number of slots whose item is used up.
    #[inline]
    pub(super) fn num_used_up(&self) -> usize {
        self.leases.used_up as usize
    }

    /// A consistent cut of the items that can be drawn.
    pub fn cut_present(&mut self) -> Cut {
        let mut cut = self.slots.cut();
        if self.leases.used_up > 0 {
            cut.hide(self.leases.by_key.values().filter_map(ItemLeases::out).collect());
        }
        cut
    }

    /// Leases a draw of the slot's item that was just delivered; takes the item out if it is used up.
    pub(super) fn lease(&mut self, slot: u32, lessee: Lessee, now: u64) {
        let age = now.saturating_sub(self.slots.slot(slot).inserted_at);
        self.slots.note_leases(slot);
        let out = self.is_used_up(slot).then(|| {
            let (sampled, removed) = (self.sampler.take_out(slot), self.remover.take_out(slot));
            self.leave(slot);
            LeasedItemState::Out { slot, sampled, removed }
        });
        self.leases.draws += 1;
        self.leases.used_up += u64::from(out.is_some());
        let leased = self.leases.by_key.entry(self.slots.key(slot)).or_default();
        leased.draws.push((lessee, age));
        leased.item = out.unwrap_or(leased.item);
    }

    /// Leases the draws again that a request held when the journal ended, whose commits undid them; returns their keys.
    ///
    /// Items that are not in the table any more are left out.
    pub fn lease_again(&mut self, lessee: Lessee, leased: &[table_contents::LeasedSlot], now: u64) -> Vec<Key> {
        let mut keys = Vec::with_capacity(leased.len());
        for table_contents::LeasedSlot { slot, generation } in leased {
            let present = *slot < self.slots.allocated() && {
                let slot = self.slots.slot(*slot);
                slot.generation == *generation && slot.item.is_some()
            };
            let key = if present { self.slots.key(*slot) } else { continue };
            if self.options.max_times_sampled == 0 || self.is_leased_out(*slot) {
                continue;
            }
            let counted = self.slots.count_draw(*slot);
            self.stats.note_draw(counted.times_sampled(), now.saturating_sub(counted.inserted_at));
            self.counters.samples += 1;
            self.lease(*slot, lessee, now);
            keys.push(key);
        }
        keys
    }

    /// Notes all leases as changed: what was noted of them before is gone.
    pub fn note_all_leases(&mut self) {
        for key in self.leases.by_key.keys() {
            if let Some(slot) = self.slots.find(*key) {
                self.slots.note_leases(slot);
            }
        }
    }

    /// The requests that hold draws of the slot's item, one for each draw.
    pub(super) fn lessees(&self, slot: u32) -> Vec<Lessee> {
        let leased = self.leases.by_key.get(&self.slots.key(slot));
        leased.map_or(Vec::new(), |leased| leased.draws.iter().map(|(lessee, _)| *lessee).collect())
    }

    /// Everything that happens when an item leaves, except for the selectors and the slot.
    fn leave(&mut self, slot: u32) {
        self.uncount(slot);
        let item = self.slots.slot(slot).item.clone().expect("a leased slot holds its item");
        self.lineage.remove(slot, item.stream);
        self.release(&item);
    }

    /// The draws of these keys reached the client that held them. Missing keys are ignored.
    pub fn acknowledge(&mut self, lessee: &Lessee, keys: &[Key]) {
        for key in keys {
            let Some((last, item, _)) = self.end_lease(*key, lessee) else { continue };
            self.count_acknowledged(last && matches!(item, LeasedItemState::Out { .. }));
            if let (true, LeasedItemState::Out { slot, .. }) = (last, item) {
                self.leases.used_up -= 1;
                let item = self.slots.remove(slot);
                self.dropped.push(item);
            }
        }
    }

    /// The draws of these keys did not reach their client and are undone. Missing keys are ignored.
    ///
    /// A used-up item gets its former place. The table may then be above its bounds, because inserts continued
    /// meanwhile: nothing is evicted for that before the next insert, which a queue's limiter holds back.
    pub fn return_draws(&mut self, lessee: &Lessee, keys: &[Key]) {
        // Newest first: if many go to the front of a list, each is then the first.
        for key in keys.iter().rev() {
            let Some((last, item, age)) = self.end_lease(*key, lessee) else { continue };
            self.counters.samples -= 1;
            self.stats.forget_age(age);
            if let LeasedItemState::Out { slot, sampled, removed } = item {
                self.leases.used_up -= 1;
                self.put_back(slot, (sampled, removed));
                if !last {
                    self.leases.by_key.entry(*key).or_default().item = LeasedItemState::Present;
                }
            }
            let present = if matches!(item, LeasedItemState::Removed) { None } else { self.slots.find(*key) };
            if present.is_some_and(|slot| self.slots.uncount_draw(slot) == 0) {
                self.stats.sampled_present -= 1;
                self.stats.sampled_unique -= 1;
            }
        }
        self.spares |= self.is_over();
    }

    /// Ends a lease of an item, the latest that the request holds; returns whether it was the last of the item, the
    /// item's state, and its age at the draw.
    fn end_lease(&mut self, key: Key, lessee: &Lessee) -> Option<(bool, LeasedItemState, u64)> {
        let Entry::Occupied(mut entry) = self.leases.by_key.entry(key) else { return None };
        let leased = entry.get_mut();
        let at = leased.draws.iter().rposition(|(holder, _)| holder == lessee)?;
        let (_, age) = leased.draws.swap_remove(at);
        let (last, item) = (leased.draws.is_empty(), leased.item);
        if last {
            entry.remove();
        }
        self.leases.draws -= 1;
        // An item that leaves is noted as such.
        match item {
            LeasedItemState::Out { slot, .. } => self.slots.note_leases(slot),
            LeasedItemState::Present => self.slots.find(key).into_iter().for_each(|slot| self.slots.note_leases(slot)),
            LeasedItemState::Removed => self.leases.removed -= 1,
        }
        Some((last, item, age))
    }

    /// Makes the item of a slot present again after it was taken out.
    fn put_back(&mut self, slot: u32, (sampled, removed): (u64, u64)) {
        let leaving = self.slots.slot(slot);
        let (item, priority) = (leaving.item.clone().expect("a leased slot holds its item"), leaving.priority());
        let times = leaving.times_sampled();
        self.hold_again(&item);
        self.stats.sampled_present += 1;
        self.stats.forget_left(times);
        self.counters.deletes -= 1;
        self.note_priority(slot, priority);
        self.note_bytes(slot);
        let slots = &self.slots;
        let age = |slot: u32| slots.age(slot).inserted;
        self.sampler.put_back(slot, priority, sampled, &age);
        self.remover.put_back(slot, priority, removed, &age);
        self.lineage.put_back(slot, item.stream, age);
    }

    /// Notes that the slot's item leaves for another reason and is not put back.
    #[inline]
    pub(super) fn note_removed(&mut self, slot: u32) {
        if self.leases.draws > 0
            && let Some(leased) = self.leases.by_key.get_mut(&self.slots.key(slot))
        {
            leased.item = LeasedItemState::Removed;
            self.leases.removed += leased.draws.len() as u64;
        }
    }

    /// Discards all leases, and releases the items that were used up.
    pub(super) fn drop_leased(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        for slot in leases.by_key.values().filter_map(ItemLeases::out) {
            let item = self.slots.remove(slot);
            self.dropped.push(item);
        }
    }

    /// Calls `look` on the table as it would be without the leased draws.
    ///
    /// A checkpoint needs this: a server restored from it does not know the clients that hold the draws. Draws of items
    /// that are gone are not undone: the limiter would wait for draws that were made.
    pub(super) fn without_leases<R>(&mut self, look: impl FnOnce(&mut Self) -> R) -> R {
        if self.leases.draws == 0 {
            return look(self);
        }
        let leases = std::mem::take(&mut self.leases);
        let (counters, stats) = (self.counters, self.stats.clone());
        let undone = || leases.by_key.iter().filter(|(_, leased)| !matches!(leased.item, LeasedItemState::Removed));
        for (key, leased) in undone() {
            leased.draws.iter().for_each(|(_, age)| self.stats.forget_age(*age));
            self.counters.samples -= leased.draws.len() as u64;
            if let LeasedItemState::Out { slot, sampled, removed } = leased.item {
                self.put_back(slot, (sampled, removed));
            }
            let Some(slot) = self.slots.find(*key) else { continue };
            if leased.draws.iter().map(|_| self.slots.uncount_draw(slot)).last() == Some(0) {
                self.stats.sampled_present -= 1;
                self.stats.sampled_unique -= 1;
            }
        }
        let seen = look(self);
        for (key, leased) in undone() {
            let Some(slot) = self.slots.find(*key) else { continue };
            leased.draws.iter().for_each(|_| _ = self.slots.count_draw(slot));
            if leased.out().is_some() {
                // The counts are restored below; here they must only not fall below zero.
                self.stats.sampled_present += 1;
                _ = (self.sampler.take_out(slot), self.remover.take_out(slot));
                self.leave(slot);
            }
        }
        (self.leases, self.counters, self.stats) = (leases, counters, stats);
        seen
    }
}
