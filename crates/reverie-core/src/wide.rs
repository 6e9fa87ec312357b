//! Loops over many numbers, compiled for the widest instructions of the present processor.
//!
//! The same source runs everywhere, and no operation is contracted or reordered: results are the same to the bit.

/// A loop that is compiled more than once.
///
/// `run` and everything that it calls must be `#[inline(always)]`: code that is not inlined is not compiled again.
pub(crate) trait WideLoop {
    /// The result of the loop.
    type Output;

    /// The loop.
    fn run(self, lanes: impl Lanes) -> Self::Output;
}

/// Operations that a compiler does not vectorise by itself.
pub(crate) trait Lanes: Copy {
    /// The number of those of eight ascending numbers, none negative, that are at most `bound`, and the last of these.
    ///
    /// The last is 0 if no number is.
    fn last_at_most(self, rising: &[f64; 8], bound: f64) -> (usize, f64);

    /// The number of those of eight numbers in registers that are at most `bound`.
    fn at_most(self, numbers: [f64; 8], bound: f64) -> usize;
}

/// Runs the loop. The choice of the version costs a load and a branch.
#[inline]
pub(crate) fn wide<W: WideLoop>(work: W) -> W::Output {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512dq") && has!("avx512vl") && has!("popcnt") {
            // SAFETY: the processor has the instructions.
            return unsafe { x86::with_avx512(work) };
        }
        if has!("avx2") && has!("popcnt") {
            // SAFETY: the processor has the instructions.
            return unsafe { x86::with_avx2(work) };
        }
    }
    work.run(PlainLanes)
}

/// The version for every processor.
#[derive(Clone, Copy)]
pub(crate) struct PlainLanes;

impl Lanes for PlainLanes {
    #[inline(always)]
    fn last_at_most(self, rising: &[f64; 8], bound: f64) -> (usize, f64) {
        // The last is the largest of them. Only floating point, so that any processor handles two lanes at a time.
        let last = fold(rising.map(|sum| if sum <= bound { sum } else { 0.0 }), |a, b| if a > b { a } else { b });
        (self.at_most(*rising, bound), last)
    }

    #[inline(always)]
    fn at_most(self, numbers: [f64; 8], bound: f64) -> usize {
        // In floating point, too; 2^52 shifts a small whole number to the lowest bits.
        let count = fold(numbers.map(|number| if number <= bound { 1.0 } else { 0.0 }), |a, b| a + b);
        (count + (1_u64 << 52) as f64).to_bits() as usize % 16
    }
}

#[inline(always)]
fn fold(a: [f64; 8], f: impl Fn(f64, f64) -> f64) -> f64 {
    f(f(f(a[0], a[4]), f(a[2], a[6])), f(f(a[1], a[5]), f(a[3], a[7])))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::{Lanes, WideLoop};
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor must have the instructions.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,popcnt")]
    pub(super) unsafe fn with_avx512<W: WideLoop>(work: W) -> W::Output {
        work.run(Avx512(()))
    }

    /// # Safety
    /// The processor must have the instructions.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) unsafe fn with_avx2<W: WideLoop>(work: W) -> W::Output {
        work.run(Avx2(()))
    }

    /// Exists only if the processor has the instructions.
    #[derive(Clone, Copy)]
    struct Avx512(());

    /// Exists only if the processor has the instructions.
    #[derive(Clone, Copy)]
    struct Avx2(());

    #[inline(always)]
    fn last(rising: &[f64; 8], count: usize) -> (usize, f64) {
        let last = rising[count.wrapping_sub(1) % 8];
        (count, if count == 0 { 0.0 } else { last })
    }

    impl Lanes for Avx512 {
        #[inline(always)]
        fn last_at_most(self, rising: &[f64; 8], bound: f64) -> (usize, f64) {
            // SAFETY: by the invariant of the type; eight numbers are read.
            let mask =
                unsafe { _mm512_cmp_pd_mask::<_CMP_LE_OQ>(_mm512_loadu_pd(rising.as_ptr()), _mm512_set1_pd(bound)) };
            last(rising, mask.count_ones() as usize)
        }

        #[inline(always)]
        fn at_most(self, [a, b, c, d, e, f, g, h]: [f64; 8], bound: f64) -> usize {
            // SAFETY: by the invariant of the type.
            let mask = unsafe {
                _mm512_cmp_pd_mask::<_CMP_LE_OQ>(_mm512_set_pd(h, g, f, e, d, c, b, a), _mm512_set1_pd(bound))
            };
            mask.count_ones() as usize
        }
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn last_at_most(self, rising: &[f64; 8], bound: f64) -> (usize, f64) {
            // SAFETY: by the invariant of the type; eight numbers are read.
            let count = unsafe {
                let (low, high) = (_mm256_loadu_pd(rising.as_ptr()), _mm256_loadu_pd(rising.as_ptr().add(4)));
                self.count(low, high, bound)
            };
            last(rising, count)
        }

        #[inline(always)]
        fn at_most(self, [a, b, c, d, e, f, g, h]: [f64; 8], bound: f64) -> usize {
            // SAFETY: by the invariant of the type.
            unsafe { self.count(_mm256_set_pd(d, c, b, a), _mm256_set_pd(h, g, f, e), bound) }
        }
    }

    impl Avx2 {
        #[inline(always)]
        fn count(self, low: __m256d, high: __m256d, bound: f64) -> usize {
            // SAFETY: by the invariant of the type.
            let (low, high) = unsafe {
                let bound = _mm256_set1_pd(bound);
                let at_most = |lanes| _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_LE_OQ>(lanes, bound)) as u32;
                (at_most(low), at_most(high))
            };
            (low | high << 4).count_ones() as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The results of the lanes for ascending numbers.
    struct LanesProbe([f64; 8], f64);

    impl WideLoop for LanesProbe {
        type Output = (usize, f64, usize);

        #[inline(always)]
        fn run(self, lanes: impl Lanes) -> Self::Output {
            let (count, last) = lanes.last_at_most(&self.0, self.1);
            (count, last, lanes.at_most(self.0, self.1))
        }
    }

    fn check(rising: [f64; 8], bound: f64) -> Result<(), TestCaseError> {
        let count = rising.iter().filter(|number| **number <= bound).count();
        let wanted = (count, if count == 0 { 0.0 } else { rising[count - 1] }, count);
        prop_assert_eq!(LanesProbe(rising, bound).run(PlainLanes), wanted);
        prop_assert_eq!(wide(LanesProbe(rising, bound)), wanted);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt") {
            // SAFETY: the processor has the instructions.
            prop_assert_eq!(unsafe { x86::with_avx2(LanesProbe(rising, bound)) }, wanted);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_width_counts_alike(steps in prop::array::uniform8(0_u8..3), bound in -1_i32..18) {
            let mut sum = 0.0;
            let rising = steps.map(|step| { sum += f64::from(step); sum });
            check(rising, f64::from(bound))?;
        }
    }

    #[test]
    fn none_and_all_of_them_are_counted_too() {
        check([1.0; 8], 0.5).unwrap();
        check([1.0; 8], 1.0).unwrap();
        check([0.0; 8], 0.0).unwrap();
        check([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, f64::INFINITY], f64::MAX).unwrap();
    }
}
