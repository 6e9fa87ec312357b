//! The whole flow of a learner on five-column transitions: insert, sample, gather, update.

#![allow(missing_docs)] // the functions that criterion_group! makes

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::{BatchOptions, Planner, Ragged};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure, StructureKey};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, SharedTable, TableOptions, Tables};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;

const BATCH: usize = 256;

fn schema() -> Arc<Schema> {
    let spec = |path: &str, dtype, shape: &[usize]| ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() };
    let columns = vec![
        spec("action", DType::Int64, &[]),
        spec("discount", DType::Float32, &[]),
        spec("next_obs", DType::Float32, &[4]),
        spec("obs", DType::Float32, &[4]),
        spec("reward", DType::Float32, &[]),
    ];
    let structure = columns.iter().map(|column| (StructureKey::Str(column.path.clone()), Structure::Leaf)).collect();
    Arc::new(Schema { columns, structure: Structure::Dict(structure) })
}

struct Flow {
    table: Arc<SharedTable>,
    writer: RowWriter,
    schema: Arc<Schema>,
    row: Vec<Vec<u8>>,
}

impl Flow {
    fn new(sampler: SelectorOptions, size: u64) -> Self {
        let options = TableOptions {
            name: "replay".to_owned(),
            sampler,
            remover: SelectorOptions::Fifo,
            max_size: size,
            limiter: Limiter::min_size(1).unwrap(),
            max_times_sampled: 0,
            signature: None,
            max_bytes: None,
            compression: Compression::None,
            shard: 0,
            sampler_seed: 1,
            constructed: None,
            remover_seed: 2,
            extensions: Vec::new(),
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let tables = Arc::new(Tables::new(vec![options], None, &clock, 3).unwrap());
        let table = Arc::clone(tables.get("replay").unwrap());
        let sink: Arc<dyn Sink> = tables;
        let schema = schema();
        let row = schema.columns.iter().map(|column| vec![1; column.cell_bytes().unwrap()]).collect();
        let mut flow = Self { table, writer: RowWriter::new(sink, Compression::None, true), schema, row };
        (0..size).for_each(|index| flow.push(1.0 + (index % 97) as f64));
        flow
    }

    fn push(&mut self, priority: f64) {
        let cells: [ColumnCells<'_>; 5] = std::array::from_fn(|column| ColumnCells {
            itemsize: self.schema.columns[column].dtype.size().unwrap(),
            bytes: &self.row[column],
        });
        let items = self.writer.append(&self.schema, &cells, 1).unwrap();
        let items: Inserts = items.into_iter().map(|item| (item, Priority::Value(priority))).collect();
        black_box(self.table.insert(items).unwrap());
    }

    fn sample(&self) -> Draws {
        let request = SampleRequest { num_samples: BATCH, ..Default::default() };
        self.table.sample(request).unwrap().poll().unwrap().unwrap()
    }
}

fn benches(criterion: &mut Criterion) {
    for (name, size) in [("20k", 20_000), ("1M", 1_000_000)]
        .into_iter()
        .take(if std::env::var_os("ONLY_20K").is_some() { 1 } else { 2 })
    {
        let mut flow = Flow::new(SelectorOptions::Prioritized { exponent: 0.6 }, size);
        let mut group = criterion.benchmark_group(format!("flow/{name}"));
        group.sample_size(20).measurement_time(std::time::Duration::from_secs(2));
        group.bench_function("push", |bench| bench.iter(|| flow.push(2.0)));
        group.bench_function("sample", |bench| bench.iter(|| black_box(flow.sample())));
        let options = BatchOptions { ragged: Ragged::Refuse, columns: None };
        let mut planner = Planner::new(&options);
        let mut outputs: Vec<Vec<MaybeUninit<u8>>> = planner
            .plan(&flow.sample().items)
            .unwrap()
            .outputs
            .iter()
            .map(|o| vec![MaybeUninit::uninit(); o.bytes()])
            .collect();
        group.bench_function("gather", |bench| {
            bench.iter_batched(
                || flow.sample(),
                |draws| {
                    let plan = planner.plan(&draws.items).unwrap();
                    let mut slices: Vec<&mut [MaybeUninit<u8>]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
                    plan.gather(&draws.items, &mut slices).unwrap();
                    draws
                },
                BatchSize::SmallInput,
            );
        });
        group.bench_function("update", |bench| {
            bench.iter_batched(
                || flow.sample().keys.iter().map(|key| key.get()).collect::<Vec<i64>>(),
                |keys| flow.table.update(&keys, &[3.5; BATCH], None).unwrap(),
                BatchSize::SmallInput,
            );
        });
        let mut step = 0.0;
        group.bench_function("sample+gather+update", |bench| {
            bench.iter(|| {
                let draws = flow.sample();
                let plan = planner.plan(&draws.items).unwrap();
                let mut slices: Vec<&mut [MaybeUninit<u8>]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
                plan.gather(&draws.items, &mut slices).unwrap();
                let keys: Vec<i64> = draws.keys.iter().map(|key| key.get()).collect();
                step = (step + 0.1) % 7.0;
                let priorities: Vec<f64> = (0..BATCH).map(|index| step + index as f64 * 0.01).collect();
                flow.table.update(&keys, &priorities, None).unwrap()
            });
        });
    }
}

criterion_group!(all, benches);
criterion_main!(all);
