//! Any of the selectors, without a virtual call.

use super::by_age::{Fifo, Lifo};
use super::heap::Heap;
use super::interface::{Pick, Selector};
use super::prioritized::Prioritized;
use super::uniform::Uniform;
use crate::error::Result;
use crate::table::types::selector::{Mass, SelectorOptions};

/// The selector that [`SelectorOptions`] describe.
#[derive(Clone, Debug)]
pub enum AnySelector {
    /// See [`Fifo`].
    Fifo(Fifo),
    /// See [`Lifo`].
    Lifo(Lifo),
    /// See [`Uniform`].
    Uniform(Uniform),
    /// See [`Heap`].
    Heap(Heap),
    /// See [`Prioritized`]; boxed, as it is much larger than the others.
    Prioritized(Box<Prioritized>),
}

impl AnySelector {
    /// A selector without items. The options must be valid; deterministic selectors ignore the seed.
    pub fn new(options: &SelectorOptions, seed: u64) -> Self {
        match *options {
            SelectorOptions::Fifo => Self::Fifo(Fifo::new()),
            SelectorOptions::Lifo => Self::Lifo(Lifo::new()),
            SelectorOptions::Uniform => Self::Uniform(Uniform::new(seed)),
            SelectorOptions::MaxHeap => Self::Heap(Heap::max()),
            SelectorOptions::MinHeap => Self::Heap(Heap::min()),
            SelectorOptions::Prioritized { exponent } => Self::Prioritized(Box::new(Prioritized::new(exponent, seed))),
            SelectorOptions::Stratified { exponent } => {
                Self::Prioritized(Box::new(Prioritized::stratified(exponent, seed)))
            }
        }
    }
}

macro_rules! dispatch {
    ($any:expr, $selector:ident => $call:expr) => {
        match $any {
            AnySelector::Fifo($selector) => $call,
            AnySelector::Lifo($selector) => $call,
            AnySelector::Uniform($selector) => $call,
            AnySelector::Heap($selector) => $call,
            AnySelector::Prioritized($selector) => $call,
        }
    };
}

impl Selector for AnySelector {
    fn check(&self, priority: f64) -> Result<()> {
        dispatch!(self, selector => selector.check(priority))
    }

    fn insert(&mut self, slot: u32, priority: f64) {
        dispatch!(self, selector => selector.insert(slot, priority))
    }

    fn update(&mut self, slot: u32, priority: f64) {
        dispatch!(self, selector => selector.update(slot, priority))
    }

    fn update_many(&mut self, updates: &[(u32, f64)]) {
        dispatch!(self, selector => selector.update_many(updates))
    }

    fn remove(&mut self, slot: u32) {
        dispatch!(self, selector => selector.remove(slot))
    }

    fn take_out(&mut self, slot: u32) -> u64 {
        dispatch!(self, selector => selector.take_out(slot))
    }

    fn put_back(&mut self, slot: u32, priority: f64, place: u64, age: &dyn Fn(u32) -> u64) {
        dispatch!(self, selector => selector.put_back(slot, priority, place, age))
    }

    fn draw(&mut self) -> Option<Pick> {
        dispatch!(self, selector => selector.draw())
    }

    fn draw_many(&mut self, n: usize, out: &mut Vec<Pick>) {
        dispatch!(self, selector => selector.draw_many(n, out))
    }

    fn len(&self) -> usize {
        dispatch!(self, selector => selector.len())
    }

    fn clear(&mut self) {
        dispatch!(self, selector => selector.clear())
    }

    fn masses(&mut self) -> (f64, f64) {
        dispatch!(self, selector => selector.masses())
    }

    fn weighed(&mut self) -> Mass {
        dispatch!(self, selector => selector.weighed())
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        dispatch!(self, selector => selector.smallest_probability())
    }

    fn max_slot(&mut self) -> Option<u32> {
        dispatch!(self, selector => selector.max_slot())
    }
}
