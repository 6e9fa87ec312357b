//! Nodes above the leaves: sums and extremes of eight nodes, on consecutive cache lines.

use super::node::{EMPTY, LANES, Node};

/// The sum and the extremes of some weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// Exactly 0 if no weight is positive.
    pub(super) total: f64,
    /// Infinite if no weight is positive.
    pub(super) smallest: f64,
    /// 0 if no weight is positive.
    pub(super) largest: f64,
}

/// The summary of no weights.
pub(super) const NOTHING: Summary = Summary { total: 0.0, smallest: f64::INFINITY, largest: 0.0 };

impl Summary {
    #[inline(always)]
    pub(super) fn of_leaf(leaf: &Node) -> Self {
        let positive = Node(leaf.0.map(|weight| if weight > 0.0 { weight } else { f64::INFINITY }));
        Self { total: leaf.total(), smallest: positive.smallest(), largest: leaf.largest() }
    }
}

/// The summaries of eight nodes of the level below, and the running sums of their totals.
///
/// A draw reads the first line, and an update all four. They lie together because an update mostly follows a draw of
/// the same item: the address of the page is then known to the processor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Branch {
    pub(super) prefixes: Node,
    pub(super) totals: Node,
    pub(super) smallest: Node,
    pub(super) largest: Node,
}

/// A branch without weights.
pub(super) const BARE: Branch =
    Branch { prefixes: EMPTY, totals: EMPTY, smallest: Node([f64::INFINITY; LANES]), largest: EMPTY };

impl Branch {
    /// Stores the summary of a node below. The running sums are those of before until [`Branch::refresh`].
    #[inline(always)]
    pub(super) fn set(&mut self, lane: usize, below: Summary) {
        self.totals.0[lane] = below.total;
        self.smallest.0[lane] = below.smallest;
        self.largest.0[lane] = below.largest;
    }

    /// Computes the running sums; returns the summary of all lanes.
    #[inline(always)]
    pub(super) fn refresh(&mut self) -> Summary {
        self.prefixes = self.totals.prefixes();
        Summary { total: self.totals.total(), smallest: self.smallest.smallest(), largest: self.largest.largest() }
    }
}
