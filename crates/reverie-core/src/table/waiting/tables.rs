//! The tables of one server: found by name, with their shared budget of bytes.

use super::budget::{Budget, BudgetedTable};
use super::durable::COMMIT_GRACE;
use super::held::HeldLeases;
use super::queues::TableState;
use super::shared::SharedTable;
use super::ticket::Ticket;
use crate::append::Sink;
use crate::chunk::{Compression, Meter, TierOptions};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Draws, Lease, SampleRequest, Source};
use crate::spec::Signature;
use crate::sync::lock;
use crate::table::policy::extensions;
use crate::table::policy::forgotten_senders::ForgottenSenders;
use crate::table::policy::table::restore::TableCut;
use crate::table::types::inserts::{Inserts, Keys, Priority};
use crate::table::types::journal::JournalInfo;
use crate::table::types::lessee::Lessee;
use crate::table::types::options::TableOptions;
use crate::table::types::senders::Sender;
use crate::table::types::table_contents::LeasedSlot;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// All tables of a server as they were at one moment.
#[derive(Debug)]
pub struct ServerCut {
    /// The cuts, in the order of the tables.
    pub tables: Vec<TableCut>,
    /// See [`Tables::forgotten`].
    pub forgotten: Vec<Sender>,
    /// The reading of the tables' clock.
    pub now: Duration,
    /// The time for which the tables were locked.
    pub pause: Duration,
}

/// All tables of one server.
pub struct Tables {
    tables: Vec<Arc<SharedTable>>,
    clock: Arc<dyn Clock>,
    meter: Arc<Meter>,
    max_bytes: Option<u64>,
    /// Guards the names only.
    forgotten: Mutex<ForgottenSenders>,
    held: HeldLeases,
    checkpointer: OnceLock<Checkpointer>,
    /// The clock's reading in the newest checkpoint. Held for a copy; no request waits for it.
    saved_at: Mutex<Option<Duration>>,
}

/// Takes a checkpoint of all tables, and returns its path. Blocks.
pub type Checkpointer = Arc<dyn Fn() -> Result<String> + Send + Sync>;

impl Tables {
    /// Empty tables. `seed` is random, or fixed in tests.
    pub fn new(options: Vec<TableOptions>, max_bytes: Option<u64>, clock: &Arc<dyn Clock>, seed: u64) -> Result<Self> {
        Self::with_disk(options, max_bytes, None, clock, seed)
    }

