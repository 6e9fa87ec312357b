//! One table shared by many threads: the lock, the two queues of waiting requests, and the completions.
//!
//! The lock is held for decisions: a batch of draws, a group of inserts. Bytes are copied, items dropped and
//! waiters woken after it is released.

mod changing;
mod copying;
mod durable;
mod figures;
mod leases;
mod querying;
mod saving;
mod sending;
mod starving;
mod why;
mod withdrawing;

use super::budget::Budget;
use super::copies::CopyExtension;
use super::deferred_work::DeferredWork;
use super::durable::TableJournal;
use super::insert_queue::{InsertQueue, PendingInsert};
use super::promise::OutcomeCell;
use super::queues::{DRAWS_AT_ONCE, MEASURED_EVERY, RemainingWork, TableState};
use super::sample_queue::{PendingSample, SampleQueue};
use super::senders::Senders;
use super::ticket::Ticket;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Draws, Lease, SampleRequest};
use crate::sync::{Arc, DecisionGuard, Mutex, lock};
use crate::table::policy::table::Table;
use crate::table::types::blocked_times::BlockedTimes;
use crate::table::types::info::Times;
use crate::table::types::inserts::{Inserts, Keys, Priority};
use crate::table::types::options::{Change, TableOptions};
use crate::table::types::senders::SentInsert;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::OnceLock;
use std::time::Duration;

/// A table behind its lock.
pub struct SharedTable {
    name: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) budget: Option<Arc<Budget>>,
    /// Tables that get copies of its items.
    pub(super) copying: OnceLock<Vec<CopyExtension>>,
    /// The journal that what is done here is written to.
    durable: OnceLock<Arc<dyn TableJournal>>,
    /// Guards the table and both queues. Only decisions run under it.
    ///
    /// Never under it: copying or decoding bytes, waiting, waking, dropping items, taking any other lock.
    pub(super) state: Mutex<TableState>,
}

/// Lets other threads take over when the waking thread panicked.
struct DriverPanicGuard<'a>(&'a SharedTable);

impl Drop for DriverPanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = lock(&self.0.state);
            (state.driven, state.moved) = (false, false);
        }
    }
}

impl SharedTable {
    /// An empty table. `seed` is random, or fixed in tests: keys of different incarnations differ by it.
    pub fn new(options: TableOptions, clock: Arc<dyn Clock>, seed: u64) -> Result<Arc<Self>> {
        Self::with_budget(options, clock, seed, None)
    }

