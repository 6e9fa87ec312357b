//! The smallest positive and the largest weight of a tree, kept as trees of their own.

use super::{EMPTY, LANES, Node};
use crate::prefetch::prefetch_at;

const NONE: Node = Node([f64::INFINITY; LANES]);

/// The extremes of what is below a lane: `smallest` is infinite and `largest` 0 where nothing weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    smallest: f64,
    largest: f64,
}

const NOTHING: Range = Range { smallest: f64::INFINITY, largest: 0.0 };

impl Range {
    #[inline(always)]
    fn of_leaf(leaf: &Node) -> Self {
        let positive = leaf.0.map(|weight| if weight > 0.0 { weight } else { f64::INFINITY });
        Self { smallest: fold(&positive, min), largest: fold(&leaf.0, max) }
    }
}

// Neither sees a NaN; written so, each is one instruction.
#[inline(always)]
fn min(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[inline(always)]
fn max(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn fold(a: &[f64; LANES], f: impl Fn(f64, f64) -> f64) -> f64 {
    f(f(f(a[0], a[4]), f(a[2], a[6])), f(f(a[1], a[5]), f(a[3], a[7])))
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    smallest: Node,
    largest: Node,
}

const EMPTY_PAIR: Pair = Pair { smallest: NONE, largest: EMPTY };

/// Extremes of every inner level's lanes, level by level as in the tree.
#[derive(Clone, Debug)]
pub(super) struct Extremes {
    levels: Vec<Vec<Pair>>,
    root: Range,
}

impl Extremes {
    pub(super) fn new() -> Self {
        Self { levels: Vec::new(), root: NOTHING }
    }

    pub(super) fn smallest(&self) -> Option<f64> {
        (self.root != NOTHING).then_some(self.root.smallest)
    }

    pub(super) fn largest(&self) -> Option<f64> {
        (self.root != NOTHING).then_some(self.root.largest)
    }

    /// Makes the level `nodes` long; a new one starts with what was the whole tree in its first lane.
    pub(super) fn reach(&mut self, level: usize, nodes: usize) {
        if level == self.levels.len() {
            let mut first = EMPTY_PAIR;
            first.smallest.0[0] = self.root.smallest;
            first.largest.0[0] = self.root.largest;
            self.levels.push(vec![first]);
        }
        self.levels[level].resize(nodes, EMPTY_PAIR);
    }

    /// Asks for what [`refresh`](Self::refresh) of the leaf will read.
    #[inline(always)]
    pub(super) fn prefetch(&self, leaf: usize) {
        let level = &self.levels[0];
        prefetch_at(level, leaf / LANES);
        if let Some(pair) = level.get(leaf / LANES) {
            crate::prefetch::prefetch(&pair.largest);
        }
    }

    /// Takes in a leaf's present weights. Goes up only as far as an extreme changes, which is rarely far.
    #[inline]
    pub(super) fn refresh(&mut self, leaf: usize, weights: &Node) {
        let mut range = Range::of_leaf(weights);
        let mut node = leaf;
        for level in &mut self.levels {
            let pair = &mut level[node / LANES];
            let (smallest, largest) = (&mut pair.smallest.0[node % LANES], &mut pair.largest.0[node % LANES]);
            if *smallest == range.smallest && *largest == range.largest {
                return;
            }
            (*smallest, *largest) = (range.smallest, range.largest);
            range = Range { smallest: fold(&pair.smallest.0, min), largest: fold(&pair.largest.0, max) };
            node /= LANES;
        }
        self.root = range;
    }

    pub(super) fn smallest_slot(&self, leaves: &[Node]) -> Option<u32> {
        let wanted = self.smallest()?;
        Some(self.descend(leaves, |pair| &pair.smallest, wanted))
    }

    pub(super) fn largest_slot(&self, leaves: &[Node]) -> Option<u32> {
        let wanted = self.largest()?;
        Some(self.descend(leaves, |pair| &pair.largest, wanted))
    }

    /// The first slot that weighs `wanted`, which is one of the root's extremes and therefore there.
    fn descend(&self, leaves: &[Node], side: impl Fn(&Pair) -> &Node, wanted: f64) -> u32 {
        let lane_of = |node: &Node| node.0.iter().position(|lane| *lane == wanted).expect("an extreme is some slot's");
        let node = self.levels.iter().rev().fold(0, |node, level| node * LANES + lane_of(side(&level[node])));
        (node * LANES + lane_of(&leaves[node])) as u32
    }
}
