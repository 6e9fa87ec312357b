//! **Selectors** choose the next item, for a table's sampler and for its remover.
//!
//! A selector sees slots and priorities only. It owns its random source: the same seed and the same calls
//! give the same picks, one by one or many at once.

mod any;
mod by_age;
mod heap;
mod interface;
mod linked_slots;
mod prioritized;
mod random;
mod slot_set;
mod uniform;

pub use crate::table::types::selector::{Mass, SelectorOptions};
pub use any::AnySelector;
pub use by_age::{Fifo, Lifo};
pub use heap::Heap;
pub use interface::{Pick, Selector};
pub use prioritized::Prioritized;
pub(super) use random::Random;
pub use uniform::Uniform;
