//! Leases from before a restart: each waits for its client to reconnect.

use crate::sample::Lease;
use crate::table::types::senders::Sender;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The draws that clients held when the journal ended, by client, with the numbers of the requests.
#[derive(Default)]
pub(super) struct HeldLeases(Mutex<HashMap<Sender, Vec<(u64, Lease)>>>);

impl HeldLeases {
    pub(super) fn add(&self, sender: Sender, request: u64, lease: Lease) {
        self.lock().entry(sender).or_default().push((request, lease));
    }

    pub(super) fn claim(&self, sender: &Sender) -> Vec<(u64, Lease)> {
        self.lock().remove(sender).unwrap_or_default()
    }

    /// Ends all. The leases are dropped without the lock.
    pub(super) fn end(&self) -> usize {
        let held = std::mem::take(&mut *self.lock());
        held.values().flatten().map(|(_, lease)| lease.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Sender, Vec<(u64, Lease)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