    /// Tables with a disk tier, to which chunks move when its memory is used up.
    pub fn with_disk(
        options: Vec<TableOptions>,
        max_bytes: Option<u64>,
        tier: Option<(TierOptions, Arc<dyn Disk>)>,
        clock: &Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Self> {
        if options.is_empty() {
            return Err(Error::InvalidArgument("a server needs at least one table".to_owned()));
        }
        Self::or_none(options, max_bytes, tier, clock, seed)
    }

    /// No tables, for a page that shows runs of other processes.
    pub fn none(clock: &Arc<dyn Clock>) -> Result<Self> {
        Self::or_none(Vec::new(), None, None, clock, 0)
    }

    fn or_none(
        options: Vec<TableOptions>,
        max_bytes: Option<u64>,
        tier: Option<(TierOptions, Arc<dyn Disk>)>,
        clock: &Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Self> {
        if max_bytes == Some(0) {
            return Err(Error::InvalidArgument("the server's max_bytes must be at least 1".to_owned()));
        }
        let meter = Arc::new(Meter::default());
        let has_budget = max_bytes.is_some() || tier.is_some();
        if let Some((options, disk)) = tier {
            meter.set_tier(options, disk)?;
        }
        let budget = has_budget.then(|| Arc::new(Budget::new(Arc::clone(&meter), max_bytes, options.len())));
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tables: Vec<Arc<SharedTable>> = Vec::with_capacity(options.len());
        let extensions: Vec<_> = options.iter().map(|of| (of.name.clone(), of.extensions.clone())).collect();
        for options in options {
            if tables.iter().any(|table| table.name() == options.name) {
                return Err(Error::InvalidArgument(format!("two tables have the name '{}'", options.name)));
            }
            let table = SharedTable::with_budget(options, Arc::clone(clock), seeds.next_u64(), budget.clone())?;
            if budget.as_ref().is_some_and(|budget| budget.needs_largest_items()) {
                lock(&table.state).table.keep_largest_item(tables.len());
            }
            tables.push(table);
        }
        let all: Vec<_> = tables.iter().map(|table| (table.name(), table.signature())).collect();
        extensions::check(&all, &extensions)?;
        tables.iter().zip(&extensions).for_each(|(table, (_, extensions))| table.copy_to(extensions, &tables));
        if let Some(budget) = &budget {
            budget.hold(tables.iter().map(|table| {
                let table: Weak<SharedTable> = Arc::downgrade(table);
                table as Weak<dyn BudgetedTable>
            }));
            let waiting = Arc::downgrade(budget);
            meter.on_freed(move || waiting.upgrade().iter().for_each(|budget| budget.packed()));
        }
        Ok(Self {
            tables,
            clock: Arc::clone(clock),
            meter,
            max_bytes,
            forgotten: Mutex::default(),
            held: HeldLeases::default(),
            checkpointer: OnceLock::new(),
            saved_at: Mutex::default(),
        })
    }

    /// The table with this name.
    pub fn get(&self, name: &str) -> Result<&Arc<SharedTable>> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| Error::UnknownTable {
            name: name.to_owned(),
            known: self.tables.iter().map(|table| table.name().to_owned()).collect(),
        })
    }

