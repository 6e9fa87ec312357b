//! Powers of many positive numbers: priorities that become weights, probabilities that become importance weights.
//!
//! Plain arithmetic, so that a loop runs several lanes at a time, and so that every processor and every C library gives
//! the same numbers. The relative error is below `(2 + |exponent * log2(number)|) * 2^-51`.

use crate::wide::{Lanes, WideLoop, wide};

/// The smallest power of a positive number: a power that would underflow to 0 is raised to it.
pub(crate) const SMALLEST: f64 = f64::MIN_POSITIVE;
/// The largest power, 2^990: the sum of 2^28 of them stays finite.
pub(crate) const LARGEST: f64 = f64::from_bits((1023 + 990) << 52);

/// `number ** exponent`; exponents with a cheaper computation are separate variants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Power {
    /// Exponent 0: 1, for 0 too.
    Zero,
    /// Exponent 0.5.
    Half,
    /// Exponent 1.
    One,
    /// Any other.
    Other(f64),
}

impl Power {
    pub(crate) fn new(exponent: f64) -> Self {
        match exponent {
            0.0 => Self::Zero,
            0.5 => Self::Half,
            1.0 => Self::One,
            other => Self::Other(other),
        }
    }

    /// The power of a finite number that is not negative.
    ///
    /// Within [`SMALLEST`] and [`LARGEST`], except that of 0, which is 0 unless the exponent is 0.
    #[inline(always)]
    pub(crate) fn of(self, number: f64) -> f64 {
        match self {
            Self::Zero => 1.0,
            Self::Half => bounded(number, number.sqrt()),
            Self::One => bounded(number, number),
            Self::Other(exponent) => bounded(number, power(number, exponent)),
        }
    }

    /// Replaces many numbers by their powers, in place.
    pub(crate) fn of_each(self, numbers: &mut [f64]) {
        wide(PowerLoop(self, numbers));
    }
}

struct PowerLoop<'a>(Power, &'a mut [f64]);

impl WideLoop for PowerLoop<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl Lanes) {
        let Self(power, numbers) = self;
        // Matched outside the loop: a loop with a `match` inside is not vectorised.
        match power {
            Power::Zero => numbers.fill(1.0),
            Power::Half => {
                for number in numbers {
                    *number = Power::Half.of(*number);
                }
            }
            Power::One => {
                for number in numbers {
                    *number = Power::One.of(*number);
                }
            }
            Power::Other(exponent) => {
                for number in numbers {
                    *number = Power::Other(exponent).of(*number);
                }
            }
        }
    }
}

/// Keeps the power within bounds, and 0 at 0. Uses selections, not branches.
#[inline(always)]
fn bounded(number: f64, power: f64) -> f64 {
    let power = if power > SMALLEST { power } else { SMALLEST };
    let power = if power < LARGEST { power } else { LARGEST };
    if number == 0.0 { 0.0 } else { power }
}

#[inline(always)]
fn power(number: f64, exponent: f64) -> f64 {
    exp2(exponent * log2(number))
}

/// 1.5 * 2^52: added to a number below 2^51, it leaves the nearest whole number in the lowest bits.
const WHOLE: f64 = 6_755_399_441_055_744.0;

/// The logarithm of a positive finite number; unspecified for others.
#[inline(always)]
fn log2(number: f64) -> f64 {
    // Subnormal numbers are scaled to normal ones.
    let tiny = number < f64::MIN_POSITIVE;
    let number = if tiny { number * (1_u64 << 54) as f64 } else { number };
    let lowest = if tiny { 54.0 } else { 0.0 };
    // number = 2^whole * part, with the part between the roots of 1/2 and 2. Only logical shifts, and the whole part
    // goes into the bits of a float: every processor can do that several lanes at a time.
    const ROOT: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let above = number.to_bits().wrapping_sub(ROOT).wrapping_add(1023 << 52);
    let biased = above >> 52;
    let part = f64::from_bits(number.to_bits().wrapping_sub(biased << 52).wrapping_add(1023 << 52));
    let whole = f64::from_bits(biased | 0x4330_0000_0000_0000) - ((1_u64 << 52) as f64 + 1023.0) - lowest;
    // log(part) = 2 atanh(s), and its series: the first omitted term is below 2^-57 of the first.
    let s = (part - 1.0) / (part + 1.0);
    let (z, zz) = (s * s, (s * s) * (s * s));
    let even = 1.0 + zz * (1.0 / 5.0 + zz * (1.0 / 9.0 + zz * (1.0 / 13.0 + zz * (1.0 / 17.0 + zz * (1.0 / 21.0)))));
    let odd = 1.0 / 3.0 + zz * (1.0 / 7.0 + zz * (1.0 / 11.0 + zz * (1.0 / 15.0 + zz * (1.0 / 19.0))));
    whole + s * (even + z * odd) * (2.0 * std::f64::consts::LOG2_E)
}

