//! The data that a table's lock guards: the state machine, and the requests that wait for it, as data.
//!
//! There are two queues, inserts and samples, each in order of arrival. Every change of the counters tries both heads:
//! with one queue, a sample behind a blocked insert would wait for ever.

use super::budget::Budget;
use super::copies::InsertedCopy;
use super::deferred_work::DeferredWork;
use super::insert_queue::InsertQueue;
use super::sample_queue::{PendingTally, SampleQueue};
use super::senders::Senders;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Draws, SampleRequest};
use crate::sync::Arc;
use crate::table::policy::table::Table;
use crate::table::types::blocked_times::{BlockReason, BlockedTimes};
use crate::table::types::info::Times;
use crate::table::types::inserts::{Keys, Priority};
use crate::table::types::senders::{Arrivals, Sender};
use crate::table::types::tally::{SeenTally, Tally};
use crate::table::types::wait_report::{ByteLimit, ByteShortage};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

pub(super) struct TableState {
    pub(super) table: Table,
    pub(super) inserts: InsertQueue,
    pub(super) samples: SampleQueue,
    /// Requests that wait for the table to change, in no order.
    pub(super) pending_tallies: Vec<PendingTally>,
    /// The inserted part of inserts that may be retried.
    pub(super) senders: Senders,
    pub(super) next_id: u64,
    pub(super) incarnations: Xoshiro256PlusPlus,
    pub(super) closed: bool,
    pub(super) times: Times,
    pub(super) inserts_blocked: BlockedTimes,
    pub(super) samples_blocked: BlockedTimes,
    pub(super) created: Duration,
    pub(super) operations: u32,
    /// A thread makes the draws of the first waiting request, over several holds of the lock.
    pub(super) driven: bool,
    /// A thread evicts items and serves inserts, over several holds of the lock; others leave that work to it.
    pub(super) moved: bool,
}

/// The work that remains after a hold of the lock, for the thread that held it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemainingWork {
    /// See [`TableState::driven`].
    pub(super) draws: bool,
    /// See [`TableState::moved`].
    pub(super) moves: bool,
}

impl RemainingWork {
    pub(super) fn is_any(self) -> bool {
        self.draws || self.moves
    }
}

/// Draws made under one hold of the lock, of all requests together; after that, other threads get the lock.
///
/// A request without replacement is not split: the items that it drew already would have to be left out again each
/// time.
pub(super) const DRAWS_AT_ONCE: usize = 1 << 14;

/// Items inserted from the queue under one hold of the lock; a request is not split for it.
const INSERTS_AT_ONCE: usize = 1 << 12;

/// One operation in this many is timed, and counts this many times: reading a clock costs as much as an insert.
pub(super) const MEASURED_EVERY: u32 = 64;

impl TableState {
    /// Refuses items that the table can never take; leaves the table as it was.
    pub(super) fn check(&mut self, name: &str, items: &[(Item, Priority)]) -> Result<()> {
        let had_layout = self.table.has_layout();
        let outcome = self.accept(name, items);
        if !had_layout {
            self.table.forget_layout();
        }
        outcome
    }

    /// Refuses items that the table can never take; the first items set its layout.
    pub(super) fn accept(&mut self, name: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.check_open(name)?;
        self.forget_unused_layout();
        let had_layout = self.table.has_layout();
        let outcome = items.iter().try_for_each(|(item, priority)| {
            let value = if let Priority::Value(value) = priority { *value } else { 0.0 };
            self.table.admit(item, value)
        });
        if outcome.is_err() && !had_layout {
            self.table.forget_layout();
        }
        outcome
    }

    /// Forgets a layout of which no item is in the table or waits: the table was reset, or the insert that set the
    /// layout was withdrawn.
    pub(super) fn forget_unused_layout(&mut self) {
        if self.table.counters().inserts == 0 && self.inserts.is_empty() {
            self.table.forget_layout();
        }
    }

    pub(super) fn check_open(&self, name: &str) -> Result<()> {
        if self.closed { Err(Error::Closed { name: name.to_owned() }) } else { Ok(()) }
    }

    pub(super) fn check_closed(&self, name: &str) -> Result<()> {
        if self.closed { Ok(()) } else { Err(Error::InvalidArgument(format!("the table '{name}' is open"))) }
    }

    /// The bytes that the first waiting insert waits for, if only the server's budget holds it back.
    pub(super) fn starves(&self, budget: &Budget) -> Option<ByteShortage> {
        let item = self.inserts.first()?.next()?;
        if self.table.can_insert() { budget.blocks(&self.table, Some(item)) } else { None }
    }

