//! Weights of slots, their sum, and the search for the slot at a point of the sum.
//!
//! ```text
//! levels[1]           [ sums and extremes of levels[0] ]                        one branch
//! levels[0]  [ those of leaves 0..8 ] [ those of leaves 8..16 ] ...             four cache lines each
//! leaves     [w0 .. w7] [w8 .. w15] ...                                         one cache line each
//! ```
//!
//! A node has eight lanes and is one cache line: a million weights are seven lines deep. Totals are always computed
//! again from the lanes below and never adjusted by a difference, so that rounding errors do not accumulate. Branches
//! also hold the running sums of their totals: a descent compares a line with a point, all lanes at once and without a
//! conditional jump.

mod branch;
mod marks;
mod node;

use crate::prefetch::{prefetch_at, prefetch_whole_at};
use crate::wide::{Lanes, PlainLanes, WideLoop, wide};
use branch::{BARE, Branch, NOTHING, WeightSummary};
use marks::Marks;
use node::{EMPTY, LANES, SumNode};

/// Descents that run together: enough to hide the latency of memory, few enough to stay in L1.
const BLOCK: usize = 256;
/// Leaves whose sums may be out of date. Bringing this many up to date takes some ten microseconds.
const TOUCHED_AT_MOST: usize = 1024;

/// The sum over slots of non-negative finite weights, with the smallest positive and the largest of them.
///
/// Grows with the largest slot; a slot that was never set weighs 0. The weights' sum must be finite.
#[derive(Clone, Debug)]
pub struct SumTree {
    leaves: Vec<SumNode>,
    /// The levels from above the leaves up to a single branch; empty while one leaf is enough. Lane `i` of branch `n`
    /// is about node `8 n + i` of the level below.
    levels: Vec<Vec<Branch>>,
    root: WeightSummary,
    /// The leaves changed since the last settling, and scratch space for the levels above them.
    touched: Marks,
    marks: [Marks; 2],
}

impl Default for SumTree {
    fn default() -> Self {
        Self::new()
    }
}

impl SumTree {
    /// A tree without weights.
    pub fn new() -> Self {
        Self {
            leaves: Vec::new(),
            levels: Vec::new(),
            root: NOTHING,
            touched: Marks::new(),
            marks: [Marks::new(), Marks::new()],
        }
    }

    /// The sum of all weights; exactly 0 if all are 0.
    pub fn total(&mut self) -> f64 {
        self.settle();
        self.root.total
    }

    /// The weight of a slot.
    pub fn get(&self, slot: u32) -> f64 {
        self.leaves.get(slot as usize / LANES).map_or(0.0, |leaf| leaf.0[slot as usize % LANES])
    }

    /// The smallest positive weight.
    pub fn smallest(&mut self) -> Option<f64> {
        self.settle();
        (self.root.smallest < f64::INFINITY).then_some(self.root.smallest)
    }

    /// The largest weight; `None` if none is positive.
    pub fn largest(&mut self) -> Option<f64> {
        self.settle();
        (self.root.largest > 0.0).then_some(self.root.largest)
    }

    /// A slot with the smallest positive weight. O(log n).
    pub fn smallest_slot(&mut self) -> Option<u32> {
        let smallest = self.smallest()?;
        Some(self.slot_of(smallest, |branch| &branch.smallest))
    }

    /// A slot with the largest weight; `None` if none is positive. O(log n).
    pub fn largest_slot(&mut self) -> Option<u32> {
        let largest = self.largest()?;
        Some(self.slot_of(largest, |branch| &branch.largest))
    }

    /// The first slot that weighs `wanted`, which is one of the root's extremes and therefore present.
    fn slot_of(&self, wanted: f64, side: impl Fn(&Branch) -> &SumNode) -> u32 {
        let lane_of =
            |node: &SumNode| node.0.iter().position(|lane| *lane == wanted).expect("an extreme is some slot's");
        let node = self.levels.iter().rev().fold(0, |node, level| node * LANES + lane_of(side(&level[node])));
        (node * LANES + lane_of(&self.leaves[node])) as u32
    }

    /// Makes room for the slot; totals do not change.
    fn grow_to(&mut self, slot: u32) {
        let mut nodes = slot as usize / LANES + 1;
        if nodes <= self.leaves.len() {
            return;
        }
        self.leaves.resize(nodes, EMPTY);
        let mut level = 0;
        while nodes > 1 {
            nodes = nodes.div_ceil(LANES);
            if level == self.levels.len() {
                // The former whole tree becomes the first lane of a new level.
                let mut top = BARE;
                top.set(0, self.root);
                top.refresh();
                self.levels.push(vec![top]);
            }
            self.levels[level].resize(nodes, BARE);
            level += 1;
        }
    }

    /// Sets the weight of a slot; returns the old weight.
    ///
    /// The levels above are computed when they are next read, or when enough changes have accumulated: consecutive
    /// items share most of them.
    pub fn set(&mut self, slot: u32, weight: f64) -> f64 {
        debug_assert!(weight >= 0.0 && weight.is_finite(), "slot {slot} cannot weigh {weight}");
        self.grow_to(slot);
        let node = slot as usize / LANES;
        self.touched.reserve(self.leaves.len(), 1);
        self.touched.mark(node);
        let old = std::mem::replace(&mut self.leaves[node].0[slot as usize % LANES], weight);
        if self.touched.nodes().len() >= TOUCHED_AT_MOST {
            self.settle();
        }
        old
    }

