//! The writer of trajectories: what items see of the steps that were appended.

use super::support::{self, options, spec, tables};
use proptest::prelude::*;
use reverie_core::append::{ColumnCells, ItemColumn, Sink, StepWriter, WriterOptions};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::error::{Error, Result};
use reverie_core::item::{self, Body, Item};
use reverie_core::spec::{DType, Schema, Signature, Structure};
use reverie_core::table::{Inserts, Keys, Priority, Ticket};
use std::sync::{Arc, Mutex};

/// Takes items as a network client would: what arrives is all that a table could know.
#[derive(Default)]
struct Recorder {
    meter: Arc<Meter>,
    items: Mutex<Vec<(String, Item)>>,
}

impl Sink for Recorder {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.items.lock().unwrap().extend(items.into_iter().map(|(item, _)| (table.to_owned(), item)));
        Ok(Ticket::done(Ok(Keys::new())))
    }

    fn check(&self, _table: &str, _items: &[(Item, Priority)]) -> Result<()> {
        Ok(())
    }

    fn check_priority(&self, _table: &str, _priority: Priority) -> Result<()> {
        Ok(())
    }

    fn signature(&self, _table: &str) -> Result<Option<Signature>> {
        Ok(None)
    }

    fn wait_reason(&self, _table: &str) -> Ticket<String> {
        Ticket::done(Ok("no request waits".to_owned()))
    }

    fn compression(&self, _table: &str) -> Result<Compression> {
        Ok(Compression::None)
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

fn writer_options(keep_alive: usize, chunk_length: usize) -> WriterOptions {
    WriterOptions { keep_alive, chunk_length: Some(chunk_length), compression: Compression::None }
}

fn writer(keep_alive: usize, chunk_length: usize) -> StepWriter {
    let sink: Arc<dyn Sink> = Arc::new(Recorder::default());
    StepWriter::new(sink, writer_options(keep_alive, chunk_length)).unwrap()
}

fn schema(paths: &[&str]) -> Schema {
    let columns = paths.iter().map(|path| spec(path, DType::Float64, &[])).collect();
    Schema { columns, structure: Structure::List(paths.iter().map(|_| Structure::Leaf).collect()) }
}

fn append(writer: &mut StepWriter, cells: &[(&str, f64)], partial: bool) -> Result<()> {
    let columns = writer.resolve(&schema(&cells.iter().map(|(path, _)| *path).collect::<Vec<_>>()))?;
    let bytes: Vec<[u8; 8]> = cells.iter().map(|(_, value)| value.to_ne_bytes()).collect();
    let cells: Vec<ColumnCells<'_>> = bytes.iter().map(|bytes| ColumnCells { itemsize: 8, bytes }).collect();
    writer.append(&columns, &cells, partial)
}

fn column(writer: &StepWriter, path: &str, steps: std::ops::Range<u64>) -> ItemColumn {
    let cells = item::Cells::range(0, (steps.end - steps.start) as i32);
    ItemColumn { column: writer.column(path).unwrap(), start: steps.start, cells, squeeze: false }
}

fn make(writer: &mut StepWriter, columns: &[ItemColumn]) -> Result<Item> {
    let structure = Arc::new(Structure::List(columns.iter().map(|_| Structure::Leaf).collect()));
    let item = writer.item(&structure, columns)?;
    item.check()?;
    Ok(item)
}

fn values(item: &Item, column: usize) -> Vec<f64> {
    (0..item.pattern.columns[column].cells.len())
        .map(|index| f64::from_ne_bytes(support::cell(item, column, index).try_into().unwrap()))
        .collect()
}

#[test]
fn items_see_the_open_chunk_at_once_and_whatever_is_appended_later_does_not_change_them() {
    let mut writer = writer(10, 4);
    append(&mut writer, &[("a", 1.0)], false).unwrap();
    let columns = [column(&writer, "a", 0..1)];
    let item = make(&mut writer, &columns).unwrap();
    assert!(matches!(item.body, Body::Chunk(_)));
    for value in 2..20 {
        append(&mut writer, &[("a", f64::from(value))], false).unwrap();
        assert_eq!(values(&item, 0), [1.0]);
    }
}

#[test]
fn an_item_over_several_chunks_reads_as_one_and_shares_its_body_with_its_neighbour() {
    let mut writer = writer(20, 4);
    (0..10).for_each(|value| append(&mut writer, &[("a", f64::from(value))], false).unwrap());
    let columns = [column(&writer, "a", 2..9)];
    let first = make(&mut writer, &columns).unwrap();
    assert_eq!(values(&first, 0), (2..9).map(f64::from).collect::<Vec<_>>());
    let columns = [column(&writer, "a", 3..10)];
    let second = make(&mut writer, &columns).unwrap();
    assert_eq!(values(&second, 0), (3..10).map(f64::from).collect::<Vec<_>>());
    let (Body::Span(a), Body::Span(b)) = (&first.body, &second.body) else { panic!("spans") };
    assert!(Arc::ptr_eq(a, b) && first.pattern.same(&second.pattern));
}

#[test]
fn a_step_can_be_given_in_parts_and_items_refer_to_it_while_it_is_open() {
    let mut writer = writer(5, 4);
    append(&mut writer, &[("obs", 1.0)], true).unwrap();
    assert!(writer.step_is_open());
    let columns = [column(&writer, "obs", 0..1)];
    assert_eq!(values(&make(&mut writer, &columns).unwrap(), 0), [1.0]);
    let twice = append(&mut writer, &[("action", 2.0), ("obs", 9.0)], true).unwrap_err();
    assert!(twice.to_string().contains("'obs'"), "{twice}");
    append(&mut writer, &[("action", 3.0)], false).unwrap();
    assert!(!writer.step_is_open());
    assert_eq!(writer.episode_steps(), 1);
    let columns = [column(&writer, "action", 0..1), column(&writer, "obs", 0..1)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!((values(&item, 0), values(&item, 1)), (vec![3.0], vec![1.0]), "the refused call wrote nothing");
}

#[test]
fn a_column_that_appears_later_has_no_cells_before_and_reports_it() {
    let mut writer = writer(10, 4);
    append(&mut writer, &[("a", 0.0)], false).unwrap();
    append(&mut writer, &[("a", 1.0), ("b", 10.0)], false).unwrap();
    append(&mut writer, &[("a", 2.0)], false).unwrap();
    for missing in [0, 2] {
        let columns = [column(&writer, "b", missing..missing + 1)];
        let error = make(&mut writer, &columns).unwrap_err().to_string();
        assert!(error.contains("'b'") && error.contains("None"), "{error}");
    }
    let columns = [column(&writer, "a", 0..3), column(&writer, "b", 1..2)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!((values(&item, 0), values(&item, 1)), (vec![0.0, 1.0, 2.0], vec![10.0]));
}

#[test]
fn cells_expire_after_the_number_that_is_kept_and_after_the_buffers_were_cleared() {
    let mut writer = writer(2, 4);
    (0..3).for_each(|value| append(&mut writer, &[("a", f64::from(value))], false).unwrap());
    let columns = [column(&writer, "a", 0..1)];
    let error = make(&mut writer, &columns).unwrap_err().to_string();
    assert!(error.contains("'a'") && error.contains("expired") && error.contains('2'), "{error}");
    let columns = [column(&writer, "a", 1..3)];
    assert_eq!(values(&make(&mut writer, &columns).unwrap(), 0), [1.0, 2.0]);
    writer.end_episode(true);
    assert_eq!((writer.num_steps(), writer.episode_steps()), (0, 0));
    assert!(make(&mut writer, &columns).is_err());
}

#[test]
fn items_cross_an_episodes_border_where_the_buffers_were_kept() {
    let mut writer = writer(10, 4);
    (0..3).for_each(|value| append(&mut writer, &[("a", f64::from(value))], false).unwrap());
    let columns = [column(&writer, "a", 0..1)];
    let before = make(&mut writer, &columns).unwrap().episode;
    writer.end_episode(false);
    assert_eq!(writer.episode_steps(), 0);
    append(&mut writer, &[("a", 3.0)], false).unwrap();
    let columns = [column(&writer, "a", 1..4)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!(values(&item, 0), [1.0, 2.0, 3.0]);
    assert_eq!(item.episode, before, "it begins in the one before");
}

#[test]
fn an_item_has_every_episode_that_it_has_cells_of_and_none_of_those_between() {
    let mut writer = writer(9, 4);
    let mut episodes = Vec::new();
    for step in 0..9_u64 {
        append(&mut writer, &[("a", step as f64), ("b", 0.0)], false).unwrap();
        let columns = [column(&writer, "a", step..step + 1)];
        episodes.push(make(&mut writer, &columns).unwrap().episode);
        if step % 3 == 2 {
            writer.end_episode(false);
        }
    }
    let mut item = |a: std::ops::Range<u64>, b: std::ops::Range<u64>| {
        let columns = [column(&writer, "a", a), column(&writer, "b", b)];
        let item = make(&mut writer, &columns).unwrap();
        (item.episode, item.further_episodes().to_vec())
    };
    // Steps 0 to 3 are one chunk, of which 3 begins the second episode.
    let (first, second, third) = (episodes[0], episodes[3], episodes[6]);
    assert_eq!(item(0..3, 1..2), (first, vec![]));
    assert_eq!(item(2..4, 2..3), (first, vec![second]), "in one chunk");
    assert_eq!(item(0..3, 1..2), (first, vec![]), "the chunk that was the other's, too");
    assert_eq!(item(8..9, 0..1), (first, vec![third]), "nothing of the second");
    assert_eq!(item(0..9, 0..1), (first, vec![second, third]), "the same chunks");
    assert_eq!(item(4..9, 4..5), (second, vec![third]));
    assert_eq!(item(6..9, 6..7), (third, vec![]));
}

#[test]
fn an_item_is_of_the_episode_that_its_first_step_is_of_whichever_column_that_is_in() {
    let mut writer = writer(3, 4);
    let mut episodes = Vec::new();
    for step in 0..12_u64 {
        append(&mut writer, &[("a", step as f64), ("b", 0.0)], false).unwrap();
        let columns = [column(&writer, "a", step..step + 1)];
        episodes.push(make(&mut writer, &columns).unwrap().episode);
        let oldest = step.saturating_sub(2);
        let columns = [column(&writer, "a", step..step + 1), column(&writer, "b", oldest..oldest + 1)];
        assert_eq!(make(&mut writer, &columns).unwrap().episode, episodes[oldest as usize], "at step {step}");
        if step % 3 == 1 {
            // The second ends an episode without a step.
            (0..2).for_each(|_| writer.end_episode(false));
        }
    }
    assert!((1..12).all(|step| (episodes[step] == episodes[step - 1]) == (step % 3 != 2)));
}

#[test]
fn another_dtype_or_shape_than_before_is_refused_with_the_path() {
    let mut writer = writer(10, 4);
    append(&mut writer, &[("a", 0.0)], false).unwrap();
    let columns = vec![spec("a", DType::Float32, &[])];
    let error = writer.resolve(&Schema { columns, structure: Structure::Leaf }).unwrap_err();
    assert!(matches!(&error, Error::Signature { path, .. } if path == "a"), "{error}");
}

#[test]
fn text_columns_take_cells_of_any_width() {
    let mut writer = writer(10, 4);
    let schema = Schema { columns: vec![spec("s", DType::Bytes, &[])], structure: Structure::Leaf };
    let columns = writer.resolve(&schema).unwrap();
    let texts: [&[u8]; 3] = [b"a", b"longer", b"mid"];
    texts
        .iter()
        .for_each(|bytes| writer.append(&columns, &[ColumnCells { itemsize: bytes.len(), bytes }], false).unwrap());
    let columns = [column(&writer, "s", 0..3)];
    let item = make(&mut writer, &columns).unwrap();
    let cells: Vec<Vec<u8>> = (0..3).map(|index| support::cell(&item, 0, index)).collect();
    assert_eq!(cells, texts);
}

#[test]
fn cells_of_declared_columns_may_differ_in_their_first_size_and_in_nothing_else() {
    let mut writer = writer(10, 4).of_variable(vec![("x".to_owned(), 2), ("y".to_owned(), 2)]);
    let schema = |path: &str, dtype, shape: &[usize]| Schema {
        columns: vec![spec(path, dtype, shape)],
        structure: Structure::Leaf,
    };
    let bytes: Vec<u8> = (0..200).collect();
    for size in [3, 0, 5] {
        let columns = writer.resolve(&schema("x", DType::Int16, &[size, 2])).unwrap();
        writer.append(&columns, &[ColumnCells { itemsize: 2, bytes: &bytes[..4 * size] }], false).unwrap();
    }
    let columns = [column(&writer, "x", 0..3)];
    let item = make(&mut writer, &columns).unwrap();
    item.check().unwrap();
    assert!(item.pattern.columns[0].spec.is_variable());
    assert_eq!([0, 1, 2].map(|index| support::cell(&item, 0, index).len()), [12, 0, 20]);
    assert_eq!(writer.cell_bytes(columns[0].column), 20);
    for other in
        [schema("x", DType::Int16, &[3, 3]), schema("x", DType::Int32, &[3, 2]), schema("x", DType::Int16, &[3])]
    {
        let error = writer.resolve(&other).unwrap_err().to_string();
        assert!(error.contains("column 'x'") && error.contains("int16 [any, 2], as in the steps before"), "{error}");
    }
    let torn = ColumnCells { itemsize: 2, bytes: &bytes[..6] };
    assert!(writer.append(&[columns[0].column], &[torn], false).is_err(), "one and a half rows");
    // Declared with another number of axes, or not at all: as before.
    for path in ["y", "x1"] {
        writer.resolve(&schema(path, DType::Int16, &[3])).unwrap();
        assert!(writer.resolve(&schema(path, DType::Int16, &[4])).is_err());
    }
}

#[test]
fn columns_configured_apart_are_cut_apart() {
    let mut writer = writer(10, 4);
    writer.configure("b", writer_options(1, 1)).unwrap();
    (0..4).for_each(|value| append(&mut writer, &[("a", f64::from(value)), ("b", 1.0)], false).unwrap());
    let columns = [column(&writer, "b", 2..3)];
    assert!(make(&mut writer, &columns).is_err(), "b keeps one cell");
    let columns = [column(&writer, "a", 0..4), column(&writer, "b", 3..4)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!((values(&item, 0), values(&item, 1)), (vec![0.0, 1.0, 2.0, 3.0], vec![1.0]));
    let Body::Span(parts) = &item.body else { panic!("two groups are two parts") };
    assert_eq!(parts.len(), 2);
}

#[test]
fn a_column_may_be_configured_after_its_first_append() {
    let mut writer = writer(4, 4);
    (0..6).for_each(|value| append(&mut writer, &[("a", f64::from(value)), ("b", 1.0)], false).unwrap());
    writer.configure("a", writer_options(2, 1)).unwrap();
    (6..10).for_each(|value| append(&mut writer, &[("a", f64::from(value)), ("b", 1.0)], false).unwrap());
    let columns = [column(&writer, "a", 7..9)];
    assert!(make(&mut writer, &columns).is_err(), "a keeps two cells");
    let columns = [column(&writer, "a", 8..10), column(&writer, "b", 6..10)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!((values(&item, 0), values(&item, 1)), (vec![8.0, 9.0], vec![1.0; 4]));
    let Body::Span(parts) = &item.body else { panic!("a chunk a step, since a asks for that") };
    assert_eq!(parts[0].chunks.len(), 4);

    writer.configure("a", writer_options(4, 4)).unwrap();
    let columns = [column(&writer, "a", 6..10)];
    let item = make(&mut writer, &columns).unwrap();
    assert_eq!(values(&item, 0), vec![6.0, 7.0, 8.0, 9.0], "b kept them");
    append(&mut writer, &[("a", 10.0)], true).unwrap();
    let refused = writer.configure("a", writer_options(1, 1)).unwrap_err();
    assert!(refused.to_string().contains("end it with"), "{refused}");
}

#[test]
fn chunks_live_as_long_as_a_writer_or_an_item_needs_them() {
    let recorder = Arc::new(Recorder::default());
    let sink: Arc<dyn Sink> = recorder.clone();
    let mut writer = StepWriter::new(sink, writer_options(4, 2)).unwrap();
    for value in 0..100 {
        append(&mut writer, &[("a", f64::from(value))], false).unwrap();
        assert!(recorder.meter.live_chunks() <= 3, "four kept steps are in at most three chunks of two");
    }
    let columns = [column(&writer, "a", 98..100)];
    let item = make(&mut writer, &columns).unwrap();
    drop(writer);
    assert_eq!(recorder.meter.live_chunks(), 1);
    drop(item);
    assert_eq!((recorder.meter.live_chunks(), recorder.meter.live_bytes()), (0, 0));
}

#[test]
fn a_writer_that_makes_no_more_items_lets_go_of_the_last_ones_chunks() {
    let recorder = Arc::new(Recorder::default());
    let sink: Arc<dyn Sink> = recorder.clone();
    let mut writer = StepWriter::new(sink, writer_options(4, 2)).unwrap();
    for value in 0..100 {
        append(&mut writer, &[("a", f64::from(value))], false).unwrap();
        if value == 9 {
            let columns = [column(&writer, "a", 6..10)];
            drop(make(&mut writer, &columns).unwrap());
        }
    }
    assert!(recorder.meter.live_chunks() <= 3, "{} chunks for four kept steps", recorder.meter.live_chunks());
}

#[test]
fn two_columns_of_one_path_are_refused() {
    // As of {"a/b": ..., "a": {"b": ...}}.
    let mut writer = writer(4, 2);
    let error = writer.resolve(&schema(&["a/b", "c", "a/b"])).unwrap_err();
    assert!(error.to_string().contains("a/b"), "{error}");
    append(&mut writer, &[("a/b", 1.0), ("c", 2.0)], false).unwrap();
    assert_eq!(writer.num_steps(), 1, "nothing of the refused schema is left");
}

#[test]
fn the_cells_of_an_item_may_all_lie_far_behind_the_start_that_they_are_counted_from() {
    let mut writer = writer(100, 2);
    (0..40).for_each(|value| append(&mut writer, &[("a", f64::from(value))], false).unwrap());
    let item = ItemColumn { column: 0, start: 0, cells: item::Cells::range(30, 33), squeeze: false };
    let item = make(&mut writer, &[item]).unwrap();
    assert_eq!(values(&item, 0), [30.0, 31.0, 32.0]);
}

#[test]
fn a_table_takes_what_any_writer_makes() {
    let (tables, _) = tables(vec![options("t", 10)]);
    let sink: Arc<dyn Sink> = tables.clone();
    let mut writer = StepWriter::new(sink, writer_options(3, 2)).unwrap();
    (0..5).for_each(|value| append(&mut writer, &[("a", f64::from(value))], false).unwrap());
    let columns = [column(&writer, "a", 2..5)];
    let item = make(&mut writer, &columns).unwrap();
    let keys = tables.insert("t", smallvec::smallvec![(item, Priority::Value(1.0))]).unwrap().poll().unwrap().unwrap();
    let found = tables.get("t").unwrap().get(&[keys[0].get()]).unwrap();
    assert_eq!(values(&found.items[0], 0), [2.0, 3.0, 4.0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Steps have some of three columns; the value of a cell is 100 * column + step.
    #[test]
    fn any_cells_that_are_kept_read_back_as_they_were_written(
        steps in prop::collection::vec((0..8_u8, 0..3_u8), 1..40),
        (keep, chunk) in (1..12_usize, 1..6_usize),
        (picks, order) in (prop::collection::vec((0..3_usize, 0..40_u64, 1..6_u64), 1..4), any::<bool>()),
    ) {
        let names = ["a", "b", "c"];
        let mut writer = writer(keep, chunk);
        let mut written = [vec![], vec![], vec![]];
        for (step, (mask, order)) in steps.iter().enumerate() {
            let present: Vec<usize> = (0..3).filter(|column| mask >> column & 1 == 1).collect();
            present.iter().for_each(|column| written[*column].push(step as u64));
            let cells: Vec<(&str, f64)> = present.iter().map(|c| (names[*c], (100 * c + step) as f64)).collect();
            let (first, second) = cells.split_at(cells.len().min(usize::from(*order)));
            append(&mut writer, first, true).unwrap();
            append(&mut writer, second, false).unwrap();
        }
        let total = steps.len() as u64;
        let columns: Vec<(usize, ItemColumn)> = picks
            .iter()
            .filter(|(column, ..)| writer.column(names[*column]).is_some())
            .map(|(column, start, len)| {
                let cells = match order {
                    true => item::Cells::range(0, *len as i32),
                    false => item::Cells::List((0..*len as i32).rev().collect()),
                };
                let number = writer.column(names[*column]).unwrap();
                (*column, ItemColumn { column: number, start: *start, cells, squeeze: false })
            })
            .collect();
        if columns.is_empty() {
            return Ok(());
        }
        let wanted = |(column, item): &(usize, ItemColumn)| -> Vec<(usize, u64)> {
            item.cells.iter().map(|relative| (*column, item.start + relative as u64)).collect()
        };
        let kept = |(column, step): (usize, u64)| {
            step < total && step + keep as u64 >= total && written[column].contains(&step)
        };
        let all_kept = columns.iter().flat_map(wanted).all(kept);
        let specs: Vec<ItemColumn> = columns.iter().map(|(_, column)| column.clone()).collect();
        match make(&mut writer, &specs) {
            Err(_) => prop_assert!(!all_kept),
            Ok(item) => {
                prop_assert!(all_kept);
                for (index, column) in columns.iter().enumerate() {
                    let want: Vec<f64> = wanted(column).iter().map(|(c, s)| (100 * c) as f64 + *s as f64).collect();
                    prop_assert_eq!(values(&item, index), want);
                }
            }
        }
    }
}
