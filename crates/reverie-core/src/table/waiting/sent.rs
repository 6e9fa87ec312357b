//! Inserts that whoever sent them may send again: which are in, and under which keys.
//!
//! Kept where the items are, under the same lock, so that a checkpoint has both as they were at one moment: a server that
//! starts from it knows what it has, and does none of it twice.

use crate::error::Result;
use crate::sync::{Arc, lock};
use crate::table::insert_queue::PendingInsert;
use crate::table::shared::{Inserts, SharedTable};
use crate::table::ticket::{Keys, Ticket};
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

/// Where an insert came from, for as long as its sender is known.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct Origin {
    sent: Sent,
    /// See [`Known::since`].
    since: u64,
}

/// A sender, until it is forgotten.
#[derive(Debug)]
struct Known {
    /// Tells it from one of the same name that was forgotten before, of which inserts may still wait.
    since: u64,
    arrivals: VecDeque<(u64, Keys)>,
}

/// Of one table.
#[derive(Debug, Default)]
pub(in crate::table) struct Senders {
    all: HashMap<Sender, Known>,
    /// How many there were.
    count: u64,
}

impl Senders {
    /// An insert comes from there; its sender is known from now on.
    pub(in crate::table) fn origin(&mut self, sent: Sent) -> Origin {
        let known = self.all.entry(sent.sender).or_insert_with(|| {
            self.count += 1;
            Known { since: self.count, arrivals: VecDeque::new() }
        });
        Origin { sent, since: known.since }
    }

    /// Which insert it was; `None` where its sender was forgotten meanwhile.
    pub(in crate::table) fn known(&self, origin: Origin) -> Option<Sent> {
        let known = self.all.get(&origin.sent.sender)?;
        (known.since == origin.since).then_some(origin.sent)
    }

    /// An insert is in, whole. Nothing is kept of it where its sender was forgotten: no client would ever receive it.
    pub(in crate::table) fn arrived(&mut self, origin: Origin, keys: &Keys) {
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

    fn received(&mut self, sender: &Sender, below: u64, numbers: &[u64]) {
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
    pub(in crate::table) fn cut(&self) -> Vec<(Sender, Arrivals)> {
        let some = self.all.iter().filter(|(_, known)| !known.arrivals.is_empty());
        let mut all: Vec<_> = some.map(|(sender, known)| (*sender, known.arrivals.iter().cloned().collect())).collect();
        all.sort_unstable_by_key(|(sender, _)| *sender);
        all
    }

    pub(in crate::table) fn restore(&mut self, from: Vec<(Sender, Arrivals)>) {
        self.all.clear();
        for (sender, arrivals) in from {
            self.count += 1;
            self.all.insert(sender, Known { since: self.count, arrivals: arrivals.into() });
        }
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
        let state = lock(&self.state);
        state.senders.all.get(sender).map(|known| known.arrivals.iter().cloned().collect()).unwrap_or_default()
    }

    /// All senders that are known here: of inserts that wait or are in, until they are forgotten.
    pub fn senders(&self) -> Vec<Sender> {
        lock(&self.state).senders.all.keys().copied().collect()
    }

    /// Takes the sender's waiting inserts out of the queue. What is in of them stays known.
    pub fn withdraw_sender(&self, sender: &Sender) {
        let withdrawn: Vec<_> = self.decide(|state, _| {
            let own = |pending: &PendingInsert| {
                let sent = pending.origin.and_then(|origin| state.senders.known(origin));
                sent.is_some_and(|sent| sent.sender == *sender)
            };
            let ids: Vec<u64> = state.inserts.iter().filter(|pending| own(pending)).map(|pending| pending.id).collect();
            let withdrawn: Vec<_> = ids.into_iter().filter_map(|id| state.inserts.remove(id)).collect();
            for pending in withdrawn.iter().filter(|pending| !pending.keys.is_empty()) {
                if let Some(origin) = pending.origin {
                    state.senders.arrived(origin, &pending.keys);
                }
            }
            withdrawn
        });
        drop(withdrawn);
    }

    /// The sender will not come back, or is to be told that nothing is known of what it sent. Its inserts that wait go in
    /// all the same, and nothing is noted of them.
    pub fn forget_sender(&self, sender: &Sender) {
        // Dropped after the lock.
        let _gone = lock(&self.state).senders.all.remove(sender);
    }
}
