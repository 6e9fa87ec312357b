//! Rows that show their number, and whether a byte of them is wrong.

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_core::sample::DrawnBatch;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::{Cut, Inserts, Priority, Tables};
use reverie_net::client::Remote;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Numbers in a row.
const WIDTH: usize = 40;

fn row(value: i64) -> Vec<u8> {
    (0..WIDTH as i64).flat_map(|at| value.wrapping_mul(if at == 0 { 1 } else { at * 7919 }).to_ne_bytes()).collect()
}

fn read(bytes: &[u8]) -> i64 {
    let value = i64::from_ne_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, row(value), "the bytes of {value} are not those that were written");
    value
}

pub struct Rows {
    writer: RowWriter,
    schema: Arc<Schema>,
}

impl Rows {
    pub fn new(client: &Arc<Remote>) -> Self {
        let sink: Arc<dyn Sink> = client.clone();
        let column = ColumnSpec { path: "x".to_owned(), dtype: DType::Int64, shape: vec![WIDTH] };
        let structure = Structure::Dict(vec![(reverie_core::spec::StructureKey::Str("x".to_owned()), Structure::Leaf)]);
        let schema = Arc::new(Schema { columns: vec![column], structure });
        Self { writer: RowWriter::new(sink, Compression::None, false), schema }
    }

    pub fn inserts(&mut self, values: Range<i64>) -> Inserts {
        let mut item = |value| {
            let cells = ColumnCells { itemsize: 8, bytes: &row(value) };
            (self.writer.append(&self.schema, &[cells], 1).unwrap().remove(0), Priority::Value(1.0))
        };
        values.map(&mut item).collect()
    }
}

fn value(item: &Item) -> i64 {
    let column = &item.pattern.columns[0];
    let (chunk, cell) = item.locate(column.part, column.cells.get(0)).unwrap();
    read(chunk.read().unwrap().cell(column.column as usize, cell).unwrap())
}

/// The values that a table holds, and how often.
pub fn values(tables: &Tables, table: &str) -> HashMap<i64, u64> {
    values_of(&tables.get(table).unwrap().cut())
}

/// The values that a cut holds, and how often.
pub fn values_of(cut: &Cut) -> HashMap<i64, u64> {
    let mut values = HashMap::new();
    for (_, slot, _) in cut.iter() {
        *values.entry(value(slot.item.as_ref().unwrap())).or_default() += 1;
    }
    values
}

/// The value of the item with that key.
pub fn value_of(tables: &Tables, table: &str, key: i64) -> Option<i64> {
    let draws = tables.get(table).unwrap().get(&[key]).ok()?;
    draws.items.first().map(value)
}

/// The values of a batch's rows.
pub fn batch_values(batch: &DrawnBatch) -> Vec<i64> {
    let batch = batch.arrays().expect("arrays that arrived");
    let bytes = batch.block.copied(batch.layout.outputs[0].clone());
    assert_eq!(bytes.len(), batch.num_draws * WIDTH * 8);
    bytes.chunks(WIDTH * 8).map(read).collect()
}
