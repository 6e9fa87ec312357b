//! Unconfirmed inserts: kept until the server confirms them, and sent again on a new connection.
//!
//! There is a queue for each table, so that a table that takes no inserts does not block the others.

use super::insert_queue::{CreditUse, InsertQueue, InsertState};
use super::kept_inserts::{KeptInsert, KeptInserts};
use super::work::NewInsert;
use crate::items::{self, Encoder, PushOutcome};
use crate::proto;
use crate::transport::client::Outlet;
use reverie_core::item::Key;
use reverie_core::table::Keys;
use reverie_core::{Error, Result};
use std::collections::BTreeMap;

/// Requests in one message at most.
const MAX_REQUESTS: u64 = 4096;
/// Outcomes that are kept.
const OUTCOMES: usize = 4096;

/// Unconfirmed inserts.
#[derive(Default)]
pub(super) struct UnconfirmedInserts {
    /// The queues by the client's number of the table.
    queues: Vec<InsertQueue>,
    /// Bytes of inserts that were sent and are not confirmed, as the server counts them.
    in_flight: u64,
    /// The number of requests in the planned message.
    plan: Option<u64>,
    /// Bulk bytes that the first piece of the next request needs, if more than a message usually has.
    room: u64,
    /// Bulk bytes that were sent before their request, which will count for them.
    ahead: u64,
    /// Outcomes of inserts that were reported to their callers as unknown: the latest of them, by number.
    outcomes: BTreeMap<u64, Result<Keys>>,
    /// Inserts that were confirmed by an earlier server and are not confirmed again.
    again: usize,
}

/// The client's next step after a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// Nothing.
    Done,
    /// Ask the server, as soon as there is a connection.
    Ask,
}

/// The error for an insert that may be in its table or not.
pub(super) fn unknown_outcome(number: u64) -> Error {
    Error::UnknownOutcome { number }
}

/// The place of an insert: its queue, and its position there.
type QueuePlace = (usize, usize);

impl UnconfirmedInserts {
    pub(super) fn push(&mut self, new: NewInsert) {
        let table = new.table as usize;
        if table >= self.queues.len() {
            self.queues.resize_with(table + 1, InsertQueue::default);
        }
        self.queues[table].push(new);
    }

