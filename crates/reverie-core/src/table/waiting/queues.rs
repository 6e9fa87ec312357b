//! What a table's lock guards: the state machine, and the requests that wait for it, as data.
//!
//! Two queues, inserts and samples, each in order of arrival. Whoever changes the counters tries both heads: with one
//! queue, a sample behind a blocked insert would wait for ever.

use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Draws, SampleRequest};
use crate::sync::Arc;
use crate::table::copies::Copy;
use crate::table::info::Times;
use crate::table::insert_queue::{InsertQueue, PendingInsert};
use crate::table::lease::Lease;
use crate::table::sent::{Arrivals, Sender, Senders};
use crate::table::shared::{Priority, SharedTable};
use crate::table::table::{Dropped, Emptied, Seen, Table, Tally};
use crate::table::tables::{Budget, Starved};
use crate::table::ticket::{Cell, Keys};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

pub(in crate::table) struct State {
    pub(in crate::table) table: Table,
    pub(in crate::table) inserts: InsertQueue,
    pub(in crate::table) samples: VecDeque<PendingSample>,
    /// Who waits for the table to be another than he knows, in no order.
    pub(in crate::table) looks: Vec<PendingLook>,
    /// What is in of those who may send it again.
    pub(in crate::table) senders: Senders,
    pub(in crate::table) next_id: u64,
    pub(in crate::table) incarnations: Xoshiro256PlusPlus,
    pub(in crate::table) closed: bool,
    pub(in crate::table) times: Times,
    /// Since when each queue has not been empty.
    pub(in crate::table) inserts_since: Option<Duration>,
    pub(in crate::table) samples_since: Option<Duration>,
    pub(in crate::table) created: Duration,
    pub(in crate::table) operations: u32,
    /// Somebody makes the draws of the first waiting request, a hold of the lock after the other.
    pub(in crate::table) driven: bool,
    /// A thread takes out items that must leave, and takes in inserts that may go in, over several holds of the lock; others
    /// leave that to it.
    pub(in crate::table) moved: bool,
}

/// What is left to do after a hold of the lock, for the thread that held it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::table) struct Rest {
    /// See [`State::driven`].
    pub(in crate::table) draws: bool,
    /// See [`State::moved`].
    pub(in crate::table) moves: bool,
}

impl Rest {
    pub(in crate::table) fn is_any(self) -> bool {
        self.draws || self.moves
    }
}

/// Draws that are made under one hold of the lock, of all requests together; beyond, others get their turn. A request
/// without replacement is not cut: what it drew already would have to be left out anew each time.
pub(in crate::table) const DRAWS_AT_ONCE: usize = 1 << 14;

/// Items that come in from the queue under one hold of the lock; a request is not cut for it.
const INSERTS_AT_ONCE: usize = 1 << 12;

/// One operation in this many is timed, and counted this often: a clock costs as much as an insert.
pub(in crate::table) const MEASURED_EVERY: u32 = 64;

pub(in crate::table) struct PendingSample {
    pub(in crate::table) id: u64,
    pub(in crate::table) request: SampleRequest,
    pub(in crate::table) draws: Draws,
    pub(in crate::table) since: Duration,
    pub(in crate::table) cell: Arc<Cell<Draws>>,
    /// Where leased draws go back to.
    pub(in crate::table) table: Weak<SharedTable>,
}

/// Whoever draws from several shards and has to wait: told when there is news.
pub(in crate::table) struct PendingLook {
    pub(in crate::table) id: u64,
    pub(in crate::table) seen: Seen,
    pub(in crate::table) cell: Arc<Cell<Tally>>,
}

/// What is left to do once the lock is released: tell the waiters, drop what left the table.
#[derive(Default)]
pub(in crate::table) struct After {
    pub(in crate::table) keys: Vec<(Arc<Cell<Keys>>, Result<Keys>)>,
    pub(in crate::table) draws: Vec<(Arc<Cell<Draws>>, PendingSample, Result<()>)>,
    pub(in crate::table) tallies: Vec<(Arc<Cell<Tally>>, Tally)>,
    pub(in crate::table) items: Dropped,
    pub(in crate::table) emptied: Vec<Emptied>,
    pub(in crate::table) late: Vec<PendingInsert>,
}

impl After {
    pub(in crate::table) fn run(self) {
        let Self { keys, draws, tallies, items, emptied, late } = self;
        keys.into_iter().for_each(|(cell, outcome)| cell.fill(outcome));
        draws.into_iter().for_each(|(cell, pending, outcome)| cell.fill(outcome.map(|()| pending.into_draws())));
        tallies.into_iter().for_each(|(cell, tally)| cell.fill(Ok(tally)));
        drop((items, emptied, late));
    }
}

impl PendingSample {
    pub(in crate::table) fn left(&self) -> u64 {
        (self.request.num_samples - self.draws.done()) as u64
    }

    /// The draws, with their lease. Called without the lock: a lease that is dropped takes it.
    pub(in crate::table) fn into_draws(self) -> Draws {
        let mut draws = self.draws;
        if draws.is_leased {
            draws.lease = Lease::of(&self.table, &draws);
        }
        draws
    }
}

