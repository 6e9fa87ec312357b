//! One table's part in its server's budget of bytes.

use super::SharedTable;
use crate::sync::lock;
use crate::table::waiting::budget::{Budget, BudgetedTable};
use crate::table::waiting::reason;

impl BudgetedTable for SharedTable {
    fn serve_waiting(&self) -> bool {
        let waits = !lock(&self.state).inserts.is_empty();
        waits && self.decide_alone(|_, _| ()).1
    }

    fn is_starving(&self) -> bool {
        lock(&self.state).waits_for_bytes()
    }

    fn makes_room_for(&self, items: u64, bytes: u64) -> bool {
        let state = lock(&self.state);
        let makes_room = |budget: &Budget| budget.makes_room(&state.table, items, bytes);
        state.closed || self.budget.as_deref().is_some_and(makes_room)
    }

    fn refuse_starving(&self) -> bool {
        let Some(budget) = self.budget.as_deref() else { return false };
        let mut any = false;
        loop {
            let refused = {
                let mut state = lock(&self.state);
                let starved = state.starves(budget).filter(|starved| !budget.moving_helps(starved));
                starved.and_then(|starved| {
                    let pending = state.inserts.pop_first()?;
                    if let (Some(origin), false) = (pending.origin, pending.keys.is_empty()) {
                        state.senders.arrived(origin, &pending.keys);
                    }
                    let refusal = reason::refusal(&self.name, &starved);
                    Some((pending, refusal))
                })
            };
            let Some((pending, refusal)) = refused else { return any };
            any = true;
            pending.fail(refusal);
            self.decide_alone(|_, _| ());
        }
    }

    fn consumes(&self) -> bool {
        let state = lock(&self.state);
        let table = &state.table;
        // Samples that wait for more inserts free nothing. The bytes of leased items are freed already.
        let draws_free = !table.is_empty() && table.limiter().can_sample(table.counters(), 1);
        (state.table.options().max_times_sampled > 0 && draws_free) || state.moved
    }
}
