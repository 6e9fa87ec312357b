//! The requests that wait, since when, for what, and what would unblock them. `reason.rs` puts it into words.

use super::SharedTable;
use crate::sync::lock;
use crate::table::types::journal::JournalInfo;
use crate::table::types::wait_report::{
    ByteLimit, ByteShortage, InsertReason, MOST_REPORTED, SampleReason, WaitEntry, WaitReport,
};
use crate::table::waiting::budget::Budget;
use crate::table::waiting::insert_queue::PendingInsert;
use std::time::Duration;

impl SharedTable {
    /// The requests that wait, since when, for what, and what would unblock them.
    pub fn why(&self) -> WaitReport {
        self.drop_late();
        let now = self.clock.now();
        let journal = self.journal();
        let waits = journal.as_ref().filter(|journal| journal.waiting > 0);
        let waiting_for_disk = waits.map(|journal| (journal.waiting, journal.unsynced_bytes));
        let journal = journal.filter(|journal| journal.error.is_some());
        let state = lock(&self.state);
        let (table, limiter) = (&state.table, state.table.limiter());
        let counters = *table.counters();
        let waiting =
            |since: Duration, wanted: u64, done: u64| WaitEntry { since: now.saturating_sub(since), wanted, done };
        let next = state.inserts.first().and_then(PendingInsert::next);
        let bytes = self.budget.as_deref().and_then(|budget| budget.blocks(table, next));
        let blocked_insert = table.blocked_insert();
        let insert_reason = match (blocked_insert, bytes) {
            (Some(block), _) => Some(InsertReason::Limiter(block)),
            (None, Some(ByteShortage { of: ByteLimit::Total, held, needed, budget, .. })) => {
                Some(InsertReason::Bytes { held, needed, budget })
            }
            (None, Some(ByteShortage { of: ByteLimit::Memory, held, needed, budget, unmovable })) => {
                let stall_reason = self.budget.as_deref().and_then(Budget::stall_reason);
                Some(InsertReason::Memory { held, needed, budget, unmovable, stall_reason })
            }
            (None, None) => match &journal {
                Some(JournalInfo { is_full: true, error: Some(error), .. }) => {
                    Some(InsertReason::Journal(error.clone()))
                }
                _ => (!state.inserts.is_empty()).then_some(InsertReason::Turn),
            },
        };
        let blocked_sample = limiter.blocked_sample(&counters);
        let sample_blocked = blocked_sample.is_some();
        let sample_reason = match blocked_sample {
            Some(block) => Some(SampleReason::Limiter(block)),
            None => state.samples.front().map(|first| match first.request.without_replacement {
                true => SampleReason::TooFewItems { size: table.len() as u64 },
                false => SampleReason::Turn,
            }),
        };
        WaitReport {
            table: self.name.clone(),
            size: table.len() as u64,
            max_size: table.options().max_size,
            closed: state.closed,
            leased: table.leased(),
            counters,
            journal_error: journal.filter(|journal| !journal.is_full).and_then(|journal| journal.error),
            waiting_for_disk,
            num_inserts: state.inserts.iter().len() as u64,
            num_samples: state.samples.len() as u64,
            inserts: state
                .inserts
                .iter()
                .take(MOST_REPORTED)
                .map(|p| waiting(p.since, p.keys.len() as u64 + p.left(), p.keys.len() as u64))
                .collect(),
            samples: state
                .samples
                .iter()
                .take(MOST_REPORTED)
                .map(|p| waiting(p.since, p.request.num_samples as u64, p.draws.len() as u64))
                .collect(),
            // The client that grants rations can always grant more.
            stuck: blocked_insert.is_some() && sample_blocked && !limiter.is_rationed() && table.leased() == 0,
            insert_reason,
            sample_reason,
        }
    }
}
