//! The bytes of a table's largest item, for the budget that it shares with other tables.

use super::largest::Largest;
use crate::item::Item;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of items by slot, each when it came in; the largest is published, so that others read it without a lock.
#[derive(Debug)]
pub(super) struct LargestItem {
    bytes: Largest,
    published: Arc<AtomicU64>,
}

impl LargestItem {
    pub(super) fn new(published: Arc<AtomicU64>) -> Self {
        Self { bytes: Largest::default(), published }
    }

    pub(super) fn publishes_to(&self, published: &Arc<AtomicU64>) -> bool {
        Arc::ptr_eq(&self.published, published)
    }

    pub(super) fn set(&mut self, slot: u32, item: &Item) {
        // Exact: an item has fewer than 2^53 bytes.
        self.bytes.set(slot, item.size_bytes() as f64);
        self.publish();
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.bytes.remove(slot);
        self.publish();
    }

    pub(super) fn clear(&mut self) {
        self.bytes = Largest::default();
        self.publish();
    }

    fn publish(&self) {
        self.published.store(self.bytes.get().unwrap_or(0.0) as u64, Ordering::Relaxed);
    }
}
