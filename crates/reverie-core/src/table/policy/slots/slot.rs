//! One item of a table, with its counts.

use crate::item::Item;

/// One item and its counts: little more than a cache line.
#[derive(Clone, Debug)]
#[repr(C)] // so that the last field is on the last line: see `Slots::prefetch`
pub struct Slot {
    /// The item; `None` in a free slot.
    pub item: Option<Item>,
    /// The time of the insert, in nanoseconds of the table's clock.
    pub inserted_at: u64,
    /// Distinguishes successive items of the slot.
    pub generation: u32,
    pub(super) priority: f64,
    pub(super) version: u32,
    pub(super) times_sampled: u32,
}

impl Slot {
    pub(super) fn empty(generation: u32) -> Self {
        Self { item: None, inserted_at: 0, generation, priority: 0.0, version: 0, times_sampled: 0 }
    }

    /// The priority as it was given.
    #[inline]
    pub fn priority(&self) -> f64 {
        self.priority
    }

    /// The number of updates of the priority.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The number of draws.
    #[inline]
    pub fn times_sampled(&self) -> u32 {
        self.times_sampled
    }
}

/// Positions that only ties, cuts and statistics use.
#[derive(Clone, Debug, Default)]
pub struct Age {
    /// Position in the table's order of insertion.
    pub inserted: u64,
    pub(super) updated: u64,
}

impl Age {
    /// Position in the table's order of insertions and updates.
    pub fn updated(&self) -> u64 {
        self.updated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_and_its_age_take_96_bytes() {
        assert_eq!(std::mem::size_of::<Slot>() + std::mem::size_of::<Age>(), 96);
    }
}
