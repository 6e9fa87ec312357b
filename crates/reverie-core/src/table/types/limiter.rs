//! The limits of a table and its counters. `policy/limiter.rs` decides what the limits allow.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The counts of a table since its start or reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Items that were inserted; an assignment to a present item does not count.
    pub inserts: u64,
    /// Draws made; and, where inserts wait for one draw of each item, the items that were deleted or evicted before it.
    pub samples: u64,
    /// Items that left, for any reason.
    pub deletes: u64,
}

impl Counters {
    /// The number of present items.
    pub fn size(&self) -> u64 {
        self.inserts - self.deletes
    }
}

/// The limits of one table. Immutable; two limiters are equal if all four numbers are.
///
/// The arithmetic is in f64, and exact as long as the counts times `samples_per_insert` are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LimiterNumbers", into = "LimiterNumbers")]
pub struct Limiter {
    pub(in crate::table) samples_per_insert: f64,
    pub(in crate::table) min_size_to_sample: u64,
    pub(in crate::table) min_diff: f64,
    pub(in crate::table) max_diff: f64,
}

/// The arguments of [`Limiter::new`], as a file has them.
type LimiterNumbers = (f64, u64, f64, f64);

impl From<Limiter> for LimiterNumbers {
    fn from(limiter: Limiter) -> Self {
        (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff)
    }
}

impl TryFrom<LimiterNumbers> for Limiter {
    type Error = Error;

    fn try_from((samples_per_insert, min_size_to_sample, min_diff, max_diff): LimiterNumbers) -> Result<Self> {
        Self::new(samples_per_insert, min_size_to_sample, min_diff, max_diff)
    }
}

fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::InvalidArgument(reason))
}

impl Limiter {
    /// Any limiter. Infinite differences limit nothing.
    ///
    /// Refuses a `samples_per_insert` that is not positive and finite, a `min_size_to_sample` of 0, differences that
    /// are NaN, and `min_diff > max_diff`.
    pub fn new(samples_per_insert: f64, min_size_to_sample: u64, min_diff: f64, max_diff: f64) -> Result<Self> {
        if !(samples_per_insert > 0.0 && samples_per_insert.is_finite()) {
            return refuse(format!("samples_per_insert must be a positive finite number, got {samples_per_insert}"));
        }
        if min_size_to_sample < 1 {
            return refuse(format!("min_size_to_sample must be at least 1, got {min_size_to_sample}"));
        }
        for (name, diff) in [("min_diff", min_diff), ("max_diff", max_diff)] {
            if diff.is_nan() {
                return refuse(format!("{name} must be a number, got {diff}"));
            }
        }
        if min_diff > max_diff {
            return refuse(format!("min_diff must not be above max_diff, got {min_diff} and {max_diff}"));
        }
        Ok(Self { samples_per_insert, min_size_to_sample, min_diff, max_diff })
    }

    /// Samples wait until the table holds `min_size_to_sample` items (at least 1); nothing else waits.
    pub fn min_size(min_size_to_sample: u64) -> Result<Self> {
        Self::new(1.0, min_size_to_sample, f64::MIN, f64::MAX)
    }

    /// Samples wait for the first item; inserts wait for a [ration](crate::table::Table::grant).
    ///
    /// The client that draws from this and other shards grants rations. Without a ration, the limiter admits no insert.
    pub fn rationed() -> Self {
        let nothing = f64::NEG_INFINITY;
        Self { samples_per_insert: 1.0, min_size_to_sample: 1, min_diff: nothing, max_diff: nothing }
    }

    /// True if inserts wait for a ration; no ratio of samples to inserts admits one.
    #[inline]
    pub fn is_rationed(&self) -> bool {
        self.max_diff == f64::NEG_INFINITY
    }

    /// The ratio of samples to inserts.
    pub fn samples_per_insert(&self) -> f64 {
        self.samples_per_insert
    }

    /// Nothing is sampled while the table holds fewer items.
    pub fn min_size_to_sample(&self) -> u64 {
        self.min_size_to_sample
    }

    /// The lower limit of the difference; a sample that would go below it waits.
    pub fn min_diff(&self) -> f64 {
        self.min_diff
    }

    /// The upper limit of the difference; an insert that would go above it waits.
    pub fn max_diff(&self) -> f64 {
        self.max_diff
    }
}
