//! The slots that changed since a journal asked last.

/// The marks of a slot, and slots per word of marks.
const BITS: usize = 4;
const PER_WORD: usize = 64 / BITS;
const ITEM: u64 = 1;
const COUNTS: u64 = 2;
const LEASES: u64 = 4;

/// Slots whose item came or left, slots of whose item only the priority or the count of draws changed, and slots whose
/// item was leased or is not any more.
///
/// Each slot is listed once, however often it changes: its present state is what a journal writes.
#[derive(Debug, Default)]
pub struct ChangedSlots {
    marks: Vec<u64>,
    items: Vec<u32>,
    counts: Vec<u32>,
    leases: Vec<u32>,
    cleared: bool,
}

impl ChangedSlots {
    /// The slot's item came or left.
    #[inline]
    pub(super) fn item(&mut self, slot: u32) {
        if self.mark(slot, ITEM) & ITEM == 0 {
            self.items.push(slot);
        }
    }

    /// The priority or the count of draws of the slot's item changed.
    #[inline]
    pub(super) fn counts(&mut self, slot: u32) {
        if self.mark(slot, COUNTS) & COUNTS == 0 {
            self.counts.push(slot);
        }
    }

    /// A draw of the slot's item was leased, or its lease ended.
    pub(super) fn leases(&mut self, slot: u32) {
        if self.mark(slot, LEASES) & LEASES == 0 {
            self.leases.push(slot);
        }
    }

    /// Adds a mark; returns the marks before.
    #[inline]
    fn mark(&mut self, slot: u32, mark: u64) -> u64 {
        let (word, shift) = (slot as usize / PER_WORD, BITS * (slot as usize % PER_WORD));
        if word >= self.marks.len() {
            self.grow(word);
        }
        let before = self.marks[word] >> shift;
        self.marks[word] |= mark << shift;
        before
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, word: usize) {
        self.marks.resize((word + 1).next_power_of_two(), 0);
    }

    /// All items left at once; nothing before matters.
    pub(super) fn clear(&mut self) {
        *self = Self { cleared: true, ..Self::default() };
    }

    /// True if all items left since the last call.
    pub fn take_cleared(&mut self) -> bool {
        std::mem::take(&mut self.cleared)
    }

    /// True if an item came or left, or was leased, since the last call of [`ChangedSlots::take_items`] and
    /// [`ChangedSlots::take_leases`].
    pub fn has_items(&self) -> bool {
        self.cleared || !self.items.is_empty() || !self.leases.is_empty()
    }

    /// The slots whose items came or left since the last call.
    pub fn take_items(&mut self) -> Vec<u32> {
        let taken = std::mem::take(&mut self.items);
        self.unmark(&taken, ITEM);
        taken
    }

    /// The slots whose items' counts changed since the last call.
    pub fn take_counts(&mut self) -> Vec<u32> {
        let taken = std::mem::take(&mut self.counts);
        self.unmark(&taken, COUNTS);
        taken
    }

    /// The slots whose items' leases changed since the last call.
    pub fn take_leases(&mut self) -> Vec<u32> {
        let taken = std::mem::take(&mut self.leases);
        self.unmark(&taken, LEASES);
        taken
    }

    fn unmark(&mut self, slots: &[u32], mark: u64) {
        for slot in slots {
            self.marks[*slot as usize / PER_WORD] &= !(mark << (BITS * (*slot as usize % PER_WORD)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_listed_once_until_it_is_taken_and_again_after_that() {
        let mut changed = ChangedSlots::default();
        for slot in [3, 40, 3, 1000, 40] {
            changed.item(slot);
            changed.counts(slot);
            changed.leases(slot);
        }
        assert_eq!(changed.take_items(), [3, 40, 1000]);
        assert!(changed.take_items().is_empty());
        changed.item(40);
        assert_eq!(changed.take_counts(), [3, 40, 1000]);
        assert_eq!(changed.take_leases(), [3, 40, 1000]);
        assert_eq!((changed.take_items(), changed.take_counts(), changed.take_leases()), (vec![40], vec![], vec![]));
    }

    #[test]
    fn nothing_is_listed_of_what_was_before_all_items_left() {
        let mut changed = ChangedSlots::default();
        changed.item(7);
        changed.counts(8);
        changed.clear();
        changed.item(9);
        assert!(changed.has_items() && changed.take_cleared() && !changed.take_cleared());
        assert_eq!((changed.take_items(), changed.take_counts()), (vec![9], vec![]));
    }
}
