//! The options of a sampler or remover, and the weight of its items.

use crate::error::{Error, Result};

/// The options of a sampler or a remover: immutable, comparable, safe to share between tables.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "(u8, f64)", into = "(u8, f64)")]
pub enum SelectorOptions {
    /// The item inserted longest ago.
    Fifo,
    /// The item inserted last.
    Lifo,
    /// Every item with the same probability.
    Uniform,
    /// The item with the largest priority; of equals, the one inserted or updated longest ago.
    MaxHeap,
    /// The item with the smallest priority; of equals, the one inserted or updated longest ago.
    MinHeap,
    /// An item with a probability proportional to `priority ** exponent` (Schaul et al. 2016, section 3.3).
    Prioritized {
        /// The power of the priority; 0 is uniform, negative values prefer small priorities.
        exponent: f64,
    },
    /// Prioritized, with stratified draws (ibid., section 3.3 and appendix B.2.1).
    ///
    /// The i-th of n draws of a batch falls on the i-th of n equal parts of the sum of weights. Each draw of a batch
    /// has its own distribution; all draws together have the same distribution as without strata, with less variance.
    Stratified {
        /// See [`SelectorOptions::Prioritized`].
        exponent: f64,
    },
}

impl SelectorOptions {
    /// True if the probability of an item is in proportion to a power of its priority.
    pub fn is_proportional(&self) -> bool {
        matches!(self, Self::Prioritized { .. } | Self::Stratified { .. })
    }
}

impl SelectorOptions {
    /// Refuses an exponent that is not finite.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Prioritized { exponent } | Self::Stratified { exponent } if !exponent.is_finite() => {
                Err(Error::InvalidArgument(format!("priority_exponent must be a finite number, got {exponent}")))
            }
            _ => Ok(()),
        }
    }

    /// True if the selector tracks the largest priority.
    ///
    /// See [`Selector::max_slot`](crate::table::selector::Selector::max_slot).
    pub fn knows_largest(&self) -> bool {
        match self {
            Self::MaxHeap => true,
            Self::Prioritized { exponent } | Self::Stratified { exponent } => *exponent != 0.0,
            Self::Fifo | Self::Lifo | Self::Uniform | Self::MinHeap => false,
        }
    }

    /// True if a pick depends on the items alone, not on a random source.
    pub fn is_deterministic(&self) -> bool {
        match self {
            Self::Fifo | Self::Lifo | Self::MaxHeap | Self::MinHeap => true,
            Self::Uniform | Self::Prioritized { .. } | Self::Stratified { .. } => false,
        }
    }
}

/// The selectors as numbers: one list for checkpoints, for the wire and for the binding.
///
/// A number belongs to its selector for ever: files and clients of other versions use it.
impl SelectorOptions {
    /// The number of selectors; their numbers are those below it.
    pub const COUNT: u8 = 7;

    /// The number of this selector and its exponent, which is 0 if it has none.
    pub fn parts(&self) -> (u8, f64) {
        match *self {
            Self::Fifo => (0, 0.0),
            Self::Lifo => (1, 0.0),
            Self::Uniform => (2, 0.0),
            Self::MaxHeap => (3, 0.0),
            Self::MinHeap => (4, 0.0),
            Self::Prioritized { exponent } => (5, exponent),
            Self::Stratified { exponent } => (6, exponent),
        }
    }

    /// The selector with this number; `None` for an unknown number.
    ///
    /// A selector without an exponent ignores it; see also [`SelectorOptions::validate`].
    pub fn from_parts(number: u8, exponent: f64) -> Option<Self> {
        Some(match number {
            0 => Self::Fifo,
            1 => Self::Lifo,
            2 => Self::Uniform,
            3 => Self::MaxHeap,
            4 => Self::MinHeap,
            5 => Self::Prioritized { exponent },
            6 => Self::Stratified { exponent },
            _ => return None,
        })
    }
}

impl From<SelectorOptions> for (u8, f64) {
    fn from(options: SelectorOptions) -> Self {
        options.parts()
    }
}

impl TryFrom<(u8, f64)> for SelectorOptions {
    type Error = String;

    /// Like [`SelectorOptions::from_parts`]; also refuses an exponent that is not finite or that the selector has not.
    fn try_from((number, exponent): (u8, f64)) -> Result<Self, String> {
        let options =
            Self::from_parts(number, exponent).ok_or_else(|| format!("a selector of the unknown kind {number}"))?;
        if options.parts().1.to_bits() != exponent.to_bits() {
            return Err(format!("a selector that has no exponent was given {exponent}"));
        }
        options.validate().map(|()| options).map_err(|error| error.to_string())
    }
}

impl std::fmt::Display for SelectorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fifo => f.write_str("Fifo()"),
            Self::Lifo => f.write_str("Lifo()"),
            Self::Uniform => f.write_str("Uniform()"),
            Self::MaxHeap => f.write_str("MaxHeap()"),
            Self::MinHeap => f.write_str("MinHeap()"),
            Self::Prioritized { exponent } => write!(f, "Prioritized({exponent})"),
            Self::Stratified { exponent } => write!(f, "Prioritized({exponent}, stratified)"),
        }
    }
}

/// The total weight of a selector's items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mass {
    /// The sum of the weights; infinite while an item has infinite weight. The number of items if all weigh the same.
    pub total: f64,
    /// The number of items of priority 0, if these have no ordinary weight: it is zero or infinite.
    pub zeros: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_count_and_no_other_is_a_selector_that_has_this_number() {
        for number in 0..=u8::MAX {
            let selector = SelectorOptions::from_parts(number, 0.5);
            assert_eq!(selector.is_some(), number < SelectorOptions::COUNT, "{number}");
            assert!(selector.is_none_or(|selector| selector.parts().0 == number), "{number}");
        }
    }
}
