//! Inserts that are not confirmed: kept until the server says that they are in, and sent again on a new connection.

use super::outbox::NewInsert;
use crate::items::{self, Encoder, ITEM_BYTES, Pushed};
use crate::proto;
use crate::way::client::Outlet;
use reverie_core::item::Key;
use reverie_core::table::{Inserts as Items, Keys, Promise};
use reverie_core::{Error, Result};
use std::collections::{BTreeMap, VecDeque};

/// Requests of one message at most.
const MAX_REQUESTS: u64 = 4096;
/// Fates that are kept.
const FATES: usize = 4096;

/// Unconfirmed inserts, in the order of their numbers.
#[derive(Default)]
pub(super) struct Inserts {
    all: VecDeque<Insert>,
    /// How many, from the front, were sent on this connection.
    sent: usize,
    /// Bytes of those that were sent and are not confirmed, as the server counts them.
    in_flight: u64,
    /// Entries of `all` that are done with, behind one that is not.
    done: usize,
    /// The message that is being made.
    plan: Option<Plan>,
    /// Bulk bytes that the first piece of the next request needs, where it is more than a message usually has.
    room: u64,
    /// Bulk bytes that went before their request: it will count for them.
    ahead: u64,
    /// What became of inserts whose callers were told that it is not known: the last of them, by number.
    fates: BTreeMap<u64, Result<Keys>>,
}

/// What follows from a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// Nothing.
    Done,
    /// The server is to be asked now.
    AskNow,
    /// The server is to be asked when there is a connection.
    AskLater,
}

/// The error for an insert that may be in its table or not.
pub(super) fn unknown_fate(number: u64) -> Error {
    Error::UnknownFate { number }
}

/// The requests of a message: consecutive numbers.
#[derive(Clone, Copy)]
struct Plan {
    first_id: u64,
    requests: u64,
}

struct Insert {
    id: u64,
    /// The client's own number of the table.
    table: u32,
    /// Keys that the answer brings.
    count: usize,
    items: Items,
    /// `None` where nobody waits any more.
    promise: Option<Promise<Keys>>,
    bytes: u64,
    state: State,
    /// True where it was sent on this connection.
    pushed: bool,
    /// True where it was sent on a connection that is gone: it may be in its table.
    tried: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    /// The caller took it back: it is not sent again, and the server is asked what it did of it.
    Withdrawn,
    Done,
}

impl Inserts {
    pub(super) fn push(&mut self, new: NewInsert) {
        let NewInsert { id, table, items, promise } = new;
        let (count, promise) = (items.len(), Some(promise));
        self.all.push_back(Insert {
            id,
            table,
            count,
            items,
            promise,
            bytes: 0,
            state: State::Waits,
            pushed: false,
            tried: false,
        });
    }

