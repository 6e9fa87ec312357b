//! A selector's random source: numbers that depend on the seed and on how many were taken, nothing else.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random numbers from one seed, the same on every machine.
#[derive(Clone, Debug)]
pub(in crate::table) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(in crate::table) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A multiple of 2^-53 in [0, 1).
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * STEP
    }

    /// A number below `n` (at least 1), all equally likely.
    ///
    /// See Lemire 2019, "Fast random integer generation in an interval", algorithm 5.
    #[inline]
    pub(in crate::table) fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        let mut product = u128::from(self.0.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.0.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_bound_are_equally_likely_however_large_the_bound() {
        // Without a rejection, every third of three times 2^62 numbers would come up twice as often.
        let n = 3 << 62;
        let mut random = Random::new(1);
        let thirds = (0..30_000).filter(|_| random.below(n).is_multiple_of(3)).count();
        let spread = (30_000.0_f64 * (1.0 / 3.0) * (2.0 / 3.0)).sqrt();
        assert!((thirds as f64 - 10_000.0).abs() < 5.0 * spread, "{thirds} of 30000 are multiples of 3");
        assert!((15_000.0_f64 - 10_000.0).abs() > 5.0 * spread, "the rejection's absence would show");
        assert!((0..100).all(|_| random.below(1) == 0));
    }
}