    /// Computes the levels above the leaves that changed since the last call.
    #[inline]
    fn settle(&mut self) {
        if !self.touched.nodes().is_empty() {
            wide(LevelUpdate(self));
            self.touched.clear();
        }
    }

    /// Sets the weights of many slots, in order, and calls `changed(slot, old, new)` for each.
    ///
    /// The levels above are deferred as in [`SumTree::set`]; every node is computed once, however many of the slots are
    /// under it. The slots must have been set before.
    pub fn set_many(
        &mut self,
        updates: impl ExactSizeIterator<Item = (u32, f64)>,
        mut changed: impl FnMut(u32, f64, f64),
    ) {
        self.touched.reserve(self.leaves.len(), updates.len());
        for (slot, weight) in updates {
            debug_assert!(weight >= 0.0 && weight.is_finite(), "slot {slot} cannot weigh {weight}");
            let node = slot as usize / LANES;
            let old = std::mem::replace(&mut self.leaves[node].0[slot as usize % LANES], weight);
            if let Some(level) = self.levels.first() {
                prefetch_whole_at(level, node / LANES);
            }
            self.touched.mark(node);
            changed(slot, old, weight);
        }
        if self.touched.nodes().len() >= TOUCHED_AT_MOST {
            self.settle();
        }
    }

    /// Prefetches the cache line of a slot, for [`set_many`](Self::set_many).
    #[inline(always)]
    pub fn prefetch(&self, slot: u32) {
        prefetch_at(&self.leaves, slot as usize / LANES);
    }

    /// The slot at a point in `[0, total)` when the weights lie end to end, and its positive weight. O(log n).
    ///
    /// The caller must not call this with a total of 0.
    pub fn find(&mut self, point: f64) -> (u32, f64) {
        self.settle();
        let mut node = 0;
        let mut rest = point;
        for level in self.levels.iter().rev() {
            let (lane, left) = level[node].prefixes.descend(rest, PlainLanes);
            (node, rest) = (node * LANES + lane, left);
        }
        self.find_in_leaf(node, rest)
    }

    #[inline(always)]
    fn find_in_leaf(&self, node: usize, point: f64) -> (u32, f64) {
        let leaf = &self.leaves[node];
        let lane = leaf.lane_at(point, PlainLanes);
        ((node * LANES + lane) as u32, leaf.0[lane])
    }

    /// Finds every point as [`find`](Self::find) does, and calls `found(slot, weight)` in their order.
    ///
    /// Overwrites the points. All points descend one level before any continues, so that their cache misses overlap.
    pub fn find_many(&mut self, points: &mut [f64], mut found: impl FnMut(u32, f64)) {
        self.settle();
        let mut nodes = [0_u32; BLOCK];
        for points in points.chunks_mut(BLOCK) {
            let nodes = &mut nodes[..points.len()];
            wide(Descents { tree: self, nodes, points });
            for (slot, weight) in nodes.iter().zip(points.iter()) {
                found(*slot, *weight);
            }
        }
    }
}

/// Computes the levels above the touched leaves of a tree.
struct LevelUpdate<'a>(&'a mut SumTree);

impl WideLoop for LevelUpdate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl Lanes) {
        let SumTree { leaves, levels, root, touched, marks: [marks, above] } = self.0;
        let Some((first, rest)) = levels.split_first_mut() else {
            *root = leaves.first().map_or(NOTHING, WeightSummary::of_leaf);
            return;
        };
        marks.begin(first.len(), touched.nodes().len());
        for node in touched.nodes().iter().map(|node| *node as usize) {
            first[node / LANES].set(node % LANES, WeightSummary::of_leaf(&leaves[node]));
            marks.mark(node / LANES);
        }
        let mut here = first;
        for next in rest {
            above.begin(next.len(), marks.nodes().len());
            for node in marks.nodes().iter().map(|node| *node as usize) {
                next[node / LANES].set(node % LANES, here[node].refresh());
                above.mark(node / LANES);
            }
            std::mem::swap(marks, above);
            here = next;
        }
        *root = here[0].refresh();
    }
}

/// A block of descents: the node that each point has reached, and the rest of the point within it.
///
/// At the end the slots are in `nodes`, and their weights in `points`.
struct Descents<'a> {
    tree: &'a SumTree,
    nodes: &'a mut [u32],
    points: &'a mut [f64],
}

impl WideLoop for Descents<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, lanes: impl Lanes) {
        let Self { tree: SumTree { levels, leaves, .. }, nodes, points } = self;
        nodes.fill(0);
        let mut above = levels.iter().rev();
        let mut here = above.next();
        while let Some(level) = here {
            here = above.next();
            for (node, point) in nodes.iter_mut().zip(points.iter_mut()) {
                let (lane, rest) = level[*node as usize].prefixes.descend(*point, lanes);
                *node = *node * LANES as u32 + lane as u32;
                *point = rest;
                match here {
                    Some(below) => prefetch_at(below, *node as usize),
                    None => prefetch_at(leaves, *node as usize),
                }
            }
        }
        for (node, point) in nodes.iter_mut().zip(points) {
            let leaf = &leaves[*node as usize];
            let lane = leaf.lane_at(*point, lanes);
            (*node, *point) = (*node * LANES as u32 + lane as u32, leaf.0[lane]);
        }
    }
}

#[cfg(test)]
mod tests;