    /// True if the first waiting insert may wait for bytes only: nothing else held it back.
    ///
    /// Reads no bytes: those that were freed since it was held back make no difference.
    pub(super) fn waits_for_bytes(&self) -> bool {
        self.inserts.first().is_some_and(|first| first.next().is_some()) && self.table.can_insert()
    }

    /// Continues the work that this thread left for its next hold of the lock.
    pub(super) fn resume(&mut self, rest: RemainingWork) {
        if rest.draws {
            self.driven = false;
        }
        if rest.moves {
            self.moved = false;
            self.table.evict_some();
        }
    }

    /// True if a hold of the lock left items that must leave, or inserts that may continue.
    pub(super) fn must_move(&self, budget: Option<&Budget>) -> bool {
        let goes_in = |item| budget.is_none_or(|budget| budget.blocks(&self.table, Some(item)).is_none());
        let first = || self.inserts.first()?.next();
        self.table.is_over() || (self.table.can_insert() && first().is_some_and(goes_in))
    }

    /// Notes what holds the first insert and the first sample back, after both were tried.
    pub(super) fn note_blocked(&mut self, now: Duration, budget: Option<&Budget>) {
        let insert = self.inserts.first().map(|first| match budget {
            _ if !self.table.can_insert() => BlockReason::Limiter,
            None => BlockReason::Turn,
            Some(budget) => match budget.blocks(&self.table, first.next()).map(|starved| starved.of) {
                Some(ByteLimit::Total) => BlockReason::Bytes,
                Some(ByteLimit::Memory) => BlockReason::Memory,
                None => BlockReason::Turn,
            },
        });
        self.inserts_blocked.note(insert, now);
        let sample = self.samples.front().map(|first| match first.request.without_replacement {
            _ if !self.table.limiter().can_sample(self.table.counters(), 1) => BlockReason::Limiter,
            true => BlockReason::Items,
            false => BlockReason::Turn,
        });
        self.samples_blocked.note(sample, now);
    }

    pub(super) fn measured(&mut self) -> bool {
        self.operations = self.operations.wrapping_add(1);
        self.operations.is_multiple_of(MEASURED_EVERY)
    }

    pub(super) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Inserts items until one is held back, which is returned.
    pub(super) fn admit(
        &mut self,
        items: &mut impl Iterator<Item = (Item, Priority)>,
        keys: &mut Keys,
        first: Option<(Item, Priority)>,
        copy: Option<&InsertedCopy>,
        now: Duration,
        budget: Option<&Budget>,
    ) -> Option<(Item, Priority)> {
        let mut next = first.or_else(|| items.next());
        while let Some((item, priority)) = next {
            if !self.table.can_insert()
                || budget.is_some_and(|budget| budget.blocks(&self.table, Some(&item)).is_some())
            {
                return Some((item, priority));
            }
            let value = match priority {
                Priority::Value(value) => value,
                Priority::Max => self.table.max_priority(),
                Priority::Default => self.table.default_priority(),
            };
            keys.push(match copy {
                None => self.table.insert(item, value, now.as_nanos() as u64),
                Some(copy) => {
                    copy.end(self.table.insert_copy(item, value, copy.key(), now.as_nanos() as u64));
                    copy.key()
                }
            });
            next = items.next();
        }
        None
    }

    /// Makes draws for a request, as many as are allowed now, and at most `left` in this hold of the lock.
    pub(super) fn fill(
        &mut self,
        request: &SampleRequest,
        draws: &mut Draws,
        now: Duration,
        left: &mut usize,
    ) -> Result<usize> {
        let wanted =
            (request.num_samples - draws.done()).min(if request.without_replacement { usize::MAX } else { *left });
        let made = self.fill_some(request, wanted, draws, now)?;
        *left = left.saturating_sub(made);
        Ok(made)
    }

    fn fill_some(&mut self, request: &SampleRequest, wanted: usize, draws: &mut Draws, now: Duration) -> Result<usize> {
        let nanos = now.as_nanos() as u64;
        // The options may have changed while the request waited.
        let consumes = self.table.options().max_times_sampled > 0;
        if consumes {
            draws.lessee = draws.lessee.or(request.lessee);
        }
        let made = match (&request.windows, request.without_replacement) {
            (Some(windows), _) => self.table.draw_windows(wanted, windows, nanos, draws)?,
            (None, false) => self.table.draw(wanted, nanos, draws),
            (None, true) => self.table.draw_distinct(wanted, nanos, draws)?,
        };
        draws.tally = Some(self.tally(now));
        draws.consuming |= consumes && made > 0;
        Ok(made)
    }

