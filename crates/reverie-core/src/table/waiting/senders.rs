//! Inserts that their sender may retry: which are inserted, and under which keys.
//!
//! They are stored with the items, under the same lock, so that a checkpoint has both as they were at one moment: a
//! server that starts from it knows what it has, and inserts nothing twice.

use crate::table::types::inserts::Keys;
use crate::table::types::senders::{Arrivals, Sender, Sent};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// The origin of an insert, for as long as its sender is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    sent: Sent,
    /// See [`Known::since`].
    since: u64,
}

/// A sender, until it is forgotten.
#[derive(Debug)]
pub(super) struct Known {
    /// Distinguishes it from a forgotten sender of the same name, of which inserts may still wait.
    since: u64,
    pub(super) arrivals: VecDeque<(u64, Keys)>,
}

/// The senders of one table.
#[derive(Debug, Default)]
pub(super) struct Senders {
    pub(super) all: HashMap<Sender, Known>,
    /// The number of senders ever known.
    count: u64,
}

impl Senders {
    /// Returns the origin of an insert; its sender is known from now on.
    pub(super) fn origin(&mut self, sent: Sent) -> Origin {
        let known = self.all.entry(sent.sender).or_insert_with(|| {
            self.count += 1;
            Known { since: self.count, arrivals: VecDeque::new() }
        });
        Origin { sent, since: known.since }
    }

    /// The insert of an origin; `None` if its sender was forgotten meanwhile.
    pub(super) fn known(&self, origin: Origin) -> Option<Sent> {
        let known = self.all.get(&origin.sent.sender)?;
        (known.since == origin.since).then_some(origin.sent)
    }

    /// Notes a complete insert. Nothing is kept if its sender was forgotten: no client would ever receive it.
    pub(super) fn arrived(&mut self, origin: Origin, keys: &Keys) {
        let Some(sent) = self.known(origin) else { return };
        let Some(Known { arrivals, .. }) = self.all.get_mut(&sent.sender) else { return };
        match arrivals.back() {
            // A checkpoint had a part of this insert.
            Some((last, _)) if *last >= sent.number => match arrivals.binary_search_by_key(&sent.number, |(n, _)| *n) {
                Ok(at) => arrivals[at].1.clone_from(keys),
                Err(at) => arrivals.insert(at, (sent.number, keys.clone())),
            },
            _ => arrivals.push_back((sent.number, keys.clone())),
        }
    }

    pub(super) fn received(&mut self, sender: &Sender, below: u64, numbers: &[u64]) {
        let Some(Known { arrivals, .. }) = self.all.get_mut(sender) else { return };
        while arrivals.front().is_some_and(|(number, _)| *number < below) {
            arrivals.pop_front();
        }
        if !arrivals.is_empty() && !numbers.is_empty() {
            let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
            arrivals.retain(|(number, _)| !numbers.contains(number));
        }
    }

    /// All senders with inserts, in the order of their names.
    pub(super) fn cut(&self) -> Vec<(Sender, Arrivals)> {
        let some = self.all.iter().filter(|(_, known)| !known.arrivals.is_empty());
        let mut all: Vec<_> = some.map(|(sender, known)| (*sender, known.arrivals.iter().cloned().collect())).collect();
        all.sort_unstable_by_key(|(sender, _)| *sender);
        all
    }

    pub(super) fn restore(&mut self, from: Vec<(Sender, Arrivals)>) {
        self.all.clear();
        for (sender, arrivals) in from {
            self.count += 1;
            self.all.insert(sender, Known { since: self.count, arrivals: arrivals.into() });
        }
    }
}
