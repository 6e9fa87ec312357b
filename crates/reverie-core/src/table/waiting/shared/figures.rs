//! The figures of a shared table, and its tally.

use super::SharedTable;
use crate::chunk::Compression;
use crate::error::Result;
use crate::spec::Signature;
use crate::sync::{Arc, lock};
use crate::table::types::blocked_times::BlockedTimes;
use crate::table::types::info::TableInfo;
use crate::table::types::tally::{SeenTally, Tally};
use crate::table::waiting::promise::OutcomeCell;
use crate::table::waiting::sample_queue::PendingTally;
use crate::table::waiting::ticket::Ticket;

impl SharedTable {
    /// The figures.
    pub fn info(&self) -> TableInfo {
        self.drop_late();
        let copies = self.copied();
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let max_priority = state.table.max_priority();
        let table = &state.table;
        let mut times = state.times;
        times.alive = now.saturating_sub(state.created);
        times.inserts_blocked = state.inserts_blocked.at(now).total();
        times.samples_blocked = state.samples_blocked.at(now).total();
        TableInfo {
            options: table.options().clone(),
            counters: *table.counters(),
            size: table.len() as u64,
            bytes: table.bytes(),
            num_episodes: table.num_episodes(),
            stats: table.stats().clone(),
            times,
            pending_inserts: state.inserts.items(),
            leased: table.leased(),
            pending_samples: state.samples.iter().fold(0, |all, pending| pending.left().saturating_add(all)),
            max_priority,
            copies,
        }
    }

    /// The times during which inserts and samples waited, by reason.
    pub fn blocked(&self) -> (BlockedTimes, BlockedTimes) {
        let (now, state) = (self.clock.now(), lock(&self.state));
        (state.inserts_blocked.at(now), state.samples_blocked.at(now))
    }

    /// True if the limiter allows `n` more draws now; false once the table is closed.
    pub fn can_sample(&self, n: u64) -> bool {
        let state = lock(&self.state);
        !state.closed && state.samples.is_empty() && state.table.limiter().can_sample(state.table.counters(), n)
    }

    /// True if the limiter allows `n` more inserts now; false once the table is closed.
    pub fn can_insert(&self, n: u64) -> bool {
        self.drop_late();
        let state = lock(&self.state);
        !state.closed && state.inserts.is_empty() && state.table.can_insert_many(n)
    }

    /// The columns that every item must have.
    pub fn signature(&self) -> Option<Signature> {
        lock(&self.state).table.options().signature.clone()
    }

    /// The compression of chunks written for this table.
    pub fn compression(&self) -> Compression {
        lock(&self.state).table.options().compression
    }

    /// The figures of this shard, for a client that draws from several, after a grant of inserts if there is one.
    ///
    /// `grant` is an incarnation and a total number of inserts; see [`Table::grant`](super::Table::grant).
    pub fn tally(&self, grant: Option<(u64, u64)>) -> Result<Tally> {
        let tally = match grant {
            Some((incarnation, ration)) => self.decide(|state, _| {
                state.check_open(&self.name)?;
                state.table.grant(incarnation, ration);
                Ok(())
            }),
            None => lock(&self.state).check_open(&self.name),
        };
        // Inserts that the grant admitted count.
        tally.map(|()| lock(&self.state).tally(self.clock.now()))
    }

    /// Returns the tally once the table differs from what was seen; never blocks.
    pub fn changed_tally(self: &Arc<Self>, grant: Option<(u64, u64)>, seen: SeenTally) -> Result<Ticket<Tally>> {
        self.decide(|state, now| {
            state.check_open(&self.name)?;
            if let Some((incarnation, ration)) = grant {
                state.table.grant(incarnation, ration);
            }
            if state.differs(&seen) {
                return Ok(Ticket::done(Ok(state.tally(now))));
            }
            let (id, cell) = (state.take_id(), OutcomeCell::new());
            state.pending_tallies.push(PendingTally { id, seen, cell: Arc::clone(&cell) });
            Ok(Ticket::waiting(self.clone(), id, cell, true))
        })
    }
}
