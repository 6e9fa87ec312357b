//! Servers that are tables of this process behind a network that can fail, and tallies of shards.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::BatchOptions;
use reverie_core::chunk::{Compression, Meter};
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::item::Item;
use reverie_core::replay::{Batches, ConnectionInfo, Info, Replay, WaitSummary};
use reverie_core::sample::{ArrayAllocator, ArrayMemory, SampleOutcome, SampleRequest, Schedule};
use reverie_core::spec::{ColumnSpec, DType, Schema, Signature, Structure};
use reverie_core::table::limiter::{Counters, Limiter};
use reverie_core::table::selector::{Mass, SelectorOptions};
use reverie_core::table::{
    Change, ChangeCounts, Condition, Inserts, Keys, Priority, Query, RequestHolder, SeenTally, TableOptions, Tables,
    Tally, Ticket, Updates,
};
use reverie_core::{Error, Result};
use reverie_net::sharded::{self, Model, Shard, Sharded};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The tally of a table with so many items, each inserted once, and this mass.
pub fn tally(total: f64, zeros: u64, size: u64) -> Tally {
    let counters = Counters { inserts: size, samples: 0, deletes: 0 };
    let smallest_probability = (size > 0).then_some(1.0 / size.max(1) as f64);
    Tally { incarnation: 1, size, mass: Mass { total, zeros }, smallest_probability, counters, ..Tally::default() }
}

/// A limiter of so many samples for each insert, with a deviation of `error` to either side of the start.
pub fn ratio_limiter(samples_per_insert: f64, min_size: u64, error: f64) -> Limiter {
    let start = samples_per_insert * min_size as f64;
    Limiter::new(samples_per_insert, min_size, start - error, start + error).unwrap()
}

/// The model of shards with these tallies, and a limiter that never delays.
pub fn shards(tallies: &[Tally]) -> Model {
    let mut shards = Model::new(tallies.len(), Limiter::min_size(1).unwrap(), 3);
    tallies.iter().enumerate().for_each(|(shard, tally)| shards.received(shard, *tally));
    shards
}

/// The calls that a server got, and how it answers them.
#[derive(Default)]
pub struct Log {
    /// The server was restarted before it answered a reset or a deletion by conditions.
    pub is_undecided: AtomicBool,
    /// Requests for draws: how many, and the time that they were given.
    pub draws: Mutex<Vec<(usize, Option<Duration>)>>,
    /// Requests for tallies, without those that wait for a change.
    pub tallies: AtomicUsize,
    /// Requests that wait for a change.
    pub looks: AtomicUsize,
    /// The server cannot be reached.
    pub is_down: AtomicBool,
    /// The server answers after a moment.
    pub is_slow: AtomicBool,
    /// The server answers nothing until this is false again.
    pub is_silent: AtomicBool,
    /// The milliseconds after which a slow server answers; 0 is 10.
    pub delay: AtomicU64,
    /// The server's description is not slow.
    pub is_prompt: AtomicBool,
    /// The number of the next tallies that arrive a second late.
    pub late_tallies: AtomicUsize,
    /// Done before the next request for draws is answered.
    pub before_draws: Mutex<Option<BeforeDraws>>,
    /// The number of times that the server was restarted.
    pub restarts: AtomicU64,
    /// The server's journal has not committed the draws that it makes.
    pub is_uncommitted: AtomicBool,
    /// The table that it describes, if that is another one.
    pub describes: Mutex<Option<TableOptions>>,
}

pub type BeforeDraws = Box<dyn FnOnce(&Tables) + Send>;

pub fn not_committed() -> Error {
    Error::NotCommitted { keys: Keys::new(), why: "the journal waits for its disk".to_owned() }
}

struct SilentHolder;

impl<T> RequestHolder<T> for SilentHolder {
    fn withdraw(&self, _: u64) -> Option<T> {
        None
    }
}

/// A server: tables of this process behind a network that can fail.
pub struct Host {
    pub tables: Arc<Tables>,
    pub log: Arc<Log>,
}

