//! The tables of one server: found by name, with the bytes that they may hold together.

use crate::append::Sink;
use crate::chunk::{Chunk, Compression, Meter};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Draws, SampleRequest, Source};
use crate::spec::Signature;
use crate::sync::lock;
use crate::table::copies;
use crate::table::forgotten::Forgotten;
use crate::table::options::TableOptions;
use crate::table::queues::State;
use crate::table::sent::Sender;
use crate::table::shared::{Inserts, Priority, SharedTable};
use crate::table::table::{Table, TableCut};
use crate::table::ticket::{Keys, Ticket};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The bytes that the chunks of a server's tables may take, and who waits for them.
///
/// What only writers and readers hold does not count: writers are bounded by what they may have in flight, and a
/// reader that waits for its own draws to be let go would wait for ever. Tables that take items in at the same moment
/// may pass the bound by an item each.
pub(in crate::table) struct Budget {
    meter: Arc<Meter>,
    max_bytes: u64,
    tables: OnceLock<Vec<Weak<SharedTable>>>,
    /// An insert waited for bytes when that was last looked at: who changes a table looks again.
    starving: AtomicBool,
}

/// Bytes that an insert waits for.
pub(in crate::table) struct Starved {
    pub(in crate::table) held: u64,
    pub(in crate::table) needed: u64,
    pub(in crate::table) budget: u64,
}

impl Budget {
    /// What an item (or the smallest there could be) waits for at this table; `None` where it need not, which is so
    /// where the insert makes room for itself.
    pub(in crate::table) fn blocks(&self, table: &Table, item: Option<&Item>) -> Option<Starved> {
        let (needed, most) = item.map_or((1, 1), |item| new_bytes(std::iter::once(item)));
        self.starved(needed).filter(|_| !table.makes_room_for(1, most))
    }

    fn starved(&self, needed: u64) -> Option<Starved> {
        let (held, budget) = (self.meter.table_bytes(), self.max_bytes);
        (held + needed > budget).then_some(Starved { held, needed, budget })
    }

    /// Refuses a group of which an item would wait for bytes that nothing that anybody does can free. Takes the
    /// tables' locks, one after the other.
    pub(in crate::table) fn refuse_hopeless(&self, table: &SharedTable, items: &[(Item, Priority)]) -> Result<()> {
        let (needed, most) = new_bytes(items.iter().map(|(item, _)| item));
        if self.starved(needed).is_none() {
            return Ok(());
        }
        let largest = items.iter().map(|(item, _)| new_bytes(std::iter::once(item)).1).max().unwrap_or(0);
        if largest > self.max_bytes {
            let (held, budget) = (self.meter.table_bytes(), self.max_bytes);
            return Err(self.refusal(table, &Starved { held, needed: largest, budget }));
        }
        if table.makes_room_for(items.len() as u64, most) || self.anything_consumed() {
            return Ok(());
        }
        // The last that could be consumed may have gone just now, and made room.
        self.starved(needed).map_or(Ok(()), |starved| Err(self.refusal(table, &starved)))
    }

    fn anything_consumed(&self) -> bool {
        self.tables().any(|table| table.consumes())
    }

    pub(in crate::table) fn refusal(&self, table: &SharedTable, starved: &Starved) -> Error {
        Error::ResourceExhausted {
            what: format!("an insert of {} bytes into table '{}' of this server", starved.needed, table.name()),
            needed: starved.held + starved.needed,
            budget: starved.budget,
            hint: "no table gives bytes back by being sampled: raise the server's max_bytes, lower max_size, \
                   or give the tables a max_bytes of their own"
                .to_owned(),
        }
    }

    /// True where an insert waited for bytes when that was last looked at.
    pub(in crate::table) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::SeqCst)
    }

    /// A chunk was packed: inserts that wait for bytes may go on. Touches no table while none waits for bytes.
    fn packed(&self) {
        // The bytes were counted before the mark is read; `settle` sets the mark before it reads the bytes.
        fence(Ordering::SeqCst);
        if self.is_starving() {
            self.settle();
        }
    }

    /// Bytes may have been freed, or the last hope for them: inserts that wait for bytes go on, or are refused.
    pub(in crate::table) fn settle(&self) {
        loop {
            // An insert that goes on may free bytes for another, by what it evicts.
            while self.each(SharedTable::serve_waiting) {}
            // First false: whoever begins to starve meanwhile says so after this, or is seen below.
            self.starving.store(false, Ordering::SeqCst);
            let starving = self.each(SharedTable::is_starving);
            if starving {
                self.starving.store(true, Ordering::SeqCst);
                // A chunk packed before this is counted by now; the writer of one packed later sees the mark.
                fence(Ordering::SeqCst);
                if self.each(SharedTable::serve_waiting) {
                    continue;
                }
            }
            if !starving || self.anything_consumed() || !self.each(SharedTable::refuse_starving) {
                return;
            }
        }
    }

    /// Asks every table, and tells whether one said yes.
    fn each(&self, ask: fn(&SharedTable) -> bool) -> bool {
        self.tables().filter(|table| ask(table)).count() > 0
    }

    fn tables(&self) -> impl Iterator<Item = Arc<SharedTable>> {
        self.tables.get().into_iter().flatten().filter_map(Weak::upgrade)
    }
}

