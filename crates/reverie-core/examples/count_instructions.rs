//! Inserts and draws in batches of 64, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='*counted_*' count_instructions queue|leased|single|fill`
//! Prints the number of items, by which the count is divided. `queue`: inserted together and drawn; `leased`: with
//! draws that are acknowledged; `single`: inserted one by one; `fill`: inserted into a uniform table.

use reverie_core::append::{Cells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::item::Item;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, SharedTable, TableOptions, Tables};
use std::hint::black_box;
use std::sync::Arc;

const BATCH: usize = 64;
const ROUNDS: usize = 400;

fn options(queue: bool) -> TableOptions {
    TableOptions {
        name: "t".to_owned(),
        sampler: if queue { SelectorOptions::Fifo } else { SelectorOptions::Uniform },
        remover: SelectorOptions::Fifo,
        max_size: if queue { 1000 } else { 100_000 },
        limiter: if queue { Limiter::queue(1000).unwrap() } else { Limiter::min_size(1).unwrap() },
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

fn batch(tables: &Arc<Tables>) -> Vec<Item> {
    let sink: Arc<dyn Sink> = tables.clone();
    let mut rows = RowWriter::new(sink, Compression::None, false);
    let column = ColumnSpec { path: String::new(), dtype: DType::Int64, shape: vec![] };
    let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
    let bytes = vec![0; BATCH * 8];
    rows.append(&schema, &[Cells { itemsize: 8, bytes: &bytes }], BATCH).unwrap().into_iter().collect()
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
fn counted_sample(table: &Arc<SharedTable>, lease: bool) {
    let request = SampleRequest { num_samples: BATCH, lease, ..SampleRequest::default() };
    let mut draws = table.sample(request).unwrap().poll().unwrap().unwrap();
    assert_eq!(draws.len(), BATCH);
    if lease {
        std::mem::take(&mut draws.lease).acknowledge();
    }
}

fn main() {
    let work = std::env::args().nth(1).expect("queue, leased, single or fill");
    let queue = work != "fill";
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tables = Arc::new(Tables::new(vec![options(queue)], None, &clock, 3).unwrap());
    let table = Arc::clone(tables.get("t").unwrap());
    for round in 0..ROUNDS {
        let items = batch(&tables);
        match work.as_str() {
            "single" => counted_single(&table, items),
            _ => {
                let with = |(at, item): (usize, Item)| (item, Priority::Value(1.0 + ((round + at) % 97) as f64));
                counted_insert(&table, items.into_iter().enumerate().map(with).collect());
            }
        }
        if queue {
            counted_sample(&table, work == "leased");
        }
    }
    println!("{}", ROUNDS * BATCH);
}
