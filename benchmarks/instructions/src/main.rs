//! The hot paths of the engine, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='*counted_*' reverie-instructions WORK`
//! Prints the number of items, by which the count is divided. `tools/instructions.py` does this for every work.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::{BatchOptions, Planner};
use reverie_core::checkpoint::{LocalFileSystem, RetentionPolicy, Store};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::item::Item;
use reverie_core::journal::{JournalEnd, Log};
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure, StructureKey};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Inserts, Lessee, Priority, SharedTable, TableOptions, Tables};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;

const BATCH: usize = 64;
const ROUNDS: usize = 400;
/// A learner's batch.
const LARGE_BATCH: usize = 256;
const REPLAY_SIZE: usize = 20_000;
/// Inserts that wait.
const NUM_WAITING: usize = 10_000;

/// The work whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Rows are written to chunks.
    Append,
    /// Batches are inserted into a queue and drawn from it.
    Queue,
    /// Like `Queue`, with draws that are acknowledged.
    Leased,
    /// Like `Queue`, inserted one item at a time.
    Single,
    /// Batches are inserted into a uniform table.
    Fill,
    /// Like `Fill`, with the commits of a journal.
    Journaled,
    /// Items are inserted into a uniform table one at a time, each with a commit of its own.
    Commits,
    /// Batches of a uniform table are drawn.
    Draw,
    /// Like `Draw`, while very many inserts wait for the limiter.
    Held,
    /// Drawn batches are gathered to arrays.
    Gather,
    /// Batches of a prioritised table are drawn and get new priorities.
    Prioritised,
    /// The largest priority of a table changes, and its figures are read.
    Info,
}

const WORKS: [(&str, Work); 12] = [
    ("append", Work::Append),
    ("queue", Work::Queue),
    ("leased", Work::Leased),
    ("single", Work::Single),
    ("fill", Work::Fill),
    ("journaled", Work::Journaled),
    ("commits", Work::Commits),
    ("draw", Work::Draw),
    ("held", Work::Held),
    ("gather", Work::Gather),
    ("prioritised", Work::Prioritised),
    ("info", Work::Info),
];