    /// True if no insert is unconfirmed.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(InsertQueue::is_empty)
    }

    /// The unconfirmed numbers.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.queues.iter().flat_map(InsertQueue::open).map(|insert| insert.id)
    }

    /// The smallest unconfirmed number.
    pub(super) fn first_id(&self) -> Option<u64> {
        self.queues.iter().filter_map(InsertQueue::first_id).min()
    }

    /// True if an insert can be sent with this many bytes allowed in flight.
    pub(super) fn can_send(&self, credit: u64) -> bool {
        let used = CreditUse { credit, all: self.in_flight, bulk: 0 };
        self.queues.iter().any(|queue| queue.can_send(used))
    }

    /// True if there is credit for cells that belong to no insert yet: at most what one table may use.
    pub(super) fn has_room(&self, credit: u64) -> bool {
        items::has_share(self.in_flight, self.in_flight, credit)
    }

    /// True if a message is planned and not taken.
    pub(super) fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    /// Plans a message, with the server's numbers of the tables, unless one is planned; returns its bulk bytes.
    /// `None` if there is nothing to send, or nothing may be sent.
    pub(super) fn plan(
        &mut self,
        encoder: &mut Encoder,
        tables: &[Option<u32>],
        credit: u64,
        message_bytes: u64,
    ) -> Option<u64> {
        if self.plan.is_none() && self.can_send(credit) {
            self.plan = self.fill(encoder, tables, credit, message_bytes);
        }
        self.plan.map(|_| encoder.planned_bytes())
    }

    /// Puts requests into the message; returns how many, or `None` if there are none.
    fn fill(&mut self, encoder: &mut Encoder, tables: &[Option<u32>], credit: u64, message_bytes: u64) -> Option<u64> {
        let room = self.room.max(message_bytes);
        let (mut requests, mut last) = (0, None);
        // The bytes that the items of the message count for, and the number of tables in it.
        let (mut counted, mut in_it) = (0, 0);
        while requests < MAX_REQUESTS {
            let bulk = self.ahead + encoder.planned_bytes();
            let used = CreditUse { credit, all: self.in_flight + counted + in_it * bulk, bulk };
            let Some(at) = self.choose(last, used) else { break };
            let queue = &mut self.queues[at];
            let Some(insert) = queue.next() else { break };
            let Some(table) = tables.get(at).copied().flatten() else {
                // Inserts into missing tables were refused when the connection was made.
                queue.pass_next();
                continue;
            };
            let id = insert.id;
            match encoder.push(id, table, &insert.items, room) {
                Ok(PushOutcome::Whole) => {
                    let (bytes, first) = queue.plan_next();
                    (counted, in_it) = (counted + bytes, in_it + u64::from(first));
                    (requests, last, self.room) = (requests + 1, Some((at, id)), 0);
                }
                Ok(PushOutcome::NoRoom { needed }) => {
                    self.room = needed;
                    return Some(requests);
                }
                Err(error) => queue.refuse_next(Err(error)),
            }
        }
        (requests > 0).then_some(requests)
    }

    /// The queue with the smallest number that may be sent: inserts keep their order as far as no table blocks them.
    fn choose(&mut self, last: Option<(usize, u64)>, used: CreditUse) -> Option<usize> {
        if let Some((at, id)) = last
            && self.queues[at].can_send(used)
            && self.queues[at].next().is_some_and(|insert| insert.id == id + 1)
        {
            return Some(at);
        }
        let ids = self.queues.iter_mut().enumerate().filter_map(|(at, queue)| {
            let id = if queue.can_send(used) { queue.next()?.id } else { return None };
            Some((id, at))
        });
        ids.min().map(|(_, at)| at)
    }

    /// The planned message, or what the encoder has to send without one; its bulk bytes go into the outlet.
    /// `None` if there is nothing.
    pub(super) fn take<O: Outlet>(&mut self, encoder: &mut Encoder, outlet: &mut O) -> Option<proto::Insert> {
        let plan = self.plan.take();
        let mut message = encoder.take(outlet.bulk())?;
        self.ahead += outlet.bulk().len();
        if plan.is_some_and(|requests| requests > 0) {
            let bulk = std::mem::take(&mut self.ahead);
            self.in_flight += self.queues.iter_mut().map(|queue| queue.sent(bulk)).sum::<u64>();
            message.in_flight_bytes = self.in_flight;
        }
        Some(message)
    }

    /// Sends inserts again that an earlier server confirmed and may have lost.
    pub(super) fn send_again(&mut self, kept: BTreeMap<u64, KeptInsert>) {
        self.again += kept.len();
        let mut of_tables: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for (id, KeptInsert { table, items, .. }) in kept {
            of_tables.entry(table).or_default().push((id, items));
        }
        for (table, inserts) in of_tables {
            self.queues[table as usize].push_again(inserts.into_iter());
        }
    }

    /// The number of inserts that an earlier server confirmed and this one has not.
    pub(super) fn again(&self) -> usize {
        self.again
    }

    /// Handles the confirmation that inserts are in their tables. They go to `kept` if they may not be on the disk;
    /// returns the numbers of those that have no room there.
    pub(super) fn inserted(
        &mut self,
        message: proto::Inserted,
        mut kept: Option<&mut KeptInserts>,
    ) -> Result<Vec<u64>> {
        let proto::Inserted { first_id, requests, keys } = message;
        let wrong =
            || Error::Protocol(format!("the server confirmed {requests} inserts from {first_id} that it was not sent"));
        let mut keys = keys.as_slice();
        let ids = first_id..first_id.saturating_add(u64::from(requests));
        if self.find(first_id).is_none() {
            // Already confirmed, and confirmed again because it was sent again; or ended by an error on this side.
            return if self.ids().any(|id| ids.contains(&id)) { Err(wrong()) } else { Ok(Vec::new()) };
        }
        let mut dropped = Vec::new();
        for id in ids {
            let (table, at) = self.find(id).ok_or_else(wrong)?;
            let (own, rest) = keys.split_at_checked(self.queues[table].at(at).count).ok_or_else(wrong)?;
            keys = rest;
            if let Some(kept) = &mut kept {
                let (items, bytes) = self.queues[table].at_mut(at).take_items();
                dropped.extend(kept.keep(id, (table as u32, items), bytes));
            }
            self.end((table, at), Ok(own.iter().copied().map(Key::from).collect()));
            self.queues[table].settle();
        }
        if keys.is_empty() { Ok(dropped) } else { Err(wrong()) }
    }

    /// Handles a refusal, or the end at a deadline with the keys inserted so far. False if the number is unknown.
    pub(super) fn refused(&mut self, id: u64, error: Error, keys: &[i64]) -> bool {
        let Some((table, at)) = self.find(id) else { return false };
        let outcome = match (self.queues[table].at(at).state, error) {
            (InsertState::Withdrawn, Error::Deadline(_)) => Ok(keys.iter().copied().map(Key::from).collect()),
            (_, error) => Err(error),
        };
        self.end((table, at), outcome);
        self.queues[table].settle();
        true
    }

    /// Withdraws an insert for its caller. An insert that was never sent is answered here.
    pub(super) fn withdraw(&mut self, id: u64) -> Withdrawal {
        let Some((table, at)) = self.find(id) else { return Withdrawal::Done };
        let insert = self.queues[table].at_mut(at);
        if insert.state != InsertState::Waits {
            return Withdrawal::Done;
        }
        if insert.pushed || insert.sent_before {
            insert.state = InsertState::Withdrawn;
            return Withdrawal::Ask;
        }
        self.end((table, at), Ok(Keys::new()));
        self.queues[table].settle();
        Withdrawal::Done
    }

    /// Withdrawn inserts whose outcome is not known: the client asks for it on a new connection.
    pub(super) fn withdrawn(&self) -> impl Iterator<Item = u64> {
        let open = self.queues.iter().flat_map(InsertQueue::open);
        open.filter(|insert| insert.state == InsertState::Withdrawn).map(|insert| insert.id)
    }

    /// Ends the caller's wait: the server did not report the outcome of a withdrawn insert in time.
    /// When the outcome arrives, it is kept for [`UnconfirmedInserts::insert_outcome`].
    pub(super) fn abandon(&mut self, id: u64) {
        let insert = self.find(id).map(|(table, at)| self.queues[table].at_mut(at));
        if let Some(promise) = insert.and_then(|insert| insert.promise.take()) {
            promise.fill(Err(unknown_outcome(id)));
        }
    }

    /// The outcome of an insert that was reported as unknown; `None` while it still is.
    pub(super) fn insert_outcome(&self, id: u64) -> Option<Result<Keys>> {
        if self.find(id).is_some() {
            return None;
        }
        let unknown = || Err(Error::InvalidArgument(format!("there is no outcome for an insert with the number {id}")));
        Some(self.outcomes.get(&id).cloned().unwrap_or_else(unknown))
    }

    /// Marks all inserts as unsent after the connection was lost, except those that were withdrawn.
    pub(super) fn lost(&mut self) {
        self.queues.iter_mut().for_each(InsertQueue::lost);
        (self.in_flight, self.plan, self.room, self.ahead) = (0, None, 0, 0);
    }

    /// Notes that the server was restarted: no waiting insert was sent to it.
    pub(super) fn server_restarted(&mut self) {
        self.queues.iter_mut().flat_map(InsertQueue::each_mut).for_each(|insert| insert.may_be_inserted = false);
    }

    /// Ends the inserts that were sent before to a server that forgot the session; returns how many they are.
    /// The server is the same: they may be in their tables, and sending them again could insert them twice.
    pub(super) fn forgotten(&mut self, error: &Error) -> usize {
        let mut num_unknown = 0;
        self.end_those(|_, may_be_inserted| {
            num_unknown += usize::from(may_be_inserted);
            may_be_inserted.then(|| error.clone())
        });
        num_unknown
    }

    /// Ends the inserts for which `refuse` returns an error.
    pub(super) fn fail(&mut self, mut refuse: impl FnMut(u32) -> Option<Error>) {
        self.end_those(|table, _| refuse(table));
    }

    /// Ends the inserts for which `refuse` returns an error, given their table and whether they may be in it.
    fn end_those(&mut self, mut refuse: impl FnMut(u32, bool) -> Option<Error>) {
        for table in 0..self.queues.len() {
            for at in 0..self.queues[table].len() {
                let insert = self.queues[table].at(at);
                if insert.state == InsertState::Done {
                    continue;
                }
                if let Some(error) = refuse(table as u32, insert.may_be_inserted) {
                    self.end((table, at), Err(error));
                }
            }
            self.queues[table].settle();
        }
    }

    fn find(&self, id: u64) -> Option<QueuePlace> {
        self.queues.iter().enumerate().find_map(|(table, queue)| Some((table, queue.find(id)?)))
    }

    /// Answers an insert, or keeps the outcome if its caller no longer waits.
    fn end(&mut self, (table, at): QueuePlace, outcome: Result<Keys>) {
        let insert = self.queues[table].at(at);
        if insert.again {
            self.again -= 1;
            if let Some(error) = outcome.as_ref().err().filter(|error| !matches!(error, Error::ClientClosed { .. })) {
                tracing::warn!("an insert that a server confirmed before it was restarted is lost: {error}");
            }
        } else if insert.promise.is_none() {
            self.outcomes.insert(insert.id, outcome.clone());
            if self.outcomes.len() > OUTCOMES {
                self.outcomes.pop_first();
            }
        }
        self.in_flight -= self.queues[table].end(at, outcome);
    }
}
