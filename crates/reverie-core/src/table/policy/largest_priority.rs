//! The largest number of the present items, such as their priority: a tree of maxima over the slots.
//!
//! Neither a change nor a look-up ever visits all items.

const FAN_OUT: usize = 8;
/// Memory is allocated for this many slots at once.
const GROWTH: usize = 256;
/// Marks a slot without an item: no priority is infinite.
const ABSENT: f64 = f64::NEG_INFINITY;

/// Priorities by slot; every call except the growth is O(log n) of the n slots.
///
/// Most changes touch one priority and read one maximum: a priority that neither was nor becomes the largest of its
/// eight changes nothing above.
#[derive(Clone, Debug, Default)]
pub(super) struct LargestPriority {
    priorities: Vec<f64>,
    /// Levels of maxima over eight values of the level below; the first covers the priorities, the last is one number.
    maxima: Vec<Vec<f64>>,
}

impl LargestPriority {
    /// The largest priority of all items; `None` without items.
    pub(super) fn get(&self) -> Option<f64> {
        let largest = *self.maxima.last()?.first()?;
        (largest != ABSENT).then_some(largest)
    }

    /// Sets the priority of a new or present item.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, priority: f64) {
        if slot as usize >= self.priorities.len() {
            self.grow_to(slot as usize);
        }
        self.put(slot as usize, priority);
    }

    /// Removes an item.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        self.put(slot as usize, ABSENT);
    }

    #[inline]
    fn put(&mut self, slot: usize, priority: f64) {
        let known = std::mem::replace(&mut self.priorities[slot], priority);
        let maximum = self.maxima[0][slot / FAN_OUT];
        if priority > maximum || (known == maximum && priority < maximum) {
            self.climb(slot, known, priority);
        }
    }

    /// Corrects the maxima above a changed priority. It was `known`; it is above its maximum, or was equal to it.
    #[inline(never)]
    fn climb(&mut self, slot: usize, mut known: f64, priority: f64) {
        let Self { priorities, maxima } = self;
        let (mut below, mut at, mut here): (&[f64], _, _) = (priorities, slot, priority);
        for level in maxima {
            let first = at - at % FAN_OUT;
            at /= FAN_OUT;
            let maximum = level[at];
            if here < maximum {
                if known < maximum {
                    return;
                }
                // It was the largest; another of the eight may be equal to it.
                let eight = below[first..].iter().take(FAN_OUT);
                here = eight.fold(ABSENT, |a, b| if *b > a { *b } else { a });
            }
            if here == maximum {
                return;
            }
            (level[at], known) = (here, maximum);
            below = level;
        }
    }

    /// Makes room for the slot.
    #[cold]
    #[inline(never)]
    fn grow_to(&mut self, slot: usize) {
        // Only longer: a slot that exists never goes away.
        let mut needed = (slot + 1).next_multiple_of(GROWTH);
        self.priorities.resize(needed, ABSENT);
        for level in 0.. {
            if needed == 1 {
                return;
            }
            needed = needed.div_ceil(FAN_OUT);
            if level == self.maxima.len() {
                // The level below was the last; its one number is the largest of all.
                self.maxima.push(vec![level.checked_sub(1).map_or(ABSENT, |below| self.maxima[below][0])]);
            }
            self.maxima[level].resize(needed, ABSENT);
        }
    }
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
            let (mut tree, mut items) = (LargestPriority::default(), std::collections::BTreeMap::new());
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
