//! Inserts that take several requests: one item into several tables, or more items than one request may have.

use super::sink::Sink;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::table::{Inserts, Keys, Priority, Ticket};
use smallvec::{SmallVec, smallvec};
use std::time::Duration;

/// An insert of one item into several tables.
///
/// If a table refuses it, no table takes it. If a table fails later or the wait ends early, no further table takes it.
pub struct MultiTableInsert<'a> {
    taken: SmallVec<[&'a str; 2]>,
    /// In the order in which they were sent.
    waiting: SmallVec<[(&'a str, Ticket<Keys>); 2]>,
    num_tables: usize,
    not_committed: Option<String>,
}

impl<'a> MultiTableInsert<'a> {
    fn new(waiting: SmallVec<[(&'a str, Ticket<Keys>); 2]>, num_tables: usize) -> Self {
        Self { taken: SmallVec::new(), waiting, num_tables, not_committed: None }
    }

    /// Refuses tables that do not exist. A caller that stores the item itself calls it before.
    pub fn check_tables<'b>(sink: &dyn Sink, tables: impl IntoIterator<Item = &'b str>) -> Result<()> {
        tables.into_iter().try_for_each(|table| sink.compression(table).map(drop))
    }

    /// Sends the item to every table, with its priority there. `None`: every table has taken it at once.
    ///
    /// Does not wait. An item that one table refuses goes into none; if a table fails nevertheless, the inserts that
    /// still wait are withdrawn.
    #[inline]
    pub fn send(sink: &dyn Sink, item: Item, targets: &[(&'a str, Priority)]) -> Result<Option<Self>> {
        let [(table, priority)] = targets else { return Self::send_to_all(sink, item, targets) };
        let mut ticket = sink.insert(table, Inserts::from_buf([(item, *priority)]))?;
        match ticket.poll() {
            Some(taken) => taken.map(|_| None),
            None => Ok(Some(Self::new(smallvec![(*table, ticket)], 1))),
        }
    }

    #[inline(never)]
    fn send_to_all(sink: &dyn Sink, item: Item, targets: &[(&'a str, Priority)]) -> Result<Option<Self>> {
        for (table, priority) in targets {
            sink.check(table, &[(item.clone(), *priority)])?;
        }
        let mut insert = Self::new(SmallVec::new(), targets.len());
        for (table, priority) in targets {
            let sent = sink.insert(table, Inserts::from_buf([(item.clone(), *priority)]));
            let outcome = sent.and_then(|mut ticket| match ticket.poll() {
                Some(taken) => taken.map(|_| None),
                None => Ok(Some(ticket)),
            });
            match outcome {
                Ok(None) => insert.taken.push(table),
                Ok(Some(ticket)) => insert.waiting.push((table, ticket)),
                Err(error) => {
                    insert.waiting.iter_mut().for_each(|(_, ticket)| ticket.withdraw());
                    return Err(error);
                }
            }
        }
        Ok((!insert.waiting.is_empty()).then_some(insert))
    }

    /// Waits until every table has taken the item, at most for `timeout`. May return early with `None`.
    ///
    /// After an error the other inserts still wait: call [`MultiTableInsert::cancel`].
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<()>> {
        let mut timeout = timeout;
        while let Some((_, ticket)) = self.waiting.first_mut() {
            let outcome = ticket.wait(timeout)?;
            let (table, _) = self.waiting.remove(0);
            if let Err(error) = outcome {
                return Some(Err(error));
            }
            self.taken.push(table);
            // The time of one wait is not spent again on the next table.
            timeout = Duration::ZERO;
        }
        Some(Ok(()))
    }

    /// See [`Ticket::needs_commit`].
    pub fn needs_commit(&self) -> bool {
        self.waiting.first().is_some_and(|(_, ticket)| ticket.needs_commit())
    }

    /// Withdraws the inserts that wait: no table takes the item afterwards. Waits for at most `grace` for the commit of
    /// those that are done. Returns the first error of a withdrawal.
    pub fn cancel(&mut self, grace: Duration) -> Result<()> {
        let mut first: Option<Error> = None;
        self.waiting.iter_mut().for_each(|(_, ticket)| ticket.withdraw());
        for (table, ticket) in self.waiting.drain(..) {
            // One commit is that of all of them: a second wait would be for the same.
            let grace = if self.not_committed.is_some() { Duration::ZERO } else { grace };
            match ticket.cancel_within(grace) {
                Ok(keys) if keys.is_empty() => {}
                Ok(_) => self.taken.push(table),
                Err(Error::NotCommitted { why, .. }) => {
                    self.taken.push(table);
                    self.not_committed.get_or_insert(why);
                }
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The tables that have taken the item, as far as is known.
    pub fn taken(&self) -> &[&'a str] {
        &self.taken
    }

    /// The reason why the insert into one of these tables has no commit, if it was withdrawn before that.
    pub fn not_committed(&self) -> Option<&str> {
        self.not_committed.as_deref()
    }

    /// True if every table has taken the item, and no insert was withdrawn before its commit.
    pub fn is_complete(&self) -> bool {
        self.taken.len() == self.num_tables && self.not_committed.is_none()
    }

    /// The table whose insert is waited for.
    pub fn waits_for(&self) -> Option<&'a str> {
        self.waiting.first().map(|(table, _)| *table)
    }
}

/// An insert of items into one table, in as many requests as `max_items` demands: each is sent when the one before is
/// confirmed.
pub struct SplitInsert<'a> {
    sink: &'a dyn Sink,
    table: &'a str,
    parts: InsertParts,
    /// The ticket of the part that was sent last; taken once it is confirmed or has failed.
    ticket: Option<Ticket<Keys>>,
    keys: Keys,
    num_items: usize,
    not_committed: Option<String>,
}

impl<'a> SplitInsert<'a> {
    /// Sends the first part. Does not wait.
    pub fn send(sink: &'a dyn Sink, table: &'a str, items: Inserts, max_items: usize) -> Result<Self> {
        let num_items = items.len();
        let mut parts = InsertParts::of(items, max_items);
        let ticket = parts.next().map(|part| sink.insert(table, part)).transpose()?;
        Ok(Self { sink, table, parts, ticket, keys: Keys::new(), num_items, not_committed: None })
    }

    /// Waits until all items are in the table, at most for `timeout`. May return early with `None`.
    ///
    /// After an error nothing more is sent.
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<()>> {
        let mut timeout = timeout;
        while let Some(ticket) = &mut self.ticket {
            let outcome = ticket.wait(timeout)?;
            self.ticket = None;
            let next = self.without_part(outcome).and_then(|keys| {
                self.add(keys);
                self.parts.next().map(|part| self.sink.insert(self.table, part)).transpose()
            });
            match next {
                Ok(ticket) => self.ticket = ticket,
                Err(error) => return Some(Err(error)),
            }
            // The time of one wait is not spent again on the next part.
            timeout = Duration::ZERO;
        }
        Some(Ok(()))
    }

    /// See [`Ticket::needs_commit`].
    pub fn needs_commit(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::needs_commit)
    }

    /// Withdraws the part that waits, and sends no other. Its items that are in the table stay there; waits for at most
    /// `grace` for their commit.
    pub fn cancel(&mut self, grace: Duration) -> Result<()> {
        if let Some(ticket) = self.ticket.take() {
            let outcome = ticket.cancel_within(grace);
            match self.without_part(outcome) {
                Ok(keys) => self.add(keys),
                Err(Error::NotCommitted { keys, why }) => {
                    self.add(keys);
                    self.not_committed = Some(why);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The outcome of a request, after the keys were added of the part that is in though the rest was refused. The
    /// error has all keys then.
    fn without_part(&mut self, outcome: Result<Keys>) -> Result<Keys> {
        match outcome {
            Err(Error::PartlyInserted { keys, error }) => {
                self.add(keys);
                Err(Error::PartlyInserted { keys: self.keys.clone(), error })
            }
            outcome => outcome,
        }
    }

    fn add(&mut self, keys: Keys) {
        if self.keys.is_empty() {
            self.keys = keys;
        } else {
            self.keys.extend(keys);
        }
    }

    /// The keys of the items that are in the table, in order, as far as is known.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The reason why the last of these items have no commit, if they were withdrawn before that.
    pub fn not_committed(&self) -> Option<&str> {
        self.not_committed.as_deref()
    }

    /// True if all items are in the table, and none was withdrawn before its commit.
    pub fn is_complete(&self) -> bool {
        self.keys.len() == self.num_items && self.not_committed.is_none()
    }
}

/// Items in parts of at most `max_items`, in order.
pub struct InsertParts {
    rest: Inserts,
    max_items: usize,
}

impl InsertParts {
    /// The parts of these items, of which none is empty.
    pub fn of(items: Inserts, max_items: usize) -> Self {
        Self { rest: items, max_items: max_items.max(1) }
    }
}

impl Iterator for InsertParts {
    type Item = Inserts;

    fn next(&mut self) -> Option<Inserts> {
        if self.rest.len() <= self.max_items {
            return Some(std::mem::take(&mut self.rest)).filter(|rest| !rest.is_empty());
        }
        Some(self.rest.drain(..self.max_items).collect())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let parts = self.rest.len().div_ceil(self.max_items);
        (parts, Some(parts))
    }
}

impl ExactSizeIterator for InsertParts {}