impl Host {
    pub fn new(shard: u8, options: TableOptions) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let tables = Arc::new(Tables::new(vec![TableOptions { shard, ..options }], None, &clock, 7).unwrap());
        Self { tables, log: Arc::default() }
    }

    fn undecided<T>(&self) -> Option<Ticket<T>> {
        let error = Error::Undecided("it is not known whether that was done".to_owned());
        self.log.is_undecided.load(SeqCst).then(|| Ticket::done(Err(error)))
    }

    /// Inserts items of one float64 column, with the value as priority.
    pub fn fill(&self, values: &[f64]) -> Vec<i64> {
        let sink: Arc<dyn Sink> = self.tables.clone();
        let mut rows = RowWriter::new(sink, Compression::None, false);
        let columns = vec![ColumnSpec { path: "x".to_owned(), dtype: DType::Float64, shape: vec![] }];
        let schema = Arc::new(Schema { columns, structure: Structure::Leaf });
        let mut keys = Vec::new();
        for value in values {
            let item =
                rows.append(&schema, &[ColumnCells { itemsize: 8, bytes: &value.to_ne_bytes() }], 1).unwrap().remove(0);
            let inserts = [(item, Priority::Value(*value))].into_iter().collect();
            let inserted = self.tables.insert("t", inserts).unwrap().poll().unwrap().unwrap();
            keys.extend(inserted.iter().map(|key| key.get()));
        }
        keys
    }

    /// Inserts items of one float64 column in one call, with priority 1.
    pub fn insert(&self, count: usize) -> Ticket<Keys> {
        let sink: Arc<dyn Sink> = self.tables.clone();
        let mut rows = RowWriter::new(sink, Compression::None, false);
        let columns = vec![ColumnSpec { path: "x".to_owned(), dtype: DType::Float64, shape: vec![] }];
        let schema = Arc::new(Schema { columns, structure: Structure::Leaf });
        let bytes = vec![0; 8 * count];
        let items = rows.append(&schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], count).unwrap();
        let inserts = items.into_iter().map(|item| (item, Priority::Value(1.0))).collect();
        self.tables.insert("t", inserts).unwrap()
    }

    fn unless<T: Send + Unpin + 'static>(&self, answer: impl FnOnce() -> Ticket<T>) -> Ticket<T> {
        if self.log.is_down.load(SeqCst) {
            return Ticket::done(Err(Error::Unavailable("the server is down".to_owned())));
        }
        if self.log.is_silent.load(SeqCst) {
            let (ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
            let (answer, log) = (answer(), Arc::clone(&self.log));
            tokio::spawn(async move {
                while log.is_silent.load(SeqCst) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                promise.fill(answer.await);
            });
            return ticket;
        }
        if self.log.is_slow.load(SeqCst) {
            let (ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
            let (answer, delay) = (answer(), self.log.delay.load(SeqCst));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(if delay > 0 { delay } else { 10 })).await;
                promise.fill(answer.await);
            });
            return ticket;
        }
        answer()
    }

    /// Like [`Host::unless`]: a network client returns the error of a batch with the batches that arrived before.
    fn unless_drawn(&self, answer: impl FnOnce() -> Ticket<SampleOutcome>) -> Ticket<SampleOutcome> {
        if self.log.is_down.load(SeqCst) {
            let error = Some(Error::Unavailable("the server is down".to_owned()));
            return Ticket::done(Ok(SampleOutcome { batches: Vec::new(), error }));
        }
        self.unless(answer)
    }

    fn before_draws(&self) {
        if let Some(work) = self.log.before_draws.lock().unwrap().take() {
            work(&self.tables);
        }
    }
}

impl Replay for Host {
    fn ready(&self) -> Ticket<()> {
        self.unless(|| self.tables.ready())
    }

    fn tables(&self) -> Vec<TableOptions> {
        Replay::tables(&*self.tables)
    }

