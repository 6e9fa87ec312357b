//! Queries of items, searched in a cut, outside the lock.

use super::SharedTable;
use crate::error::Result;
use crate::sample::Draws;
use crate::sync::lock;
use crate::table::policy::slots::page::Cut;
use crate::table::types::changes::ChangeCounts;
use crate::table::types::query::{Condition, Query};

/// Items that one hold of the lock checks and deletes.
const AT_ONCE: usize = 1024;

impl SharedTable {
    /// The items that fulfil the query, at one moment; the result of [`SharedTable::get`] without the items.
    ///
    /// The lock is held to take references to the table's pages, not to search the items.
    pub fn query(&self, query: &Query) -> Result<Draws> {
        let (cut, shard, now, size) = self.look()?;
        let found = query.find(&cut, now);
        let mut draws = Draws::default();
        for (index, slot) in &found {
            draws.keys.push(cut.key(*index, shard));
            draws.priorities.push(slot.priority());
            draws.times_sampled.push(slot.times_sampled());
            draws.versions.push(slot.version());
            draws.inserted_at.push(slot.inserted_at);
        }
        draws.probabilities.resize(found.len(), 0.0);
        draws.table_sizes.resize(found.len(), size);
        Ok(draws)
    }

    /// Deletes items for which every condition holds, of those with `keys`, or of all.
    ///
    /// They are searched in a cut, and deleted a thousand at a time if the conditions still hold. Returns the number of
    /// deleted items, and of those that were gone by then or no longer fulfil the conditions.
    pub fn delete_where(&self, keys: Option<&[i64]>, conditions: &[Condition]) -> Result<ChangeCounts> {
        let (keys, now) = match keys {
            Some(keys) => {
                let now = self.clock.now().as_nanos() as u64;
                (keys.to_vec(), now)
            }
            None => {
                let (cut, shard, now, _) = self.look()?;
                let query = Query { conditions: conditions.to_vec(), ..Query::default() };
                let key = |(index, _)| cut.key(index, shard).get();
                (query.find(&cut, now).into_iter().map(key).collect(), now)
            }
        };
        let mut all = ChangeCounts::default();
        for some in keys.chunks(AT_ONCE) {
            let done = self.decide(|state, _| {
                state.check_open(&self.name)?;
                Ok(state.table.delete_where(some, conditions, now))
            })?;
            all.applied += done.applied;
            all.stale += done.stale;
        }
        Ok(all)
    }

    /// A cut of the items, the shard of their keys, the clock in nanoseconds, and the number of items.
    fn look(&self) -> Result<(Cut, u8, u64, u64)> {
        let now = self.clock.now().as_nanos() as u64;
        let mut state = lock(&self.state);
        state.check_open(&self.name)?;
        let (shard, size) = (state.table.options().shard, state.table.len() as u64);
        Ok((state.table.cut_present(), shard, now, size))
    }
}