    /// All tables in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SharedTable>> {
        self.tables.iter()
    }

    /// The meter of the bytes of all chunks, and the limit.
    pub fn bytes(&self) -> (&Arc<Meter>, Option<u64>) {
        (&self.meter, self.max_bytes)
    }

    /// Sets what takes checkpoints when a client asks for one. False if that was set before.
    pub fn set_checkpointer(&self, checkpointer: Checkpointer) -> bool {
        self.checkpointer.set(checkpointer).is_ok()
    }

    /// See [`Tables::set_checkpointer`].
    pub fn checkpointer(&self) -> Option<&Checkpointer> {
        self.checkpointer.get()
    }

    /// Notes a checkpoint of the tables that is on the disk: `at` is the reading of their clock in it.
    pub fn note_saved(&self, at: Duration) {
        *self.saved_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// The age of the newest checkpoint that was taken or restored; `None` if there was none.
    pub fn checkpoint_age(&self) -> Option<Duration> {
        let at = *self.saved_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.map(|at| self.now().saturating_sub(at))
    }

    /// The figures of the journal; `None` without one.
    pub fn journal(&self) -> Option<JournalInfo> {
        self.tables.first().and_then(|table| table.journal())
    }

    /// True if a journal has what it acknowledges on the disk later.
    pub fn is_durable_later(&self) -> bool {
        self.tables.first().is_some_and(|table| table.is_durable_later())
    }

    /// The time for which a request may wait for the journal beyond its deadline, see [`COMMIT_GRACE`]; zero without a
    /// journal.
    pub fn commit_grace(&self) -> Duration {
        if self.journal().is_some() { COMMIT_GRACE } else { Duration::ZERO }
    }

    /// A ticket that is done once everything done before this call is on the disk; see [`TableJournal::durable`].
    ///
    /// `InvalidArgument` without a journal.
    ///
    /// [`TableJournal::durable`]: super::durable::TableJournal::durable
    pub fn durable(&self, at_once: bool) -> Ticket<()> {
        let durable = self.tables.first().and_then(|table| table.durable(at_once));
        durable.unwrap_or_else(|| {
            let reason = "nothing becomes durable: this server has no journal; start it with \
                          `journal=reverie.Journal(folder)` or `reverie serve --journal FOLDER`";
            Ticket::done(Err(Error::InvalidArgument(reason.to_owned())))
        })
    }

    /// A consistent cut of all tables. Fails once they are closed.
    ///
    /// All tables are locked together while references to their pages are taken. This is the only place that holds
    /// several tables' locks, always taken in the tables' order.
    pub fn cut(&self) -> Result<ServerCut> {
        self.cut_where(TableState::check_open)
    }

    /// A cut of closed tables as they were when they were closed. Fails while one is open.
    ///
    /// Nothing is inserted or acknowledged any more.
    pub fn last_cut(&self) -> Result<ServerCut> {
        self.cut_where(TableState::check_closed)
    }

    fn cut_where(&self, fits: impl Fn(&TableState, &str) -> Result<()>) -> Result<ServerCut> {
        let mut states = Vec::with_capacity(self.tables.len());
        let mut started = None;
        for table in &self.tables {
            states.push(lock(&table.state));
            started.get_or_insert_with(|| self.clock.now());
        }
        self.tables.iter().zip(&states).try_for_each(|(table, state)| fits(state, table.name()))?;
        let cut = |state: &mut TableState| {
            // A journal continues after the cut, which has no leases.
            state.table.note_all_leases();
            TableCut { sent: state.arrivals(), ..state.table.snapshot() }
        };
        let tables = states.iter_mut().map(|state| cut(state)).collect();
        let now = self.clock.now();
        drop(states);
        let started = started.unwrap_or(now);
        // After the tables: a sender that is forgotten meanwhile is either still known to the tables, or in this list.
        let forgotten = self.forgotten().names();
        Ok(ServerCut { tables, forgotten, now, pause: now.saturating_sub(started) })
    }

    /// Senders that were forgotten while they might still retry inserts that are done.
    pub fn forgotten(&self) -> MutexGuard<'_, ForgottenSenders> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases draws again that a request held when the journal ended, until its client claims them.
    pub fn hold_lease(&self, table: &str, lessee: Lessee, slots: &[LeasedSlot]) -> Result<()> {
        let lease = self.get(table)?.lease_again(lessee, slots);
        self.held.add(lessee.sender, lessee.request, lease);
        Ok(())
    }

    /// The leases that a client held when the journal ended, with the numbers of its requests. A second call returns
    /// none.
    pub fn claim_leases(&self, sender: &Sender) -> Vec<(u64, Lease)> {
        self.held.claim(sender)
    }

    /// True if a client that held draws when the journal ended has not claimed them.
    pub fn holds_leases(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends the leases that were not claimed: the draws are undone. Returns the number of draws.
    pub fn end_held_leases(&self) -> usize {
        self.held.end()
    }

    /// Fails if a table is closed.
    pub fn check_open(&self) -> Result<()> {
        self.tables.iter().try_for_each(|table| lock(&table.state).check_open(table.name()))
    }

    /// True if all tables are closed.
    pub fn are_closed(&self) -> bool {
        self.tables.iter().all(|table| lock(&table.state).check_open(table.name()).is_err())
    }

    /// The reading of the tables' clock.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Closes every table; idempotent.
    pub fn close(&self) {
        self.tables.iter().for_each(|table| table.close());
        if let Some(tier) = self.meter.tier() {
            tier.close();
        }
    }
}

impl Source for Tables {
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>> {
        self.get(table)?.sample(request)
    }
}

impl Sink for Tables {
    /// With a disk tier the caller itself moves chunks to the disk where memory is used up, so that an insert of this
    /// process does not wait for another thread to do so.
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.meter.make_room();
        self.get(table)?.insert(items)
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.get(table)?.check(items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.get(table)?.check_priority(priority)
    }

    fn signature(&self, table: &str) -> Result<Option<Signature>> {
        self.get(table).map(|table| table.signature())
    }

    fn wait_reason(&self, table: &str) -> Ticket<String> {
        Ticket::done(self.get(table).map(|table| table.why().to_string()))
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        self.get(table).map(|table| table.compression())
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}
