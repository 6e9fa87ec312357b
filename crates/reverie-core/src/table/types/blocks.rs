//! The reasons why the rate limiter holds requests back, as numbers. `waiting/reason.rs` puts them into words.

/// The reason why a sample has to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SampleBlock {
    /// The table holds too few items.
    BelowMinSize {
        /// Items it holds.
        size: u64,
        /// Items it needs.
        min_size_to_sample: u64,
        /// Single inserts that unblock one sample; `None` if inserts alone cannot.
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
        /// The lower limit of the difference.
        min_diff: f64,
        /// Single inserts that unblock one sample; `None` if inserts alone cannot.
        inserts_needed: Option<u64>,
    },
}

/// The reason why an insert has to wait.
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
        /// The upper limit of the difference.
        max_diff: f64,
        /// Single samples that unblock one insert; `None` if samples alone cannot.
        samples_needed: Option<u64>,
    },
    /// A shard has used up the inserts that it was granted.
    RationUsedUp {
        /// Inserts so far.
        inserts: u64,
        /// Inserts that were granted so far.
        ration: u64,
    },
}
