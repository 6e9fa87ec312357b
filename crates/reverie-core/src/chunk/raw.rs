//! The contents of a chunk, to send it elsewhere.

use super::codec::PackedChunk;
use super::form::ChunkForm;
use super::slab::Slab;
use super::{Chunk, Layout, Storage};
use std::ops::Range;
use std::sync::Arc;

/// The cells of a raw chunk. They stay readable after the chunk is packed, and grow as long as it is written.
#[derive(Clone, Debug)]
pub struct RawCells(RawSource);

#[derive(Clone, Debug)]
enum RawSource {
    Plain(Arc<Chunk>),
    Shared(Arc<Slab>),
}

/// The packed bytes of a chunk, as accepted by [`Chunk::from_packed`].
#[derive(Clone, Debug)]
pub struct PackedBytes(Arc<PackedChunk>);

impl Chunk {
    /// The raw cells; `None` once the chunk is packed or on the disk.
    pub fn raw_cells(self: &Arc<Self>) -> Option<RawCells> {
        match &self.storage {
            Storage::Plain(_) => Some(RawCells(RawSource::Plain(Arc::clone(self)))),
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Raw(slab) => Some(RawCells(RawSource::Shared(slab))),
                ChunkForm::Packed(_) | ChunkForm::Stored(_) => None,
            },
        }
    }

    /// The packed bytes; `None` if the chunk is open, was left raw, or is on the disk.
    pub fn packed_bytes(&self) -> Option<PackedBytes> {
        match &self.storage {
            Storage::Plain(_) => None,
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Packed(packed) => Some(PackedBytes(packed)),
                ChunkForm::Raw(_) | ChunkForm::Stored(_) => None,
            },
        }
    }

    /// The bytes that reading these cells of a column yields if they have to be unpacked or read from the disk; else 0.
    ///
    /// A packed column is unpacked as a whole, or in whole blocks.
    pub fn unpacked_bytes(&self, column: usize, cells: &Range<usize>) -> u64 {
        let Storage::Packable(packable) = &self.storage else { return 0 };
        let width = packable.layout.width(column);
        match packable.form() {
            ChunkForm::Raw(_) => 0,
            ChunkForm::Packed(packed) => {
                let section = &packed.sections()[column];
                section.coding.unpacked_with(width, cells, section.cells as usize).len() as u64 * width as u64
            }
            ChunkForm::Stored(stored) => stored.read_bytes(column, width, cells),
        }
    }

    /// True if the chunk's bytes are on the disk.
    pub fn is_on_disk(&self) -> bool {
        matches!(&self.storage, Storage::Packable(packable) if matches!(packable.form(), ChunkForm::Stored(_)))
    }

    /// True if the chunk is packed, or may be packed when it is sealed.
    pub fn is_packable(&self) -> bool {
        self.packs
    }
}

impl std::ops::Deref for PackedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl RawCells {
    fn slab(&self) -> &Slab {
        match &self.0 {
            RawSource::Shared(slab) => slab,
            RawSource::Plain(chunk) => match &chunk.storage {
                Storage::Plain(plain) => &plain.slab,
                Storage::Packable(_) => unreachable!("made of a plain chunk"),
            },
        }
    }

    /// The layout of the columns.
    pub fn layout(&self) -> &Arc<Layout> {
        self.slab().layout()
    }

    /// The number of cells that every column has.
    pub fn rows(&self) -> usize {
        self.slab().rows()
    }

    /// The number of cells of the column.
    pub fn len(&self, column: usize) -> usize {
        self.slab().len(column)
    }

    /// True if no column has a cell.
    pub fn is_empty(&self) -> bool {
        (0..self.layout().num_columns()).all(|column| self.len(column) == 0)
    }

    /// True if some cell may hold no value.
    pub fn has_holes(&self) -> bool {
        self.slab().has_holes()
    }

    /// One bit for each of these cells, the lowest first, set if the cell holds no value; empty if all hold values.
    pub fn holes(&self, column: usize, first: usize, n: usize) -> Vec<u8> {
        let slab = self.slab();
        if slab.has_run(column, first, n) {
            return Vec::new();
        }
        let mut bits = vec![0_u8; n.div_ceil(8)];
        (0..n).filter(|cell| !slab.has(column, first + cell)).for_each(|cell| bits[cell / 8] |= 1 << (cell % 8));
        bits
    }

    /// Passes the bytes of these cells to `put`, in order and in as few pieces as possible.
    ///
    /// The bytes of a cell without a value are zeros. Panics if the column does not have the cells.
    pub fn each_piece(&self, column: usize, first: usize, n: usize, mut put: impl FnMut(&[u8])) {
        let slab = self.slab();
        assert!(first + n <= slab.len(column), "cells {first} to {} of column {column}", first + n);
        match slab.run(column, first, n) {
            Some(run) => put(run),
            None => (first..first + n).filter_map(|cell| slab.cell(column, cell)).for_each(put),
        }
    }
}
