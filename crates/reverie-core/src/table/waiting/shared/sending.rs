//! Inserts that a client may retry, at a shared table.

use super::SharedTable;
use crate::error::Result;
use crate::sync::{Arc, lock};
use crate::table::types::inserts::{Inserts, Keys};
use crate::table::types::senders::{Arrivals, Sender, SentInsert};
use crate::table::waiting::insert_queue::PendingInsert;
use crate::table::waiting::ticket::Ticket;

impl SharedTable {
    /// [`SharedTable::insert`] of a sender, remembered until the sender [received](SharedTable::received) its outcome.
    ///
    /// `before` are the keys of its first items, which are inserted already and not among `items`.
    pub fn insert_sent(self: &Arc<Self>, items: Inserts, sent: SentInsert, before: Keys) -> Result<Ticket<Keys>> {
        self.insert_of(items, Some(sent), before)
    }

    /// The sender will not retry inserts with a number below `below` or among `numbers`.
    pub fn received(&self, sender: &Sender, below: u64, numbers: &[u64]) {
        lock(&self.state).senders.received(sender, below, numbers);
    }

    /// The inserted part of a sender's inserts that it may retry.
    pub fn arrivals(&self, sender: &Sender) -> Arrivals {
        let state = lock(&self.state);
        state.senders.all.get(sender).map(|known| known.arrivals()).unwrap_or_default()
    }

    /// All senders known here: those with waiting or inserted items, until they are forgotten.
    pub fn senders(&self) -> Vec<Sender> {
        lock(&self.state).senders.all.keys().copied().collect()
    }

    /// Removes the sender's waiting inserts from the queue. Their inserted items stay known.
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

    /// Forgets a sender that will not reconnect, or that must find nothing known of what it sent.
    ///
    /// Its waiting inserts are still inserted, and nothing is noted of them, unless
    /// [`withdrawn`](SharedTable::withdraw_sender) before.
    pub fn forget_sender(&self, sender: &Sender) {
        // Dropped after the lock.
        let _gone = lock(&self.state).senders.forget(sender);
    }
}