fn options(work: Work) -> TableOptions {
    let queue = matches!(work, Work::Queue | Work::Leased | Work::Single);
    let sampler = match work {
        Work::Prioritised => SelectorOptions::Prioritized { exponent: 0.6 },
        _ if queue => SelectorOptions::Fifo,
        _ => SelectorOptions::Uniform,
    };
    TableOptions {
        name: "t".to_owned(),
        sampler,
        remover: SelectorOptions::Fifo,
        max_size: if queue { 1000 } else { 100_000 },
        limiter: if queue { Limiter::new(1.0, 1, 0.0, 1000.0).unwrap() } else { Limiter::min_size(1).unwrap() },
        max_times_sampled: u32::from(queue),
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

/// A transition: obs and next_obs of four float32, action, reward, discount.
fn schema() -> Arc<Schema> {
    let columns = [
        ("obs", DType::Float32, vec![4]),
        ("action", DType::Int64, vec![]),
        ("reward", DType::Float32, vec![]),
        ("next_obs", DType::Float32, vec![4]),
        ("discount", DType::Float32, vec![]),
    ];
    let spec = |(path, dtype, shape): &(&str, DType, Vec<usize>)| ColumnSpec {
        path: (*path).to_owned(),
        dtype: *dtype,
        shape: shape.clone(),
    };
    let entries = columns.iter().map(|(path, _, _)| (StructureKey::Str((*path).to_owned()), Structure::Leaf)).collect();
    Arc::new(Schema { columns: columns.iter().map(spec).collect(), structure: Structure::Dict(entries) })
}

/// Writes batches of transitions.
struct Writer {
    rows: RowWriter,
    schema: Arc<Schema>,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(tables: &Arc<Tables>) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        Self { rows: RowWriter::new(sink, Compression::None, false), schema: schema(), bytes: vec![0; BATCH * 16] }
    }

    fn batch(&mut self) -> Vec<Item> {
        self.rows(BATCH)
    }

    fn rows(&mut self, count: usize) -> Vec<Item> {
        let cells = [(4, 16), (8, 8), (4, 4), (4, 16), (4, 4)]
            .map(|(itemsize, cell)| ColumnCells { itemsize, bytes: &self.bytes[..count * cell] });
        self.rows.append(&self.schema, &cells, count).unwrap().into_iter().collect()
    }
}

#[inline(never)]
fn counted_append(writer: &mut Writer) {
    black_box(writer.batch());
}

fn with_priorities(items: Vec<Item>, round: usize) -> Inserts {
    let with = |(at, item): (usize, Item)| (item, Priority::Value(1.0 + ((round + at) % 97) as f64));
    items.into_iter().enumerate().map(with).collect()
}

#[inline(never)]
fn counted_insert(table: &Arc<SharedTable>, items: Inserts) {
    black_box(table.insert(items).unwrap());
}

#[inline(never)]
fn counted_single(table: &Arc<SharedTable>, items: Vec<Item>) {
    for item in items {
        black_box(table.insert(Inserts::from_iter([(item, Priority::Value(1.0))])).unwrap());
    }
}

#[inline(never)]
fn counted_commit(log: &Log) {
    log.commit(false).unwrap();
}

#[inline(never)]
fn counted_commits(table: &Arc<SharedTable>, writer: &mut Writer, log: &Log) {
    for _ in 0..BATCH {
        let item = writer.rows(1).remove(0);
        black_box(table.insert(Inserts::from_iter([(item, Priority::Value(1.0))])).unwrap());
        log.commit(false).unwrap();
    }
}

#[inline(never)]
fn counted_sample(table: &Arc<SharedTable>, num_samples: usize, lease: bool) -> Draws {
    let lessee = lease.then(Lessee::default);
    let request = SampleRequest { num_samples, lessee, ..SampleRequest::default() };
    let mut draws = table.sample(request).unwrap().poll().unwrap().unwrap();
    assert_eq!(draws.len(), num_samples);
    if lease {
        std::mem::take(&mut draws.lease).acknowledge();
    }
    draws
}

#[inline(never)]
fn counted_update(table: &SharedTable, draws: &Draws, priorities: &[f64]) {
    let keys: Vec<i64> = draws.keys.iter().map(|key| key.get()).collect();
    table.update(&keys, priorities, None).unwrap();
}

/// The largest priority of all items comes or leaves, and the figures are read.
#[inline(never)]
fn counted_info(table: &SharedTable, key: i64, priority: f64) {
    table.update(&[key], &[priority], None).unwrap();
    black_box(table.info());
}

#[inline(never)]
fn counted_gather(planner: &mut Planner, draws: &Draws, arrays: &mut Vec<Vec<MaybeUninit<u8>>>) {
    let plan = planner.plan_draws(draws).unwrap();
    if arrays.is_empty() {
        *arrays = plan.outputs.iter().map(|output| vec![MaybeUninit::new(0); output.bytes()]).collect();
    }
    let mut slices: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(|array| &mut array[..]).collect();
    plan.gather_draws(draws, &mut slices).unwrap();
}

/// Rounds of a learner: draws, and what it does with them.
fn learn(work: Work, table: &Arc<SharedTable>, writer: &mut Writer) -> usize {
    for round in 0..REPLAY_SIZE / BATCH {
        table.insert(with_priorities(writer.batch(), round)).unwrap();
    }
    if work == Work::Held {
        table.configure(Change { limiter: Some(Limiter::rationed()), ..Change::default() }).unwrap();
        for _ in 0..NUM_WAITING {
            assert!(!table.insert(with_priorities(writer.rows(1), 0)).unwrap().is_done());
        }
    }
    if work == Work::Info {
        let draws = table.sample(SampleRequest { num_samples: 1, ..SampleRequest::default() }).unwrap().poll();
        let key = draws.unwrap().unwrap().keys[0].get();
        (0..ROUNDS).for_each(|round| counted_info(table, key, if round % 2 == 0 { 1000.0 } else { 0.5 }));
        return ROUNDS;
    }
    let (mut planner, mut arrays) = (Planner::new(&BatchOptions::default()), Vec::new());
    for round in 0..ROUNDS {
        if work == Work::Gather {
            let request = SampleRequest { num_samples: LARGE_BATCH, ..SampleRequest::default() };
            let draws = table.sample(request).unwrap().poll().unwrap().unwrap();
            counted_gather(&mut planner, &draws, &mut arrays);
            continue;
        }
        let draws = counted_sample(table, LARGE_BATCH, false);
        if work == Work::Prioritised {
            let priorities: Vec<f64> = (0..LARGE_BATCH).map(|at| 0.1 + ((round * 31 + at) % 89) as f64).collect();
            counted_update(table, &draws, &priorities);
        }
    }
    ROUNDS * LARGE_BATCH
}

/// Rounds of an actor: rows, inserts, and what becomes of them.
fn act(work: Work, table: &Arc<SharedTable>, writer: &mut Writer, log: Option<&Log>) -> usize {
    for round in 0..ROUNDS {
        match work {
            Work::Append => counted_append(writer),
            Work::Single => counted_single(table, writer.batch()),
            Work::Commits => counted_commits(table, writer, log.expect("a journal")),
            _ => counted_insert(table, with_priorities(writer.batch(), round)),
        }
        match work {
            Work::Append | Work::Fill | Work::Commits => {}
            Work::Journaled => counted_commit(log.expect("a journal")),
            _ => _ = counted_sample(table, BATCH, work == Work::Leased),
        }
    }
    ROUNDS * BATCH
}

fn main() {
    let names = WORKS.map(|(name, _)| name).join("|");
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, work)) = WORKS.into_iter().find(|(known, _)| *known == name) else {
        eprintln!("usage: reverie-instructions {names} [FOLDER of the journal]");
        std::process::exit(2);
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![options(work)], None, &clock, 3).unwrap());
    let table = Arc::clone(tables.get("t").unwrap());
    let log = matches!(work, Work::Journaled | Work::Commits).then(|| {
        let folder = std::env::args().nth(2).expect("a folder for the journal").into();
        let store = Arc::new(
            Store::new(Arc::new(LocalFileSystem), folder, RetentionPolicy { count: 1, max_age: None }).unwrap(),
        );
        Log::begin(Arc::clone(&tables), store, JournalEnd::default(), || std::time::Duration::ZERO).unwrap()
    });
    let mut writer = Writer::new(&tables);
    let items = match work {
        Work::Draw | Work::Held | Work::Gather | Work::Prioritised | Work::Info => learn(work, &table, &mut writer),
        _ => act(work, &table, &mut writer, log.as_ref()),
    };
    println!("{items}");
}
