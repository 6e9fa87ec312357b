//! Chunks: what is written is read, whoever reads and however it is stored, and every byte is accounted for.

use proptest::prelude::*;
use reverie_core::chunk::{Account, Chooser, Chunk, ChunkWriter, Compression, Decoder, Layout, Meter};
use reverie_core::error::Error;
use std::sync::Arc;

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new())
}

fn columnar(cells: &[(usize, usize)], capacity: usize) -> Arc<Layout> {
    Arc::new(Layout::columnar(cells, capacity))
}

/// A frame-like chunk: one column, each cell the one before it with one byte changed.
fn frames(compression: Compression, meter: &Arc<Meter>, width: usize, steps: usize) -> (ChunkWriter, Vec<Vec<u8>>) {
    let mut writer = ChunkWriter::new(columnar(&[(width, 1)], steps), compression, meter);
    let mut frame: Vec<u8> = (0..width).map(|at| ((at * at * 31) >> 3) as u8).collect();
    let frames: Vec<Vec<u8>> = (0..steps)
        .map(|step| {
            frame[step * 7 % width] ^= 0x5a;
            frame.clone()
        })
        .collect();
    frames.iter().for_each(|frame| writer.push(0, frame));
    (writer, frames)
}

/// Bytes without any pattern (xorshift).
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

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
fn frames_pack_and_random_floats_stay_raw() {
    let meter = meter();
    let mut chooser = Chooser::new(Compression::Auto);
    let (writer, expected) = frames(chooser.next(), &meter, 7056, 16);
    let raw = writer.chunk().size_bytes();
    let chunk = writer.seal(&mut chooser);
    assert!(chunk.size_bytes() * 5 < raw, "{} of {raw} bytes", chunk.size_bytes());
    assert_eq!(chunk.raw_bytes(), raw);
    let cells = chunk.read().unwrap();
    for (step, frame) in expected.iter().enumerate() {
        assert_eq!(cells.cell(0, step), Some(&frame[..]));
    }
    assert_eq!(cells.run(0, 3, 2).unwrap(), [&expected[3][..], &expected[4]].concat());

    let mut chooser = Chooser::new(Compression::Auto);
    for round in 0..4 {
        let mut writer = ChunkWriter::new(columnar(&[(400, 4)], 16), chooser.next(), &meter);
        writer.push_cells(0, &noise(6400, round + 1), 16);
        let chunk = writer.seal(&mut chooser);
        assert_eq!(chunk.packed(), None);
    }
    assert_eq!(chooser.next(), Compression::None, "two chunks settle it: later ones have the cheapest reads");
}

#[test]
fn auto_looks_again_at_columns_that_it_left_raw() {
    let meter = meter();
    let mut chooser = Chooser::new(Compression::Auto);
    let mut packed = 0;
    for round in 0..200 {
        let layout = columnar(&[(400, 4)], 16);
        let mut writer = ChunkWriter::new(layout, chooser.next(), &meter);
        let bytes = if round < 3 { noise(6400, round + 1) } else { vec![round as u8; 6400] };
        writer.push_cells(0, &bytes, 16);
        packed += usize::from(writer.seal(&mut chooser).packed().is_some());
    }
    assert_eq!(packed, 200 - 128);
}

#[test]
fn a_reader_of_the_raw_bytes_keeps_them_while_the_chunk_is_packed() {
    let meter = meter();
    let (writer, expected) = frames(Compression::Zstd, &meter, 500, 8);
    let chunk = writer.chunk().clone();
    let before = chunk.read().unwrap();
    writer.seal(&mut Chooser::new(Compression::Zstd));
    assert!(chunk.packed().is_some());
    assert_eq!(before.cell(0, 7), Some(&expected[7][..]));
    assert_eq!(chunk.read().unwrap().cell(0, 7), Some(&expected[7][..]));
}

#[test]
fn a_decoder_unpacks_only_what_is_wanted_and_serves_many_chunks() {
    let (meter, mut decoder) = (meter(), Decoder::default());
    for value in 1..4_u8 {
        let mut writer = ChunkWriter::new(columnar(&[(100, 1), (50, 1)], 8), Compression::Lz4, &meter);
        writer.push_cells(0, &[value; 800], 8);
        writer.push_cells(1, &[value + 10; 400], 8);
        let chunk = writer.seal(&mut Chooser::new(Compression::Lz4));
        let cells = chunk.read_with(&mut decoder, &|column| column == 1).unwrap();
        assert_eq!((cells.cell(0, 0), cells.cell(1, 7)), (None, Some(&[value + 10; 50][..])));
    }
}

#[test]
fn the_server_counts_a_chunk_once_and_at_last_nothing() {
    let meter = meter();
    let (plain, _) = frames(Compression::None, &meter, 100, 4);
    let (packed, _) = frames(Compression::Zstd, &meter, 5000, 4);
    let (plain, packed) =
        (plain.seal(&mut Chooser::new(Compression::None)), packed.seal(&mut Chooser::new(Compression::Zstd)));
    assert_eq!(meter.live_chunks(), 2);
    assert_eq!(meter.live_bytes(), plain.size_bytes() + packed.size_bytes());
    assert!(packed.size_bytes() < packed.raw_bytes());
    drop((plain, packed));
    assert_eq!((meter.live_bytes(), meter.live_chunks()), (0, 0));
}

