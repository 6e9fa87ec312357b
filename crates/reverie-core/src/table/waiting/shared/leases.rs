//! The end of leased draws: they are acknowledged, or given back.

use super::SharedTable;
use crate::item::Key;
use crate::sample::Lender;
use crate::sync::Arc;
use std::sync::Weak;

impl SharedTable {
    /// The table, as its leases know it.
    pub(super) fn lender(self: &Arc<Self>) -> Weak<dyn Lender> {
        let table: Weak<Self> = Arc::downgrade(self);
        table
    }
}

impl Lender for SharedTable {
    fn acknowledge(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.acknowledge(keys));
    }

    /// Works after the table was closed, too: a last checkpoint has these items.
    fn give_back(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.give_back(keys));
    }
}
