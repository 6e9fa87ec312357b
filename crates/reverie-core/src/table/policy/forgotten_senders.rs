//! Senders that were forgotten but may still reconnect. They must not retry an insert that may already be done.

use crate::table::types::senders::Sender;
use std::collections::{HashSet, VecDeque};

/// The largest number of forgotten senders, 16 bytes each; the oldest are discarded first.
const MOST: usize = 1 << 16;

/// The forgotten senders, oldest first.
#[derive(Debug, Default)]
pub struct ForgottenSenders {
    order: VecDeque<Sender>,
    known: HashSet<Sender>,
    /// The number of changes.
    revision: u64,
}

impl ForgottenSenders {
    /// Adds a sender that was forgotten before it received all of its outcomes.
    pub fn add(&mut self, id: Sender) {
        if !self.known.insert(id) {
            return;
        }
        self.revision += 1;
        self.order.push_back(id);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Removes a sender that was notified.
    pub fn remove(&mut self, id: &Sender) {
        if self.known.remove(id) {
            self.revision += 1;
            self.order.retain(|other| other != id);
        }
    }

    /// All of them, the oldest first.
    pub fn names(&self) -> Vec<Sender> {
        self.order.iter().copied().collect()
    }

    /// Grows with each change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// True if the sender is one of the forgotten.
    pub fn has(&self, id: &Sender) -> bool {
        self.known.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> Sender {
        (number as u128).to_ne_bytes()
    }

    #[test]
    fn the_oldest_is_dropped_first_and_so_is_one_that_was_notified() {
        let mut forgotten = ForgottenSenders::default();
        (0..=MOST).for_each(|number| forgotten.add(id(number)));
        forgotten.add(id(MOST));
        assert!(!forgotten.has(&id(0)) && forgotten.has(&id(1)) && forgotten.has(&id(MOST)));
        assert_eq!((forgotten.order.len(), forgotten.known.len()), (MOST, MOST));
        forgotten.remove(&id(1));
        assert!(!forgotten.has(&id(1)));
        assert_eq!((forgotten.order.len(), forgotten.known.len()), (MOST - 1, MOST - 1));
    }
}
