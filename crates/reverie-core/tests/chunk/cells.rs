//! Cells as they are written and read.

use super::support::{columnar, meter, noise};
use proptest::prelude::*;
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout};
use std::sync::Arc;

#[test]
fn an_interleaved_row_is_aligned_and_packed_tight() {
    let layout = Layout::interleaved(&[(16, 4), (8, 8), (4, 4), (1, 1), (16, 4), (4, 4)], 4);
    assert_eq!([0, 1, 2, 3, 4, 5].map(|column| layout.stride(column)), [56; 6]);
    let transition = Layout::interleaved(&[(16, 4), (4, 4), (4, 4), (16, 4), (4, 4)], 64);
    assert_eq!(transition.stride(0), 44);
}

#[test]
fn a_reader_sees_each_cell_from_the_moment_it_is_written() {
    let mut writer = ChunkWriter::new(columnar(&[(4, 4), (2, 2)], 3), Compression::None, &meter());
    let chunk = writer.chunk().clone();
    assert!(chunk.is_empty() && !chunk.has(0, 0) && !chunk.has(2, 0));
    writer.push(0, &[1, 2, 3, 4]);
    assert!(chunk.has(0, 0) && !chunk.has(0, 1) && !chunk.has(1, 0), "columns have their own lengths");
    writer.push_cells(0, &[5, 6, 7, 8, 9, 10, 11, 12], 2);
    writer.push(1, &[1, 1]);
    assert_eq!((chunk.len(0), chunk.len(1), writer.is_full()), (3, 1, false));
    let cells = chunk.read().unwrap();
    assert_eq!(cells.cell(0, 1), Some(&[5, 6, 7, 8][..]));
    assert_eq!(cells.run(0, 1, 2), Some(&[5, 6, 7, 8, 9, 10, 11, 12][..]));
    assert_eq!(cells.cell(1, 1), None);
    assert_eq!(cells.run(0, 2, 2), None);
    assert_eq!(cells.cell(0, usize::MAX), None);
}

#[test]
fn rows_are_written_to_all_columns_and_seen_at_once_however_long_these_are() {
    let cells = [(2, 1), (3, 1)];
    for layout in [Layout::columnar(&cells, 6), Layout::interleaved(&cells, 6)] {
        let mut writer = ChunkWriter::new(Arc::new(layout), Compression::None, &meter());
        let chunk = writer.chunk().clone();
        let rows = |from: u8, n: u8| [2, 3].map(|width| (from..from + n * width).collect::<Vec<u8>>());
        writer.push_rows(rows(10, 1).iter().map(Vec::as_slice), 1);
        writer.push_rows(rows(20, 2).iter().map(Vec::as_slice), 2);
        assert_eq!((chunk.len(0), chunk.len(1)), (3, 3));
        writer.push(1, &[1, 2, 3]);
        writer.push_rows(rows(30, 1).iter().map(Vec::as_slice), 1);
        assert_eq!((chunk.len(0), chunk.len(1)), (4, 5), "each goes on where it was");
        writer.push(0, &[4, 5]);
        writer.push_rows(rows(40, 1).iter().map(Vec::as_slice), 1);
        let view = chunk.read().unwrap();
        let column = |column, n| (0..n).map(|cell| view.cell(column, cell).unwrap().to_vec()).collect::<Vec<_>>();
        assert_eq!(column(0, 6), [[10, 11], [20, 21], [22, 23], [30, 31], [4, 5], [40, 41]]);
        let wanted = [[10, 11, 12], [20, 21, 22], [23, 24, 25], [1, 2, 3], [30, 31, 32], [40, 41, 42]];
        assert_eq!(column(1, 6), wanted);
        assert!(writer.is_full());
    }
}

#[test]
#[should_panic(expected = "1 columns for 2")]
fn rows_of_too_few_columns_are_refused() {
    let cell: &[u8] = &[0];
    ChunkWriter::new(columnar(&[(1, 1), (1, 1)], 2), Compression::None, &meter()).push_rows([cell].into_iter(), 1);
}

#[test]
fn interleaved_cells_are_found_and_never_given_as_a_run() {
    let layout = Arc::new(Layout::interleaved(&[(2, 1), (3, 1)], 4));
    let mut writer = ChunkWriter::new(layout, Compression::None, &meter());
    writer.push_cells(0, &[1, 2, 3, 4, 5, 6, 7, 8], 4);
    writer.push_cells(1, &[9; 12], 4);
    assert!(writer.is_full());
    let chunk = writer.seal(&mut Chooser::new(Compression::None));
    let cells = chunk.read().unwrap();
    assert_eq!(cells.cell(0, 2), Some(&[5, 6][..]));
    assert_eq!(cells.run(0, 0, 2), None);
}

