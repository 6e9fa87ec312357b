//! The end of leased draws: acknowledged, or returned.

use super::SharedTable;
use crate::item::Key;
use crate::sample::{Lease, LeaseState, Lender};
use crate::sync::{Arc, lock};
use crate::table::types::lessee::Lessee;
use crate::table::types::table_contents::LeasedSlot;
use std::sync::Weak;

impl SharedTable {
    /// The table as its leases see it.
    pub(super) fn lender(self: &Arc<Self>) -> Weak<dyn Lender> {
        let table: Weak<Self> = Arc::downgrade(self);
        table
    }

    /// Leases the draws again that a request held when the journal ended.
    pub(crate) fn lease_again(self: &Arc<Self>, lessee: Lessee, slots: &[LeasedSlot]) -> Lease {
        let keys = self.decide(|state, now| state.table.lease_again(lessee, slots, now.as_nanos() as u64));
        Lease::of(&self.lender(), lessee, &keys)
    }
}

impl Lender for SharedTable {
    fn acknowledge(&self, lessee: &Lessee, keys: &[Key]) {
        self.decide(|state, _| state.table.acknowledge(lessee, keys));
    }

    /// Hands draws over, but not after the table was closed: its last checkpoint may have them.
    fn try_acknowledge(&self, lessee: &Lessee, keys: &[Key]) -> bool {
        self.decide(|state, _| {
            if !state.closed {
                state.table.acknowledge(lessee, keys);
            }
            !state.closed
        })
    }

    /// The draws of a closed table may be in a last checkpoint, for the next server.
    fn lease_state(&self, _: &Lessee) -> LeaseState {
        if lock(&self.state).closed { LeaseState::Ended } else { LeaseState::Held }
    }

    /// Works also after the table was closed: a last checkpoint contains these items.
    fn return_draws(&self, lessee: &Lessee, keys: &[Key]) {
        self.decide(|state, _| state.table.return_draws(lessee, keys));
    }
}