    /// Undoes leased draws of a request that is refused; true if there were any.
    pub(super) fn undo(&mut self, draws: &Draws) -> bool {
        if let Some(lessee) = &draws.lessee {
            self.table.return_draws(lessee, &draws.keys);
        }
        draws.lessee.is_some() && !draws.is_empty()
    }

    /// The table's tally, with the waiting inserts.
    pub(super) fn tally(&mut self, now: Duration) -> Tally {
        Tally { waiting_inserts: self.inserts.items(), now, ..self.table.tally() }
    }

    /// True if the table differs from what was seen.
    pub(super) fn differs(&self, seen: &SeenTally) -> bool {
        self.table.differs(seen, self.inserts.items())
    }

    /// The inserted part of inserts that may be retried, partly inserted ones included.
    pub(super) fn arrivals(&self) -> Vec<(Sender, Arrivals)> {
        let mut all = self.senders.cut();
        let parts = self.inserts.begun().filter_map(|pending| Some((pending.origin?, &pending.keys)));
        for (sent, keys) in parts.filter_map(|(origin, keys)| Some((self.senders.known(origin)?, keys))) {
            let at = all.binary_search_by_key(&sent.sender, |(sender, _)| *sender);
            let at = at.unwrap_or_else(|at| {
                all.insert(at, (sent.sender, Arrivals::new()));
                at
            });
            let arrivals = &mut all[at].1;
            match arrivals.binary_search_by_key(&sent.number, |(number, _)| *number) {
                Ok(at) => arrivals[at].1.clone_from(keys),
                Err(at) => arrivals.insert(at, (sent.number, keys.clone())),
            }
        }
        all
    }

    /// Completes the requests that waited for the table to change.
    pub(super) fn serve_pending_tallies(&mut self, now: Duration, after: &mut DeferredWork) {
        if self.pending_tallies.is_empty() {
            return;
        }
        let waiting = self.inserts.items();
        for at in (0..self.pending_tallies.len()).rev() {
            if self.table.differs(&self.pending_tallies[at].seen, waiting) {
                let pending = self.pending_tallies.swap_remove(at);
                after.tallies.push((pending.cell, self.tally(now)));
            }
        }
    }

    /// Serves the heads of both queues until neither can continue: an insert may unblock a sample, and the reverse.
    ///
    /// True if the draws of one hold of the lock were used up first: the caller must come again, and no other thread
    /// draws until then.
    pub(super) fn serve(&mut self, now: Duration, budget: Option<&Budget>, after: &mut DeferredWork) -> bool {
        let (mut left, mut goes_in) = (DRAWS_AT_ONCE, if self.moved { 0 } else { INSERTS_AT_ONCE });
        self.take_late(now, after);
        loop {
            if self.inserts.is_empty() && self.samples.is_empty() {
                return false;
            }
            let mut progress = false;
            while goes_in > 0
                && self.table.can_insert()
                && let Some(mut head) = self.inserts.pop_first()
            {
                let before = head.keys.len();
                head.next = match head.next.take() {
                    None => None,
                    first => self.admit(&mut head.items, &mut head.keys, first, head.copy.as_ref(), now, budget),
                };
                progress |= head.keys.len() > before;
                goes_in = goes_in.saturating_sub(head.keys.len() - before);
                if head.next.is_some() {
                    self.inserts.put(head);
                    break;
                }
                if let Some(origin) = head.origin {
                    self.senders.arrived(origin, &head.keys);
                }
                after.keys.push((head.cell, Ok(head.keys)));
            }
            while let Some(mut head) = self.samples.pop_front() {
                if self.driven || left == 0 {
                    self.samples.push_front(head);
                    break;
                }
                let before = head.draws.done();
                let outcome = self.fill(&head.request, &mut head.draws, now, &mut left);
                progress |= head.draws.done() > before;
                if outcome.is_ok() && head.draws.done() < head.request.num_samples {
                    self.samples.push_front(head);
                    break;
                }
                if outcome.is_err() {
                    progress |= self.undo(&head.draws);
                }
                after.draws.push((Arc::clone(&head.cell), head, outcome.map(drop)));
            }
            if left == 0 && !self.samples.is_empty() {
                return true;
            }
            if !progress {
                return false;
            }
        }
    }

    /// Removes copies that timed out from the queue.
    pub(super) fn take_late(&mut self, now: Duration, after: &mut DeferredWork) {
        while let Some(pending) = self.inserts.remove_late(now) {
            pending.copy.iter().for_each(|copy| copy.end(false));
            after.late.push(pending);
        }
    }
}
