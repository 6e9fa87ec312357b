//! Columns whose cells are packed in blocks: a cell is read without the ones far from it.

use super::support::{columnar, meter, noise};
use proptest::prelude::*;
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Decoder};
use reverie_core::error::Error;
use std::sync::Arc;

/// A sealed chunk of one column of these cells.
fn sealed(compression: Compression, cells: &[Vec<u8>]) -> Arc<Chunk> {
    let width = cells[0].len();
    let mut writer = ChunkWriter::new(columnar(&[(width, 1)], cells.len()), compression, &meter());
    cells.iter().for_each(|cell| writer.push(0, cell));
    writer.seal(&mut Chooser::new(compression))
}

/// Cells that pack well, each other than the others.
fn large_cells(n: u64) -> Vec<Vec<u8>> {
    (1..=n).map(|seed| noise(500, seed).repeat(80)).collect()
}

#[test]
fn a_large_cell_is_unpacked_without_the_others_of_its_chunk() {
    let cells = large_cells(4);
    for compression in [Compression::Lz4, Compression::Zstd, Compression::Auto, Compression::AutoSpeed] {
        let (chunk, mut decoder) = (sealed(compression, &cells), Decoder::default());
        assert!(chunk.packed_bytes().is_some());
        assert_eq!(chunk.unpacked_bytes(0, &(1..3)), 80_000, "{compression}");
        assert_eq!(chunk.unpacked_bytes(0, &(0..usize::MAX)), 160_000);
        let view = chunk.read_with(&mut decoder, &|_| Some(1..3)).unwrap();
        assert_eq!(view.cell(0, 0), None, "not unpacked");
        assert_eq!(view.run(0, 1, 2), Some(&cells[1..3].concat()[..]));
        assert_eq!(view.cell(0, 3), None, "not unpacked");
    }
}

#[test]
fn large_cells_that_are_alike_are_packed_together_where_that_is_much_smaller() {
    let cells = vec![noise(40_000, 3); 4];
    let chunk = sealed(Compression::Auto, &cells);
    assert!(chunk.size_bytes() < 50_000, "{}", chunk.size_bytes());
    assert_eq!(chunk.unpacked_bytes(0, &(1..2)), 160_000);
    assert_eq!(chunk.read().unwrap().cell(0, 3), Some(&cells[3][..]));
    let fast = sealed(Compression::AutoSpeed, &cells);
    assert!(fast.packed_bytes().is_none(), "each draw would unpack four cells for one");
}

#[test]
fn damaged_blocks_are_an_error_and_never_a_panic() {
    let cells = large_cells(4);
    let chunk = sealed(Compression::Lz4, &cells);
    let (original, layout, meter) = (chunk.packed().unwrap(), chunk.layout().clone(), meter());
    let mut decoder = Decoder::default();
    let (head, entry, flags, in_blocks) = (5, 14, 5, 4);
    assert_eq!(original[head + flags] & in_blocks, in_blocks);
    let mut refused = 0;
    for at in head..head + entry + 4 * 4 + 8 {
        for bits in [1, 0x80, 0xff] {
            let mut bytes = original.clone();
            bytes[at] ^= bits;
            let read = Chunk::from_packed(layout.clone(), &bytes, &meter).and_then(|chunk| {
                let view = chunk.read_with(&mut decoder, &|_| Some(2..4))?;
                assert!(view.cell(0, 3).is_some() || chunk.len(0) < 4);
                Ok(())
            });
            match read {
                Ok(()) => {}
                Err(Error::Damaged(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(refused > 50, "{refused}");
    let mut raw_in_blocks = original.clone();
    raw_in_blocks[head + flags - 1] = 0;
    assert!(Chunk::from_packed(layout, &raw_in_blocks, &meter).is_err(), "raw cells have no blocks");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cells_of_a_packed_column_are_those_that_were_written(
        width in prop::sample::select(vec![3000_usize, 9000, 16_384, 33_000]),
        seeds in prop::collection::vec(0_u64..3, 1..14),
        compression in prop::sample::select(Compression::ALL.to_vec()),
        wanted in (0_usize..16, 0_usize..16),
    ) {
        let cells: Vec<Vec<u8>> = seeds.iter().map(|seed| noise(width / 8 + 1, *seed).repeat(8)[..width].to_vec()).collect();
        let (chunk, mut decoder) = (sealed(compression, &cells), Decoder::default());
        let wanted = wanted.0.min(wanted.1)..wanted.0.max(wanted.1);
        let view = chunk.read_with(&mut decoder, &|_| Some(wanted.clone())).unwrap();
        for at in wanted.clone() {
            prop_assert_eq!(view.cell(0, at), cells.get(at).map(|cell| &cell[..]));
        }
        let (start, end) = (wanted.start.min(cells.len()), wanted.end.min(cells.len()));
        if start < end {
            prop_assert_eq!(view.run(0, start, end - start).map(<[u8]>::to_vec), Some(cells[start..end].concat()));
        }
        let bytes = chunk.unpacked_bytes(0, &wanted);
        match chunk.packed_bytes() {
            Some(_) => prop_assert!(bytes >= ((end - start) * width) as u64),
            None => prop_assert_eq!(bytes, 0),
        }
    }
}
