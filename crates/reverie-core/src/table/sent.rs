//! Inserts that whoever sent them may send again: which are in, and under which keys.
//!
//! Kept where the items are, under the same lock, so that a checkpoint has both as they were at one moment: a server that
//! starts from it knows what it has, and does none of it twice.

use super::shared::{Inserts, SharedTable};
use super::ticket::{Keys, Ticket};
use crate::error::Result;
use crate::sync::{Arc, lock};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Who sends inserts over connections that may be lost: the name of a session, unlike any other.
pub type Sender = [u8; 16];

/// The insert of a sender, by its number: later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Who sent it.
    pub sender: Sender,
    /// Which it is of all that he sends.
    pub number: u64,
}

/// What is in of a sender's inserts: their numbers, ascending, and the keys of their first items or of all.
pub type Arrivals = Vec<(u64, Keys)>;

/// Of one table.
#[derive(Debug, Default)]
pub(super) struct Senders {
    all: HashMap<Sender, VecDeque<(u64, Keys)>>,
}

impl Senders {
    /// An insert is in, whole.
    pub(super) fn arrived(&mut self, sent: Sent, keys: &Keys) {
        let arrivals = self.all.entry(sent.sender).or_default();
        match arrivals.back() {
            // One of which a checkpoint had a part.
            Some((last, _)) if *last >= sent.number => match arrivals.binary_search_by_key(&sent.number, |(n, _)| *n) {
                Ok(at) => arrivals[at].1.clone_from(keys),
                Err(at) => arrivals.insert(at, (sent.number, keys.clone())),
            },
            _ => arrivals.push_back((sent.number, keys.clone())),
        }
    }

    fn received(&mut self, sender: &Sender, below: u64, numbers: &[u64]) {
        let Some(arrivals) = self.all.get_mut(sender) else { return };
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
        let some = self.all.iter().filter(|(_, arrivals)| !arrivals.is_empty());
        let mut all: Vec<_> = some.map(|(sender, arrivals)| (*sender, arrivals.iter().cloned().collect())).collect();
        all.sort_unstable_by_key(|(sender, _)| *sender);
        all
    }

    pub(super) fn restore(&mut self, from: Vec<(Sender, Arrivals)>) {
        self.all = from.into_iter().map(|(sender, arrivals)| (sender, arrivals.into())).collect();
    }
}

impl SharedTable {
    /// [`SharedTable::insert`] of a sender, remembered until he has [received](SharedTable::received) its outcome. `before`
    /// are the keys of its first items, which are in already and not among these.
    pub fn insert_sent(self: &Arc<Self>, items: Inserts, sent: Sent, before: Keys) -> Result<Ticket<Keys>> {
        self.insert_of(items, Some(sent), before)
    }

    /// The sender will not send again what has a number below, or is among the numbers.
    pub fn received(&self, sender: &Sender, below: u64, numbers: &[u64]) {
        lock(&self.state).senders.received(sender, below, numbers);
    }

    /// What is in of a sender's inserts, as far as he may send it again.
    pub fn arrivals(&self, sender: &Sender) -> Arrivals {
        lock(&self.state).senders.all.get(sender).map(|arrivals| arrivals.iter().cloned().collect()).unwrap_or_default()
    }

    /// All senders of whom something is in that they may send again.
    pub fn senders(&self) -> Vec<Sender> {
        lock(&self.state).senders.all.keys().copied().collect()
    }

    /// Takes the sender's waiting inserts out of the queue. What is in of them stays known.
    pub fn withdraw_sender(&self, sender: &Sender) {
        let withdrawn: Vec<_> = self.decide(|state, _| {
            let own = |sent: Option<Sent>| sent.is_some_and(|sent| sent.sender == *sender);
            let mut withdrawn = Vec::new();
            for pending in std::mem::take(&mut state.inserts) {
                match pending.sent.filter(|_| own(pending.sent)) {
                    Some(sent) => {
                        if !pending.keys.is_empty() {
                            state.senders.arrived(sent, &pending.keys);
                        }
                        withdrawn.push(pending);
                    }
                    None => state.inserts.push_back(pending),
                }
            }
            withdrawn
        });
        drop(withdrawn);
    }

    /// The sender will not come back, or is to be told that nothing is known of what he sent.
    pub fn forget_sender(&self, sender: &Sender) {
        // Dropped after the lock.
        let _gone = lock(&self.state).senders.all.remove(sender);
    }
}
