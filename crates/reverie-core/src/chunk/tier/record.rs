//! A chunk as bytes for a file of the tier, column after column.

use super::super::chooser::hole_bits;
use super::super::codec::{Coding, PackedChunk, RAW};
use super::super::slab::Slab;
use super::shape::{StoredColumn, as_saved, saved_bytes};
use std::ops::Range;

/// A chunk as it will be on the disk.
pub(in crate::chunk) struct Record {
    pub(super) columns: Vec<StoredColumn>,
    pub(super) crcs: Vec<u32>,
    pub(super) holes: Vec<Box<[u8]>>,
    pub(super) packed: bool,
    /// The place of its bytes among those that are written together.
    pub(super) bytes: Range<usize>,
}

impl Record {
    /// Appends a raw chunk to `out`.
    pub(in crate::chunk) fn of_slab(slab: &Slab, out: &mut Vec<u8>) -> Self {
        let mut record = Self::new(false, out);
        for column in 0..slab.layout().num_columns() {
            let (cells, width, start) = (slab.len(column), slab.layout().width(column), out.len());
            match slab.run(column, 0, cells) {
                Some(run) => out.extend_from_slice(run),
                None => (0..cells).filter_map(|cell| slab.cell(column, cell)).for_each(|cell| out.extend(cell)),
            }
            record.add(cells as u32, RAW, width, hole_bits(slab, column, 0..cells), &out[start..]);
        }
        record.end(out)
    }

    /// Appends a packed chunk to `out`; `width` returns the bytes of a column's cell.
    pub(in crate::chunk) fn of_packed(packed: &PackedChunk, width: impl Fn(usize) -> usize, out: &mut Vec<u8>) -> Self {
        let mut record = Self::new(true, out);
        for (column, section) in packed.sections().iter().enumerate() {
            let start = out.len();
            out.extend_from_slice(packed.stored(section));
            let holes = packed.hole_bits(section).to_vec();
            record.add(section.cells, section.coding, width(column), holes, &out[start..]);
        }
        record.end(out)
    }

    fn new(packed: bool, out: &[u8]) -> Self {
        Self { columns: Vec::new(), crcs: Vec::new(), holes: Vec::new(), packed, bytes: out.len()..out.len() }
    }

    fn add(&mut self, cells: u32, coding: Coding, width: usize, holes: Vec<u8>, stored: &[u8]) {
        let block = StoredColumn::block_of(coding, width, stored.len());
        self.columns.push(StoredColumn {
            cells,
            coding,
            holes: !holes.is_empty(),
            start: self.columns.last().map_or(0, |last| last.start + last.stored),
            stored: stored.len() as u64,
            block,
            first_crc: self.crcs.len() as u32,
        });
        self.crcs.extend(stored.chunks(block as usize).map(crc32fast::hash));
        if !holes.is_empty() {
            self.holes.push(holes.into());
        }
    }

    fn end(mut self, out: &[u8]) -> Self {
        self.bytes.end = out.len();
        self
    }

    /// Bytes of the chunk as it is saved.
    pub(super) fn saved_bytes(&self) -> u64 {
        saved_bytes(&self.columns)
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packed
    }

    /// This record with its columns as they lie in a saved chunk.
    pub(super) fn into_saved(self) -> Self {
        Self { columns: as_saved(&self.columns), ..self }
    }
}
