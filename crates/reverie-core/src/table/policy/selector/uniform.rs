//! Every item with the same probability.

use super::interface::{Pick, Selector, check_finite};
use super::random::Random;
use super::slot_set::SlotSet;
use crate::error::Result;

/// Picks any item, each with probability 1 / number of items. Priorities have no effect.
#[derive(Clone, Debug)]
pub struct Uniform {
    items: SlotSet,
    random: Random,
}

impl Uniform {
    /// A selector without items.
    pub fn new(seed: u64) -> Self {
        Self { items: SlotSet::new(), random: Random::new(seed) }
    }
}

impl Selector for Uniform {
    fn check(&self, priority: f64) -> Result<()> {
        check_finite(priority)
    }

    fn insert(&mut self, slot: u32, _priority: f64) {
        self.items.insert(slot);
    }

    fn update(&mut self, _slot: u32, _priority: f64) {}

    fn update_many(&mut self, _updates: &[(u32, f64)]) {}

    fn remove(&mut self, slot: u32) {
        self.items.remove(slot);
    }

    fn draw(&mut self) -> Option<Pick> {
        let probability = self.smallest_probability()?;
        let rank = self.random.below(self.items.len());
        Some(Pick { slot: self.items.at(rank), probability })
    }

    fn draw_many(&mut self, n: usize, out: &mut Vec<Pick>) {
        let Some(probability) = self.smallest_probability() else { return };
        let Self { items, random } = self;
        // The look-ups do not depend on each other, so their cache misses overlap without a prefetch.
        out.extend((0..n).map(|_| Pick { slot: items.at(random.below(items.len())), probability }));
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn clear(&mut self) {
        self.items = SlotSet::new();
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        (!self.items.is_empty()).then(|| 1.0 / self.items.len() as f64)
    }

    fn max_slot(&mut self) -> Option<u32> {
        None
    }
}
