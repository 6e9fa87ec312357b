//! From priorities to weights.

/// The smallest weight of a positive priority: what would underflow to 0 still can be drawn.
pub(super) const SMALLEST: f64 = f64::MIN_POSITIVE;
/// The largest weight, 2^990: the sum over 2^28 slots stays finite.
pub(super) const LARGEST: f64 = f64::from_bits((1023 + 990) << 52);

/// `priority ** exponent`, with the exponents that have a cheaper way told apart once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Power {
    /// Exponent 0: every item weighs 1.
    Zero,
    /// Exponent 0.5.
    Half,
    /// Exponent 1.
    One,
    /// Any other.
    Other(f64),
}

impl Power {
    pub(super) fn new(exponent: f64) -> Self {
        match exponent {
            0.0 => Self::Zero,
            0.5 => Self::Half,
            1.0 => Self::One,
            other => Self::Other(other),
        }
    }

    /// The weight of a priority that is finite and not negative: a positive number within
    /// [`SMALLEST`] and [`LARGEST`], except that the priority 0 weighs 0 unless the exponent is 0.
    #[inline(always)]
    pub(super) fn weight(self, priority: f64) -> f64 {
        if self == Self::Zero {
            return 1.0;
        }
        if priority == 0.0 {
            return 0.0;
        }
        let weight = match self {
            Self::Zero => 1.0,
            Self::Half => priority.sqrt(),
            Self::One => priority,
            Self::Other(exponent) => priority.powf(exponent),
        };
        weight.clamp(SMALLEST, LARGEST)
    }
}
