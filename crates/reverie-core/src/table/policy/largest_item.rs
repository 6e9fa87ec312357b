//! The bytes of a table's largest item, for its server's budget.

use super::largest_priority::LargestPriority;
use crate::item::Item;

/// The bytes of items by slot, each when it came in.
#[derive(Debug)]
pub(super) struct LargestItem {
    bytes: LargestPriority,
    /// The table's number in the budget.
    pub(super) number: usize,
}

impl LargestItem {
    pub(super) fn new(number: usize) -> Self {
        Self { bytes: LargestPriority::default(), number }
    }

    /// The bytes of the largest item; 0 without items.
    pub(super) fn get(&self) -> u64 {
        self.bytes.get().unwrap_or(0.0) as u64
    }

    pub(super) fn set(&mut self, slot: u32, item: &Item) {
        // Exact: an item has fewer than 2^53 bytes.
        self.bytes.set(slot, item.size_bytes() as f64);
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.bytes.remove(slot);
    }

    pub(super) fn clear(&mut self) {
        self.bytes = LargestPriority::default();
    }
}
