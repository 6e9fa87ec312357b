//! A table as one of several shards: what it tells whoever draws from all of them, and what that admits to it.

use super::Table;
use crate::table::policy::selector::Selector;
use crate::table::types::blocks::InsertBlock;
use crate::table::types::tally::{Seen, Tally};
use std::time::Duration;

impl Table {
    /// True where the table, with so many inserts that wait, is not what was seen.
    pub fn differs(&self, seen: &Seen, waiting_inserts: u64) -> bool {
        seen.incarnation != self.incarnation
            || self.counters.inserts > seen.inserts
            || seen.ration != self.ration()
            || seen.waiting_inserts != waiting_inserts
    }

    fn ration(&self) -> Option<u64> {
        self.options.limiter.is_rationed().then_some(self.ration)
    }

    /// What the table is at this moment; whoever holds its queues fills in `waiting_inserts` and `now`.
    pub fn tally(&mut self) -> Tally {
        Tally {
            shard: self.options.shard,
            incarnation: self.incarnation,
            size: self.len() as u64,
            mass: self.sampler.weighed(),
            smallest_probability: self.sampler.smallest_probability(),
            counters: self.counters,
            ration: self.ration(),
            waiting_inserts: 0,
            now: Duration::ZERO,
        }
    }

    /// Admits inserts up to so many in all, those before included; fewer than before take back what was not used. Only
    /// for the incarnation that is meant: an order that was on its way during a reset is void.
    pub fn grant(&mut self, incarnation: u64, ration: u64) {
        if incarnation == self.incarnation {
            self.ration = ration.max(self.counters.inserts);
        }
    }

    /// True when one more item may come in.
    #[inline]
    pub fn can_insert(&self) -> bool {
        self.can_insert_many(1)
    }

    /// True when so many more items may come in.
    #[inline]
    pub fn can_insert_many(&self, n: u64) -> bool {
        let limiter = &self.options.limiter;
        match limiter.is_rationed() {
            true => self.counters.inserts.saturating_add(n) <= self.ration,
            false => limiter.can_insert(&self.counters, n),
        }
    }

    /// Why one insert has to wait; `None` where it has not.
    pub fn blocked_insert(&self) -> Option<InsertBlock> {
        let limiter = &self.options.limiter;
        let (inserts, ration) = (self.counters.inserts, self.ration);
        match limiter.is_rationed() {
            true => (!self.can_insert()).then_some(InsertBlock::RationUsedUp { inserts, ration }),
            false => limiter.blocked_insert(&self.counters),
        }
    }
}