impl State {
    /// Refuses items that the table can never take.
    pub(in crate::table) fn check(&mut self, name: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.open(name)?;
        items.iter().try_for_each(|(item, priority)| {
            let value = if let Priority::Value(value) = priority { *value } else { 0.0 };
            self.table.check(item, value)
        })
    }

    pub(in crate::table) fn open(&self, name: &str) -> Result<()> {
        if self.closed { Err(Error::Closed { name: name.to_owned() }) } else { Ok(()) }
    }

    pub(in crate::table) fn shut(&self, name: &str) -> Result<()> {
        if self.closed { Ok(()) } else { Err(Error::InvalidArgument(format!("the table '{name}' is open"))) }
    }

    /// What the first waiting insert wants of the server's bytes, where these hold it back and the limiter does not.
    pub(in crate::table) fn starves(&self, budget: &Budget) -> Option<Starved> {
        let item = self.inserts.first()?.next()?;
        if self.table.can_insert() { budget.blocks(&self.table, Some(item)) } else { None }
    }

    /// Continues what this thread left for its next hold of the lock.
    pub(in crate::table) fn resume(&mut self, rest: Rest) {
        if rest.draws {
            self.driven = false;
        }
        if rest.moves {
            self.moved = false;
            self.table.evict_some();
        }
    }

    /// True where a hold of the lock left items that must leave, or inserts that may go in.
    pub(in crate::table) fn must_move(&self, budget: Option<&Budget>) -> bool {
        let goes_in = |item| budget.is_none_or(|budget| budget.blocks(&self.table, Some(item)).is_none());
        let first = || self.inserts.first()?.next();
        self.table.is_over() || (self.table.can_insert() && first().is_some_and(goes_in))
    }

    pub(in crate::table) fn note_blocked(&mut self, now: Duration) {
        let note = |since: &mut Option<Duration>, waits: bool, total: &mut Duration| match (*since, waits) {
            (None, true) => *since = Some(now),
            (Some(start), false) => {
                *total += now.saturating_sub(start);
                *since = None;
            }
            _ => {}
        };
        note(&mut self.inserts_since, !self.inserts.is_empty(), &mut self.times.inserts_blocked);
        note(&mut self.samples_since, !self.samples.is_empty(), &mut self.times.samples_blocked);
    }

    pub(in crate::table) fn measured(&mut self) -> bool {
        self.operations = self.operations.wrapping_add(1);
        self.operations.is_multiple_of(MEASURED_EVERY)
    }

    pub(in crate::table) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Lets items in until one is held back, which is returned.
    pub(in crate::table) fn admit(
        &mut self,
        items: &mut impl Iterator<Item = (Item, Priority)>,
        keys: &mut Keys,
        first: Option<(Item, Priority)>,
        copy: Option<&Copy>,
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

    /// Makes draws for a request, as many as are allowed now, and at most as many as are `left` for this hold of the lock.
    pub(in crate::table) fn fill(
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
        let made = match (&request.windows, request.without_replacement) {
            (Some(windows), _) => self.table.draw_windows(wanted, windows, nanos, draws)?,
            (None, false) => self.table.draw(wanted, nanos, draws),
            (None, true) => self.table.draw_distinct(wanted, nanos, draws)?,
        };
        draws.tally = Some(self.tally(now));
        Ok(made)
    }

    /// Undoes leased draws of a request that is refused; true where there were some.
    pub(in crate::table) fn undo(&mut self, draws: &Draws) -> bool {
        if draws.is_leased {
            self.table.give_back(&draws.keys);
        }
        draws.is_leased && !draws.is_empty()
    }

    /// What the table is, those who wait included.
    pub(in crate::table) fn tally(&mut self, now: Duration) -> Tally {
        Tally { waiting_inserts: self.inserts.items(), now, ..self.table.tally() }
    }

    /// True where the table is not what was seen.
    pub(in crate::table) fn differs(&self, seen: &Seen) -> bool {
        self.table.differs(seen, self.inserts.items())
    }

    /// What is in of inserts that may be sent again, those that are in in part included.
    pub(in crate::table) fn arrivals(&self) -> Vec<(Sender, Arrivals)> {
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

    /// Finds out for whom there is news.
    pub(in crate::table) fn serve_looks(&mut self, now: Duration, after: &mut After) {
        if self.looks.is_empty() {
            return;
        }
        let waiting = self.inserts.items();
        for at in (0..self.looks.len()).rev() {
            if self.table.differs(&self.looks[at].seen, waiting) {
                let look = self.looks.swap_remove(at);
                after.tallies.push((look.cell, self.tally(now)));
            }
        }
    }

    /// Serves the heads of both queues until neither can go on: an insert may free a sample and the other way. True
    /// where the draws of one hold of the lock were used up before: the caller is to come again, and nobody else draws
    /// until then.
    pub(in crate::table) fn serve(&mut self, now: Duration, budget: Option<&Budget>, after: &mut After) -> bool {
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
}