#[test]
fn each_table_is_charged_once_per_chunk_and_follows_when_it_is_packed() {
    for compression in [Compression::None, Compression::Zstd] {
        let meter = meter();
        let (writer, _) = frames(compression, &meter, 5000, 4);
        let chunk: Arc<Chunk> = writer.chunk().clone();
        let tables: Vec<Arc<Account>> = (0..5).map(|_| Arc::new(Account::new())).collect();
        for table in &tables {
            assert!(chunk.table_ref(table));
            assert!(!chunk.table_ref(table));
            assert_eq!(table.bytes(), chunk.raw_bytes());
        }
        writer.seal(&mut Chooser::new(compression));
        for table in &tables {
            assert_eq!(table.bytes(), chunk.size_bytes(), "{compression:?}");
            assert!(!chunk.table_ref(table));
        }
        for table in &tables {
            assert_eq!([(); 3].map(|()| chunk.table_unref(table)), [false, false, true]);
            assert_eq!(table.bytes(), 0);
            assert!(chunk.table_ref(table), "the place is free again");
            assert!(chunk.table_unref(table));
        }
    }
}

#[test]
fn tables_take_and_give_back_references_at_once() {
    let meter = meter();
    let (writer, _) = frames(Compression::None, &meter, 10, 4);
    let chunk = writer.seal(&mut Chooser::new(Compression::None));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let table = Arc::new(Account::new());
                for _ in 0..2000 {
                    assert!(chunk.table_ref(&table));
                    assert!(!chunk.table_ref(&table));
                    assert_eq!(table.bytes(), chunk.size_bytes());
                    assert!(!chunk.table_unref(&table));
                    assert!(chunk.table_unref(&table));
                    assert_eq!(table.bytes(), 0);
                }
            });
        }
    });
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
    fn what_is_written_is_read_in_any_layout_and_compression(
        (columns, capacity, cells) in contents(),
        interleaved: bool,
        compression in prop::sample::select(
            vec![Compression::None, Compression::Lz4, Compression::Zstd, Compression::Auto]
        ),
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

/// Reads what damaged bytes claim to be; true where they pass for a chunk.
fn survives(layout: &Arc<Layout>, bytes: &[u8], meter: &Arc<Meter>, decoder: &mut Decoder) -> bool {
    let read = Chunk::from_packed(layout.clone(), bytes, meter).and_then(|chunk| {
        for column in 0..layout.num_columns() {
            assert!(chunk.len(column) <= layout.capacity());
            chunk.has(column, layout.capacity() - 1);
        }
        let cells = chunk.read_with(decoder, &|_| true)?;
        for column in 0..layout.num_columns() {
            let last = chunk.len(column).wrapping_sub(1);
            assert_eq!(cells.cell(column, last).is_some(), last != usize::MAX);
        }
        Ok(())
    });
    match read {
        Ok(()) => true,
        Err(Error::Damaged(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn damaged_bytes_are_an_error_and_never_a_panic() {
    let (meter, mut decoder) = (meter(), Decoder::default());
    let layout = columnar(&[(60, 1), (4, 4), (8, 8)], 8);
    let mut originals = Vec::new();
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut writer = ChunkWriter::new(layout.clone(), compression, &meter);
        for step in 0..8 {
            writer.push(0, &[step; 60]);
            if step == 2 {
                writer.skip(1)
            } else {
                writer.push(1, &noise(4, 9))
            }
            writer.push(2, &[step, 0, 0, 0, 0, 0, 0, 1]);
        }
        originals.push(writer.seal(&mut Chooser::new(compression)).packed().unwrap());
    }
    let (mut state, mut passed, mut refused) = (0x9e37_79b9_7f4a_7c15_u64, 0_u32, 0_u32);
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    for round in 0..240_000 {
        let mut bytes = originals[round % 2].clone();
        match random(8) {
            0 => bytes = (0..random(80)).map(|_| random(256) as u8).collect(),
            1 => bytes.truncate(random(bytes.len())),
            2 => bytes.extend((0..1 + random(9)).map(|_| random(256) as u8)),
            _ => (0..1 + random(3)).for_each(|_| {
                let at = random(bytes.len());
                bytes[at] = if random(4) == 0 { 0xff } else { random(256) as u8 };
            }),
        }
        if survives(&layout, &bytes, &meter, &mut decoder) { passed += 1 } else { refused += 1 }
    }
    assert!(passed > 1000 && refused > 100_000, "{passed} passed, {refused} refused: neither side was tried");
    for original in &originals {
        assert!((0..original.len()).all(|end| !survives(&layout, &original[..end], &meter, &mut decoder)));
        assert!(!survives(&layout, &[&original[..], &[0]].concat(), &meter, &mut decoder), "a byte too many");
    }
}

#[test]
fn a_packed_column_that_is_shorter_than_it_says_is_damaged() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (meter, layout) = (meter(), columnar(&[(60, 1)], 8));
        let mut writer = ChunkWriter::new(layout.clone(), compression, &meter);
        writer.push_cells(0, &[9; 7 * 60], 7);
        let mut bytes = writer.seal(&mut Chooser::new(compression)).packed().unwrap();
        assert!(survives(&layout, &bytes, &meter, &mut Decoder::default()));
        assert_eq!(bytes[5], 7, "the number of cells of the first column");
        bytes[5] = 8;
        assert!(!survives(&layout, &bytes, &meter, &mut Decoder::default()));
    }
}

#[test]
fn a_column_that_would_grow_is_stored_as_it_is_beside_one_that_shrinks() {
    let layout = columnar(&[(400, 4), (400, 4)], 16);
    let mut writer = ChunkWriter::new(layout, Compression::Lz4, &meter());
    writer.push_cells(0, &noise(6400, 5), 16);
    writer.push_cells(1, &[1; 6400], 16);
    let packed = writer.seal(&mut Chooser::new(Compression::Lz4)).packed().unwrap();
    let (head, entry, method) = (5, 14, 4);
    assert_eq!((packed[head + method], packed[head + entry + method]), (0, 1));
}
