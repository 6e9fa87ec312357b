//! Items with a probability proportional to a power of their priority.

use super::interface::{Pick, Selector, check_finite};
use super::random::Random;
use super::slot_set::SlotSet;
use crate::error::{Error, Result};
use crate::power::{self, Power};
use crate::table::policy::sum_tree::SumTree;
use crate::table::types::selector::Mass;

/// Picks any item, with probability `weight / sum of weights`, where `weight = priority ** exponent`.
///
/// See Schaul et al. 2016, "Prioritized Experience Replay", section 3.3.
///
/// - Priority 0 weighs 0: never drawn while any item weighs more. With the exponent 0 every item weighs 1. With a
///   negative exponent priority 0 has infinite weight: those items are drawn first, each with probability 1 / number of
///   them.
/// - If all items weigh 0, each has the probability 1 / number of items.
/// - Weights of positive priorities are kept within [2^-1022, 2^990], so that underflow makes no positive priority
///   impossible to draw, and no sum overflows.
#[derive(Clone, Debug)]
pub struct Prioritized {
    power: Power,
    /// True if the exponent is negative.
    zeros_first: bool,
    /// True if the draws of a batch are stratified.
    stratified: bool,
    tree: SumTree,
    /// The items of priority 0, which the tree holds with weight 0; none with the exponent 0.
    zeros: SlotSet,
    len: usize,
    random: Random,
    /// Scratch space for a batch of draws and for a batch of updates.
    points: Vec<f64>,
    weights: Vec<f64>,
}

impl Prioritized {
    /// A selector without items.
    ///
    /// The exponent must be finite, see [`SelectorOptions::validate`](super::SelectorOptions::validate).
    pub fn new(exponent: f64, seed: u64) -> Self {
        debug_assert!(exponent.is_finite(), "the exponent must be finite, not {exponent}");
        Self {
            power: Power::new(exponent),
            zeros_first: exponent < 0.0,
            stratified: false,
            tree: SumTree::new(),
            zeros: SlotSet::new(),
            len: 0,
            random: Random::new(seed),
            points: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// A prioritized selector with stratified draws.
    pub fn stratified(exponent: f64, seed: u64) -> Self {
        Self { stratified: true, ..Self::new(exponent, seed) }
    }

    /// True if the next draw is among the items of priority 0, which are equally likely.
    fn draws_zeros(&mut self) -> bool {
        !self.zeros.is_empty() && (self.zeros_first || self.tree.total() == 0.0)
    }

    fn draw_zero(&mut self) -> Pick {
        let slot = self.zeros.at(self.random.below(self.zeros.len()));
        Pick { slot, probability: 1.0 / self.zeros.len() as f64 }
    }
}

/// Updates the set of zeros after a weight changed in the tree.
#[inline(always)]
fn track(zeros: &mut SlotSet, slot: u32, old: f64, new: f64) {
    match (old == 0.0, new == 0.0) {
        (true, false) => zeros.remove(slot),
        (false, true) => zeros.insert(slot),
        _ => {}
    }
}

impl Selector for Prioritized {
    fn check(&self, priority: f64) -> Result<()> {
        check_finite(priority)?;
        if priority < 0.0 {
            return Err(Error::InvalidArgument(format!(
                "a priority of a Prioritized selector must not be negative, got {priority}"
            )));
        }
        Ok(())
    }

    fn insert(&mut self, slot: u32, priority: f64) {
        let weight = self.power.of(priority);
        debug_assert!(self.tree.get(slot) == 0.0 && !self.zeros.contains(slot), "slot {slot} is present already");
        self.tree.set(slot, weight);
        if weight == 0.0 {
            self.zeros.insert(slot);
        }
        self.len += 1;
    }

    fn update(&mut self, slot: u32, priority: f64) {
        let weight = self.power.of(priority);
        let old = self.tree.set(slot, weight);
        track(&mut self.zeros, slot, old, weight);
    }

    fn update_many(&mut self, updates: &[(u32, f64)]) {
        let Self { power, tree, zeros, weights, .. } = self;
        weights.clear();
        weights.extend(updates.iter().map(|&(slot, priority)| {
            tree.prefetch(slot);
            priority
        }));
        power.of_each(weights);
        let updates = updates.iter().zip(&*weights).map(|(&(slot, _), weight)| (slot, *weight));
        tree.set_many(updates, |slot, old, new| track(zeros, slot, old, new));
    }

    fn remove(&mut self, slot: u32) {
        if self.tree.set(slot, 0.0) == 0.0 {
            self.zeros.remove(slot);
        }
        self.len -= 1;
    }

    fn draw(&mut self) -> Option<Pick> {
        if self.len == 0 {
            return None;
        }
        if self.draws_zeros() {
            return Some(self.draw_zero());
        }
        let total = self.tree.total();
        let (slot, weight) = self.tree.find(self.random.unit() * total);
        Some(Pick { slot, probability: weight / total })
    }

    fn draw_many(&mut self, n: usize, out: &mut Vec<Pick>) {
        if self.len == 0 {
            return;
        }
        out.reserve(n);
        if self.draws_zeros() {
            (0..n).for_each(|_| out.push(self.draw_zero()));
            return;
        }
        let Self { tree, random, points, stratified, .. } = self;
        let total = tree.total();
        points.clear();
        if *stratified {
            let part = total / n as f64;
            points.extend((0..n).map(|index| (index as f64 + random.unit()) * part));
        } else {
            points.extend((0..n).map(|_| random.unit() * total));
        }
        tree.find_many(points, |slot, weight| out.push(Pick { slot, probability: weight / total }));
    }

    fn len(&self) -> usize {
        self.len
    }

    fn clear(&mut self) {
        self.tree = SumTree::new();
        self.zeros = SlotSet::new();
        self.len = 0;
        self.points = Vec::new();
        self.weights = Vec::new();
    }

    fn masses(&mut self) -> (f64, f64) {
        let (weights, zeros) = (self.tree.total(), self.zeros.len() as f64);
        if self.zeros_first { (zeros, weights) } else { (weights, zeros) }
    }

    fn weighed(&mut self) -> Mass {
        let infinite = self.zeros_first && !self.zeros.is_empty();
        let total = if infinite { f64::INFINITY } else { self.tree.total() };
        Mass { total, zeros: self.zeros.len() as u64 }
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        if self.draws_zeros() {
            return Some(1.0 / self.zeros.len() as f64);
        }
        // The quotient of two positive numbers can underflow; the probability of an item with weight must not.
        let total = self.tree.total();
        self.tree.smallest().map(|weight| (weight / total).max(power::SMALLEST))
    }

    fn max_slot(&mut self) -> Option<u32> {
        if self.power == Power::Zero {
            return None;
        }
        let heaviest = if self.zeros_first { self.tree.smallest_slot() } else { self.tree.largest_slot() };
        heaviest.or_else(|| (!self.zeros.is_empty()).then(|| self.zeros.at(0)))
    }
}
