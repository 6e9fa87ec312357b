//! Eight lanes on one cache line: their sum, their extremes, and the lane at a point.

use crate::wide::Lanes;

/// Lanes of a node.
pub(super) const LANES: usize = 8;

/// Eight numbers on one cache line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
pub(super) struct SumNode(pub(super) [f64; LANES]);

pub(super) const EMPTY: SumNode = SumNode([0.0; LANES]);

impl SumNode {
    /// The sum of the lanes, positive where any lane is.
    #[inline(always)]
    pub(super) fn total(&self) -> f64 {
        self.fold(|a, b| a + b)
    }

    /// The largest lane. No lane may be NaN.
    #[inline(always)]
    pub(super) fn largest(&self) -> f64 {
        self.fold(|a, b| if a > b { a } else { b })
    }

    /// The smallest lane. No lane may be NaN.
    #[inline(always)]
    pub(super) fn smallest(&self) -> f64 {
        self.fold(|a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn fold(&self, f: impl Fn(f64, f64) -> f64) -> f64 {
        let a = &self.0;
        f(f(f(a[0], a[4]), f(a[2], a[6])), f(f(a[1], a[5]), f(a[3], a[7])))
    }

    /// The running sums of the lanes.
    #[inline(always)]
    pub(super) fn prefixes(&self) -> Self {
        let mut sum = 0.0;
        Self(self.0.map(|lane| {
            sum += lane;
            sum
        }))
    }

    /// The lane at `point` of a node of running sums, and the rest of the point within that lane.
    ///
    /// The lane's own total is positive: rounding can put a point at or past the end, which is taken as the largest
    /// number before the end, and a lane is only found where the running sum grows.
    #[inline(always)]
    pub(super) fn descend(&self, point: f64, lanes: impl Lanes) -> (usize, f64) {
        let end = self.0[LANES - 1];
        debug_assert!(end > 0.0, "a descent into a node without weight");
        // The sums up to the point are those of the lanes before.
        let point = before_end(point, end);
        let (lane, before) = lanes.last_at_most(&self.0, point);
        (lane % LANES, point - before)
    }

    /// The lane at `point` of a node of weights that lie end to end.
    ///
    /// The lane's weight is positive, as in [`SumNode::descend`].
    #[inline(always)]
    pub(super) fn lane_at(&self, point: f64, lanes: impl Lanes) -> usize {
        let [a, b, c, d, e, f, g, h] = self.0;
        let b = a + b;
        let c = b + c;
        let d = c + d;
        let e = d + e;
        let f = e + f;
        let g = f + g;
        let h = g + h;
        lanes.at_most([a, b, c, d, e, f, g, h], before_end(point, h)) % LANES
    }
}

#[inline(always)]
fn before_end(point: f64, end: f64) -> f64 {
    if point < end { point } else { f64::from_bits(end.to_bits().wrapping_sub(1)) }
}
