//! The item with the largest or the smallest priority.

use super::interface::{Pick, Selector, check_finite};
use crate::error::Result;

/// Children of a node. Four children halve the depth of two, and lie on two cache lines.
const FAN_OUT: usize = 4;
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct HeapNode {
    /// The priority, negated if the largest comes first.
    rank: f64,
    /// Counts insertions and updates; among equal ranks, the smallest stamp comes first.
    stamp: u64,
    slot: u32,
}

impl HeapNode {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.rank < other.rank || (self.rank == other.rank && self.stamp < other.stamp)
    }
}

/// Picks the item with the largest or smallest priority, with probability 1.
///
/// Among equal priorities, the item inserted or updated longest ago comes first. An update to the same priority counts
/// too.
#[derive(Clone, Debug)]
pub struct Heap {
    /// 1 if the smallest priority comes first, -1 if the largest does.
    sign: f64,
    nodes: Vec<HeapNode>,
    /// The index in `nodes` of each slot.
    positions: Vec<u32>,
    next_stamp: u64,
}

impl Heap {
    /// A heap without items; the largest priority comes first.
    pub fn max() -> Self {
        Self { sign: -1.0, nodes: Vec::new(), positions: Vec::new(), next_stamp: 0 }
    }

    /// A heap without items; the smallest priority comes first.
    pub fn min() -> Self {
        Self { sign: 1.0, ..Self::max() }
    }

    fn stamped(&mut self, slot: u32, priority: f64) -> HeapNode {
        self.next_stamp += 1;
        HeapNode { rank: self.sign * priority, stamp: self.next_stamp, slot }
    }

    fn position(&self, slot: u32) -> usize {
        let position = self.positions.get(slot as usize).copied().unwrap_or(ABSENT);
        debug_assert!(position != ABSENT, "slot {slot} is not present");
        position as usize
    }

    fn put(&mut self, position: usize, node: HeapNode) {
        self.nodes[position] = node;
        self.positions[node.slot as usize] = position as u32;
    }

    fn add(&mut self, node: HeapNode) {
        let slot = node.slot as usize;
        if self.positions.len() <= slot {
            self.positions.resize(slot + 1, ABSENT);
        }
        debug_assert!(self.positions[slot] == ABSENT, "slot {slot} is present already");
        self.nodes.push(node);
        self.rise(self.nodes.len() - 1, node);
    }

    /// Puts `node` at `position` or above, and moves the nodes that it passes down.
    fn rise(&mut self, mut position: usize, node: HeapNode) {
        while position > 0 {
            let parent = (position - 1) / FAN_OUT;
            if !node.before(&self.nodes[parent]) {
                break;
            }
            self.put(position, self.nodes[parent]);
            position = parent;
        }
        self.put(position, node);
    }

    /// Puts `node` at `position` or below, and moves the nodes that it passes up.
    fn sink(&mut self, mut position: usize, node: HeapNode) {
        loop {
            let first = position * FAN_OUT + 1;
            let children = first..(first + FAN_OUT).min(self.nodes.len());
            let Some(best) = children.reduce(|a, b| if self.nodes[b].before(&self.nodes[a]) { b } else { a }) else {
                break;
            };
            if !self.nodes[best].before(&node) {
                break;
            }
            self.put(position, self.nodes[best]);
            position = best;
        }
        self.put(position, node);
    }

    /// Puts `node` in its place, starting at `position`, and overwrites the node there.
    fn settle(&mut self, position: usize, node: HeapNode) {
        if position > 0 && node.before(&self.nodes[(position - 1) / FAN_OUT]) {
            self.rise(position, node);
        } else {
            self.sink(position, node);
        }
    }
}

impl Selector for Heap {
    fn check(&self, priority: f64) -> Result<()> {
        check_finite(priority)
    }

    fn insert(&mut self, slot: u32, priority: f64) {
        let node = self.stamped(slot, priority);
        self.add(node);
    }

    fn take_out(&mut self, slot: u32) -> u64 {
        let stamp = self.nodes[self.position(slot)].stamp;
        self.remove(slot);
        stamp
    }

    fn put_back(&mut self, slot: u32, priority: f64, place: u64, _age: &dyn Fn(u32) -> u64) {
        self.add(HeapNode { rank: self.sign * priority, stamp: place, slot });
    }

    fn update(&mut self, slot: u32, priority: f64) {
        let position = self.position(slot);
        let node = self.stamped(slot, priority);
        self.settle(position, node);
    }

    fn remove(&mut self, slot: u32) {
        let position = self.position(slot);
        self.positions[slot as usize] = ABSENT;
        let last = self.nodes.pop().expect("a slot that is present has a node");
        if position < self.nodes.len() {
            self.settle(position, last);
        }
    }

    fn draw(&mut self) -> Option<Pick> {
        self.nodes.first().map(|node| Pick { slot: node.slot, probability: 1.0 })
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn clear(&mut self) {
        self.nodes = Vec::new();
        self.positions = Vec::new();
    }

    fn smallest_probability(&mut self) -> Option<f64> {
        self.nodes.first().map(|_| 1.0)
    }

    fn max_slot(&mut self) -> Option<u32> {
        self.nodes.first().filter(|_| self.sign < 0.0).map(|node| node.slot)
    }
}
