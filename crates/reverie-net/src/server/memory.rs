//! What was done of a session's requests, for as long as the client may ask again.

use super::samples::Answer;
use crate::proto;
use reverie_core::table::{Arrivals, Keys};
use std::collections::BTreeMap;

/// Outcomes that a session may leave unreceived: a client that never says what it received must not fill the server.
pub(super) const MOST_REMEMBERED: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// What was done of one request.
#[derive(Clone)]
pub(super) enum Outcome {
    /// The answer, as it was sent.
    Reply(Box<proto::Reply>),
    /// Draws that their table does not hold any more: gathered again where they are asked for again.
    Draws(Box<Answer>),
}

/// Requests that are done, by number, until the client says that it received their outcomes.
#[derive(Default)]
pub(super) struct Memory {
    /// All requests below were received.
    below: u64,
    /// The largest number that was ever seen.
    highest: u64,
    /// Inserts in runs of consecutive numbers, by the first; `None` where received.
    inserts: BTreeMap<u64, Vec<Option<Keys>>>,
    others: BTreeMap<u64, Outcome>,
    len: usize,
}

/// What is known of a request's number.
pub(super) enum Known<'a> {
    /// Nothing: the request is new, or waits.
    No,
    /// Its outcome was received.
    Received,
    /// The keys of an insert.
    Keys(&'a Keys),
    /// The rest.
    Other(&'a Outcome),
}

impl Memory {
    /// What a session did before a checkpoint that its server went on from.
    pub(super) fn restored(done: Arrivals) -> Self {
        let mut memory = Self::default();
        for (id, keys) in done {
            memory.highest = memory.highest.max(id);
            memory.inserted(id, vec![keys]);
        }
        memory
    }

    /// An insert of which a part is in goes on.
    pub(super) fn go_on(&mut self, id: u64) {
        self.len -= usize::from(self.inserts.remove(&id).is_some());
    }

    /// Looks a number up, and notes that it was seen.
    pub(super) fn look_up(&mut self, id: u64) -> Known<'_> {
        if id > self.highest {
            self.highest = id;
            return Known::No;
        }
        if id < self.below {
            return Known::Received;
        }
        if let Some((first, keys)) = self.inserts.range(..=id).next_back() {
            match keys.get((id - first) as usize) {
                Some(Some(keys)) => return Known::Keys(keys),
                Some(None) => return Known::Received,
                None => {}
            }
        }
        self.others.get(&id).map_or(Known::No, Known::Other)
    }

    /// Requests `first`, `first + 1`, ... are in their tables, with these keys.
    pub(super) fn inserted(&mut self, first: u64, keys: Vec<Keys>) {
        self.len += keys.len();
        self.inserts.insert(first, keys.into_iter().map(Some).collect());
    }

    /// The request is done.
    pub(super) fn done(&mut self, id: u64, outcome: Outcome) {
        self.len += usize::from(self.others.insert(id, outcome).is_none());
    }

    /// The client has these.
    pub(super) fn received(&mut self, received: &proto::Received) {
        if received.below > self.below {
            self.below = received.below;
            self.forget_below();
        }
        for id in &received.ids {
            if self.others.remove(id).is_some() {
                self.len -= 1;
            } else if let Some((first, keys)) = self.inserts.range_mut(..=*id).next_back() {
                let first = *first;
                if keys.get_mut((id - first) as usize).is_some_and(|keys| keys.take().is_some()) {
                    self.len -= 1;
                    if keys.iter().all(Option::is_none) {
                        self.inserts.remove(&first);
                    }
                }
            }
        }
    }

    fn forget_below(&mut self) {
        let rest = self.others.split_off(&self.below);
        self.len -= std::mem::replace(&mut self.others, rest).len();
        while let Some(mut run) = self.inserts.first_entry() {
            let (first, end) = (*run.key(), run.key() + run.get().len() as u64);
            if first >= self.below {
                return;
            }
            let gone = (self.below.min(end) - first) as usize;
            self.len -= run.get_mut()[..gone].iter_mut().filter_map(Option::take).count();
            if end > self.below {
                // The look-up goes by the first number, so the run stays whole until its last request was received.
                return;
            }
            run.remove();
        }
    }

    /// Outcomes that are remembered.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverie_core::item::Key;

    fn keys(ids: std::ops::Range<u64>) -> Vec<Keys> {
        ids.map(|id| Keys::from_iter([Key::from(id as i64)])).collect()
    }

    fn received(below: u64, ids: &[u64]) -> proto::Received {
        proto::Received { below, ids: ids.to_vec() }
    }

    fn key(memory: &mut Memory, id: u64) -> Option<i64> {
        match memory.look_up(id) {
            Known::Keys(keys) => Some(keys[0].get()),
            _ => None,
        }
    }

    #[test]
    fn an_outcome_is_known_until_it_was_received() {
        let mut memory = Memory::default();
        assert!((1..=20).all(|id| matches!(memory.look_up(id), Known::No)));
        memory.inserted(3, keys(3..8));
        memory.inserted(10, keys(10..12));
        memory.done(9, Outcome::Reply(Box::default()));
        assert_eq!((key(&mut memory, 3), key(&mut memory, 7), key(&mut memory, 11)), (Some(3), Some(7), Some(11)));
        assert!(matches!(memory.look_up(8), Known::No) && matches!(memory.look_up(12), Known::No));
        assert!(matches!(memory.look_up(9), Known::Other(_)));
        memory.received(&received(5, &[9, 11]));
        assert!([1, 3, 4, 11].iter().all(|id| matches!(memory.look_up(*id), Known::Received)));
        assert_eq!((key(&mut memory, 5), key(&mut memory, 10), memory.len()), (Some(5), Some(10), 4));
        memory.received(&received(12, &[]));
        assert_eq!(memory.len(), 0);
        assert!(memory.inserts.is_empty() && memory.others.is_empty());
    }

    #[test]
    fn receiving_by_number_leaves_nothing_behind() {
        let mut memory = Memory::default();
        memory.inserted(1, keys(1..4));
        memory.received(&received(0, &[2, 1, 3, 3, 77]));
        assert!(memory.inserts.is_empty());
        assert_eq!(memory.len(), 0);
    }
}
