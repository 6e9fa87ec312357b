//! The whole flow: what was appended comes back, and its bytes go when nothing needs them.

use super::support::{self, f64_of, leaf, options, queue, spec, tables};
use reverie_core::append::{
    ColumnCells, ItemColumn, RightEnds, RowWriter, Sink, StepWriter, TransitionOptions, TransitionStep,
    TransitionWriter, WriterOptions,
};
use reverie_core::chunk::Compression;
use reverie_core::item;
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::spec::{DType, Schema, Structure};
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use std::sync::Arc;

/// Steps of a writer that uses up several chunks.
const STEPS: usize = 700;

fn sink(tables: &Arc<Tables>) -> Arc<dyn Sink> {
    tables.clone()
}

/// Inserts the same items into every table of the server.
fn insert_everywhere(tables: &Tables, items: Inserts) {
    tables.iter().for_each(|table| assert!(table.insert(items.clone()).unwrap().is_done()));
}

fn write_rows(tables: &Arc<Tables>, compression: Compression) -> RowWriter {
    let mut writer = RowWriter::new(sink(tables), compression, true);
    let schema = leaf(DType::Float64, &[128]);
    for step in 0..STEPS {
        let bytes = [step as f64; 128].map(f64::to_ne_bytes).concat();
        let item = writer.append(&schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], 1).unwrap().remove(0);
        insert_everywhere(tables, [(item, Priority::Value(1.0))].into_iter().collect());
    }
    writer
}

/// Items of one chunk, of several chunks, and of two column groups.
fn write_steps(tables: &Arc<Tables>, compression: Compression) -> StepWriter {
    let options = WriterOptions { keep_alive: 40, chunk_length: Some(16), compression };
    let mut writer = StepWriter::new(sink(tables), options).unwrap();
    writer.configure("1", WriterOptions { chunk_length: Some(3), ..options }).unwrap();
    let columns = vec![spec("0", DType::Float64, &[128]), spec("1", DType::Float64, &[])];
    let structure = Arc::new(Structure::List(vec![Structure::Leaf; 2]));
    let numbers = writer.resolve(&Schema { columns, structure: (*structure).clone() }).unwrap();
    for step in 0..STEPS as u64 {
        let (wide, narrow) = ([step as f64; 128].map(f64::to_ne_bytes).concat(), (step as f64).to_ne_bytes());
        let cells = [ColumnCells { itemsize: 8, bytes: &wide }, ColumnCells { itemsize: 8, bytes: &narrow }];
        writer.append(&numbers, &cells, false).unwrap();
        let len = 1 + step % 30;
        let start = (step + 1).saturating_sub(len).max(writer.base());
        let cells = item::Cells::range(0, (step + 1 - start) as i32);
        let column = |column: usize| ItemColumn { column, start, cells: cells.clone(), squeeze: false };
        let item = writer.item(&structure, &[column(numbers[0]), column(numbers[1])]).unwrap();
        insert_everywhere(tables, [(item, Priority::Max)].into_iter().collect());
        if step % 97 == 96 {
            writer.end_episode(step % 2 == 0);
        }
    }
    writer
}

fn write_transitions(tables: &Arc<Tables>, compression: Compression) -> TransitionWriter {
    let options = TransitionOptions {
        num_envs: 3,
        n_step: 3,
        discount: 0.9,
        frame_stack: Some(4),
        stack_axis: 0,
        right_ends: RightEnds::NextAppend,
        priority_eps: 0.01,
        priority_clip: f64::INFINITY,
        priority_unit: 1.0,
        priority: Priority::Max,
        compression,
    };
    let (obs, action) = (leaf(DType::Float64, &[128]), leaf(DType::Int32, &[]));
    let mut writer = TransitionWriter::new(&sink(tables), options, &obs, &action, None).unwrap();
    for step in 0..STEPS {
        let ends = [step % 50 == 49, false, step % 7 == 3];
        let obs = [step as f64; 3 * 128].map(f64::to_ne_bytes).concat();
        let actions = [1_i32; 3].map(i32::to_ne_bytes).concat();
        let columns = [ColumnCells { itemsize: 8, bytes: &obs }, ColumnCells { itemsize: 4, bytes: &actions }];
        let step = TransitionStep {
            columns: &columns,
            rewards: &[1.0; 3],
            terminated: &ends,
            truncated: &[false; 3],
            q_taken: None,
            bootstrap: None,
            final_obs: None,
            final_value: None,
        };
        insert_everywhere(tables, writer.append(&step).unwrap());
    }
    writer
}

