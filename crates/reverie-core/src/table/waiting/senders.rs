//! Inserts that their sender may retry: which are inserted, and under which keys.
//!
//! They are stored with the items, under the same lock, so that a checkpoint has both as they were at one moment: a
//! server that starts from it has the list of its inserts, and inserts nothing twice.

use crate::table::types::delta::SenderChange;
use crate::table::types::inserts::Keys;
use crate::table::types::senders::{Arrivals, Sender, SentInsert};
use std::collections::{HashMap, VecDeque};

/// The origin of an insert, for as long as its sender is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    sent: SentInsert,
    /// See [`SenderRecord::since`].
    since: u64,
}

/// A sender, until it is forgotten.
#[derive(Debug)]
pub(super) struct SenderRecord {
    /// Distinguishes it from a forgotten sender of the same name, of which inserts may still wait.
    since: u64,
    /// The inserted ones by number, in order. `None` if the sender received the outcome.
    arrivals: VecDeque<(u64, Option<Keys>)>,
    /// The number of arrivals whose keys are `None`.
    received: usize,
}

/// Received outcomes that may stand among others before they are all removed.
const FEW: usize = 64;

impl SenderRecord {
    /// The inserts whose outcome was not received.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals.iter().filter_map(|(number, keys)| Some((*number, keys.clone()?))).collect()
    }

    /// Removes what was received at the front, and all of it if it is the most.
    fn tidy(&mut self) {
        while self.arrivals.front().is_some_and(|(_, keys)| keys.is_none()) {
            self.arrivals.pop_front();
            self.received -= 1;
        }
        if self.received > FEW && self.received > self.arrivals.len() / 2 {
            self.arrivals.retain(|(_, keys)| keys.is_some());
            self.received = 0;
        }
    }
}

/// The senders of one table.
#[derive(Debug, Default)]
pub(super) struct Senders {
    pub(super) all: HashMap<Sender, SenderRecord>,
    /// The number of senders ever known.
    count: u64,
    /// The changes since [`Senders::take_changes`], if a journal asks for them.
    changes: Option<Vec<SenderChange>>,
}

impl Senders {
    /// Notes what changes from now on.
    pub(super) fn track_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<SenderChange> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// True if [`Senders::take_changes`] would return any.
    pub(super) fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    fn note(&mut self, change: impl FnOnce() -> SenderChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    /// Forgets a sender; the caller drops what was known of it outside the lock.
    pub(super) fn forget(&mut self, sender: &Sender) -> Option<SenderRecord> {
        let known = self.all.remove(sender)?;
        self.note(|| SenderChange::Forgotten(*sender));
        Some(known)
    }

    /// Returns the origin of an insert; its sender is known from now on.
    pub(super) fn origin(&mut self, sent: SentInsert) -> Origin {
        let known = self.all.entry(sent.sender).or_insert_with(|| {
            self.count += 1;
            SenderRecord { since: self.count, arrivals: VecDeque::new(), received: 0 }
        });
        Origin { sent, since: known.since }
    }

    /// The insert of an origin; `None` if its sender was forgotten meanwhile.
    pub(super) fn known(&self, origin: Origin) -> Option<SentInsert> {
        let known = self.all.get(&origin.sent.sender)?;
        (known.since == origin.since).then_some(origin.sent)
    }

    /// Notes a complete insert. Nothing is kept if its sender was forgotten: no client would ever receive it.
    pub(super) fn arrived(&mut self, origin: Origin, keys: &Keys) {
        let Some(sent) = self.known(origin) else { return };
        self.note(|| SenderChange::Arrived(sent.sender, sent.number, keys.clone()));
        let Some(SenderRecord { arrivals, received, .. }) = self.all.get_mut(&sent.sender) else { return };
        let keys = Some(keys.clone());
        match arrivals.back() {
            // A checkpoint had a part of this insert.
            Some((last, _)) if *last >= sent.number => match arrivals.binary_search_by_key(&sent.number, |(n, _)| *n) {
                Ok(at) => *received -= usize::from(std::mem::replace(&mut arrivals[at].1, keys).is_none()),
                Err(at) => arrivals.insert(at, (sent.number, keys)),
            },
            _ => arrivals.push_back((sent.number, keys)),
        }
    }

    pub(super) fn received(&mut self, sender: &Sender, below: u64, numbers: &[u64]) {
        if !self.all.contains_key(sender) {
            return;
        }
        self.note(|| SenderChange::Received(*sender, below, numbers.to_vec()));
        let Some(known) = self.all.get_mut(sender) else { return };
        while let Some((_, keys)) = known.arrivals.front().filter(|(number, _)| *number < below) {
            known.received -= usize::from(keys.is_none());
            known.arrivals.pop_front();
        }
        // Under the table's lock: each number is searched for, and the others are not looked at.
        for number in numbers {
            if let Ok(at) = known.arrivals.binary_search_by_key(number, |(number, _)| *number)
                && known.arrivals[at].1.take().is_some()
            {
                known.received += 1;
            }
        }
        known.tidy();
    }

    /// All senders with inserts, in the order of their names.
    pub(super) fn cut(&self) -> Vec<(Sender, Arrivals)> {
        let all = self.all.iter().map(|(sender, known)| (*sender, known.arrivals()));
        let mut all: Vec<_> = all.filter(|(_, arrivals)| !arrivals.is_empty()).collect();
        all.sort_unstable_by_key(|(sender, _)| *sender);
        all
    }

    pub(super) fn restore(&mut self, from: Vec<(Sender, Arrivals)>) {
        self.all.clear();
        for (sender, arrivals) in from {
            self.count += 1;
            let arrivals = arrivals.into_iter().map(|(number, keys)| (number, Some(keys))).collect();
            self.all.insert(sender, SenderRecord { since: self.count, arrivals, received: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Key;

    #[test]
    fn inserts_received_in_any_order_are_forgotten_and_the_rest_stays_in_order() {
        let (mut senders, sender) = (Senders::default(), [7; 16]);
        let keys = |number: u64| Keys::from_iter([Key::from(number as i64)]);
        let arrive = |senders: &mut Senders, number| {
            let origin = senders.origin(SentInsert { sender, number });
            senders.arrived(origin, &keys(number));
        };
        let known = |senders: &Senders| senders.all[&sender].arrivals();
        (1..=1000).for_each(|number| arrive(&mut senders, number));
        let mut rest: Vec<u64> = (1..=1000).collect();
        for number in (1..=1000).rev().filter(|number| number % 3 > 0).chain([5, 999, 999, 2000]) {
            senders.received(&sender, 0, &[number]);
            rest.retain(|one| *one != number);
            let SenderRecord { arrivals, received, .. } = &senders.all[&sender];
            assert_eq!((arrivals.len() - received, *received <= FEW.max(arrivals.len())), (rest.len(), true));
        }
        assert_eq!(known(&senders), rest.iter().map(|number| (*number, keys(*number))).collect::<Vec<_>>());
        senders.received(&sender, 900, &[]);
        assert_eq!(known(&senders).len(), 33);
        // A checkpoint had a part of it, and its outcome was received before.
        arrive(&mut senders, 901);
        arrive(&mut senders, 903);
        assert_eq!(known(&senders).iter().map(|(number, _)| *number).take(3).collect::<Vec<_>>(), [900, 901, 903]);
        senders.received(&sender, 1001, &[]);
        assert!(senders.all[&sender].arrivals.is_empty() && senders.all[&sender].received == 0);
        assert!(senders.cut().is_empty());
    }
}
