//! Tables whose inserts wait for one draw of each item, as those of a queue do.
//!
//! Every item that leaves counts as drawn, whatever it left for: otherwise inserts would wait for a draw that cannot
//! come.

use super::Table;
use crate::table::types::options::TableOptions;

impl TableOptions {
    /// True if inserts wait until each item was drawn once.
    fn awaits_one_draw_each(&self) -> bool {
        self.max_times_sampled == 1 && self.limiter.samples_per_insert == 1.0 && self.limiter.max_diff < f64::MAX
    }
}

impl Table {
    /// Removes an item that was deleted or evicted. If inserts wait for its draw, that draw counts as made.
    pub(super) fn remove_undrawn(&mut self, slot: u32) {
        self.remove(slot);
        self.counters.samples += u64::from(self.options.awaits_one_draw_each());
    }

    /// Adapts the count of draws to new options: if inserts begin to wait for one draw of each item, they wait for
    /// those of the present items only.
    ///
    /// Draws and removals under the former options would leave too few draws for these items, or too many.
    pub(super) fn count_after(&mut self, former: &TableOptions) {
        if self.options.awaits_one_draw_each() && !former.awaits_one_draw_each() {
            // A leased draw of an item that is not used up may still be undone.
            self.counters.samples = self.counters.deletes + self.leases.draws - self.leases.used_up;
        }
    }

    /// Adapts restored counts, which are without leases: the items may have left another kind of table.
    pub(super) fn count_restored(&mut self) {
        if self.options.awaits_one_draw_each() {
            self.counters.samples = self.counters.deletes;
        }
    }

    /// Adapts the count of draws to one that was acknowledged and is not the draw for which its item left: the item was
    /// drawn before inserts began to wait for one draw of each.
    pub(super) fn count_acknowledged(&mut self, is_last_of_used_up: bool) {
        if self.options.awaits_one_draw_each() && !is_last_of_used_up {
            self.counters.samples -= 1;
        }
    }
}
