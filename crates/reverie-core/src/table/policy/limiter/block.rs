//! Why somebody waits, as numbers, and in words.

use crate::error::Counted;
use std::fmt::{Display, Formatter, Result};

/// Why a sample has to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SampleBlock {
    /// The table holds too few items.
    BelowMinSize {
        /// Items it holds.
        size: u64,
        /// Items it needs.
        min_size_to_sample: u64,
        /// Single inserts that open one sample; `None` where inserts alone cannot.
        inserts_needed: Option<u64>,
    },
    /// One more sample would push the difference below its lower limit.
    RatioTooLow {
        /// Inserts so far.
        inserts: u64,
        /// Samples so far.
        samples: u64,
        /// The limiter's ratio.
        samples_per_insert: f64,
        /// `inserts * samples_per_insert - samples - 1`.
        diff: f64,
        /// What it may not fall below.
        min_diff: f64,
        /// Single inserts that open one sample; `None` where inserts alone cannot.
        inserts_needed: Option<u64>,
    },
}

/// Why an insert has to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InsertBlock {
    /// One more insert would push the difference above its upper limit.
    RatioTooHigh {
        /// Inserts so far.
        inserts: u64,
        /// Samples so far.
        samples: u64,
        /// The limiter's ratio.
        samples_per_insert: f64,
        /// `(inserts + 1) * samples_per_insert - samples`.
        diff: f64,
        /// What it may not pass.
        max_diff: f64,
        /// Single samples that open one insert; `None` where samples alone cannot.
        samples_needed: Option<u64>,
    },
    /// A shard has taken in what it was admitted.
    RationUsedUp {
        /// Inserts so far.
        inserts: u64,
        /// Inserts that were admitted so far.
        ration: u64,
    },
}

/// "3 more inserts are needed", or that they would not help.
fn needed(f: &mut Formatter<'_>, count: Option<u64>, what: &str, other: &str) -> Result {
    match count {
        Some(1) => write!(f, "1 more {what} is needed: "),
        Some(count) => write!(f, "{count} more {what}s are needed: "),
        None => write!(f, "{what}s alone cannot help, they would wait for {other}s (or for new limits): "),
    }
}

impl Display for SampleBlock {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Self::BelowMinSize { size, min_size_to_sample, inserts_needed } => {
                needed(f, inserts_needed, "insert", "sample")?;
                write!(f, "{size} of {} (min_size_to_sample)", Counted(min_size_to_sample, "item"))?;
                if inserts_needed != Some(min_size_to_sample - size) {
                    f.write_str(", and the ratio of samples to inserts asks for more (min_diff)")?;
                }
                Ok(())
            }
            Self::RatioTooLow { inserts, samples, samples_per_insert, diff, min_diff, inserts_needed } => {
                needed(f, inserts_needed, "insert", "sample")?;
                write!(
                    f,
                    "{} * {samples_per_insert} (samples_per_insert) - {} - 1 is {diff}, below {min_diff} (min_diff)",
                    Counted(inserts, "insert"),
                    Counted(samples, "sample")
                )
            }
        }
    }
}

impl Display for InsertBlock {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Self::RatioTooHigh { inserts, samples, samples_per_insert, diff, max_diff, samples_needed } => {
                needed(f, samples_needed, "sample", "insert")?;
                write!(
                    f,
                    "({} + 1) * {samples_per_insert} (samples_per_insert) - {} is {diff}, above {max_diff} (max_diff)",
                    Counted(inserts, "insert"),
                    Counted(samples, "sample")
                )
            }
            Self::RationUsedUp { inserts, ration: 0 } => write!(
                f,
                "this table is a shard (rate_limiters.Rationed) and was admitted no insert yet, it has {inserts}: the \
                 ShardedClient with the rate_limiter has to reach it, and hands out more as it samples"
            ),
            Self::RationUsedUp { inserts, ration } => write!(
                f,
                "this table is a shard (rate_limiters.Rationed) and its ration is used up, {} of {ration} admitted: \
                 the ShardedClient with the rate_limiter hands out more as it samples",
                Counted(inserts, "insert")
            ),
        }
    }
}
