//! Leased draws come to their end here: acknowledged, or given back.

use super::SharedTable;
use crate::item::Key;
use crate::sample::Lender;
use crate::sync::Arc;
use std::sync::Weak;

impl SharedTable {
    /// What leased draws of this table come to an end at.
    pub(super) fn lender(self: &Arc<Self>) -> Weak<dyn Lender> {
        let table: Weak<Self> = Arc::downgrade(self);
        table
    }
}

impl Lender for SharedTable {
    /// Leased draws reached their client; see [`Table::acknowledge`].
    fn acknowledge(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.acknowledge(keys));
    }

    /// Leased draws did not reach their client; see [`Table::give_back`]. Also where the table is closed: a last checkpoint has them.
    fn give_back(&self, keys: &[Key]) {
        self.decide(|state, _| state.table.give_back(keys));
    }
}
