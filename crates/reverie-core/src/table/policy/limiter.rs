//! **Rate limiter**: which requests wait, as pure functions of three counters.
//!
//! The limiter computes `diff = inserts * samples_per_insert - samples`: it grows with every insert and falls with
//! every sample. A sample waits while it would push the difference below `min_diff`, an insert while it would push it
//! above `max_diff`. Nothing is sampled from a table with fewer than `min_size_to_sample` items, and until the table
//! has that many, inserts are always admitted.

use crate::error::CountedNoun;

pub use crate::table::types::blocks::{InsertBlock, SampleBlock};
pub use crate::table::types::limiter::{Counters, Limiter};

/// No table reaches a count above this, and larger counts are no longer exact as an f64.
const MANY: f64 = (1_u64 << 53) as f64;
/// [`Limiter::warning`] simulates this many steps to find out whether a table gets stuck.
const WARNING_STEPS: usize = 4096;

impl Limiter {
    /// `inserts * samples_per_insert - samples` after this many more of each.
    fn diff(&self, counters: &Counters, inserts: u64, samples: u64) -> f64 {
        let (inserts, samples) = (counters.inserts.saturating_add(inserts), counters.samples.saturating_add(samples));
        inserts as f64 * self.samples_per_insert - samples as f64
    }

    /// True if `n` samples are allowed now.
    ///
    /// The condition: the table is large enough, and `inserts * samples_per_insert - samples - n >= min_diff`.
    pub fn can_sample(&self, counters: &Counters, n: u64) -> bool {
        counters.size() >= self.min_size_to_sample && self.diff(counters, 0, n) >= self.min_diff
    }

    /// True if `n` inserts are allowed now.
    ///
    /// The condition: `size + n <= min_size_to_sample`, or `(inserts + n) * samples_per_insert - samples <= max_diff`.
    pub fn can_insert(&self, counters: &Counters, n: u64) -> bool {
        counters.size().saturating_add(n) <= self.min_size_to_sample || self.diff(counters, n, 0) <= self.max_diff
    }

    /// The number of single inserts, none of them blocked, that unblock one sample; 0 if it is not blocked.
    ///
    /// `None` if inserts alone never do. Assumes that the table has room for `min_size_to_sample` items.
    pub fn inserts_until_sample(&self, counters: &Counters) -> Option<u64> {
        let for_size = self.min_size_to_sample.saturating_sub(counters.size());
        let wanted = (self.min_diff + (counters.samples + 1) as f64) / self.samples_per_insert;
        let for_ratio = first(wanted - counters.inserts as f64, |n| self.diff(counters, n, 1) >= self.min_diff)?;
        let needed = for_size.max(for_ratio);
        // A condition that blocks one insert also blocks all later ones: it is enough to check the last.
        (needed == 0 || self.can_insert(counters, needed)).then_some(needed)
    }

    /// The number of single samples, none of them blocked, that unblock one insert; 0 if it is not blocked.
    ///
    /// `None` if samples alone never do. Assumes that the samples remove no items.
    pub fn samples_until_insert(&self, counters: &Counters) -> Option<u64> {
        if self.can_insert(counters, 1) {
            return Some(0);
        }
        let needed = first(self.diff(counters, 1, 0) - self.max_diff, |n| self.diff(counters, 1, n) <= self.max_diff)?;
        self.can_sample(counters, needed).then_some(needed)
    }

    /// The total number of inserts after which the next must wait, without another sample or delete.
    ///
    /// Smaller than the present number if some inserts were made under other limits. `None` for no bound.
    pub fn most_inserts(&self, counters: &Counters) -> Option<u64> {
        let for_size = counters.deletes.saturating_add(self.min_size_to_sample);
        let fits = |total: u64| total as f64 * self.samples_per_insert - counters.samples as f64 <= self.max_diff;
        let estimate = ((self.max_diff + counters.samples as f64) / self.samples_per_insert).floor();
        if estimate > MANY {
            return None;
        }
        let for_ratio = first(estimate, |total| !fits(total))?.saturating_sub(1);
        Some(for_size.max(for_ratio))
    }

    /// The reason why one sample has to wait; `None` if it need not.
    pub fn blocked_sample(&self, counters: &Counters) -> Option<SampleBlock> {
        if self.can_sample(counters, 1) {
            return None;
        }
        let inserts_needed = self.inserts_until_sample(counters);
        let (size, min_size_to_sample) = (counters.size(), self.min_size_to_sample);
        if size < min_size_to_sample {
            return Some(SampleBlock::BelowMinSize { size, min_size_to_sample, inserts_needed });
        }
        Some(SampleBlock::RatioTooLow {
            inserts: counters.inserts,
            samples: counters.samples,
            samples_per_insert: self.samples_per_insert,
            diff: self.diff(counters, 0, 1),
            min_diff: self.min_diff,
            inserts_needed,
        })
    }