    pub(super) fn with_budget(
        options: TableOptions,
        clock: Arc<dyn Clock>,
        seed: u64,
        budget: Option<Arc<Budget>>,
    ) -> Result<Arc<Self>> {
        let mut incarnations = Xoshiro256PlusPlus::seed_from_u64(seed);
        let name = options.name.clone();
        let table = Table::new(options, incarnations.next_u64())?;
        let state = TableState {
            table,
            inserts: InsertQueue::default(),
            samples: SampleQueue::new(),
            pending_tallies: Vec::new(),
            senders: Senders::default(),
            next_id: 0,
            incarnations,
            closed: false,
            times: Times::default(),
            inserts_blocked: BlockedTimes::default(),
            samples_blocked: BlockedTimes::default(),
            created: clock.now(),
            operations: 0,
            driven: false,
            moved: false,
        };
        let (copying, durable) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Self { name, clock, budget, copying, durable, state: Mutex::new(state) }))
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the lock for one decision, serves the requests that can continue after it, and finishes outside.
    pub(super) fn decide<R>(&self, decision: impl FnOnce(&mut TableState, Duration) -> R) -> R {
        let (result, freed, starves) = self.decide_alone(decision);
        if let Some(budget) = self.budget.as_ref().filter(|budget| freed || starves || budget.is_starving()) {
            budget.settle();
        }
        result
    }

    /// Like [`SharedTable::decide`], at this table only; returns whether items left it, and whether an insert waits for
    /// bytes.
    pub(super) fn decide_alone<R>(&self, decision: impl FnOnce(&mut TableState, Duration) -> R) -> (R, bool, bool) {
        let (result, mut freed, mut starves, mut rest) = self.hold(decision);
        // Very many draws, items that must leave, or inserts that may continue: this thread continues, and releases the
        // lock in between.
        let driving = rest.is_any().then(|| DriverPanicGuard(self));
        while rest.is_any() {
            let (more, mine) = (freed, rest);
            ((), freed, starves, rest) = self.hold(|state, _| state.resume(mine));
            freed |= more;
        }
        drop(driving);
        (result, freed, starves)
    }

    /// One hold of the lock; returns the remaining work, which the caller must continue.
    fn hold<R>(&self, decision: impl FnOnce(&mut TableState, Duration) -> R) -> (R, bool, bool, RemainingWork) {
        let now = self.clock.now();
        let mut after = DeferredWork::default();
        let mut state = lock(&self.state);
        let deciding = DecisionGuard::new();
        let result = decision(&mut state, now);
        let budget = self.budget.as_deref();
        let draws = state.serve(now, budget, &mut after);
        let rest = RemainingWork { draws, moves: !state.moved && state.must_move(budget) };
        state.driven |= rest.draws;
        state.moved |= rest.moves;
        state.note_blocked(now, budget);
        state.serve_pending_tallies(now, &mut after);
        let mut freed = state.table.has_dropped();
        if freed {
            (after.items, after.emptied) = state.table.take_dropped();
        }
        let mut starves = budget.is_some() && state.waits_for_bytes();
        budget.iter().for_each(|budget| budget.note_largest_item(&state.table));
        let first = state.table.take_first_draws();
        drop((deciding, state));
        if !first.is_empty() {
            let (more, waits) = self.copy(first);
            (freed, starves) = (freed | more, starves | waits);
        }
        after.run();
        (result, freed, starves, rest)
    }

    /// Refuses a priority that [`SharedTable::insert`] would refuse.
    pub fn check_priority(&self, priority: Priority) -> Result<()> {
        match priority {
            Priority::Value(value) => lock(&self.state).table.check_priority(value),
            Priority::Max | Priority::Default => Ok(()),
        }
    }

    /// Refuses items that [`SharedTable::insert`] would refuse; inserts nothing.
    ///
    /// For a caller that inserts into several tables, and must not stop halfway.
    pub fn check(&self, items: &[(Item, Priority)]) -> Result<()> {
        if let Some(budget) = &self.budget {
            budget.refuse_unsatisfiable(&self.name, self, items)?;
        }
        self.check_writable(items.iter().map(|(item, _)| item))?;
        lock(&self.state).check(&self.name, items)
    }

    /// Enqueues items, in order, as one request. Waits for no other request; with a journal it reads chunks of the
    /// items that are on the disk and must be written again.
    ///
    /// The limiter admits each item on its own; the ticket is done when all are in the table. If the table can never
    /// take one of the items, the request is refused and nothing is inserted.
    pub fn insert(self: &Arc<Self>, items: Inserts) -> Result<Ticket<Keys>> {
        self.insert_of(items, None, Keys::new())
    }

    /// See [`SharedTable::insert`] and [`SharedTable::insert_sent`].
    pub(super) fn insert_of(
        self: &Arc<Self>,
        items: Inserts,
        sent: Option<SentInsert>,
        before: Keys,
    ) -> Result<Ticket<Keys>> {
        self.check_durable()?;
        if let Some(budget) = &self.budget {
            budget.refuse_unsatisfiable(&self.name, &**self, &items)?;
        }
        self.check_writable(items.iter().map(|(item, _)| item))?;
        // Refused items are dropped after the decision.
        let mut offered = items;
        let ticket = self.decide(|state, now| {
            state.accept(&self.name, &offered)?;
            let mut items = std::mem::take(&mut offered).into_iter();
            let mut keys = before;
            let origin = sent.map(|sent| state.senders.origin(sent));
            let next = match state.inserts.is_empty() {
                true => {
                    let started = state.measured().then(|| self.clock.now());
                    let next = state.admit(&mut items, &mut keys, None, None, now, self.budget.as_deref());
                    if let Some(started) = started {
                        state.times.inserting += (self.clock.now() - started) * MEASURED_EVERY;
                    }
                    next
                }
                false => items.next(),
            };
            if next.is_none() {
                if let Some(origin) = origin {
                    state.senders.arrived(origin, &keys);
                }
                return Ok(Ticket::done(Ok(keys)));
            }
            let (id, cell) = (state.take_id(), OutcomeCell::new());
            let cell_of = Arc::clone(&cell);
            let pending = PendingInsert { id, items, next, keys, origin, since: now, cell: cell_of, copy: None };
            state.inserts.put(pending);
            Ok(Ticket::waiting(self.clone(), id, cell, false))
        })?;
        Ok(self.durable_request(ticket))
    }

    /// Enqueues a request for draws; never blocks. The ticket is done when all draws are made.
    pub fn sample(self: &Arc<Self>, request: SampleRequest) -> Result<Ticket<Draws>> {
        // Refused draws, and their lease, are dropped after the decision.
        let mut draws = Draws::with_capacity(request.num_samples);
        let waiting = self.decide(|state, now| {
            state.check_open(&self.name)?;
            if state.samples.is_empty() {
                let started = state.measured().then(|| self.clock.now());
                let filled = state.fill(&request, &mut draws, now, &mut { DRAWS_AT_ONCE });
                filled.inspect_err(|_| _ = state.undo(&draws))?;
                if let Some(started) = started {
                    state.times.sampling += (self.clock.now() - started) * MEASURED_EVERY;
                }
            }
            if draws.done() == request.num_samples {
                return Ok(None);
            }
            let (id, cell) = (state.take_id(), OutcomeCell::new());
            let (lender, draws) = (self.lender(), std::mem::take(&mut draws));
            state.samples.push_back(PendingSample { id, request, draws, since: now, cell: Arc::clone(&cell), lender });
            Ok(Some((id, cell)))
        })?;
        let ticket = match waiting {
            Some((id, cell)) => Ticket::waiting(self.clone(), id, cell, true),
            None => {
                if let Some(lessee) = draws.lessee {
                    draws.lease = Lease::of(&self.lender(), lessee, &draws.keys);
                }
                Ticket::done(Ok(draws))
            }
        };
        Ok(self.durable_draws(ticket))
    }

    /// Looks items up; does not count as sampling.
    pub fn get(&self, keys: &[i64]) -> Result<Draws> {
        let state = lock(&self.state);
        state.check_open(&self.name)?;
        state.table.get(keys)
    }

    /// Drops all items and resets all counts; waiting requests keep their places.
    pub fn reset(&self) -> Result<()> {
        self.decide(|state, _| {
            state.check_open(&self.name)?;
            let incarnation = state.incarnations.next_u64();
            state.table.reset(incarnation);
            self.forget_copied();
            Ok(())
        })
    }

    /// Changes limits while the table is in use; waiting requests are served under the new ones.
    pub fn configure(&self, change: Change) -> Result<()> {
        self.decide(|state, _| {
            state.check_open(&self.name)?;
            state.table.configure(change)
        })
    }

    /// Fails every waiting request, and refuses later ones. Idempotent.
    pub fn close(&self) {
        let now = self.clock.now();
        let (inserts, samples, pending_tallies) = {
            let mut state = lock(&self.state);
            let _deciding = DecisionGuard::new();
            state.closed = true;
            // For a last checkpoint: the inserted part of inserts that wait.
            let arrivals = state.arrivals();
            state.senders.restore(arrivals);
            let waiting = (
                std::mem::take(&mut state.inserts),
                std::mem::take(&mut state.samples),
                std::mem::take(&mut state.pending_tallies),
            );
            state.note_blocked(now, None);
            waiting
        };
        let closed = || Error::Closed { name: self.name.clone() };
        inserts.into_all().for_each(|pending| pending.fail(closed()));
        for pending in samples {
            Arc::clone(&pending.cell).fill(Err(closed()));
            // Its leased draws are returned.
            drop(pending.into_draws());
        }
        pending_tallies.iter().for_each(|pending| pending.cell.fill(Err(closed())));
    }

    /// True if sampling removes items: an item whose draw is lost may exist nowhere else.
    pub fn deletes_sampled(&self) -> bool {
        lock(&self.state).table.options().max_times_sampled > 0
    }
}
