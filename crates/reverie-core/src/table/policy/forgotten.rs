//! Senders that were let go of while they might still come back: they must not send again what may be done.

use crate::table::types::senders::Sender;
use std::collections::{HashSet, VecDeque};

/// How many are known at most, 16 bytes each: the oldest are let go of first.
const MOST: usize = 1 << 16;

/// See above.
#[derive(Debug, Default)]
pub struct Forgotten {
    order: VecDeque<Sender>,
    known: HashSet<Sender>,
}

impl Forgotten {
    /// The sender is let go of, with outcomes that he was not known to have.
    pub fn add(&mut self, id: Sender) {
        if !self.known.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// He knows.
    pub fn remove(&mut self, id: &Sender) {
        if self.known.remove(id) {
            self.order.retain(|other| other != id);
        }
    }

    /// All of them, the oldest first.
    pub fn names(&self) -> Vec<Sender> {
        self.order.iter().copied().collect()
    }

    /// True where he was let go of so.
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
    fn the_oldest_is_let_go_of_first_and_so_is_who_was_told() {
        let mut forgotten = Forgotten::default();
        (0..=MOST).for_each(|number| forgotten.add(id(number)));
        forgotten.add(id(MOST));
        assert!(!forgotten.has(&id(0)) && forgotten.has(&id(1)) && forgotten.has(&id(MOST)));
        assert_eq!((forgotten.order.len(), forgotten.known.len()), (MOST, MOST));
        forgotten.remove(&id(1));
        assert!(!forgotten.has(&id(1)));
        assert_eq!((forgotten.order.len(), forgotten.known.len()), (MOST - 1, MOST - 1));
    }
}
