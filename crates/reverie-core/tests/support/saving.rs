//! Servers to take checkpoints of, and what of them must come back.

use super::disk::FakeDisk;
use super::{Rows, cell, f64_of, options, queue, spec, tables};
use reverie_core::append::{ColumnCells, ItemColumn, Sink, StepWriter, WriterOptions};
use reverie_core::checkpoint::{Difference, RetentionPolicy, SaveOutcome, Store, latest, load};
use reverie_core::chunk::Compression;
use reverie_core::item::{self, Body, Item, Part, Span};
use reverie_core::sample::SampleRequest;
use reverie_core::spec::{DType, Schema, Structure};
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const ROOT: &str = "/data/checkpoints";
pub const NOW: Duration = Duration::from_secs(1_000_000);
pub const KEEP: RetentionPolicy = RetentionPolicy { count: 2, max_age: None };

pub fn store(disk: &FakeDisk, keep: RetentionPolicy) -> Store {
    Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), keep).unwrap()
}

pub fn save(store: &Store, tables: &Tables) -> SaveOutcome {
    let saved = store.save(tables, NOW).unwrap();
    assert_eq!(saved.left_behind, None);
    saved
}

/// Restores the newest checkpoint into tables of these options.
pub fn restore(disk: &FakeDisk, into: Vec<TableOptions>) -> (Arc<Tables>, Vec<Difference>) {
    let (tables, _) = tables(into);
    let path = latest(disk, Path::new(ROOT)).unwrap().expect("a checkpoint");
    let checkpoint = load(disk, &path, tables.bytes().0).unwrap();
    let restored = checkpoint.restore(&tables, NOW).unwrap();
    (tables, restored.differences)
}

/// Everything that a table must bring back, its items in the order of their keys.
pub fn contents(tables: &Tables, name: &str) -> String {
    let table = tables.get(name).unwrap();
    let info = table.info();
    let mut stats = info.stats.clone();
    stats.evicted = 0;
    let mut text = format!("{:?} {stats:?} {} episodes\n", info.counters, info.num_episodes);
    for (index, slot, age) in table.cut().iter() {
        let item = slot.item.as_ref().unwrap();
        let key = item::Key::new(0, slot.generation, index);
        let (priority, version, times) = (slot.priority(), slot.version(), slot.times_sampled());
        let (inserted, updated) = (age.inserted, age.updated());
        text += &format!("{key} {priority} {version} {times} {inserted} {updated} {:?}\n", *item.pattern);
        for (number, column) in item.pattern.columns.iter().enumerate() {
            let cells: Vec<_> = (0..column.cells.len()).map(|index| cell(item, number, index)).collect();
            text += &format!("  {cells:?}\n");
        }
    }
    text
}

/// An item of its own chunk, over these episodes.
pub fn over(rows: &mut Rows, value: f64, episode: u32, further: &[u32]) -> Item {
    rows.close();
    let item = rows.item(value);
    let chunks: Box<[_]> = item.chunks().cloned().collect();
    let starts = [0, chunks[0].layout().capacity() as i64].into();
    let span = Span { parts: vec![Part { chunks, starts }], episodes: further.into() };
    Item { body: Body::Span(Arc::new(span)), episode, ..item }
}

pub fn insert(tables: &Tables, name: &str, items: impl IntoIterator<Item = (Item, f64)>) -> Vec<i64> {
    let items: Inserts = items.into_iter().map(|(item, priority)| (item, Priority::Value(priority))).collect();
    // Makes room for them, if chunks move to the disk.
    let keys = Sink::insert(tables, name, items).unwrap().poll().unwrap().unwrap();
    keys.iter().map(|key| key.get()).collect()
}

pub fn draw(tables: &Tables, name: &str, n: usize) -> Vec<f64> {
    let request = SampleRequest { num_samples: n, ..Default::default() };
    let draws = tables.get(name).unwrap().sample(request).unwrap().poll().unwrap().unwrap();
    draws.items.iter().map(f64_of).collect()
}