    fn sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        self.unless_drawn(|| self.tables.sample(table, request, read_options, timeout))
    }

    fn try_sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        self.before_draws();
        self.unless_drawn(|| self.tables.try_sample_available(table, at_most, timeout))
    }

    fn sample_available(&self, table: &str, at_most: usize, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        self.before_draws();
        self.unless_drawn(|| self.tables.sample_available(table, at_most, timeout))
    }

    fn try_sample(
        &self,
        table: &str,
        request: SampleRequest,
        read_options: &BatchOptions<'_>,
        timeout: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        self.log.draws.lock().unwrap().push((request.num_samples, timeout));
        self.before_draws();
        let drawn = self.unless_drawn(|| self.tables.try_sample(table, request, read_options, timeout));
        match self.log.is_uncommitted.load(SeqCst) {
            true => drawn.map(|sampled| SampleOutcome { error: Some(not_committed()), ..sampled }),
            false => drawn,
        }
    }

    fn batches(
        self: Arc<Self>,
        schedule: Schedule,
        read_options: &BatchOptions<'_>,
        allocate: ArrayAllocator,
    ) -> Result<Box<dyn Batches>> {
        Arc::clone(&self.tables).batches(schedule, read_options, allocate)
    }

    fn get(&self, table: &str, keys: &[i64], read_options: &BatchOptions<'_>) -> Ticket<SampleOutcome> {
        self.unless_drawn(|| Replay::get(&*self.tables, table, keys, read_options))
    }

    fn query(&self, table: &str, query: &Query) -> Ticket<SampleOutcome> {
        self.unless_drawn(|| self.tables.query(table, query))
    }

    fn max_items(&self) -> usize {
        64
    }

    fn info(&self) -> Ticket<Info> {
        let mut info = self.tables.info();
        let describes = self.log.describes.lock().unwrap().clone();
        if self.log.is_prompt.load(SeqCst) {
            return info;
        }
        self.unless(|| match (describes, info.poll()) {
            (Some(options), Some(Ok(mut info))) => {
                info.tables[0].options = options;
                Ticket::done(Ok(info))
            }
            (_, outcome) => Ticket::done(outcome.unwrap()),
        })
    }

    fn checkpoint(&self) -> Ticket<Vec<String>> {
        self.unless(|| Ticket::done(Ok(vec!["a/path".to_owned()])))
    }

    fn durable(&self) -> Ticket<()> {
        self.unless(|| Replay::durable(&*self.tables))
    }

    fn link(&self) -> Option<ConnectionInfo> {
        Some(ConnectionInfo::default())
    }

    fn why(&self, table: &str) -> Ticket<WaitSummary> {
        self.unless(|| self.tables.why(table))
    }

    fn mutate(
        &self,
        table: &str,
        updates: &Updates<'_>,
        deletes: &[i64],
        awaited: bool,
    ) -> Ticket<(ChangeCounts, ChangeCounts)> {
        self.unless(|| self.tables.mutate(table, updates, deletes, awaited))
    }

    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<ChangeCounts> {
        self.undecided().unwrap_or_else(|| self.unless(|| self.tables.delete_where(table, keys, conditions)))
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        self.unless(|| self.tables.can_sample(table, num_samples))
    }

    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        self.unless(|| self.tables.can_insert(table, num_inserts))
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        self.undecided().unwrap_or_else(|| self.unless(|| self.tables.reset(table)))
    }

    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        self.unless(|| self.tables.configure(table, change))
    }

    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally> {
        self.log.tallies.fetch_add(1, SeqCst);
        let late = self.log.late_tallies.fetch_update(SeqCst, SeqCst, |late| late.checked_sub(1)).is_ok();
        self.unless(|| {
            let tally = self.tables.tally(table, grant);
            if !late {
                return tally;
            }
            let (ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                promise.fill(tally.await);
            });
            ticket
        })
    }

    fn changed_tally(&self, table: &str, seen: SeenTally, timeout: Duration) -> Ticket<Tally> {
        self.log.looks.fetch_add(1, SeqCst);
        self.unless(|| self.tables.changed_tally(table, seen, timeout))
    }

    fn insert_outcome(&self, number: u64) -> Ticket<Keys> {
        self.tables.insert_outcome(number)
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    fn no_response_reason(&self, _: Duration) -> String {
        "the server is silent".to_owned()
    }

    fn round_trip(&self) -> Option<Duration> {
        Some(Duration::from_micros(100))
    }

    fn server_lags(&self) -> bool {
        false
    }

    fn restarts(&self) -> u64 {
        self.log.restarts.load(SeqCst)
    }
}

impl Sink for Host {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.tables.insert(table, items)
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.tables.check(table, items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.tables.check_priority(table, priority)
    }

    fn signature(&self, table: &str) -> Result<Option<Signature>> {
        Sink::signature(&*self.tables, table)
    }

    fn wait_reason(&self, table: &str) -> Ticket<String> {
        Sink::wait_reason(&*self.tables, table)
    }

    fn compression(&self, table: &str) -> Result<Compression> {
        Sink::compression(&*self.tables, table)
    }

    fn meter(&self) -> &Arc<Meter> {
        Sink::meter(&*self.tables)
    }
}

/// A table that draws by priority; `Rationed` if its inserts are granted.
pub fn table(is_rationed: bool) -> TableOptions {
    let limiter = if is_rationed { Limiter::rationed() } else { Limiter::min_size(1).unwrap() };
    TableOptions {
        name: "t".to_owned(),
        sampler: SelectorOptions::Prioritized { exponent: 1.0 },
        remover: SelectorOptions::Fifo,
        max_size: 1000,
        limiter,
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions: Vec::new(),
    }
}

struct Bytes(Vec<MaybeUninit<u8>>);

impl ArrayMemory for Bytes {
    fn bytes(&mut self, bytes: usize) -> &mut [MaybeUninit<u8>] {
        &mut self.0[..bytes]
    }
}

pub fn allocate(bytes: usize) -> Option<Box<dyn ArrayMemory>> {
    Some(Box::new(Bytes(vec![MaybeUninit::new(0); bytes])))
}

/// The options of a client that samples alone.
pub fn alone(limiter: Option<Limiter>) -> sharded::ShardedOptions {
    sharded::ShardedOptions { limiter, among: (0, 1), seed: 1, allocate }
}

/// A client of these servers, on the runtime of the test.
pub fn joined(hosts: &[Arc<Host>], options: sharded::ShardedOptions) -> Arc<Sharded> {
    let shard = |(index, host): (usize, &Arc<Host>)| Shard {
        replay: Arc::clone(host) as Arc<dyn Replay>,
        address: format!("host-{index}:1"),
    };
    let shards = hosts.iter().enumerate().map(shard).collect();
    Sharded::on(shards, options, &tokio::runtime::Handle::current()).unwrap()
}
