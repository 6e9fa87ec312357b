//! A table as one of several shards: its tally for the client that draws from all, and the inserts granted to it.

use super::Table;
use crate::table::policy::selector::Selector;
use crate::table::types::blocks::InsertBlock;
use crate::table::types::tally::{SeenTally, Tally};
use std::time::Duration;

impl Table {
    /// True if the table, with this many waiting inserts, differs from what was seen.
    pub fn differs(&self, seen: &SeenTally, waiting_inserts: u64) -> bool {
        seen.incarnation != self.incarnation
            || self.counters.inserts > seen.inserts
            || seen.ration != self.ration()
            || seen.waiting_inserts != waiting_inserts
    }

    fn ration(&self) -> Option<u64> {
        self.options.limiter.is_rationed().then_some(self.ration)
    }

    /// The table's figures at this moment; the owner of its queues fills in `waiting_inserts` and `now`.
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

    /// Grants inserts up to a total, those before included. A smaller total revokes unused grants.
    ///
    /// Ignored for another incarnation: a grant sent before a reset is void.
    pub fn grant(&mut self, incarnation: u64, ration: u64) {
        if incarnation == self.incarnation {
            self.ration = ration.max(self.counters.inserts);
        }
    }

    /// True if one more item may be inserted.
    #[inline]
    pub fn can_insert(&self) -> bool {
        self.can_insert_many(1)
    }

    /// True if this many more items may be inserted.
    #[inline]
    pub fn can_insert_many(&self, n: u64) -> bool {
        let limiter = &self.options.limiter;
        match limiter.is_rationed() {
            true => self.counters.inserts.saturating_add(n) <= self.ration,
            false => limiter.can_insert(&self.counters, n),
        }
    }

    /// The reason why one insert has to wait; `None` if it need not.
    pub fn blocked_insert(&self) -> Option<InsertBlock> {
        let limiter = &self.options.limiter;
        let (inserts, ration) = (self.counters.inserts, self.ration);
        match limiter.is_rationed() {
            true => (!self.can_insert()).then_some(InsertBlock::RationUsedUp { inserts, ration }),
            false => limiter.blocked_insert(&self.counters),
        }
    }
}
