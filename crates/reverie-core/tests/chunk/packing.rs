//! Chunks that are packed, and bytes that were damaged.

use super::support::{columnar, frames, meter, noise};
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Decoder, Layout, Meter};
use reverie_core::error::Error;
use std::sync::Arc;

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
        let cells = chunk.read_with(&mut decoder, &|column| (column == 1).then_some(0..usize::MAX)).unwrap();
        assert_eq!((cells.cell(0, 0), cells.cell(1, 7)), (None, Some(&[value + 10; 50][..])));
    }
}

/// Reads damaged bytes as a chunk; true if they pass for one.
fn survives(layout: &Arc<Layout>, bytes: &[u8], meter: &Arc<Meter>, decoder: &mut Decoder) -> bool {
    let read = Chunk::from_packed(layout.clone(), bytes, meter).and_then(|chunk| {
        for column in 0..layout.num_columns() {
            assert!(chunk.len(column) <= layout.capacity());
            chunk.has(column, layout.capacity() - 1);
        }
        let cells = chunk.read_with(decoder, &|_| Some(0..usize::MAX))?;
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
fn a_packed_column_that_is_shorter_than_its_head_claims_is_damaged() {
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
fn a_column_that_would_grow_is_stored_as_it_is_next_to_one_that_shrinks() {
    let layout = columnar(&[(400, 4), (400, 4)], 16);
    let mut writer = ChunkWriter::new(layout, Compression::Lz4, &meter());
    writer.push_cells(0, &noise(6400, 5), 16);
    writer.push_cells(1, &[1; 6400], 16);
    let packed = writer.seal(&mut Chooser::new(Compression::Lz4)).packed().unwrap();
    let (head, entry, method) = (5, 14, 4);
    assert_eq!((packed[head + method], packed[head + entry + method]), (0, 1));
}

#[test]
fn cells_that_differ_little_are_stored_as_differences_and_come_back_as_they_were() {
    let (meter, width, cells) = (meter(), 1_000, 8);
    // Noise does not compress; the difference of each cell to the one before is the same byte everywhere.
    let first = noise(width, 1);
    let bytes: Vec<u8> =
        (0..cells as u8).flat_map(|step| first.iter().map(move |b| b.wrapping_add(3 * step))).collect();
    let mut writer = ChunkWriter::new(columnar(&[(width, 1)], cells), Compression::Lz4, &meter);
    writer.push_cells(0, &bytes, cells);
    let chunk = writer.seal(&mut Chooser::new(Compression::Lz4));
    assert!(chunk.size_bytes() * 3 < bytes.len() as u64, "{} of {} bytes", chunk.size_bytes(), bytes.len());
    assert_eq!(chunk.read().unwrap().run(0, 0, cells).unwrap(), bytes);
}
