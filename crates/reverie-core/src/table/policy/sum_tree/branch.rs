//! Nodes above the leaves: sums and extremes of eight nodes, on consecutive cache lines.

use super::node::{EMPTY, LANES, SumNode};

/// The sum and the extremes of some weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WeightSummary {
    /// Exactly 0 if no weight is positive.
    pub(super) total: f64,
    /// Infinite if no weight is positive.
    pub(super) smallest: f64,
    /// 0 if no weight is positive.
    pub(super) largest: f64,
}

/// The summary of no weights.
pub(super) const NOTHING: WeightSummary = WeightSummary { total: 0.0, smallest: f64::INFINITY, largest: 0.0 };

impl WeightSummary {
    #[inline(always)]
    pub(super) fn of_leaf(leaf: &SumNode) -> Self {
        let positive = SumNode(leaf.0.map(|weight| if weight > 0.0 { weight } else { f64::INFINITY }));
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
    pub(super) prefixes: SumNode,
    pub(super) totals: SumNode,
    pub(super) smallest: SumNode,
    pub(super) largest: SumNode,
}

/// A branch without weights.
pub(super) const BARE: Branch =
    Branch { prefixes: EMPTY, totals: EMPTY, smallest: SumNode([f64::INFINITY; LANES]), largest: EMPTY };

impl Branch {
    /// Stores the summary of a node below. The running sums are those of before until [`Branch::refresh`].
    #[inline(always)]
    pub(super) fn set(&mut self, lane: usize, below: WeightSummary) {
        self.totals.0[lane] = below.total;
        self.smallest.0[lane] = below.smallest;
        self.largest.0[lane] = below.largest;
    }

    /// Computes the running sums; returns the summary of all lanes.
    #[inline(always)]
    pub(super) fn refresh(&mut self) -> WeightSummary {
        self.prefixes = self.totals.prefixes();
        WeightSummary {
            total: self.totals.total(),
            smallest: self.smallest.smallest(),
            largest: self.largest.largest(),
        }
    }
}
