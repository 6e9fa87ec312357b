//! The columns of a chunk on the disk: where their bytes are, and in which blocks they are checked.

use super::super::codec::{Coding, RAW, head_bytes};
use super::files::Place;
use std::sync::Arc;

/// Cells are checked in blocks of at least this many bytes: a smaller read would not be cheaper.
const BLOCK: usize = 4096;

/// The stored bytes of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredColumn {
    pub(super) cells: u32,
    pub(super) coding: Coding,
    pub(super) holes: bool,
    /// The offset of its bytes in the record.
    pub(super) start: u64,
    pub(super) stored: u64,
    /// Bytes that one CRC covers; the last block may have fewer.
    pub(super) block: u64,
    /// The index of the CRC of its first block.
    pub(super) first_crc: u32,
}

/// The data that chunks of equal columns share.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::chunk) struct Shape {
    pub(super) columns: Box<[StoredColumn]>,
    /// The chunks were packed before they were moved.
    pub(super) packed: bool,
    /// The place of the first of them, with which the shape's bytes are counted.
    pub(super) first: (u64, u64),
}

/// The shape of the chunk before, which the next one shares if it is equal.
pub(in crate::chunk) type LastShape = Option<Arc<Shape>>;

/// The shape of a chunk of these columns at this place: that of the chunk before, or a new one.
pub(super) fn shared(columns: Vec<StoredColumn>, packed: bool, place: &Place, last: &mut LastShape) -> Arc<Shape> {
    match last {
        Some(last) if last.packed == packed && *last.columns == columns[..] => Arc::clone(last),
        _ => Arc::clone(last.insert(Arc::new(Shape { columns: columns.into(), packed, first: place.order() }))),
    }
}

impl Shape {
    /// Bytes of memory, its reference counts included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + size_of_val(&*self.columns)
    }
}

impl StoredColumn {
    pub(super) fn hole_bytes(&self) -> u64 {
        if self.holes { u64::from(self.cells).div_ceil(8) } else { 0 }
    }

    pub(super) fn block_of(coding: Coding, width: usize, stored: usize) -> u64 {
        let block = match coding == RAW {
            true => BLOCK.div_ceil(width.max(1)).saturating_mul(width).max(1),
            false => stored.max(1),
        };
        block as u64
    }

    pub(super) fn num_blocks(&self) -> u64 {
        self.stored.div_ceil(self.block)
    }
}

/// Bytes of a chunk of these columns as it is saved.
pub(super) fn saved_bytes(columns: &[StoredColumn]) -> u64 {
    head_bytes(columns.len()) as u64 + columns.iter().map(|column| column.hole_bytes() + column.stored).sum::<u64>()
}

/// The columns as they lie in a saved chunk.
pub(super) fn as_saved(columns: &[StoredColumn]) -> Vec<StoredColumn> {
    let mut at = head_bytes(columns.len()) as u64;
    let place = |column: &StoredColumn| {
        let start = at + column.hole_bytes();
        at = start + column.stored;
        StoredColumn { start, ..column.clone() }
    };
    columns.iter().map(place).collect()
}

/// The columns as they lie in a file of the tier.
pub(super) fn side_by_side(columns: &[StoredColumn]) -> Vec<StoredColumn> {
    let mut at = 0;
    let place = |column: &StoredColumn| {
        let start = at;
        at += column.stored;
        StoredColumn { start, ..column.clone() }
    };
    columns.iter().map(place).collect()
}