fn sample(n: usize) -> SampleRequest {
    SampleRequest { num_samples: n, ..Default::default() }
}

fn draw(tables: &Tables, name: &str, n: usize) -> Draws {
    tables.get(name).unwrap().sample(sample(n)).unwrap().poll().unwrap().unwrap()
}

fn all_kinds() -> Arc<Tables> {
    let prioritized = SelectorOptions::Prioritized { exponent: 0.6 };
    let small = TableOptions { sampler: prioritized, max_bytes: Some(200_000), ..options("budget", 1_000) };
    let heap =
        TableOptions { sampler: SelectorOptions::Uniform, remover: SelectorOptions::MinHeap, ..options("heap", 50) };
    tables(vec![queue("queue", 100_000), options("replay", 300), small, heap]).0
}

/// Uses the tables, and empties each in a way of its own.
fn use_and_empty(tables: &Tables) {
    let draws = draw(tables, "replay", 64);
    let keys: Vec<i64> = draws.keys.iter().map(|key| key.get()).collect();
    for name in ["replay", "budget"] {
        let table = tables.get(name).unwrap();
        table.update(&keys, &vec![2.0; keys.len()], None).unwrap();
    }
    let cut = tables.get("replay").unwrap().cut();
    let all = all_keys(tables, "replay");
    tables.get("replay").unwrap().delete(&all).unwrap();
    drop(cut);
    drop(draws);
    let queued = tables.get("queue").unwrap().info().size as usize;
    drop(draw(tables, "queue", queued));
    tables.get("budget").unwrap().reset().unwrap();
    tables.get("heap").unwrap().reset().unwrap();
}

fn all_keys(tables: &Tables, name: &str) -> Vec<i64> {
    let cut = tables.get(name).unwrap().cut();
    cut.iter().map(|(index, slot, _)| item::Key::new(0, slot.generation, index).get()).collect()
}

fn assert_empty(tables: &Tables, name: &str) {
    for table in tables.iter() {
        let info = table.info();
        assert_eq!((info.size, info.bytes, info.num_episodes), (0, 0, 0), "{name}: table '{}'", table.name());
    }
    let meter = tables.bytes().0;
    assert_eq!((meter.live_chunks(), meter.live_bytes()), (0, 0), "{name}");
}

#[test]
fn every_byte_comes_back_when_the_tables_are_emptied_with_any_writer() {
    for compression in [Compression::None, Compression::Lz4] {
        let tables = all_kinds();
        drop(write_rows(&tables, compression));
        use_and_empty(&tables);
        assert_empty(&tables, "rows");
        drop(write_steps(&tables, compression));
        use_and_empty(&tables);
        assert_empty(&tables, "steps");
        drop(write_transitions(&tables, compression));
        use_and_empty(&tables);
        assert_empty(&tables, "transitions");
    }
}

#[test]
fn a_writer_that_lives_on_holds_nothing_once_its_steps_were_cleared() {
    let tables = all_kinds();
    let mut rows = write_rows(&tables, Compression::None);
    let mut steps = write_steps(&tables, Compression::None);
    let mut transitions = write_transitions(&tables, Compression::None);
    rows.close();
    steps.end_episode(true);
    drop(transitions.finish(None).unwrap());
    use_and_empty(&tables);
    assert_empty(&tables, "writers at rest");
    // They go on afterwards.
    let bytes = 5.0_f64.to_ne_bytes();
    let schema = leaf(DType::Float64, &[]);
    let item = rows.append(&schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], 1).unwrap().remove(0);
    assert_eq!(f64_of(&item), 5.0);
}

#[test]
fn a_server_that_is_dropped_with_items_waiters_and_draws_leaves_no_chunk() {
    let tables = tables(vec![queue("queue", 1), options("replay", 10)]).0;
    let meter = Arc::clone(tables.bytes().0);
    let mut rows = support::Rows::new(&tables);
    let waiting = tables.get("queue").unwrap().insert(rows.inserts(&[1.0, 2.0, 3.0])).unwrap();
    assert!(tables.get("replay").unwrap().insert(rows.inserts(&[4.0])).unwrap().is_done());
    let draws = draw(&tables, "replay", 2);
    drop(rows);
    tables.close();
    drop((tables, waiting));
    assert_eq!(meter.live_chunks(), 1, "the draws' chunk");
    drop(draws);
    assert_eq!((meter.live_chunks(), meter.live_bytes()), (0, 0));
}
