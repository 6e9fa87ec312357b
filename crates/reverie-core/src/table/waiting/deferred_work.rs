//! The work that is left after a table's lock is released: wake threads, drop items.

use super::insert_queue::PendingInsert;
use super::promise::OutcomeCell;
use super::sample_queue::PendingSample;
use crate::error::Result;
use crate::sample::Draws;
use crate::sync::Arc;
use crate::table::policy::discarded_items::{DiscardedItems, RemovedItems};
use crate::table::types::inserts::Keys;
use crate::table::types::tally::Tally;

/// The work that remains after a table's lock is released: complete the waiters, drop items.
#[derive(Default)]
pub(super) struct DeferredWork {
    pub(super) keys: Vec<(Arc<OutcomeCell<Keys>>, Result<Keys>)>,
    pub(super) draws: Vec<(Arc<OutcomeCell<Draws>>, PendingSample, Result<()>)>,
    pub(super) tallies: Vec<(Arc<OutcomeCell<Tally>>, Tally)>,
    pub(super) items: RemovedItems,
    pub(super) emptied: Vec<DiscardedItems>,
    pub(super) late: Vec<PendingInsert>,
}

impl DeferredWork {
    pub(super) fn run(self) {
        let Self { keys, draws, tallies, items, emptied, late } = self;
        keys.into_iter().for_each(|(cell, outcome)| cell.fill(outcome));
        draws.into_iter().for_each(|(cell, pending, outcome)| cell.fill(outcome.map(|()| pending.into_draws())));
        tallies.into_iter().for_each(|(cell, tally)| cell.fill(Ok(tally)));
        drop((items, emptied, late));
    }
}
