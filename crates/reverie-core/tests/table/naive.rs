//! A table that is too simple to be wrong.

use proptest::prelude::*;
use reverie_core::table::Table;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;

#[derive(Clone, Debug)]
pub struct Entry {
    pub value: f64,
    pub key: i64,
    pub priority: f64,
    pub times: u32,
    pub version: u32,
    pub inserted: u64,
    pub updated: u64,
}

pub struct Model {
    pub sampler: SelectorOptions,
    pub remover: SelectorOptions,
    pub max_size: usize,
    pub max_times: u32,
    pub limiter: Limiter,
    pub entries: Vec<Entry>,
    pub gone: Vec<i64>,
    pub order: u64,
    pub inserts: u64,
    pub samples: u64,
    pub deletes: u64,
}

impl Model {
    pub fn counters(&self) -> reverie_core::table::limiter::Counters {
        reverie_core::table::limiter::Counters { inserts: self.inserts, samples: self.samples, deletes: self.deletes }
    }

    /// The entry that a deterministic selector takes; none where the choice is random.
    pub fn chosen(&self, by: &SelectorOptions) -> Option<usize> {
        let best = |order: fn(&Entry, &Entry) -> std::cmp::Ordering| {
            (0..self.entries.len()).min_by(|a, b| order(&self.entries[*a], &self.entries[*b]))
        };
        match by {
            SelectorOptions::Fifo => best(|a, b| a.inserted.cmp(&b.inserted)),
            SelectorOptions::Lifo => best(|a, b| b.inserted.cmp(&a.inserted)),
            SelectorOptions::MaxHeap => best(|a, b| b.priority.total_cmp(&a.priority).then(a.updated.cmp(&b.updated))),
            SelectorOptions::MinHeap => best(|a, b| a.priority.total_cmp(&b.priority).then(a.updated.cmp(&b.updated))),
            SelectorOptions::Uniform | SelectorOptions::Prioritized { .. } | SelectorOptions::Stratified { .. } => None,
        }
    }

    pub fn weight(&self, exponent: f64, priority: f64) -> f64 {
        let infinite = |p: f64| p == 0.0 && exponent < 0.0;
        if self.entries.iter().any(|e| infinite(e.priority)) {
            return if infinite(priority) { 1.0 } else { 0.0 };
        }
        if priority == 0.0 && exponent > 0.0 { 0.0 } else { priority.powf(exponent) }
    }

    pub fn probability(&self, entry: &Entry) -> f64 {
        match self.sampler {
            SelectorOptions::Uniform => 1.0 / self.entries.len() as f64,
            SelectorOptions::Prioritized { exponent } | SelectorOptions::Stratified { exponent } => {
                let total: f64 = self.entries.iter().map(|e| self.weight(exponent, e.priority)).sum();
                if total == 0.0 {
                    1.0 / self.entries.len() as f64
                } else {
                    self.weight(exponent, entry.priority) / total
                }
            }
            SelectorOptions::Fifo | SelectorOptions::Lifo | SelectorOptions::MaxHeap | SelectorOptions::MinHeap => 1.0,
        }
    }

    pub fn remove(&mut self, index: usize) {
        let entry = self.entries.remove(index);
        self.gone.push(entry.key);
        self.deletes += 1;
    }

    /// Deletes or evicts an item. In a queue, the draw that the item does not get any more counts as made.
    pub fn delete(&mut self, index: usize) {
        self.remove(index);
        self.samples += self.draws_not_made();
    }

    pub fn draws_not_made(&self) -> u64 {
        let limits_inserts = self.limiter.max_diff() < f64::MAX;
        u64::from(self.max_times == 1 && self.limiter.samples_per_insert() == 1.0 && limits_inserts)
    }

    /// Takes out the items that the table evicted, which must be those that the remover chooses.
    pub fn follow_evictions(&mut self, table: &Table) -> Result<(), TestCaseError> {
        while self.entries.len() > self.max_size {
            let index = match self.chosen(&self.remover) {
                Some(index) => index,
                None => {
                    let mut gone = (0..self.entries.len()).filter(|i| table.get(&[self.entries[*i].key]).is_err());
                    let index = match self.remover {
                        // If several items left, those with a weight left before those without.
                        SelectorOptions::Prioritized { exponent } => {
                            let weight = |index: &usize| self.weight(exponent, self.entries[*index].priority);
                            gone.max_by(|a, b| weight(a).total_cmp(&weight(b)))
                        }
                        _ => gone.next(),
                    };
                    let index = index.expect("an item over the bound is gone");
                    if let SelectorOptions::Prioritized { exponent } = self.remover {
                        let entry = &self.entries[index];
                        let any = self.entries.iter().any(|e| self.weight(exponent, e.priority) > 0.0);
                        prop_assert!(!any || self.weight(exponent, entry.priority) > 0.0);
                    }
                    index
                }
            };
            self.delete(index);
        }
        Ok(())
    }
}
