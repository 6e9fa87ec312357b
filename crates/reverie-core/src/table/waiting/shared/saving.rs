//! A shared table's part in checkpoints.

use super::SharedTable;
use crate::error::Result;
use crate::sync::lock;
use crate::table::policy::slots::page::Cut;
use crate::table::types::table_contents::TableContents;
use rand_core::RngCore;

impl SharedTable {
    /// A consistent cut of the items; the table can be used at once.
    pub fn cut(&self) -> Cut {
        lock(&self.state).table.cut_present()
    }

    /// Refuses what [`SharedTable::restore`] would refuse.
    pub fn check_restoring(&self, from: &TableContents) -> Result<()> {
        lock(&self.state).table.check_restoring(from)
    }

    /// Restores a checkpoint's items into the table, which must be empty and unused.
    ///
    /// See [`crate::table::Table::restore`].
    pub fn restore(&self, from: TableContents) -> Result<()> {
        // Refused items are dropped after the decision.
        let mut from = from;
        self.decide(|state, now| {
            state.check_open(self.name())?;
            state.table.check_restoring(&from)?;
            let incarnation = state.incarnations.next_u64();
            state.senders.restore(std::mem::take(&mut from.sent));
            state.table.restore(std::mem::take(&mut from), incarnation);
            state.created = now;
            Ok(())
        })
    }
}
