//! Sessions that were let go of while their clients might still come back: a client must not send again what may be done.

use super::shared::SessionId;
use std::collections::{HashSet, VecDeque};

/// How many are known at most, 16 bytes each: the oldest are let go of first.
const MOST: usize = 1 << 16;

/// See above.
#[derive(Default)]
pub(super) struct Forgotten {
    order: VecDeque<SessionId>,
    known: HashSet<SessionId>,
}

impl Forgotten {
    /// The session is let go of, with outcomes that its client was not known to have.
    pub(super) fn add(&mut self, id: SessionId) {
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

    /// Its client knows.
    pub(super) fn remove(&mut self, id: &SessionId) {
        if self.known.remove(id) {
            self.order.retain(|other| other != id);
        }
    }

    /// True where the session was let go of so.
    pub(super) fn has(&self, id: &SessionId) -> bool {
        self.known.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> SessionId {
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
