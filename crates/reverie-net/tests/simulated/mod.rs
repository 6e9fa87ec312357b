//! A server, its clients and their network in one thread and with a clock of their own.

mod actors;
#[allow(dead_code)]
#[path = "../../../reverie-core/tests/support/disk.rs"]
mod disk;
mod faults;
mod rows;

use disk::FakeDisk;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use reverie_core::checkpoint::{RetentionPolicy, Store, latest, load};
use reverie_core::chunk::Compression;
use reverie_core::clock::Clock;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Keys, TableOptions, Tables};
use reverie_net::client::Remote;
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::grpc::connector::{Connecting, Connector, Stream};
use reverie_net::server;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const WRITERS: usize = 2;
pub const SERVER: &str = "server";
pub const CONSUMER: &str = "consumer";
pub const ADDRESS: &str = "server:9000";
const TICK: Duration = Duration::from_millis(10);
const FOLDER: &str = "/saved";

/// The record of all that happens in one simulation.
pub struct World {
    pub seed: u64,
    /// The tables of each life of the server.
    lives: Mutex<Vec<Arc<Tables>>>,
    next_value: AtomicU64,
    /// Values whose insertion was confirmed to a writer, with their keys and how often its server had been restarted.
    confirmed: Mutex<Vec<ConfirmedInsert>>,
    consumed: Mutex<HashMap<i64, u64>>,
    /// The number of consumers, and what each consumed: a consumer that is killed is followed by another one.
    consumers: AtomicU64,
    consumed_by: Mutex<HashSet<(u64, i64)>>,
    /// The values that one consumer was given twice.
    repeated: Mutex<Vec<i64>>,
    /// The values that had been consumed and acknowledged when a consumer was killed, and how often.
    acknowledged: Mutex<Vec<HashMap<i64, u64>>>,
    /// The values that were consumed in the present life of the server.
    consumed_here: Mutex<HashSet<i64>>,
    /// The disk to which the server saves, and the values that its life had consumed before each checkpoint.
    disk: FakeDisk,
    saved: Mutex<Vec<HashMap<i64, u64>>>,
    /// The values that had been consumed before each checkpoint that a server was restored from.
    over: Mutex<Vec<HashMap<i64, u64>>>,
    /// The values that the queue held in the checkpoints that a server was restored from.
    restored_values: Mutex<HashSet<i64>>,
    client_starts: AtomicU64,
    /// Writers that are through but for what the shut table does not take; once all are, it takes it.
    done_writers: Mutex<HashSet<usize>>,
    /// Writers that are through, and readers that saw it.
    pub writers_done: AtomicUsize,
    pub readers_done: AtomicUsize,
    pub reconnects: AtomicU64,
    pub late: AtomicU64,
    /// Inserts that were taken back, and of how many of them it was not known at first whether they are in.
    pub withdrawn: AtomicU64,
    pub unknown: AtomicU64,
    /// Requests for draws of the queue that were withdrawn.
    pub abandoned: AtomicU64,
    /// Values whose withdrawal was confirmed, and by which life of the server at the soonest: they must be in none from
    /// there on. One that crashed may have taken a value without a report.
    absent: Mutex<HashMap<i64, usize>>,
}

struct ConfirmedInsert {
    table: &'static str,
    value: i64,
    key: i64,
}

struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

struct Sockets;

