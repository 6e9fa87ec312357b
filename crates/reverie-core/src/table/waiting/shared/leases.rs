//! The end of leased draws: acknowledged, or returned.

use super::SharedTable;
use crate::item::Key;
use crate::sample::Lender;
use crate::sync::Arc;
use std::sync::Weak;

impl SharedTable {
    /// The table as its leases see it.
    pub(super) fn lender(self: &Arc<Self>) -> Weak<dyn Lender> {
        let table: Weak<Self> = Arc::downgrade(self);
        table
    }
}

impl Lender for SharedTable {
    fn acknowledge(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.acknowledge(keys));
    }

    /// Works also after the table was closed: a last checkpoint contains these items.
    fn give_back(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.give_back(keys));
    }
}