/// Bytes of the items' chunks, each chunk once: of those that no table holds yet, and of all.
fn new_bytes<'a>(items: impl Iterator<Item = &'a Item>) -> (u64, u64) {
    let mut chunks: SmallVec<[&Arc<Chunk>; 4]> = items.flat_map(Item::chunks).collect();
    chunks.sort_unstable_by_key(|chunk| Arc::as_ptr(chunk));
    chunks.dedup_by_key(|chunk| Arc::as_ptr(chunk));
    let bytes =
        |new: bool| chunks.iter().filter(|chunk| !new || !chunk.in_tables()).map(|chunk| chunk.size_bytes()).sum();
    (bytes(true), bytes(false))
}

/// All tables of a server as they were at one moment.
#[derive(Debug)]
pub struct Cuts {
    /// In the order of the tables.
    pub tables: Vec<TableCut>,
    /// See [`Tables::forgotten`].
    pub forgotten: Vec<Sender>,
    /// The reading of the tables' clock.
    pub now: Duration,
    /// For how long the tables stood still.
    pub pause: Duration,
}

/// All tables of one server.
pub struct Tables {
    tables: Vec<Arc<SharedTable>>,
    clock: Arc<dyn Clock>,
    meter: Arc<Meter>,
    max_bytes: Option<u64>,
    /// Guards the names only.
    forgotten: Mutex<Forgotten>,
}

impl Tables {
    /// Empty tables. `seed` is random, or fixed in tests.
    pub fn new(options: Vec<TableOptions>, max_bytes: Option<u64>, clock: &Arc<dyn Clock>, seed: u64) -> Result<Self> {
        if options.is_empty() {
            return Err(Error::InvalidArgument("a server needs at least one table".to_owned()));
        }
        if max_bytes == Some(0) {
            return Err(Error::InvalidArgument("the server's max_bytes must be at least 1".to_owned()));
        }
        let meter = Arc::new(Meter::default());
        let budget = max_bytes
            .map(|max_bytes| Budget {
                meter: Arc::clone(&meter),
                max_bytes,
                tables: OnceLock::new(),
                starving: false.into(),
            })
            .map(Arc::new);
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tables: Vec<Arc<SharedTable>> = Vec::with_capacity(options.len());
        let extensions: Vec<_> = options.iter().map(|of| (of.name.clone(), of.extensions.clone())).collect();
        for options in options {
            if tables.iter().any(|table| table.name() == options.name) {
                return Err(Error::InvalidArgument(format!("two tables have the name '{}'", options.name)));
            }
            tables.push(SharedTable::with_budget(options, Arc::clone(clock), seeds.next_u64(), budget.clone())?);
        }
        copies::check(&tables, &extensions)?;
        tables.iter().zip(&extensions).for_each(|(table, (_, extensions))| table.copy_to(extensions, &tables));
        if let Some(budget) = &budget {
            // Only just made, so it cannot have been set.
            let _ = budget.tables.set(tables.iter().map(Arc::downgrade).collect());
            let waiting = Arc::downgrade(budget);
            meter.on_packed(move || waiting.upgrade().iter().for_each(|budget| budget.packed()));
        }
        Ok(Self { tables, clock: Arc::clone(clock), meter, max_bytes, forgotten: Mutex::default() })
    }

    /// The table of that name.
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

    /// The bytes that all chunks hold, and their bound.
    pub fn bytes(&self) -> (&Arc<Meter>, Option<u64>) {
        (&self.meter, self.max_bytes)
    }

    /// A consistent cut of all tables: they stand still together while references to their pages are taken, and go on.
    /// The one place that holds several tables' locks, always taken in the tables' order. Refused once they are closed.
    pub fn cut(&self) -> Result<Cuts> {
        self.cut_where(State::open)
    }

    /// What tables that are closed held when they were: nothing goes in any more, nor is told that it did. Refused while
    /// one is open.
    pub fn last_cut(&self) -> Result<Cuts> {
        self.cut_where(State::shut)
    }

    fn cut_where(&self, fits: impl Fn(&State, &str) -> Result<()>) -> Result<Cuts> {
        let mut states = Vec::with_capacity(self.tables.len());
        let mut started = None;
        for table in &self.tables {
            states.push(lock(&table.state));
            started.get_or_insert_with(|| self.clock.now());
        }
        self.tables.iter().zip(&states).try_for_each(|(table, state)| fits(state, table.name()))?;
        let cut = |state: &mut State| TableCut { sent: state.arrivals(), ..state.table.snapshot() };
        let tables = states.iter_mut().map(|state| cut(state)).collect();
        let now = self.clock.now();
        drop(states);
        let started = started.unwrap_or(now);
        // After the tables: who was let go of meanwhile is known by what the tables have of him, or as let go of.
        let forgotten = self.forgotten().names();
        Ok(Cuts { tables, forgotten, now, pause: now.saturating_sub(started) })
    }

    /// Senders that were let go of while they might still send inserts again that are in.
    pub fn forgotten(&self) -> MutexGuard<'_, Forgotten> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses where a table is closed.
    pub fn check_open(&self) -> Result<()> {
        self.tables.iter().try_for_each(|table| lock(&table.state).open(table.name()))
    }

    /// The reading of the tables' clock.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Closes every table; idempotent.
    pub fn close(&self) {
        self.tables.iter().for_each(|table| table.close());
    }
}

impl Source for Tables {
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>> {
        self.get(table)?.sample(request)
    }
}

impl Sink for Tables {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
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

    fn why(&self, table: &str) -> Ticket<String> {
        Ticket::done(self.get(table).map(|table| table.why().to_string()))
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        self.get(table).map(|table| table.compression())
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}
