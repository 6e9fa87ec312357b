//! A set of slots that can be indexed by rank.

const ABSENT: u32 = u32::MAX;

/// Slots in no order, densely packed; 8 bytes a slot, every call O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet {
    dense: Vec<u32>,
    /// The index in `dense` of each slot.
    ranks: Vec<u32>,
}

impl SlotSet {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn len(&self) -> usize {
        self.dense.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dense.is_empty()
    }

    /// The slot at `rank` (below `len`).
    #[inline]
    pub(super) fn at(&self, rank: usize) -> u32 {
        self.dense[rank]
    }

    pub(super) fn contains(&self, slot: u32) -> bool {
        self.ranks.get(slot as usize).is_some_and(|rank| *rank != ABSENT)
    }

    pub(super) fn insert(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot), "slot {slot} is present already");
        if self.ranks.len() <= slot as usize {
            self.ranks.resize(slot as usize + 1, ABSENT);
        }
        self.ranks[slot as usize] = self.dense.len() as u32;
        self.dense.push(slot);
    }

    pub(super) fn remove(&mut self, slot: u32) {
        debug_assert!(self.contains(slot), "slot {slot} is not present");
        let rank = std::mem::replace(&mut self.ranks[slot as usize], ABSENT) as usize;
        self.dense.swap_remove(rank);
        if let Some(&moved) = self.dense.get(rank) {
            self.ranks[moved as usize] = rank as u32;
        }
    }
}
