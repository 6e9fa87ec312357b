//! The smallest positive and the largest weight of a tree, stored as separate trees.

use super::marks::Marks;
use super::node::{EMPTY, LANES, Node};
use crate::prefetch::prefetch_at;

const NONE: Node = Node([f64::INFINITY; LANES]);

/// The extremes below a lane: without a positive weight, `smallest` is infinite and `largest` 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    smallest: f64,
    largest: f64,
}

const NOTHING: Range = Range { smallest: f64::INFINITY, largest: 0.0 };

impl Range {
    #[inline(always)]
    fn of_leaf(leaf: &Node) -> Self {
        let positive = Node(leaf.0.map(|weight| if weight > 0.0 { weight } else { f64::INFINITY }));
        Self { smallest: positive.smallest(), largest: leaf.largest() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    smallest: Node,
    largest: Node,
}

impl Pair {
    #[inline(always)]
    fn range(&self) -> Range {
        Range { smallest: self.smallest.smallest(), largest: self.largest.largest() }
    }

    /// Stores the range of a node below `level`; true if it changed.
    #[inline(always)]
    fn set(level: &mut [Self], below: usize, range: Range) -> bool {
        let pair = &mut level[below / LANES];
        let (smallest, largest) = (&mut pair.smallest.0[below % LANES], &mut pair.largest.0[below % LANES]);
        // Not `||`: whether an extreme changed is too random for a branch.
        let is_new = (*smallest != range.smallest) | (*largest != range.largest);
        (*smallest, *largest) = (range.smallest, range.largest);
        is_new
    }
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

    /// Extends the level to `nodes`; a new level starts with the former whole tree in its first lane.
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

    /// Takes in the present weights of many leaves, each given once, level by level.
    ///
    /// Continues upwards only as far as an extreme changes, which is rarely far. `marks` is scratch space.
    pub(super) fn refresh_many(&mut self, leaves: &[Node], touched: &[u32], marks: &mut [Marks; 2]) {
        let Some((first, rest)) = self.levels.split_first_mut() else {
            if let Some(leaf) = touched.first() {
                self.root = Range::of_leaf(&leaves[*leaf as usize]);
            }
            return;
        };
        let [changed, above] = marks;
        changed.begin(first.len(), touched.len());
        for &node in touched {
            let is_new = Pair::set(first, node as usize, Range::of_leaf(&leaves[node as usize]));
            changed.mark_if(node as usize / LANES, is_new);
        }
        let mut here = first;
        for next in rest {
            above.begin(next.len(), changed.nodes().len());
            for &node in changed.nodes() {
                let is_new = Pair::set(next, node as usize, here[node as usize].range());
                above.mark_if(node as usize / LANES, is_new);
            }
            std::mem::swap(changed, above);
            here = next;
        }
        if !changed.nodes().is_empty() {
            self.root = here[0].range();
        }
    }

    pub(super) fn smallest_slot(&self, leaves: &[Node]) -> Option<u32> {
        let wanted = self.smallest()?;
        Some(self.descend(leaves, |pair| &pair.smallest, wanted))
    }

    pub(super) fn largest_slot(&self, leaves: &[Node]) -> Option<u32> {
        let wanted = self.largest()?;
        Some(self.descend(leaves, |pair| &pair.largest, wanted))
    }

    /// The first slot that weighs `wanted`, which is one of the root's extremes and therefore present.
    fn descend(&self, leaves: &[Node], side: impl Fn(&Pair) -> &Node, wanted: f64) -> u32 {
        let lane_of = |node: &Node| node.0.iter().position(|lane| *lane == wanted).expect("an extreme is some slot's");
        let node = self.levels.iter().rev().fold(0, |node, level| node * LANES + lane_of(side(&level[node])));
        (node * LANES + lane_of(&leaves[node])) as u32
    }
}
