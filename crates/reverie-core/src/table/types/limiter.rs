//! The limits of a table and its counters. `policy/limiter.rs` decides what the limits allow.

use crate::error::{Counted, Error, Result};
use serde::{Deserialize, Serialize};

/// What happened to a table since its start or reset.
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

/// The allowed deviation from a ratio, see [`Limiter::sample_to_insert_ratio`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorBuffer {
    /// This far to either side of `samples_per_insert * min_size_to_sample`.
    Around(f64),
    /// `min_diff` and `max_diff` themselves.
    Range(f64, f64),
}

/// The limits of one table. Immutable; two limiters are equal if all four numbers are.
///
/// The arithmetic is in f64, and exact as long as the counts times `samples_per_insert` are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Numbers", into = "Numbers")]
pub struct Limiter {
    pub(in crate::table) samples_per_insert: f64,
    pub(in crate::table) min_size_to_sample: u64,
    pub(in crate::table) min_diff: f64,
    pub(in crate::table) max_diff: f64,
}

/// The arguments of [`Limiter::new`], as a file has them.
type Numbers = (f64, u64, f64, f64);

impl From<Limiter> for Numbers {
    fn from(limiter: Limiter) -> Self {
        (limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff)
    }
}

impl TryFrom<Numbers> for Limiter {
    type Error = Error;

    fn try_from((samples_per_insert, min_size_to_sample, min_diff, max_diff): Numbers) -> Result<Self> {
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

    /// Keeps `samples / inserts` near `samples_per_insert` once the table holds `min_size_to_sample` items.
    ///
    /// In addition to what [`new`](Self::new) refuses, refuses a buffer narrower than twice the larger of 1 and
    /// `samples_per_insert` (neither side could take a whole step), and a buffer whose lower end is above
    /// `samples_per_insert * min_size_to_sample` (sampling could never begin).
    pub fn sample_to_insert_ratio(
        samples_per_insert: f64,
        min_size_to_sample: u64,
        buffer: ErrorBuffer,
    ) -> Result<Self> {
        let start = samples_per_insert * min_size_to_sample as f64;
        let (min_diff, max_diff) = match buffer {
            ErrorBuffer::Around(error) if error.is_nan() => {
                return refuse(format!("error_buffer must be a number, got {error}"));
            }
            ErrorBuffer::Around(error) if error < 0.0 => {
                return refuse(format!("error_buffer must not be negative, got {error}"));
            }
            ErrorBuffer::Around(error) => (start - error, start + error),
            ErrorBuffer::Range(min_diff, max_diff) => (min_diff, max_diff),
        };
        let limiter = Self::new(samples_per_insert, min_size_to_sample, min_diff, max_diff)?;
        let least = 2.0 * samples_per_insert.max(1.0);
        if max_diff - min_diff < least {
            return refuse(format!(
                "error_buffer is too small: it allows differences from {min_diff} to {max_diff}, which must be at \
                 least 2 * max(1, samples_per_insert) = {least} apart, or inserts and samples block each other"
            ));
        }
        if min_diff > start {
            return refuse(format!(
                "error_buffer starts at {min_diff}, above samples_per_insert * min_size_to_sample = {start}: a table \
                 with min_size_to_sample = {} could not be sampled; lower the start of error_buffer or raise \
                 min_size_to_sample",
                Counted(min_size_to_sample, "item")
            ));
        }
        Ok(limiter)
    }

    /// Inserts wait while `size` items (at least 1) are not sampled yet; every insert allows one sample.
    ///
    /// A table that removes sampled items and samples the oldest item first is then a queue.
    pub fn queue(size: u64) -> Result<Self> {
        if size < 1 {
            return refuse(format!("the size of a queue or stack must be at least 1, got {size}"));
        }
        Self::new(1.0, 1, 0.0, size as f64)
    }

    /// The same limits as [`queue`](Self::queue), for a table that samples the newest item first.
    pub fn stack(size: u64) -> Result<Self> {
        Self::queue(size)
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
