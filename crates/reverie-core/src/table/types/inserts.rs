//! Inserted items, and the keys that they get.

use crate::item::Item;
use smallvec::SmallVec;

pub use crate::key::Keys;

/// The priority that a new item gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Priority {
    /// The given value.
    Value(f64),
    /// The largest priority in the table at that moment; 1 if the table is empty.
    Max,
    /// Like [`Priority::Max`] if the table's sampler draws in proportion to priorities, else 1.
    Default,
}

/// Items to insert into a table.
pub type Inserts = SmallVec<[(Item, Priority); 1]>;