    /// The reason why one insert has to wait; `None` if it need not.
    pub fn blocked_insert(&self, counters: &Counters) -> Option<InsertBlock> {
        if self.can_insert(counters, 1) {
            return None;
        }
        Some(InsertBlock::RatioTooHigh {
            inserts: counters.inserts,
            samples: counters.samples,
            samples_per_insert: self.samples_per_insert,
            diff: self.diff(counters, 1, 0),
            max_diff: self.max_diff,
            samples_needed: self.samples_until_insert(counters),
        })
    }

    /// The reason why a table of `max_size` items with this limiter could never be sampled; `None` if it could.
    pub fn impossible(&self, max_size: u64) -> Option<String> {
        let Self { samples_per_insert, min_size_to_sample, min_diff, max_diff } = self;
        if *min_size_to_sample > max_size {
            return Some(format!(
                "min_size_to_sample is {min_size_to_sample}, but the table holds at most max_size = {max_size} items \
                 and could never be sampled; lower min_size_to_sample or raise max_size"
            ));
        }
        if self.inserts_until_sample(&Counters::default()).is_some() {
            return None;
        }
        Some(format!(
            "no sample could ever be made: inserts stop at min_size_to_sample = {min_size_to_sample} items or where \
             inserts * samples_per_insert = inserts * {samples_per_insert} would pass max_diff = {max_diff}, before \
             min_diff = {min_diff} lets the first sample through; lower min_diff or raise max_diff"
        ))
    }

    /// A warning about limits that are valid but rarely intended; `None` if there is none.
    ///
    /// These are limits that stop inserts at the minimum size, and limits so narrow that inserts and samples block each
    /// other while no item leaves.
    pub fn warning(&self) -> Option<String> {
        let start = self.samples_per_insert * self.min_size_to_sample as f64;
        if self.max_diff < start {
            return Some(format!(
                "max_diff = {} is below samples_per_insert * min_size_to_sample = {start}: once the table holds \
                 {}, inserts wait until samples have brought the difference down",
                self.max_diff,
                CountedNoun(self.min_size_to_sample, "item")
            ));
        }
        self.stuck().map(|Counters { inserts, samples, .. }| {
            format!(
                "min_diff = {} and max_diff = {} are so close that after {} and {} both wait for each other, \
                 unless an item leaves; set them at least 1 + samples_per_insert = {} apart",
                self.min_diff,
                self.max_diff,
                CountedNoun(inserts, "insert"),
                CountedNoun(samples, "sample"),
                1.0 + self.samples_per_insert
            )
        })
    }

    /// The first counters at which both sides wait, if samples are made as soon as they are allowed.
    fn stuck(&self) -> Option<Counters> {
        let inserts = self.inserts_until_sample(&Counters::default())?;
        let mut counters = Counters { inserts, ..Counters::default() };
        for _ in 0..WARNING_STEPS {
            if self.can_sample(&counters, 1) {
                counters.samples += 1;
            } else if self.can_insert(&counters, 1) {
                counters.inserts += 1;
            } else {
                return Some(counters);
            }
        }
        None
    }
}

/// The smallest `n` for which `holds`, which is false below it and true from it on; `None` if out of range.
///
/// `estimate` is that number except for rounding. The search doubles its steps and then bisects: where the counts are
/// small compared with the ratio, the difference is the same for very many counts, and the estimate is off by as many.
fn first(estimate: f64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if estimate > MANY {
        return None;
    }
    // The cast turns negative numbers into 0.
    let near = estimate.ceil() as u64;
    // It holds from `high` on, and not at `low`, if `low` is below `high`.
    let (mut low, mut high, mut step) = (near, near, 1);
    if holds(near) {
        while high > 0 {
            low = high.saturating_sub(step);
            if !holds(low) {
                break;
            }
            (high, step) = (low, step * 2);
        }
        if high == 0 {
            return Some(0);
        }
    } else {
        loop {
            high = low.saturating_add(step);
            if holds(high) {
                break;
            }
            if high as f64 > MANY {
                return None;
            }
            (low, step) = (high, step * 2);
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    Some(high)
}
