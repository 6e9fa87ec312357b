//! A mixture of tables whose shares of a batch change from batch to batch.

/// A table's share of each batch: `first` up to the batch `start`, `last` from `batches` later on, a line in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The share before the line; at least 0.
    pub first: f64,
    /// The share after the line; at least 0.
    pub last: f64,
    /// The batch at which the line begins; below 0 for a loop that was resumed.
    pub start: i64,
    /// The length of the line.
    pub batches: u64,
}

impl Share {
    /// The share of a batch, counted from 0, in any unit.
    pub fn at(&self, batch: u64) -> f64 {
        let passed = (i128::from(batch) - i128::from(self.start)).max(0) as f64;
        if passed >= self.batches as f64 {
            return self.last;
        }
        self.first + (self.last - self.first) * (passed / self.batches as f64)
    }
}

/// The shares of the tables of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// The shares, one for each table; in every batch at least one is above 0.
    pub shares: Vec<Share>,
    /// The draws of a batch.
    pub batch_size: usize,
    /// Decides which way the counts of a batch are rounded.
    pub seed: u64,
}

impl Mixture {
    /// The draws of each table in a batch; their sum is the batch size.
    ///
    /// A count is the exact share of the batch, rounded down or up, and its expectation over seeds is exact: one random
    /// offset shifts the borders between the tables (systematic sampling; Madow and Madow 1944). It depends on the seed
    /// and on the number of the batch alone, so batches may be made ahead and in any order.
    pub fn counts(&self, batch: u64) -> Vec<usize> {
        let shares: Vec<f64> = self.shares.iter().map(|share| share.at(batch)).collect();
        let (total, last) = (shares.iter().sum::<f64>(), shares.iter().rposition(|share| *share > 0.0));
        let offset = offset(self.seed, batch);
        let (mut sum, mut border, mut counts) = (0.0, 0, Vec::with_capacity(shares.len()));
        for (index, share) in shares.iter().enumerate() {
            sum += share;
            // Rounding errors of the sum must not leave a draw to a table without a share.
            let next = match last {
                Some(last) if index >= last => self.batch_size,
                _ => ((self.batch_size as f64 * (sum / total) + offset) as usize).clamp(border, self.batch_size),
            };
            counts.push(next - border);
            border = next;
        }
        counts
    }
}

/// A number in [0, 1) of a seed and a batch: the generator SplitMix64 (Steele et al. 2014), one state for each batch.
fn offset(seed: u64, batch: u64) -> f64 {
    let mut bits = seed.wrapping_add(batch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(first: f64, last: f64, batches: u64) -> Share {
        Share { first, last, start: 0, batches }
    }

    #[test]
    fn a_share_follows_its_line_and_stays_at_its_ends() {
        let line = Share { first: 1.0, last: 0.0, start: 2, batches: 4 };
        assert_eq!([0, 2, 3, 4, 6, 9].map(|batch| line.at(batch)), [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]);
        assert_eq!(Share { start: -3, ..line }.at(0), 0.25, "a loop that was resumed is on the line");
        assert_eq!(share(0.5, 2.0, 0).at(0), 2.0, "a line without a length is over at once");
    }

    #[test]
    fn each_count_is_the_exact_one_rounded_down_or_up_and_the_sum_is_the_batch() {
        for seed in 0..50 {
            let shares = vec![share(0.7, 0.0, 100), share(0.0, 1.3, 100), share(0.31, 0.17, 60)];
            let mixture = Mixture { shares, batch_size: 37, seed };
            for batch in 0..120 {
                let counts = mixture.counts(batch);
                assert_eq!(counts.iter().sum::<usize>(), 37);
                let total: f64 = mixture.shares.iter().map(|share| share.at(batch)).sum();
                for (share, count) in mixture.shares.iter().zip(&counts) {
                    let exact = 37.0 * share.at(batch) / total;
                    assert!((*count as f64 - exact).abs() < 1.0 + 1e-9, "{count} for {exact} in batch {batch}");
                    assert!(share.at(batch) > 0.0 || *count == 0, "a table without a share has a draw");
                }
            }
        }
    }

    /// The mean of a table's draws over many seeds, and five standard deviations of it.
    fn mean(round: impl Fn(&Mixture) -> usize, exact: f64) -> (f64, f64) {
        let seeds = 20_000;
        let shares = vec![share(0.3, 0.3, 1), share(0.7, 0.7, 1)];
        let mean = (0..seeds)
            .map(|seed| {
                round(&Mixture { shares: shares.clone(), batch_size: 7, seed }) as f64 / f64::from(seeds as u32)
            })
            .sum();
        let fraction = exact.fract();
        (mean, 5.0 * (fraction * (1.0 - fraction) / f64::from(seeds as u32)).sqrt())
    }

    #[test]
    fn the_expected_count_is_exact_and_that_of_plain_rounding_is_not() {
        let exact = 7.0 * 0.3;
        let (found, bound) = mean(|mixture| mixture.counts(5)[0], exact);
        assert!((found - exact).abs() < bound, "{found} for {exact}");
        let (twin, bound) = mean(|mixture| (7.0 * mixture.shares[0].at(5)).round() as usize, exact);
        assert!((twin - exact).abs() > bound, "the test does not notice counts that are rounded to the nearest");
    }

    #[test]
    fn one_seed_is_exact_over_many_batches_too() {
        let shares = vec![share(0.3, 0.3, 1), share(0.7, 0.7, 1)];
        let mixture = Mixture { shares, batch_size: 7, seed: 3 };
        let drawn: usize = (0..20_000).map(|batch| mixture.counts(batch)[0]).sum();
        let fraction: f64 = (7.0f64 * 0.3).fract();
        let bound = 5.0 * (20_000.0 * fraction * (1.0 - fraction)).sqrt();
        assert!((drawn as f64 - 20_000.0 * 2.1).abs() < bound, "{drawn}");
    }
}
