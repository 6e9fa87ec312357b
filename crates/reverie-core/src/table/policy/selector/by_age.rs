//! Selection by the order of insertion: first in, first out, and last in, first out.

use super::interface::{Pick, Selector, check_finite};
use super::linked_slots::LinkedSlots;
use crate::error::Result;

/// Picks the item inserted longest ago, with probability 1. Priorities have no effect.
pub type Fifo = ByAge<false>;

/// Picks the item inserted last, with probability 1. Priorities have no effect.
pub type Lifo = ByAge<true>;

/// Picks the oldest item, or the newest.
#[derive(Clone, Debug)]
pub struct ByAge<const NEWEST: bool> {
    order: LinkedSlots,
}

impl<const NEWEST: bool> ByAge<NEWEST> {
    /// A selector without items.
    pub fn new() -> Self {
        Self { order: LinkedSlots::new() }
    }

    fn next(&self) -> Option<u32> {
        if NEWEST { self.order.newest() } else { self.order.oldest() }
    }
}

impl<const NEWEST: bool> Default for ByAge<NEWEST> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const NEWEST: bool> Selector for ByAge<NEWEST> {
    fn check(&self, priority: f64) -> Result<()> {
        check_finite(priority)
    }

    fn insert(&mut self, slot: u32, _priority: f64) {
        self.order.push(slot);
    }

    /// Keeps the order: age counts from the insertion.
    fn update(&mut self, _slot: u32, _priority: f64) {}

    fn update_many(&mut self, _updates: &[(u32, f64)]) {}

    fn remove(&mut self, slot: u32) {
        self.order.remove(slot);
    }

    fn put_back(&mut self, slot: u32, _priority: f64, _place: u64, age: &dyn Fn(u32) -> u64) {
        self.order.put_back(slot, age);
    }

    fn draw(&mut self) -> Option<Pick> {
        self.next().map(|slot| Pick { slot, probability: 1.0 })
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn clear(&mut self) {
        self.order = LinkedSlots::new();
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        self.next().map(|_| 1.0)
    }

    fn max_slot(&mut self) -> Option<u32> {
        None
    }
}
