//! The largest priority where no selector knows it: a tree of maxima over the slots, so that neither a change nor a
//! question ever looks at all items.

const FAN_OUT: usize = 8;
/// In the place of an item that is not there: no priority is infinite.
const ABSENT: f64 = f64::NEG_INFINITY;

/// Priorities by slot; every call but the growth is O(log n) of the n slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Largest {
    /// The priorities, then the maxima of eight of the level below each; the last level is one number.
    levels: Vec<Vec<f64>>,
}

impl Largest {
    /// Of all items; `None` without any.
    pub(super) fn get(&self) -> Option<f64> {
        let largest = *self.levels.last()?.first()?;
        (largest != ABSENT).then_some(largest)
    }

    /// An item has come in, or has another priority now.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, priority: f64) {
        self.reach(slot as usize);
        self.put(slot as usize, priority);
    }

    /// An item has gone.
    pub(super) fn remove(&mut self, slot: u32) {
        self.put(slot as usize, ABSENT);
    }

    fn put(&mut self, slot: usize, priority: f64) {
        let mut at = slot;
        let mut here = priority;
        for level in 0..self.levels.len() {
            let known = std::mem::replace(&mut self.levels[level][at], here);
            if known == here {
                return;
            }
            at /= FAN_OUT;
            here = largest(&self.levels[level][at * FAN_OUT..]);
        }
    }

    /// Makes room for the slot.
    fn reach(&mut self, slot: usize) {
        if self.levels.first().is_some_and(|priorities| slot < priorities.len()) {
            return;
        }
        let mut needed = slot + 1;
        for level in 0.. {
            if level == self.levels.len() {
                let below = level.checked_sub(1).map_or(ABSENT, |below| largest(&self.levels[below]));
                self.levels.push(vec![below]);
            }
            if needed == 1 {
                return;
            }
            needed = needed.next_multiple_of(FAN_OUT);
            // Only longer: there is no slot that was there and is not any more.
            let length = needed.max(self.levels[level].len());
            self.levels[level].resize(length, ABSENT);
            needed = length / FAN_OUT;
        }
    }
}

/// Of the first eight.
#[inline]
fn largest(of: &[f64]) -> f64 {
    of.iter().take(FAN_OUT).fold(ABSENT, |a, b| if *b > a { *b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_largest_is_that_of_the_items_that_are_there(
            steps in prop::collection::vec((prop_oneof![0_u32..20, 0_u32..700], -3_i32..9), 0..200),
        ) {
            let (mut tree, mut items) = (Largest::default(), std::collections::BTreeMap::new());
            for (slot, priority) in steps {
                match items.contains_key(&slot) && priority < 0 {
                    true => {
                        items.remove(&slot);
                        tree.remove(slot);
                    }
                    false => {
                        items.insert(slot, f64::from(priority));
                        tree.set(slot, f64::from(priority));
                    }
                }
                prop_assert_eq!(tree.get(), items.values().copied().reduce(f64::max));
            }
        }
    }
}