impl Connector for Sockets {
    fn connect(&self, address: &str) -> Connecting {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Splits a seed.
pub fn random(seed: u64, part: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A number below `end`.
pub fn below(random: &mut Xoshiro256PlusPlus, end: u64) -> u64 {
    random.next_u64() % end
}

impl World {
    /// Runs one simulation, and checks what came of it. Panics where a promise was broken.
    pub fn run(seed: u64) -> Summary {
        let world = Arc::new(World {
            seed,
            lives: Mutex::default(),
            next_value: 1.into(),
            confirmed: Mutex::default(),
            consumed: Mutex::default(),
            consumers: 0.into(),
            consumed_by: Mutex::default(),
            repeated: Mutex::default(),
            acknowledged: Mutex::default(),
            consumed_here: Mutex::default(),
            disk: FakeDisk::default(),
            saved: Mutex::default(),
            over: Mutex::default(),
            restored_values: Mutex::default(),
            client_starts: 0.into(),
            done_writers: Mutex::default(),
            writers_done: 0.into(),
            readers_done: 0.into(),
            reconnects: 0.into(),
            late: 0.into(),
            withdrawn: 0.into(),
            unknown: 0.into(),
            abandoned: 0.into(),
            absent: Mutex::default(),
        });
        let mut sim = turmoil::Builder::new()
            .simulation_duration(Duration::from_secs(3600))
            .tick_duration(TICK)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(20))
            .tcp_capacity(4096)
            .rng_seed(seed)
            .build();
        let served = Arc::clone(&world);
        sim.host(SERVER, move || actors::serve(Arc::clone(&served)));
        for writer in 0..WRITERS {
            let world = Arc::clone(&world);
            sim.host(actors::writer_name(writer), move || actors::write(Arc::clone(&world), writer));
        }
        for (name, index) in [("sampler", 0), (CONSUMER, 1)] {
            let world = Arc::clone(&world);
            sim.host(name, move || actors::read(Arc::clone(&world), index));
        }
        let crashed = faults::drive(&mut sim, &world);
        world.check(crashed)
    }

    fn client(&self, patience: Duration) -> Arc<Remote> {
        let (address, transport, grace) = (ADDRESS.to_owned(), Transport::Auto, Duration::from_millis(50));
        let options =
            EndpointOptions { address, transport, token: None, tls: None, patience, grace, max_kept_bytes: KEPT_BYTES };
        let mut session = [0; 16];
        random(self.seed, 1000 + self.client_starts.fetch_add(1, Ordering::Relaxed)).fill_bytes(&mut session);
        Remote::on(options, &tokio::runtime::Handle::current(), Arc::new(Sockets), session).unwrap()
    }

    fn start_server(&self) -> Arc<Tables> {
        let mut lives = self.lives.lock().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(TokioClock(tokio::time::Instant::now()));
        let shut = TableOptions { limiter: Limiter::new(1.0, 1, 0.0, 3.0).unwrap(), ..table("shut") };
        let tables = vec![table("replay"), queue("queue"), shut];
        let tables = Arc::new(Tables::new(tables, None, &clock, self.seed + lives.len() as u64).unwrap());
        self.restore(&tables);
        self.consumed_here.lock().unwrap().clear();
        lives.push(Arc::clone(&tables));
        tables
    }

    /// Puts the last checkpoint into the tables, where there is one.
    fn restore(&self, tables: &Tables) {
        let Some(path) = latest(&self.disk, Path::new(FOLDER)).unwrap() else { return };
        let checkpoint = load(&self.disk, &path, tables.bytes().0).unwrap();
        let number = checkpoint.summary.number as usize;
        checkpoint.restore(tables, Duration::ZERO).unwrap();
        self.restored_values.lock().unwrap().extend(rows::values(tables, "queue").into_keys());
        let before = self.saved.lock().unwrap()[number - 1].clone();
        self.over.lock().unwrap().push(before);
    }

    /// The consumed values that can be given again only after a crash of the server, and how often: a value consumed in
    /// this life is in no table. A value consumed in an earlier life may be here again if that life's last checkpoint
    /// did not have it and its writer was not notified. A value that the consumer has and did not acknowledge yet is in
    /// the cut, and may be given again.
    fn consumed_for_good(&self, tables: &Tables) -> HashMap<i64, u64> {
        let cut = tables.cut().unwrap();
        let kept = rows::values_of(&cut.tables[1].items);
        let (here, consumed) = (self.consumed_here.lock().unwrap(), self.consumed.lock().unwrap());
        here.iter().filter(|value| !kept.contains_key(value)).map(|value| (*value, consumed[value])).collect()
    }

    /// Takes a checkpoint.
    fn save(&self, store: &Store, tables: &Tables) {
        let consumed = self.consumed_for_good(tables);
        let mut saved = self.saved.lock().unwrap();
        let number = store.save(tables, Duration::ZERO).unwrap().number as usize;
        assert_eq!(number, saved.len() + 1);
        saved.push(consumed);
    }

    /// Notes that a writer waits only for the shut table, which would never be if one of the tables stopped the others.
    pub fn writer_done(&self, writer: usize) {
        self.done_writers.lock().unwrap().insert(writer);
    }

    /// The progress of the simulation as text.
    pub fn describe(&self) -> String {
        let lives = self.lives.lock().unwrap();
        let tables = lives.last().unwrap();
        let why: Vec<String> = tables.iter().map(|table| table.why().to_string()).collect();
        format!(
            "{} lives, writers through {:?}, done {:?}, readers done {:?}: {why:#?}",
            lives.len(),
            self.done_writers.lock().unwrap(),
            self.writers_done,
            self.readers_done
        )
    }

    /// True if all writers wait only for the shut table.
    pub fn are_writers_done(&self) -> bool {
        self.done_writers.lock().unwrap().len() == WRITERS
    }

    fn store(&self) -> Store {
        Store::new(Arc::new(self.disk.clone()), FOLDER.into(), RetentionPolicy { count: 2, max_age: None }).unwrap()
    }

    fn confirm(&self, table: &'static str, values: Range<i64>, keys: &Keys) {
        assert_eq!(keys.len(), values.clone().count(), "as many keys as items");
        let confirmed = values.zip(keys).map(|(value, key)| ConfirmedInsert { table, value, key: key.get() });
        self.confirmed.lock().unwrap().extend(confirmed);
    }

    /// The server said that these are in no table.
    fn is_absent(&self, values: Range<i64>) {
        let life = self.lives.lock().unwrap().len() - 1;
        self.absent.lock().unwrap().extend(values.map(|value| (value, life)));
    }

    /// The number of a consumer that begins.
    pub fn begin_consumer(&self) -> u64 {
        self.consumers.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the consumer is killed: only values that it did not acknowledge go to the next one.
    pub fn consumer_is_killed(&self) {
        let tables = self.lives.lock().unwrap().last().cloned();
        let acknowledged = tables.map(|tables| self.consumed_for_good(&tables));
        self.acknowledged.lock().unwrap().extend(acknowledged);
    }

    fn consume(&self, consumer: u64, value: i64) {
        if !self.consumed_by.lock().unwrap().insert((consumer, value)) {
            self.repeated.lock().unwrap().push(value);
        }
        *self.consumed.lock().unwrap().entry(value).or_default() += 1;
        self.consumed_here.lock().unwrap().insert(value);
    }

    /// True if the writers are through, and the consumer has all values whose insertion into the queue was confirmed.
    fn is_consumed(&self) -> bool {
        let (confirmed, consumed) = (self.confirmed.lock().unwrap(), self.consumed.lock().unwrap());
        let mut queued = confirmed.iter().filter(|confirmed| confirmed.table == "queue");
        self.writers_done.load(Ordering::SeqCst) == WRITERS && queued.all(|one| consumed.contains_key(&one.value))
    }

    /// True if the writers are through, and the values that the consumer does not have were lost with a crashed server.
    fn is_lost_to_a_crash(&self) -> bool {
        let lives = self.lives.lock().unwrap();
        let info = lives.last().unwrap().get("queue").unwrap().info();
        let empty = info.size == 0 && info.leased == 0;
        lives.len() > 1 && empty && self.writers_done.load(Ordering::SeqCst) == WRITERS
    }

    /// Checks the conditions that must hold at the end for a table that keeps its items.
    fn check_kept(&self, table: &str, lives: &[Arc<Tables>], confirmed: &[ConfirmedInsert]) {
        let seed = self.seed;
        let present: Vec<HashMap<i64, u64>> = lives.iter().map(|tables| rows::values(tables, table)).collect();
        for (life, values) in present.iter().enumerate() {
            for (value, times) in values {
                assert_eq!(*times, 1, "seed {seed}: life {life} of the server holds {value} {times} times in {table}");
            }
        }
        for ConfirmedInsert { value, key, .. } in confirmed.iter().filter(|confirmed| confirmed.table == table) {
            let there = lives.iter().any(|tables| rows::value_of(tables, table, *key) == Some(*value));
            assert!(there, "seed {seed}: {value} was confirmed with the key {key}, and no life of the server has it");
        }
        for (life, values) in present.iter().enumerate() {
            for (value, since) in self.absent.lock().unwrap().iter().filter(|(_, since)| **since <= life) {
                assert!(
                    !values.contains_key(value),
                    "seed {seed}: {value} was withdrawn from life {since}, and {table} of life {life} has it"
                );
            }
        }
    }

    /// Checks the conditions that must hold at the end.
    fn check(&self, crashed: bool) -> Summary {
        let seed = self.seed;
        let lives = self.lives.lock().unwrap();
        let confirmed = self.confirmed.lock().unwrap();
        for table in ["replay", "shut"] {
            self.check_kept(table, &lives, &confirmed);
        }
        let consumed = self.consumed.lock().unwrap();
        for before in self.over.lock().unwrap().iter() {
            for (value, times) in before {
                assert_eq!(
                    consumed[value], *times,
                    "seed {seed}: {value} was consumed, and then again after a restart"
                );
            }
        }
        let left = rows::values(lives.last().unwrap(), "queue");
        for value in self.restored_values.lock().unwrap().iter() {
            let there = consumed.contains_key(value) || left.contains_key(value);
            assert!(there, "seed {seed}: {value} was in the queue of a checkpoint that was gone on from, and is lost");
        }
        if !crashed {
            assert_eq!(lives.len(), 1);
            let repeated = self.repeated.lock().unwrap();
            assert!(repeated.is_empty(), "seed {seed}: the queue gave these twice to one consumer: {repeated:?}");
            for (value, times) in self.acknowledged.lock().unwrap().iter().flatten() {
                assert_eq!(consumed[value], *times, "seed {seed}: {value} was acknowledged, and then given again");
            }
            for value in self.absent.lock().unwrap().keys() {
                assert!(!consumed.contains_key(value), "seed {seed}: {value} was withdrawn, and the queue gave it");
            }
            for ConfirmedInsert { value, .. } in confirmed.iter().filter(|confirmed| confirmed.table == "queue") {
                assert!(consumed.contains_key(value), "seed {seed}: {value} was confirmed, and the queue lost it");
            }
        }
        Summary {
            lives: lives.len(),
            restored: self.over.lock().unwrap().len(),
            confirmed: confirmed.len(),
            consumed: consumed.len(),
            consumers: self.consumers.load(Ordering::Relaxed),
            reconnects: self.reconnects.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            withdrawn: self.withdrawn.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }
}

/// The events so far, so that a test can assert that there were some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub lives: usize,
    pub restored: usize,
    pub confirmed: usize,
    pub consumed: usize,
    pub consumers: u64,
    pub reconnects: u64,
    pub late: u64,
    pub withdrawn: u64,
    pub unknown: u64,
    pub abandoned: u64,
}

fn table(name: &str) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 100_000,
        limiter: Limiter::min_size(3).unwrap(),
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

fn queue(name: &str) -> TableOptions {
    let limiter = Limiter::new(1.0, 1, 0.0, 20.0).unwrap();
    TableOptions { sampler: SelectorOptions::Fifo, max_size: 20, max_times_sampled: 1, limiter, ..table(name) }
}

/// The shut table takes all from now on.
pub fn open(tables: &Tables) {
    let change = Change { limiter: Some(Limiter::min_size(1).unwrap()), ..Change::default() };
    tables.get("shut").unwrap().configure(change).unwrap();
}

fn server_options() -> server::ServerOptions {
    server::ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: None,
        tls: None,
        insecure: false,
        local: false,
        grace: Duration::from_secs(1),
        // Little credit, so that connections are also lost while it is used up.
        limits: server::Limits {
            // Longer than any outage, so that what a consumer had is given again only where it was killed.
            linger: Duration::from_secs(100),
            session_insert_bytes: 8 << 10,
            ..server::Limits::default()
        },
        checkpoint: None,
        spans: false,
    }
}

fn unavailable(error: &io::Error) -> Box<dyn std::error::Error> {
    error.to_string().into()
}
