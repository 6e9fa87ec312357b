//! Requests that are done at their tables and wait for the commit of the journal.

use super::super::latencies::Stopwatch;
use super::super::session::{CancellableRequest, FinishedRequest, Session};
use super::super::waits;
use super::requests::refusal;
use crate::proto;
use reverie_core::Error;
use reverie_core::table::{COMMIT_GRACE, Keys, SharedTable, Ticket, why_not_committed};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Session {
    /// Replies once the barrier of the table's journal is passed, or when the client withdraws the request.
    pub(super) fn reply_once_durable(
        &mut self,
        reply: proto::Reply,
        (mut barrier, table): (Ticket<()>, Arc<SharedTable>),
        stopwatch: Stopwatch,
    ) {
        let (sender, cancel) = oneshot::channel();
        let id = reply.id;
        self.spans.waits(id, waits::journal());
        self.cancels.insert(id, CancellableRequest::of_change(sender));
        self.waiting.push(Box::pin(async move {
            let durable = tokio::select! {
                biased;
                durable = &mut barrier => durable,
                Ok(()) = cancel => match tokio::time::timeout(COMMIT_GRACE, &mut barrier).await {
                    Ok(durable) => durable,
                    Err(_) => Err(not_committed(&table)),
                },
            };
            FinishedRequest::Reply(durable.map_or_else(|error| refusal(id, &error), |()| reply), Some(stopwatch))
        }));
    }

    /// Waits for the commit of an insert that its client did not send again: all of its items are in its table, or the
    /// first ones.
    pub(super) fn wait_for_commit(&mut self, id: u64, of: Option<(u32, usize)>, keys: Keys, stopwatch: Stopwatch) {
        let Some((number, num_items)) = of else { return };
        let Some(table) = self.shared.tables.iter().nth(number as usize).map(Arc::clone) else { return };
        let is_part = keys.len() < num_items;
        let ticket = table.durable_request(Ticket::done(Ok(keys)));
        self.inserts.add(id, number, num_items, (0, 0));
        self.inserts.mark_older(id);
        if !is_part {
            return self.wait_for_insert(id, table, (ticket, Keys::new()), stopwatch);
        }
        // It is not confirmed: if its client sends it again meanwhile, the rest goes in after this.
        self.inserts.mark_abandoned(id);
        self.waiting.push(Box::pin(async move {
            let late = Some("the insert was withdrawn".to_owned());
            FinishedRequest::Insert { id, keys: ticket.await, late, stopwatch }
        }));
    }
}

/// The error of a change that is done at its table and was withdrawn before its commit.
fn not_committed(table: &SharedTable) -> Error {
    let why = why_not_committed(&table.journal().unwrap_or_default());
    Error::NotCommitted { keys: Keys::new(), why }
}
