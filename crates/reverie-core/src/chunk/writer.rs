//! The writer of a chunk.

use super::chooser::Chooser;
use super::codec::PackedChunk;
use super::compression::Compression;
use super::form::ChunkForm;
use super::slab::{Slab, SlabWriteToken};
use super::{Chunk, Layout, Meter, Storage};
use crate::error::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Writes one chunk, column by column; readers may read the chunk meanwhile.
#[derive(Debug)]
pub struct ChunkWriter {
    chunk: Arc<Chunk>,
    /// The memory of a chunk that may be packed or moved to the disk; the chunk releases it then.
    packable: Option<Arc<Slab>>,
    write_token: SlabWriteToken,
}

impl ChunkWriter {
    /// Allocates memory for `layout`, not zeroed, counted in `meter` as long as the chunk lives.
    ///
    /// With `Compression::None` the chunk is never packed, whatever the chooser at `seal` decides; if the meter has no
    /// disk tier either, it stays plain, which has the cheapest reads. Take the argument from [`Chooser::next`]: it is
    /// `Compression::None` once `auto` has settled on raw for all columns.
    pub fn new(layout: Arc<Layout>, compression: Compression, meter: &Arc<Meter>) -> Self {
        let (slab, write_token) = Slab::new(Arc::clone(&layout));
        let packs = compression != Compression::None;
        if packs || meter.tier().is_some() {
            let slab = Arc::new(slab);
            let chunk = Chunk::packable(ChunkForm::Raw(Arc::clone(&slab)), layout, packs, meter);
            if meter.tier().is_some() {
                chunk.set_open(true);
            }
            return Self { chunk, packable: Some(slab), write_token };
        }
        Self { chunk: Chunk::plain_of(slab, meter), packable: None, write_token }
    }

    /// Writes the next cell of the column. Panics if the column is full or `cell` has another width.
    #[inline]
    pub fn push(&mut self, column: usize, cell: &[u8]) {
        self.push_cells(column, cell, 1);
    }

    /// Writes the next `n` cells of the column, whose bytes are contiguous.
    ///
    /// Panics if they do not fit or have another width.
    #[inline]
    pub fn push_cells(&mut self, column: usize, cells: &[u8], n: usize) {
        Self::slab(&self.packable, &self.chunk).push(&mut self.write_token, column, cells, n);
    }

    /// Writes the next `n` cells of every column: `columns` are their bytes, in order. Readers see them together.
    ///
    /// Panics if they do not fit, have another width, or if there are more or fewer than the columns.
    #[inline]
    pub fn push_rows<'a>(&mut self, columns: impl Iterator<Item = &'a [u8]>, n: usize) {
        Self::slab(&self.packable, &self.chunk).push_rows(&mut self.write_token, columns, n);
    }

    /// Like [`ChunkWriter::push_cells`], with the bytes from `fill(at, to)`, for memory that can only be copied.
    ///
    /// It fills all of `to` with the bytes from `at` on and returns it. Called once if the cells are contiguous, else
    /// for each cell. Panics if they do not fit, or if `fill` returns something else.
    pub fn push_cells_with(
        &mut self,
        column: usize,
        n: usize,
        fill: impl for<'a> FnMut(usize, &'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) {
        Self::slab(&self.packable, &self.chunk).push_with(&mut self.write_token, column, n, fill);
    }

    /// Writes a cell that holds no value. Panics if the column is full.
    pub fn skip(&mut self, column: usize) {
        Self::slab(&self.packable, &self.chunk).skip(&mut self.write_token, column);
    }

    /// The number of cells written to the column.
    pub fn len(&self, column: usize) -> usize {
        Self::slab(&self.packable, &self.chunk).len(column)
    }

    /// True if no column was written.
    pub fn is_empty(&self) -> bool {
        (0..self.layout().num_columns()).all(|column| self.len(column) == 0)
    }

    /// True if no column has room.
    pub fn is_full(&self) -> bool {
        let layout = self.layout();
        (0..layout.num_columns()).all(|column| self.len(column) == layout.capacity())
    }

    /// The layout of the columns.
    pub fn layout(&self) -> &Arc<Layout> {
        self.chunk.layout()
    }

    /// The chunk: readers see each cell from the moment that it is written.
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Seals the chunk, and packs it if the chooser decides so. Compresses on the caller's thread, under no lock.
    ///
    /// The raw bytes are freed when the last reader releases them.
    pub fn seal(self, chooser: &mut Chooser) -> Arc<Chunk> {
        match &self.packable {
            None => chooser.pass(),
            Some(_) if !self.chunk.is_packable() => chooser.pass(),
            Some(slab) => {
                if let Some(packed) = chooser.pack(slab) {
                    self.chunk.pack(packed);
                }
            }
        }
        Arc::clone(&self.chunk)
    }

    /// Seals the chunk with a packed form that was made elsewhere, of these cells and perhaps more.
    ///
    /// `Damaged` if the bytes cannot be that, or lack a cell that was written here: the chunk then stays as it is.
    /// Panics if the chunk was created without compression.
    pub fn seal_packed(self, bytes: Box<[u8]>) -> Result<Arc<Chunk>> {
        let slab = self.packable.as_ref().expect("a chunk that may be packed");
        let packed = PackedChunk::parse(bytes, slab.layout())?;
        for column in 0..slab.layout().num_columns() {
            let lost = (0..slab.len(column)).find(|cell| slab.has(column, *cell) && !packed.has(column, *cell));
            if packed.len(column) < slab.len(column) || lost.is_some() {
                return Err(Error::Damaged(format!("column {column} lacks cells in its packed form")));
            }
        }
        self.chunk.pack(packed);
        Ok(Arc::clone(&self.chunk))
    }

    #[inline]
    fn slab<'a>(packable: &'a Option<Arc<Slab>>, chunk: &'a Chunk) -> &'a Slab {
        match (packable, &chunk.storage) {
            (Some(slab), _) => slab,
            (None, Storage::Plain(plain)) => &plain.slab,
            (None, Storage::Packable(_)) => unreachable!("the writer of a packable chunk holds its memory"),
        }
    }
}

impl Drop for ChunkWriter {
    /// The chunk stops growing, however its writer ends.
    fn drop(&mut self) {
        self.chunk.enqueue();
    }
}
