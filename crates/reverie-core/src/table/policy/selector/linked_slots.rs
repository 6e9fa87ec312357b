//! The order of insertion as a doubly linked list over arrays of slots.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct OrderLink {
    older: u32,
    newer: u32,
}

const ABSENT: OrderLink = OrderLink { older: NONE, newer: NONE };

/// Slots in the order in which they were pushed; 8 bytes a slot, every call O(1).
#[derive(Clone, Debug)]
pub(super) struct LinkedSlots {
    links: Vec<OrderLink>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl LinkedSlots {
    pub(super) fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn newest(&self) -> Option<u32> {
        (self.newest != NONE).then_some(self.newest)
    }

    /// True if the slot is in the list. A single slot has no links, hence the comparison with `newest`.
    fn contains(&self, slot: u32) -> bool {
        self.newest == slot || self.links.get(slot as usize).is_some_and(|link| link.newer != NONE)
    }

    pub(super) fn push(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot), "slot {slot} is present already");
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, ABSENT);
        }
        self.links[slot as usize] = OrderLink { older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Inserts a slot at the position of its age; searches from both ends at once.
    pub(super) fn put_back(&mut self, slot: u32, age: &dyn Fn(u32) -> u64) {
        let own = age(slot);
        let (mut newer, mut older) = (self.oldest, self.newest);
        // Stops when `newer` is the first newer slot, or `older` the last older one; the other follows from it.
        loop {
            if newer == NONE || age(newer) > own {
                older = if newer == NONE { self.newest } else { self.links[newer as usize].older };
                break;
            }
            if older == NONE || age(older) < own {
                newer = if older == NONE { self.oldest } else { self.links[older as usize].newer };
                break;
            }
            (newer, older) = (self.links[newer as usize].newer, self.links[older as usize].older);
        }
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, ABSENT);
        }
        self.links[slot as usize] = OrderLink { older, newer };
        match older {
            NONE => self.oldest = slot,
            older => self.links[older as usize].newer = slot,
        }
        match newer {
            NONE => self.newest = slot,
            newer => self.links[newer as usize].older = slot,
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, slot: u32) {
        debug_assert!(self.contains(slot), "slot {slot} is not present");
        let OrderLink { older, newer } = std::mem::replace(&mut self.links[slot as usize], ABSENT);
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.len -= 1;
    }
}
