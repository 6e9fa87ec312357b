//! Draws that may be returned.
//!
//! A leased draw that uses up its item takes the item out of the selectors; the slot keeps it until all of its draws
//! are acknowledged. A draw that is returned is undone: the item gets its former place.

use super::Table;
use crate::item::Key;
use crate::table::policy::leases::{Leased, Where};
use crate::table::policy::selector::Selector;
use crate::table::policy::slots::page::Cut;

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
            cut.hide(self.leases.by_key.values().filter_map(Leased::out).collect());
        }
        cut
    }

    /// Leases a draw of the slot's item that was just delivered; takes the item out if it is used up.
    pub(super) fn lease(&mut self, slot: u32, now: u64) {
        let age = now.saturating_sub(self.slots.slot(slot).inserted_at);
        self.leases.draws += 1;
        let key = self.slots.key(slot);
        self.leases.by_key.entry(key).or_default().ages.push(age);
        if self.is_used_up(slot) {
            let (sampled, removed) = (self.sampler.take_out(slot), self.remover.take_out(slot));
            self.leave(slot);
            self.leases.used_up += 1;
            self.leases.by_key.entry(key).or_default().item = Where::Out { slot, sampled, removed };
        }
    }

    /// Everything that happens when an item leaves, except for the selectors and the slot.
    fn leave(&mut self, slot: u32) {
        self.uncount(slot);
        let item = self.slots.slot(slot).item.clone().expect("a leased slot holds its item");
        self.lineage.remove(slot, item.stream);
        self.release(&item);
    }

    /// The draws of these keys reached their client. Missing keys are ignored.
    pub fn acknowledge(&mut self, keys: &[Key]) {
        for key in keys {
            let Some((last, item, _)) = self.end_lease(*key) else { continue };
            if let (true, Where::Out { slot, .. }) = (last, item) {
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
    pub fn give_back(&mut self, keys: &[Key]) {
        // Newest first: if many go to the front of a list, each is then the first.
        for key in keys.iter().rev() {
            let Some((last, item, age)) = self.end_lease(*key) else { continue };
            self.counters.samples -= 1;
            self.stats.forget_age(age);
            if let Where::Out { slot, sampled, removed } = item {
                self.leases.used_up -= 1;
                self.put_back(slot, (sampled, removed));
                if !last {
                    self.leases.by_key.entry(*key).or_default().item = Where::Present;
                }
            }
            let present = if matches!(item, Where::Gone) { None } else { self.slots.find(*key) };
            if present.is_some_and(|slot| self.slots.uncount_draw(slot) == 0) {
                self.stats.sampled_present -= 1;
                self.stats.sampled_unique -= 1;
            }
        }
        self.spares |= self.is_over();
    }

    /// Ends one lease of an item; returns whether it was the last, the item's state, and its age at the draw.
    fn end_lease(&mut self, key: Key) -> Option<(bool, Where, u64)> {
        let leased = self.leases.by_key.get_mut(&key)?;
        let age = leased.ages.pop().expect("a leased item has a draw");
        let (last, item) = (leased.ages.is_empty(), leased.item);
        if last {
            self.leases.by_key.remove(&key);
        }
        self.leases.draws -= 1;
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
        let slots = &self.slots;
        let age = |slot: u32| slots.age(slot).inserted;
        self.sampler.put_back(slot, priority, sampled, &age);
        self.remover.put_back(slot, priority, removed, &age);
        self.lineage.put_back(slot, item.stream, age);
    }

    /// Notes that the slot's item leaves for another reason and is not put back.
    #[inline]
    pub(super) fn note_gone(&mut self, slot: u32) {
        if self.leases.draws > 0
            && let Some(leased) = self.leases.by_key.get_mut(&self.slots.key(slot))
        {
            leased.item = Where::Gone;
        }
    }

    /// Discards all leases, and releases the items that were used up.
    pub(super) fn drop_leased(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        for slot in leases.by_key.values().filter_map(Leased::out) {
            let item = self.slots.remove(slot);
            self.dropped.push(item);
        }
    }

    /// Calls `look` on the table as it would be without the leased draws.
    ///
    /// A checkpoint needs this: a server restored from it does not know the clients that hold the draws.
    pub(super) fn without_leases<R>(&mut self, look: impl FnOnce(&mut Self) -> R) -> R {
        if self.leases.draws == 0 {
            return look(self);
        }
        let leases = std::mem::take(&mut self.leases);
        let (counters, stats) = (self.counters, self.stats.clone());
        for (key, leased) in &leases.by_key {
            leased.ages.iter().for_each(|age| self.stats.forget_age(*age));
            self.counters.samples -= leased.ages.len() as u64;
            if let Where::Out { slot, sampled, removed } = leased.item {
                self.put_back(slot, (sampled, removed));
            }
            let Some(slot) = self.slots.find(*key) else { continue };
            if leased.ages.iter().map(|_| self.slots.uncount_draw(slot)).last() == Some(0) {
                self.stats.sampled_present -= 1;
                self.stats.sampled_unique -= 1;
            }
        }
        let seen = look(self);
        for (key, leased) in &leases.by_key {
            let Some(slot) = self.slots.find(*key) else { continue };
            leased.ages.iter().for_each(|_| _ = self.slots.count_draw(slot));
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
