//! **Selectors as numbers**: one list for checkpoints, for the wire and for the binding.
//!
//! A number belongs to its selector for ever: files and clients of other versions have it.

use crate::table::selector::SelectorOptions;

impl SelectorOptions {
    /// How many selectors there are; their numbers are those below it.
    pub const COUNT: u8 = 7;

    /// The number of this selector and its exponent, which is 0 where it has none.
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

    /// The selector with this number, None where there is none. A selector without an exponent ignores it; see also
    /// [`SelectorOptions::validate`].
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
