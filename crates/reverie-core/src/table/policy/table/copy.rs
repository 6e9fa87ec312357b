//! Items that are in two tables: noted at their first draw, inserted under the key of the original.

use super::Table;
use crate::item::{Item, Key};
use crate::table::policy::selector::Selector;
use crate::table::types::copies::FirstDraw;

impl Table {
    /// Collects first draws from now on, for [`Table::take_first_draws`].
    pub fn note_first_draws(&mut self) {
        self.first_draws.get_or_insert_default();
    }

    /// Items drawn for the first time since the last call, in the order of the draws.
    pub fn take_first_draws(&mut self) -> Vec<FirstDraw> {
        self.first_draws.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Inserts a copy of another table's item under the key of the original; false if the key is taken.
    ///
    /// The copy counts as sampled once. If the copy is present already, it gets the priority and no insert is counted.
    /// Returns false, and does nothing, if an item of this table's own has that key. As for [`Table::insert`], the
    /// limiter must allow it, and [`Table::check`] must accept it.
    pub fn insert_copy(&mut self, item: Item, priority: f64, key: Key, now: u64) -> bool {
        let Some(slot) = self.slots.find(key) else {
            self.stats.sampled_present += 1;
            self.stats.sampled_unique += 1;
            self.take_in(item, priority, now, Some(key));
            return true;
        };
        self.dropped.push(item);
        let is_copy = self.slots.is_copy(slot);
        // A copy that waits for the acknowledgement of its last draw is present, but in no selector.
        if is_copy && self.find(key).is_some() {
            self.set_priority(slot, priority);
            self.sampler.update_many(&[(slot, priority)]);
            self.remover.update_many(&[(slot, priority)]);
        }
        is_copy
    }
}
