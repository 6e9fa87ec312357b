//! Items on their way into a table, and the keys that they get.

use crate::item::{Item, Key};
use smallvec::SmallVec;

/// Keys of inserted items; one needs no allocation.
pub type Keys = SmallVec<[Key; 1]>;

/// The priority that a new item gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Priority {
    /// As given.
    Value(f64),
    /// The largest of the items that are in the table at that moment, 1 where there is none.
    Max,
}

/// Items on their way into a table.
pub type Inserts = SmallVec<[(Item, Priority); 1]>;