    /// True where nothing waits for the server.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The numbers that are not confirmed.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|insert| insert.state != State::Done).map(|insert| insert.id)
    }

    /// The smallest number that is not confirmed.
    pub(super) fn first_id(&self) -> Option<u64> {
        self.all.front().map(|insert| insert.id)
    }

    /// True where one can be sent with so many bytes allowed to be in flight.
    pub(super) fn can_send(&self, credit: u64) -> bool {
        self.sent < self.all.len() && self.has_room(credit)
    }

    /// True where the server takes a message with cells now.
    pub(super) fn has_room(&self, credit: u64) -> bool {
        self.in_flight < credit
    }

    /// True where a message is made that was not taken.
    pub(super) fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    /// Puts what there is into a message with the server's numbers of the tables, unless one is made already; gives its
    /// bulk bytes. `None` where there is nothing to send, or nothing may be sent.
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

    fn fill(&mut self, encoder: &mut Encoder, tables: &[Option<u32>], credit: u64, message_bytes: u64) -> Option<Plan> {
        let mut plan: Option<Plan> = None;
        let room = self.room.max(message_bytes);
        let mut counted = self.in_flight;
        while let Some(insert) = self.all.get_mut(self.sent) {
            let follows = plan.is_none_or(|plan| insert.id == plan.first_id + plan.requests);
            let full = plan.is_some_and(|plan| plan.requests == MAX_REQUESTS);
            if insert.state == State::Waits && (full || !follows || counted >= credit) {
                break;
            }
            // Tables that are gone were refused when the connection was made.
            let table = tables.get(insert.table as usize).copied().flatten();
            if let (State::Waits, Some(table)) = (insert.state, table) {
                let first_id = insert.id;
                match encoder.push(insert.id, table, &insert.items, room) {
                    Ok(Pushed::Whole) => {
                        let plan = plan.get_or_insert(Plan { first_id, requests: 0 });
                        plan.requests += 1;
                        insert.pushed = true;
                        counted += insert.count as u64 * ITEM_BYTES;
                        self.room = 0;
                    }
                    Ok(Pushed::NoRoom { needed }) => {
                        self.room = needed;
                        return plan.or(Some(Plan { first_id, requests: 0 }));
                    }
                    Err(error) => {
                        let bytes = insert.finish(Err(error));
                        self.count_done(bytes);
                    }
                }
            }
            self.sent += 1;
        }
        plan
    }

    /// The message that was planned, or what the encoder has to say without one; its bulk bytes are put into the
    /// outlet. `None` where that is nothing.
    pub(super) fn take<O: Outlet>(&mut self, encoder: &mut Encoder, outlet: &mut O) -> Option<proto::Insert> {
        let plan = self.plan.take();
        let mut message = encoder.take(outlet.bulk())?;
        self.ahead += outlet.bulk().len();
        if let Some(Plan { first_id, requests: 1.. }) = plan {
            let all = items::credit_bytes(&message, std::mem::take(&mut self.ahead));
            self.in_flight += all;
            message.in_flight_bytes = self.in_flight;
            // The first answers for what is not the others' own.
            let mut rest = all;
            let at = self.all.partition_point(|insert| insert.id < first_id);
            let mut first = None;
            for insert in
                self.all.range_mut(at..self.sent).filter(|insert| insert.pushed && insert.state != State::Done)
            {
                insert.bytes = insert.count as u64 * ITEM_BYTES;
                rest -= insert.bytes.min(rest);
                first.get_or_insert(insert);
            }
            if let Some(first) = first {
                first.bytes += rest;
            }
        }
        Some(message)
    }

    /// These are in their tables.
    pub(super) fn inserted(&mut self, message: proto::Inserted) -> Result<()> {
        let proto::Inserted { first_id, requests, keys } = message;
        let wrong =
            || Error::Protocol(format!("the server confirmed {requests} inserts from {first_id} that it was not sent"));
        let mut keys = keys.as_slice();
        let ids = first_id..first_id.saturating_add(u64::from(requests));
        let Some(from) = self.find(first_id) else {
            // Known already, and told again because it was sent again; or given up.
            return if self.all.iter().any(|insert| ids.contains(&insert.id)) { Err(wrong()) } else { Ok(()) };
        };
        for (at, id) in (from..).zip(ids) {
            let insert = self.all.get_mut(at).filter(|insert| insert.id == id).ok_or_else(wrong)?;
            let (own, rest) = keys.split_at_checked(insert.count).ok_or_else(wrong)?;
            keys = rest;
            self.end(at, Ok(own.iter().copied().map(Key::from).collect()));
        }
        self.settle();
        if keys.is_empty() { Ok(()) } else { Err(wrong()) }
    }

    /// The server refused one, or ended it at its deadline with the keys of what is in. False where it is none of ours.
    pub(super) fn refused(&mut self, id: u64, error: Error, keys: &[i64]) -> bool {
        let Some(at) = self.find(id) else { return false };
        let outcome = match (self.all[at].state, error) {
            (State::Withdrawn, Error::Deadline(_)) => Ok(keys.iter().copied().map(Key::from).collect()),
            (_, error) => Err(error),
        };
        self.end(at, outcome);
        self.settle();
        true
    }

    /// The caller takes one back. One that was never sent is answered here.
    pub(super) fn withdraw(&mut self, id: u64) -> Withdrawal {
        let Some(at) = self.find(id).filter(|at| self.all[*at].state == State::Waits) else { return Withdrawal::Done };
        let insert = &mut self.all[at];
        if insert.pushed || insert.tried {
            insert.state = State::Withdrawn;
            return if insert.pushed { Withdrawal::AskNow } else { Withdrawal::AskLater };
        }
        self.end(at, Ok(Keys::new()));
        self.settle();
        Withdrawal::Done
    }

    /// Those that were taken back and whose fate is not known: to be asked for on a new connection.
    pub(super) fn withdrawn(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|insert| insert.state == State::Withdrawn).map(|insert| insert.id)
    }

    /// The server did not say in time what became of a withdrawn insert: the caller waits no longer. What became of it
    /// is kept for [`Inserts::fate`] when it is known.
    pub(super) fn abandon(&mut self, id: u64) {
        if let Some(promise) = self.find(id).and_then(|at| self.all[at].promise.take()) {
            promise.fill(Err(unknown_fate(id)));
        }
    }

    /// What became of an insert whose caller was told that it is not known; `None` where it still is not.
    pub(super) fn fate(&self, id: u64) -> Option<Result<Keys>> {
        if self.find(id).is_some() {
            return None;
        }
        let unknown = || Err(Error::InvalidArgument(format!("nothing is kept of an insert with the number {id}")));
        Some(self.fates.get(&id).cloned().unwrap_or_else(unknown))
    }

    /// The connection is gone: all is to be sent again, but for what was taken back.
    pub(super) fn lost(&mut self) {
        for insert in &mut self.all {
            insert.bytes = 0;
            insert.tried |= std::mem::take(&mut insert.pushed);
        }
        (self.sent, self.in_flight, self.plan, self.room, self.ahead) = (0, 0, None, 0, 0);
        self.settle();
    }

    /// The server is another one: nothing of what waits was sent to it.
    pub(super) fn renewed(&mut self) {
        self.all.iter_mut().for_each(|insert| insert.tried = false);
    }

    /// The server is the same and knows the session no more: what was sent before may be in its table, and would be in
    /// twice if it were sent again. Ends those, and gives how many they are.
    pub(super) fn forgotten(&mut self, error: &Error) -> usize {
        let tried = |insert: &Insert| insert.tried && insert.state != State::Done;
        let doubtful: Vec<_> = (0..self.all.len()).filter(|at| tried(&self.all[*at])).collect();
        for at in &doubtful {
            self.end(*at, Err(error.clone()));
        }
        self.settle();
        doubtful.len()
    }

    /// Ends those that `refuse` gives an error for.
    pub(super) fn fail(&mut self, mut refuse: impl FnMut(u32) -> Option<Error>) {
        for at in 0..self.all.len() {
            let insert = &mut self.all[at];
            if insert.state == State::Done {
                continue;
            }
            if let Some(error) = refuse(insert.table) {
                self.end(at, Err(error));
            }
        }
        self.settle();
    }

    fn find(&self, id: u64) -> Option<usize> {
        let is_front = self.all.front().is_some_and(|insert| insert.id == id);
        let at = if is_front { Some(0) } else { self.all.binary_search_by_key(&id, |insert| insert.id).ok() };
        at.filter(|at| self.all[*at].state != State::Done)
    }

    /// Answers one, or keeps the answer where its caller waits no longer.
    fn end(&mut self, at: usize, outcome: Result<Keys>) {
        let insert = &mut self.all[at];
        if insert.promise.is_none() {
            self.fates.insert(insert.id, outcome.clone());
            if self.fates.len() > FATES {
                self.fates.pop_first();
            }
        }
        let in_flight = insert.finish(outcome);
        self.count_done(in_flight);
    }

    fn count_done(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.done += 1;
    }

    /// Lets go of what is done at the front; and of all that is done where it is most.
    fn settle(&mut self) {
        while self.all.front().is_some_and(|insert| insert.state == State::Done) {
            self.all.pop_front();
            self.sent = self.sent.saturating_sub(1);
            self.done -= 1;
        }
        if self.done > 1024 && self.done > self.all.len() / 2 {
            let sent = self.all.iter().take(self.sent).filter(|insert| insert.state != State::Done).count();
            self.all.retain(|insert| insert.state != State::Done);
            (self.sent, self.done) = (sent, 0);
        }
    }
}

impl Insert {
    /// Answers, and lets go of the chunks; gives the bytes that are no longer in flight.
    fn finish(&mut self, outcome: Result<Keys>) -> u64 {
        self.state = State::Done;
        self.items = Items::new();
        if let Some(promise) = self.promise.take() {
            promise.fill(outcome);
        }
        std::mem::take(&mut self.bytes)
    }
}
