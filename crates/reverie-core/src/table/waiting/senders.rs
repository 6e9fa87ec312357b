//! Inserts that whoever sent them may send again: which are in, and under which keys.
//!
//! Kept where the items are, under the same lock, so that a checkpoint has both as they were at one moment: a server that
//! starts from it knows what it has, and does none of it twice.

use crate::table::types::inserts::Keys;
use crate::table::types::senders::{Arrivals, Sender, Sent};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Where an insert came from, for as long as its sender is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    sent: Sent,
    /// See [`Known::since`].
    since: u64,
}

/// A sender, until it is forgotten.
#[derive(Debug)]
pub(super) struct Known {
    /// Tells it from one of the same name that was forgotten before, of which inserts may still wait.
    since: u64,
    pub(super) arrivals: VecDeque<(u64, Keys)>,
}

/// Of one table.
#[derive(Debug, Default)]
pub(super) struct Senders {
    pub(super) all: HashMap<Sender, Known>,
    /// How many there were.
    count: u64,
}

impl Senders {
    /// An insert comes from there; its sender is known from now on.
    pub(super) fn origin(&mut self, sent: Sent) -> Origin {
        let known = self.all.entry(sent.sender).or_insert_with(|| {
            self.count += 1;
            Known { since: self.count, arrivals: VecDeque::new() }
        });
        Origin { sent, since: known.since }
    }

    /// Which insert it was; `None` where its sender was forgotten meanwhile.
    pub(super) fn known(&self, origin: Origin) -> Option<Sent> {
        let known = self.all.get(&origin.sent.sender)?;
        (known.since == origin.since).then_some(origin.sent)
    }

    /// An insert is in, whole. Nothing is kept of it where its sender was forgotten: no client would ever receive it.
    pub(super) fn arrived(&mut self, origin: Origin, keys: &Keys) {
        let Some(sent) = self.known(origin) else { return };
        let Some(Known { arrivals, .. }) = self.all.get_mut(&sent.sender) else { return };
        match arrivals.back() {
            // One of which a checkpoint had a part.
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

    /// All senders with something, in the order of their names.
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