/// 2 to a power, within [`SMALLEST`] / 2 and [`LARGEST`]; unspecified for NaN.
#[inline(always)]
fn exp2(power: f64) -> f64 {
    let power = if power > -1022.0 { power } else { -1022.0 };
    let power = if power < 990.0 { power } else { 990.0 };
    let whole = power + WHOLE;
    // x is at most log(2) / 2: the omitted terms of the series are below 2^-57.
    let x = (power - (whole - WHOLE)) * std::f64::consts::LN_2;
    let xx = x * x;
    let even = 1.0
        + xx * (INVERSE[2]
            + xx * (INVERSE[4]
                + xx * (INVERSE[6] + xx * (INVERSE[8] + xx * (INVERSE[10] + xx * (INVERSE[12] + xx * INVERSE[14]))))));
    let odd = 1.0
        + xx * (INVERSE[3]
            + xx * (INVERSE[5] + xx * (INVERSE[7] + xx * (INVERSE[9] + xx * (INVERSE[11] + xx * INVERSE[13])))));
    f64::from_bits(whole.to_bits().wrapping_add(1023) << 52) * (even + x * odd)
}

/// 1 / n! by n.
const INVERSE: [f64; 15] = {
    let (mut inverse, mut factorial, mut n) = ([1.0; 15], 1.0, 1);
    while n < 15 {
        factorial *= n as f64;
        inverse[n] = 1.0 / factorial;
        n += 1;
    }
    inverse
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The allowed relative difference of a power from the C library's result.
    fn tolerance(number: f64, exponent: f64) -> f64 {
        (2.0 + (exponent * number.log2()).abs()) * 2_f64.powi(-51)
    }

    fn check(number: f64, exponent: f64) -> Result<(), TestCaseError> {
        let (got, want) = (Power::Other(exponent).of(number), number.powf(exponent).clamp(SMALLEST, LARGEST));
        let off = (got / want - 1.0).abs();
        let allowed = tolerance(number, exponent);
        prop_assert!(off <= allowed, "{number:e} ** {exponent}: {got:e}, not {want:e}: off by {off:e} of {allowed:e}");
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_power_is_that_of_the_c_library_to_a_few_bits(number in 1e-6..1e6_f64, exponent in -2.0..2.0_f64) {
            check(number, exponent)?;
        }

        #[test]
        fn numbers_and_exponents_of_any_size_have_powers_within_the_bounds(bits in 1_u64..2047 << 52, exponent in -9.0..9.0_f64) {
            check(f64::from_bits(bits), exponent)?;
        }

        #[test]
        fn many_powers_are_the_same_to_the_bit_as_each(numbers in prop::collection::vec(0.0..9.0_f64, 1..40), exponent in -2.0..2.0_f64) {
            for power in [Power::new(exponent), Power::Half, Power::One, Power::Zero] {
                let mut many = numbers.clone();
                power.of_each(&mut many);
                let each: Vec<f64> = numbers.iter().map(|number| power.of(*number)).collect();
                prop_assert_eq!(many, each);
            }
        }
    }

    #[test]
    fn one_stays_one_and_zero_stays_zero_unless_the_exponent_is_zero() {
        for exponent in [-1.5, -0.4, 0.3, 0.6, 7.0] {
            assert_eq!((Power::new(exponent).of(1.0), Power::new(exponent).of(0.0)), (1.0, 0.0));
        }
        assert_eq!((Power::new(0.0).of(0.0), Power::new(0.5).of(4.0), Power::new(1.0).of(4.0)), (1.0, 2.0, 4.0));
        assert_eq!((Power::new(9.0).of(1e-300), Power::new(9.0).of(1e300)), (SMALLEST, LARGEST));
    }

    #[test]
    fn larger_numbers_do_not_weigh_less() {
        let mut number = 0.7_f64;
        for _ in 0..10_000 {
            let next = f64::from_bits(number.to_bits() + 1_000_003);
            assert!(Power::Other(0.6).of(next) >= Power::Other(0.6).of(number), "{number:e}");
            number = next;
        }
    }
}
