//! One table's part in its server's budget of bytes.

use super::SharedTable;
use crate::sync::lock;
use crate::table::waiting::budget::Holder;
use crate::table::waiting::reason;

impl Holder for SharedTable {
    fn serve_waiting(&self) -> bool {
        let waits = !lock(&self.state).inserts.is_empty();
        waits && self.decide_alone(|_, _| ()).1
    }

    fn is_starving(&self) -> bool {
        lock(&self.state).waits_for_bytes()
    }

    fn makes_room_for(&self, items: u64, bytes: u64) -> bool {
        let state = lock(&self.state);
        state.closed || state.table.makes_room_for(items, bytes)
    }

    fn refuse_starving(&self) -> bool {
        let Some(budget) = self.budget.as_deref() else { return false };
        let mut any = false;
        loop {
            let refused = {
                let mut state = lock(&self.state);
                let starved = state.starves(budget).filter(|starved| !budget.moving_helps(starved));
                starved.and_then(|starved| Some((state.inserts.pop_first()?, reason::refusal(&self.name, &starved))))
            };
            let Some((pending, refusal)) = refused else { return any };
            any = true;
            pending.give_up(refusal);
            self.decide_alone(|_, _| ());
        }
    }

    fn consumes(&self) -> bool {
        let state = lock(&self.state);
        let (table, leased) = (&state.table, state.table.leased() > 0);
        // Samples that wait for more inserts free nothing.
        let draws_free = leased || (!table.is_empty() && table.limiter().can_sample(table.counters(), 1));
        (state.table.options().max_times_sampled > 0 && draws_free) || state.moved
    }
}
