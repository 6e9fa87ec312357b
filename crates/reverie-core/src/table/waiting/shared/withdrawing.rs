//! Withdraws requests that wait: the completed part of a request becomes its outcome.

use super::SharedTable;
use crate::sample::Draws;
use crate::sync::lock;
use crate::table::types::inserts::Keys;
use crate::table::types::tally::Tally;
use crate::table::waiting::sample_queue::PendingSample;
use crate::table::waiting::ticket::RequestHolder;

impl RequestHolder<Keys> for SharedTable {
    fn withdraw(&self, id: u64) -> Option<Keys> {
        let withdrawn = self.decide(|state, _| state.inserts.remove(id));
        withdrawn.map(|pending| pending.keys)
    }

    fn retry(&self) {
        self.drop_late();
    }
}

impl RequestHolder<Draws> for SharedTable {
    fn withdraw(&self, id: u64) -> Option<Draws> {
        let withdrawn = self.decide(|state, _| {
            let index = state.samples.iter().position(|pending| pending.id == id)?;
            state.samples.remove(index)
        });
        withdrawn.map(PendingSample::into_draws)
    }
}

impl RequestHolder<Tally> for SharedTable {
    fn withdraw(&self, id: u64) -> Option<Tally> {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let index = state.pending_tallies.iter().position(|pending| pending.id == id)?;
        state.pending_tallies.swap_remove(index);
        Some(state.tally(now))
    }
}