#[test]
fn a_skipped_cell_counts_as_written_and_holds_no_value() {
    for compression in [Compression::None, Compression::Lz4] {
        let (layout, meter) = (columnar(&[(1, 1), (64, 1)], 20), meter());
        let mut writer = ChunkWriter::new(layout, compression, &meter);
        for step in 0..20 {
            if step % 3 == 0 {
                writer.skip(0)
            } else {
                writer.push(0, &[7])
            }
            writer.push(1, &[3; 64]);
        }
        let open = writer.chunk().clone();
        let expected = (0..20).map(|step| step % 3 != 0).collect::<Vec<_>>();
        assert_eq!((0..20).map(|step| open.has(0, step)).collect::<Vec<_>>(), expected);
        let chunk = writer.seal(&mut Chooser::new(compression));
        assert_eq!(chunk.packed().is_some(), compression == Compression::Lz4);
        assert_eq!((0..20).map(|step| chunk.has(0, step)).collect::<Vec<_>>(), expected);
        assert!((0..20).all(|step| chunk.has(1, step)) && !chunk.has(1, 20));
        assert_eq!(chunk.read().unwrap().cell(0, 3), Some(&[0][..]), "zeros where there is no value");
    }
}

#[test]
#[should_panic(expected = "1 more cells in column 0, which has 2 of 2")]
fn a_full_column_takes_no_more() {
    let mut writer = ChunkWriter::new(columnar(&[(1, 1)], 2), Compression::None, &meter());
    writer.push_cells(0, &[0, 0], 2);
    writer.push(0, &[0]);
}

#[test]
#[should_panic(expected = "3 bytes for 1 cells of 2 bytes")]
fn a_cell_of_another_width_is_refused() {
    ChunkWriter::new(columnar(&[(2, 1)], 2), Compression::None, &meter()).push(0, &[0; 3]);
}

#[test]
fn readers_see_whole_cells_while_the_writer_goes_on() {
    for layout in [Layout::columnar(&[(64, 8), (8, 8)], 4096), Layout::interleaved(&[(64, 8), (8, 8)], 4096)] {
        let mut writer = ChunkWriter::new(Arc::new(layout), Compression::None, &meter());
        let chunk = writer.chunk().clone();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < 4096 {
                        let len = chunk.len(1);
                        assert!(len >= seen, "published lengths only grow");
                        let cells = chunk.read().unwrap();
                        for step in seen..len {
                            assert_eq!(cells.cell(0, step), Some(&(step as u64).to_le_bytes().repeat(8)[..]));
                            assert_eq!(cells.cell(1, step), Some(&(step as u64).to_le_bytes()[..]));
                        }
                        seen = len;
                        std::thread::yield_now();
                    }
                });
            }
            for step in 0..4096_u64 {
                writer.push(0, &step.to_le_bytes().repeat(8));
                writer.push(1, &step.to_le_bytes());
            }
        });
    }
}

/// Columns (cell elements, itemsize), capacity, and per column how many cells are written and what they hold.
type Contents = (Vec<(usize, usize)>, usize, Vec<Vec<Option<u8>>>);

fn contents() -> impl Strategy<Value = Contents> {
    let column =
        (0..40_usize, prop::sample::select(vec![1_usize, 2, 3, 4, 8, 16])).prop_map(|(n, size)| (n * size, size));
    (prop::collection::vec(column, 1..6), 1..20_usize).prop_flat_map(|(columns, capacity)| {
        let cells = prop::collection::vec(prop::option::weighted(0.9, any::<u8>()), 0..=capacity);
        let cells = prop::collection::vec(cells, columns.len());
        (Just(columns), Just(capacity), cells)
    })
}

fn value(seed: Option<u8>, width: usize) -> Vec<u8> {
    match seed {
        None => vec![0; width],
        Some(seed) if seed % 2 == 0 => vec![seed; width],
        Some(seed) => noise(width, u64::from(seed)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn written_cells_are_read_in_any_layout_and_compression(
        (columns, capacity, cells) in contents(),
        interleaved: bool,
        compression in prop::sample::select(Compression::ALL.to_vec()),
    ) {
        let make = if interleaved { Layout::interleaved } else { Layout::columnar };
        let meter = meter();
        let mut writer = ChunkWriter::new(Arc::new(make(&columns, capacity)), compression, &meter);
        for step in 0..capacity {
            for (column, seeds) in cells.iter().enumerate() {
                match seeds.get(step) {
                    Some(None) => writer.skip(column),
                    Some(seed) => writer.push(column, &value(*seed, columns[column].0)),
                    None => {}
                }
            }
        }
        let chunk = writer.seal(&mut Chooser::new(compression));
        let copy = chunk.packed().map(|bytes| Chunk::from_packed(chunk.layout().clone(), &bytes, &meter).unwrap());
        for chunk in [Some(chunk), copy].into_iter().flatten() {
            let view = chunk.read().unwrap();
            for (column, seeds) in cells.iter().enumerate() {
                prop_assert_eq!(chunk.len(column), seeds.len());
                for (step, seed) in seeds.iter().enumerate() {
                    prop_assert_eq!(view.cell(column, step).unwrap(), &value(*seed, columns[column].0)[..]);
                    prop_assert_eq!(chunk.has(column, step), seed.is_some());
                }
                prop_assert!(view.cell(column, seeds.len()).is_none());
                prop_assert!(!chunk.has(column, seeds.len()));
            }
        }
        prop_assert_eq!(meter.live_bytes(), 0);
    }
}
