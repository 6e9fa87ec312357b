//! Last in, first out.

use super::interface::{Pick, Selector, check_finite};
use super::linked::Linked;
use crate::error::Result;

/// Picks the item inserted last, with probability 1. Priorities have no effect.
#[derive(Clone, Debug)]
pub struct Lifo {
    order: Linked,
}

impl Lifo {
    /// A selector without items.
    pub fn new() -> Self {
        Self { order: Linked::new() }
    }
}

impl Default for Lifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Selector for Lifo {
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
        self.order.newest().map(|slot| Pick { slot, probability: 1.0 })
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn clear(&mut self) {
        self.order = Linked::new();
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        self.order.newest().map(|_| 1.0)
    }

    fn max_slot(&mut self) -> Option<u32> {
        None
    }
}
