//! The interface of every selector.

use crate::error::{Error, Result};
use crate::table::types::selector::Mass;

/// One draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// The slot of the item.
    pub slot: u32,
    /// The probability of this pick, in (0, 1]; 1 if the selector is deterministic.
    pub probability: f64,
}

/// Chooses among the items that are present.
///
/// Slots are below 2^28 and dense enough to index arrays with: a selector's memory grows with the largest slot that it
/// saw. The caller must not insert a present slot, or update or remove a missing one; debug builds catch it. The caller
/// checks priorities with [`check`](Self::check) first. No call blocks. Costs are stated per item, for a selector with
/// `n` items.
pub trait Selector {
    /// Refuses an invalid priority: NaN and infinities always, negative ones if the selector needs weights.
    fn check(&self, priority: f64) -> Result<()>;

    /// Adds an item; the order of the calls is the order of insertion. At most O(log n).
    fn insert(&mut self, slot: u32, priority: f64);

    /// Gives an item a new priority. At most O(log n).
    fn update(&mut self, slot: u32, priority: f64);

    /// Applies updates in order; if a slot occurs twice, the last priority stays.
    fn update_many(&mut self, updates: &[(u32, f64)]) {
        for &(slot, priority) in updates {
            self.update(slot, priority);
        }
    }

    /// Removes an item. At most O(log n).
    fn remove(&mut self, slot: u32);

    /// Removes an item that may be put back; returns its place, for [`Selector::put_back`]. At most O(log n).
    fn take_out(&mut self, slot: u32) -> u64 {
        self.remove(slot);
        0
    }

    /// Puts back an item that was taken out of `place`, as if it had never left.
    ///
    /// `age` is a slot's position in the order of insertion. At most O(log n), except for a linked list, which is
    /// searched from both ends.
    fn put_back(&mut self, slot: u32, priority: f64, place: u64, age: &dyn Fn(u32) -> u64) {
        let (_, _) = (place, age);
        self.insert(slot, priority);
    }

    /// Picks an item without removing it; `None` if the selector is empty. At most O(log n).
    fn draw(&mut self) -> Option<Pick>;

    /// Appends `n` picks to `out`, the same as `n` single draws with the same random numbers.
    ///
    /// Appends nothing if the selector is empty. A stratified selector spreads the draws out instead.
    fn draw_many(&mut self, n: usize, out: &mut Vec<Pick>) {
        out.extend((0..n).map_while(|_| self.draw()));
    }

    /// The number of items.
    fn len(&self) -> usize;

    /// True if there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all items and frees their memory. The random source continues where it was.
    fn clear(&mut self);

    /// The total weight of the items drawn first, and of those drawn once none of the first are left.
    ///
    /// These are the sum of the weights and the number of items of priority 0, or the reverse if these have infinite
    /// weight. If all items weigh the same: the number of items, and 0.
    fn masses(&mut self) -> (f64, f64) {
        (self.len() as f64, 0.0)
    }

    /// The total weight of the items, so that several selectors can be drawn from as one.
    fn weighed(&mut self) -> Mass {
        Mass { total: self.len() as f64, zeros: 0 }
    }

    /// The smallest probability of a drawable item now; `None` without items.
    ///
    /// Importance weights of a whole table are normalised by it (Schaul et al. 2016, section 3.4).
    fn smallest_probability(&mut self) -> Option<f64>;

    /// The slot of an item with the largest priority; `None` if it is not known in O(log n), and without items.
    ///
    /// A slot and not a priority, because a weight cannot be turned back into the given priority without rounding.
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