/// Trajectories over several chunks and two column groups, with cells that hold no value; the last chunk stays open.
pub fn write_steps(tables: &Arc<Tables>, name: &str, compression: Compression, steps: u64) -> StepWriter {
    let mut writing = Steps::new(tables, name, compression);
    (0..steps).for_each(|_| writing.step());
    writing.writer
}

/// A writer of such trajectories, step by step.
pub struct Steps {
    tables: Arc<Tables>,
    name: String,
    writer: StepWriter,
    numbers: Vec<usize>,
    /// Numbers of a cell of the first column.
    width: usize,
    step: u64,
}

impl Steps {
    pub fn new(tables: &Arc<Tables>, name: &str, compression: Compression) -> Self {
        Self::of_width(tables, name, compression, 64)
    }

    pub fn of_width(tables: &Arc<Tables>, name: &str, compression: Compression, width: usize) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        let options = WriterOptions { keep_alive: 20, chunk_length: Some(4), compression };
        let mut writer = StepWriter::new(sink, options).unwrap();
        writer.configure("1", WriterOptions { chunk_length: Some(3), ..options }).unwrap();
        let columns =
            vec![spec("0", DType::Float64, &[width]), spec("1", DType::Int16, &[]), spec("2", DType::Str, &[])];
        let structure = Structure::List(vec![Structure::Leaf; 3]);
        let numbers = writer.resolve(&Schema { columns, structure }).unwrap();
        Self { tables: tables.clone(), name: name.to_owned(), writer, numbers, width, step: 0 }
    }

    /// Appends a step, and inserts an item that ends with it.
    pub fn step(&mut self) {
        let Self { tables, name, writer, numbers, width, step } = self;
        let (wide, narrow) = ((*step as f64).to_ne_bytes().repeat(*width), (*step as i16).to_ne_bytes());
        let cells = [
            ColumnCells { itemsize: 8, bytes: &wide },
            ColumnCells { itemsize: 2, bytes: &narrow },
            ColumnCells { itemsize: 12, bytes: b"a\0\0\0b\0\0\0c\0\0\0" },
        ];
        // Every third step lacks the last column.
        let written = if *step % 3 == 2 { 2 } else { 3 };
        writer.append(&numbers[..written], &cells[..written], false).unwrap();
        let length = 1 + *step % 6;
        let start = (*step + 1).saturating_sub(length).max(writer.base());
        let cells = item::Cells::range(0, (*step + 1 - start) as i32);
        let column = |column: usize| ItemColumn { column, start, cells: cells.clone(), squeeze: false };
        let two = Arc::new(Structure::List(vec![Structure::Leaf; 2]));
        let item = writer.item(&two, &[column(numbers[0]), column(numbers[1])]).unwrap();
        insert(tables, name, [(item, *step as f64)]);
        if *step % 11 == 10 {
            writer.end_episode(true);
        }
        *step += 1;
    }
}

/// A server whose tables hold items of every kind, used for a while.
pub fn busy() -> (Arc<Tables>, Vec<TableOptions>) {
    let kinds = |name: &str, sampler, remover| TableOptions { sampler, remover, ..options(name, 40) };
    let all = vec![
        queue("queue", 100),
        kinds("heaps", SelectorOptions::MaxHeap, SelectorOptions::MinHeap),
        kinds("uniform", SelectorOptions::Uniform, SelectorOptions::Lifo),
        kinds("per", SelectorOptions::Prioritized { exponent: 0.6 }, SelectorOptions::Fifo),
        kinds("packed", SelectorOptions::Lifo, SelectorOptions::Fifo),
        options("empty", 5),
    ];
    let (tables, _) = tables(all.clone());
    let mut rows = Rows::new(&tables);
    for name in ["queue", "heaps", "uniform", "per"] {
        let items: Vec<_> = (0..60).map(|value| (rows.item(f64::from(value)), f64::from(value % 7))).collect();
        let keys = insert(&tables, name, items);
        tables.get(name).unwrap().update(&keys[30..45], &[3.0; 15], None).unwrap();
        tables.get(name).unwrap().delete(&keys[50..53]).unwrap();
        draw(&tables, name, 9);
    }
    write_steps(&tables, "per", Compression::None, 37);
    write_steps(&tables, "packed", Compression::Zstd, 30);
    (tables, all)
}
