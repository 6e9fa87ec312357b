//! **Selectors**: which item comes next, for a table's sampler and for its remover.
//!
//! A selector sees slots and priorities only. It owns its random source: the same seed and the same calls
//! give the same picks, one by one or many at once.

mod any;
mod fifo;
mod heap;
mod lifo;
mod linked;

mod prioritized;
mod random;
mod slot_set;
mod uniform;

pub use any::AnySelector;
pub use fifo::Fifo;
pub use heap::Heap;
pub use lifo::Lifo;
pub use prioritized::Prioritized;
pub(super) use random::Random;
pub use uniform::Uniform;

use crate::error::{Error, Result};

/// What a sampler or a remover is, as data: immutable, comparable, safe to share between tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SelectorOptions {
    /// The item inserted longest ago.
    Fifo,
    /// The item inserted last.
    Lifo,
    /// Every item with the same probability.
    Uniform,
    /// The item with the largest priority; of equals, the one inserted or updated longest ago.
    MaxHeap,
    /// The item with the smallest priority; of equals, the one inserted or updated longest ago.
    MinHeap,
    /// An item with a probability proportional to `priority ** exponent` (Schaul et al. 2016, section 3.3).
    Prioritized {
        /// The power of the priority; 0 is uniform, negative values prefer small priorities.
        exponent: f64,
    },
    /// The same, with the draws of a batch spread out: of n draws the i-th falls on the i-th of n equal parts of the
    /// sum of weights (ibid., section 3.3 and appendix B.2.1). Each draw of a batch has another distribution, all
    /// together they have the same, with less variance.
    Stratified {
        /// As of [`SelectorOptions::Prioritized`].
        exponent: f64,
    },
}

impl SelectorOptions {
    /// Refuses an exponent that is no finite number.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Prioritized { exponent } | Self::Stratified { exponent } if !exponent.is_finite() => {
                Err(Error::InvalidArgument(format!("priority_exponent must be a finite number, got {exponent}")))
            }
            _ => Ok(()),
        }
    }

    /// True where the selector knows the largest priority, see [`Selector::max_slot`].
    pub fn knows_largest(&self) -> bool {
        match self {
            Self::MaxHeap => true,
            Self::Prioritized { exponent } | Self::Stratified { exponent } => *exponent != 0.0,
            Self::Fifo | Self::Lifo | Self::Uniform | Self::MinHeap => false,
        }
    }

    /// True where the pick follows from the items alone, without a random source.
    pub fn is_deterministic(&self) -> bool {
        match self {
            Self::Fifo | Self::Lifo | Self::MaxHeap | Self::MinHeap => true,
            Self::Uniform | Self::Prioritized { .. } | Self::Stratified { .. } => false,
        }
    }
}

impl std::fmt::Display for SelectorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fifo => f.write_str("Fifo()"),
            Self::Lifo => f.write_str("Lifo()"),
            Self::Uniform => f.write_str("Uniform()"),
            Self::MaxHeap => f.write_str("MaxHeap()"),
            Self::MinHeap => f.write_str("MinHeap()"),
            Self::Prioritized { exponent } => write!(f, "Prioritized({exponent})"),
            Self::Stratified { exponent } => write!(f, "Prioritized({exponent}, stratified)"),
        }
    }
}

/// One draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// The slot of the item.
    pub slot: u32,
    /// How likely this item was to be drawn, in (0, 1]; 1 where the selector is deterministic.
    pub probability: f64,
}

/// What the items of a selector weigh together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mass {
    /// The sum of the weights; infinite while an item's weight is. The number of items where all weigh the same.
    pub total: f64,
    /// Items of priority 0 where that is a weight apart: those that weigh nothing, or infinitely much.
    pub zeros: u64,
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
fn check_finite(priority: f64) -> Result<()> {
    if priority.is_finite() {
        Ok(())
    } else {
        Err(Error::InvalidArgument(format!("a priority must be a finite number, got {priority}")))
    }
}
