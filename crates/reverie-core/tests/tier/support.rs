//! Chunks of known cells.

use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout, Meter};
use std::sync::Arc;

pub use crate::tiers::{Temporary, meter, options, until};

pub const WIDTHS: [(usize, usize); 3] = [(40, 1), (5000, 1), (8, 8)];

/// The bytes of a cell: columns 0 and 2 do not compress, column 1 does.
pub fn cell(chunk: u64, column: usize, index: usize) -> Vec<u8> {
    let width = WIDTHS[column].0;
    let mut state = (chunk << 24 | (column as u64) << 16 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    match column {
        1 => {
            let mut cell = vec![chunk as u8; width];
            cell[..16].iter_mut().for_each(|byte| *byte = next());
            cell
        }
        _ => (0..width).map(|_| next()).collect(),
    }
}

/// A sealed chunk of `steps` steps; the cell 1 of column 2 has no value.
pub fn chunk(meter: &Arc<Meter>, number: u64, steps: usize, compression: Compression) -> Arc<Chunk> {
    let mut writer = ChunkWriter::new(Arc::new(Layout::columnar(&WIDTHS, steps)), compression, meter);
    for index in 0..steps {
        for column in 0..WIDTHS.len() {
            if (column, index) == (2, 1) {
                writer.skip(column);
            } else {
                writer.push(column, &cell(number, column, index));
            }
        }
    }
    writer.seal(&mut Chooser::new(compression))
}

/// Panics unless the chunk has the cells of [`chunk`].
pub fn check(chunk: &Chunk, number: u64, steps: usize) {
    let cells = chunk.read().unwrap();
    for column in 0..WIDTHS.len() {
        assert_eq!(chunk.len(column), steps);
        for index in 0..steps {
            let has = (column, index) != (2, 1);
            assert_eq!(chunk.has(column, index), has, "chunk {number}, column {column}, cell {index}");
            if has {
                assert!(
                    cells.cell(column, index) == Some(&cell(number, column, index)),
                    "chunk {number}, column {column}, cell {index}"
                );
            }
        }
    }
}
