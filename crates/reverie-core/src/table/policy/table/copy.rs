//! Items that are in two tables: noted where they are drawn first, taken in under the key that they have there.

use super::Table;
use crate::item::{Item, Key};
use crate::table::policy::selector::Selector;
use crate::table::types::copies::FirstDraw;

impl Table {
    /// From here on, first draws are noted for [`Table::take_first_draws`].
    pub fn note_first_draws(&mut self) {
        self.first_draws.get_or_insert_default();
    }

    /// What was drawn for the first time since the last call, in the order of the draws.
    pub fn take_first_draws(&mut self) -> Vec<FirstDraw> {
        self.first_draws.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes in a copy of another table's item, which is found here by the key that it has there, and counts as sampled
    /// once. Where that copy is here already, it gets the priority, and nothing is counted as inserted. False where an
    /// item of this table's own has that very key: then nothing happens. As for [`Table::insert`], the limiter must
    /// have allowed it, and [`Table::check`] accepted it.
    pub fn insert_copy(&mut self, item: Item, priority: f64, key: Key, now: u64) -> bool {
        let Some(slot) = self.slots.find(key) else {
            self.stats.sampled_present += 1;
            self.stats.sampled_unique += 1;
            self.take_in(item, priority, now, Some(key));
            return true;
        };
        self.dropped.push(item);
        let is_copy = self.slots.is_copy(slot);
        // A copy that waits for the acknowledgement of its last draw is here, and in no selector.
        if is_copy && self.find(key).is_some() {
            self.set_priority(slot, priority);
            self.sampler.update_many(&[(slot, priority)]);
            self.remover.update_many(&[(slot, priority)]);
        }
        is_copy
    }
}
