//! What every selector does.

use crate::error::{Error, Result};
use crate::table::types::selector::Mass;

/// One draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// The slot of the item.
    pub slot: u32,
    /// How likely this item was to be drawn, in (0, 1]; 1 where the selector is deterministic.
    pub probability: f64,
}

/// Chooses among the items that are present.
///
/// Slots are below 2^28 and dense enough to index arrays with: a selector's memory grows with the largest
/// slot that it saw. Inserting a slot that is present, or updating or removing one that is not, is a bug of
/// the caller; it is caught in debug builds. Priorities were let through by [`check`](Self::check).
/// No call blocks. What a call costs is stated per item of `n` items.
pub trait Selector {
    /// Refuses a priority that this selector has no meaning for: NaN and infinities everywhere, negative ones
    /// where the selector needs weights.
    fn check(&self, priority: f64) -> Result<()>;

    /// Adds an item; the order of the calls is the order of insertion. At most O(log n).
    fn insert(&mut self, slot: u32, priority: f64);

    /// Gives an item a new priority. At most O(log n).
    fn update(&mut self, slot: u32, priority: f64);

    /// Updates in order; of a slot that occurs twice the last priority stays.
    fn update_many(&mut self, updates: &[(u32, f64)]) {
        for &(slot, priority) in updates {
            self.update(slot, priority);
        }
    }

    /// Takes an item out. At most O(log n).
    fn remove(&mut self, slot: u32);

    /// Takes an item out that may come back; its place, for [`Selector::put_back`]. At most O(log n).
    fn take_out(&mut self, slot: u32) -> u64 {
        self.remove(slot);
        0
    }

    /// Puts an item back that was taken out of `place`: it is picked again as if it had never left. `age` is a slot's
    /// position in the order of insertion. At most O(log n), but for a line, which is walked from both ends.
    fn put_back(&mut self, slot: u32, priority: f64, place: u64, age: &dyn Fn(u32) -> u64) {
        let (_, _) = (place, age);
        self.insert(slot, priority);
    }

    /// Picks an item and leaves it in; `None` where there is none. At most O(log n).
    fn draw(&mut self) -> Option<Pick>;

    /// Appends to `out` exactly what `n` draws in a row give, with the same random numbers; nothing where
    /// there is no item. A stratified selector spreads them out instead.
    fn draw_many(&mut self, n: usize, out: &mut Vec<Pick>) {
        out.extend((0..n).map_while(|_| self.draw()));
    }

    /// How many items there are.
    fn len(&self) -> usize;

    /// True where there is no item.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all items out and gives their memory back. The random source goes on where it was.
    fn clear(&mut self);

    /// What the items weigh together that are drawn first, and those that are drawn once none of these is left: the
    /// sum of the weights and the number of items of priority 0, or the other way where these weigh infinitely much.
    /// The number of items, and nothing, where all weigh the same.
    fn masses(&mut self) -> (f64, f64) {
        (self.len() as f64, 0.0)
    }

    /// What the items weigh, so that several selectors can be drawn from as one.
    fn weighed(&mut self) -> Mass {
        Mass { total: self.len() as f64, zeros: 0 }
    }

    /// The smallest probability with which an item that can be drawn at all is drawn now; `None` without
    /// items. Importance weights are normalised by it over a whole table (Schaul et al. 2016, section 3.4).
    fn smallest_probability(&mut self) -> Option<f64>;

    /// The slot of an item with the largest priority, where that is known in O(log n); `None` elsewhere, and
    /// without items. A slot and not a priority, since weights cannot be turned back into the priority that
    /// was given without rounding.
    fn max_slot(&mut self) -> Option<u32>;
}

/// Refuses NaN and infinities.
pub(super) fn check_finite(priority: f64) -> Result<()> {
    if priority.is_finite() {
        Ok(())
    } else {
        Err(Error::InvalidArgument(format!("a priority must be a finite number, got {priority}")))
    }
}
