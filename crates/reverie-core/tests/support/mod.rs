//! Helpers that several test modules share.
#![allow(dead_code)]

pub mod cases;
pub mod disk;
pub mod journaled;
pub mod saving;

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::item::Item;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use std::sync::Arc;

/// A table of that name that never waits for more than one item.
pub fn options(name: &str, max_size: u64) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size,
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
    }
}

/// Inserts wait while so many items are not sampled yet.
pub fn queue_limiter(size: u64) -> Limiter {
    Limiter::new(1.0, 1, 0.0, size as f64).unwrap()
}

/// A limiter of so many samples for each insert, with a deviation of `error` to either side of the start.
pub fn ratio_limiter(samples_per_insert: f64, min_size: u64, error: f64) -> Limiter {
    let start = samples_per_insert * min_size as f64;
    Limiter::new(samples_per_insert, min_size, start - error, start + error).unwrap()
}

/// A queue: each item once, in order.
pub fn queue(name: &str, max_size: u64) -> TableOptions {
    TableOptions { max_times_sampled: 1, limiter: queue_limiter(max_size), ..options(name, max_size) }
}

pub fn tables(options: Vec<TableOptions>) -> (Arc<Tables>, Arc<ManualClock>) {
    bounded_tables(options, None)
}

pub fn bounded_tables(options: Vec<TableOptions>, max_bytes: Option<u64>) -> (Arc<Tables>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let as_clock: Arc<dyn Clock> = clock.clone();
    (Arc::new(Tables::new(options, max_bytes, &as_clock, 7).unwrap()), clock)
}

pub fn spec(path: &str, dtype: DType, shape: &[usize]) -> ColumnSpec {
    ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() }
}

/// One column, the structure itself.
pub fn leaf(dtype: DType, shape: &[usize]) -> Arc<Schema> {
    Arc::new(Schema { columns: vec![spec("", dtype, shape)], structure: Structure::Leaf })
}

/// Writes float64 rows: the items have different values.
pub struct Rows {
    writer: RowWriter,
    schema: Arc<Schema>,
}

impl Rows {
    pub fn new(tables: &Arc<Tables>) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        Self { writer: RowWriter::new(sink, Compression::None, false), schema: leaf(DType::Float64, &[]) }
    }

    pub fn item(&mut self, value: f64) -> Item {
        let bytes = value.to_ne_bytes();
        self.writer.append(&self.schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], 1).unwrap().remove(0)
    }

    pub fn close(&mut self) {
        self.writer.close();
    }

    pub fn inserts(&mut self, values: &[f64]) -> Inserts {
        values.iter().map(|value| (self.item(*value), Priority::Value(1.0))).collect()
    }
}

/// Inserts of one row of so many bytes, in a chunk of its own.
pub fn row_of(tables: &Arc<Tables>, bytes: usize) -> Inserts {
    let sink: Arc<dyn Sink> = tables.clone();
    let mut rows = RowWriter::new(sink, Compression::None, false);
    let content = vec![7_u8; bytes];
    let items = rows.append(&leaf(DType::UInt8, &[bytes]), &[ColumnCells { itemsize: 1, bytes: &content }], 1).unwrap();
    items.into_iter().map(|item| (item, Priority::Value(1.0))).collect()
}

/// The bytes of one cell of an item's column.
pub fn cell(item: &Item, column: usize, index: usize) -> Vec<u8> {
    let pattern = &item.pattern.columns[column];
    let (chunk, cell) = item.locate(pattern.part, pattern.cells.get(index)).expect("the body has the cell");
    chunk.read().unwrap().cell(pattern.column as usize, cell).expect("the cell holds a value").to_vec()
}

pub fn f64_of(item: &Item) -> f64 {
    f64::from_ne_bytes(cell(item, 0, 0).try_into().unwrap())
}
