//! The one who can write a chunk.

use super::chooser::{Chooser, Compression};
use super::codec::Packed;
use super::slab::{Pen, Slab};
use super::{Chunk, Layout, Meter, Storage};
use crate::error::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Writes one chunk, column by column; readers may have the chunk meanwhile.
#[derive(Debug)]
pub struct ChunkWriter {
    chunk: Arc<Chunk>,
    /// The memory of a chunk that will be packed, which then lets go of it.
    packable: Option<Arc<Slab>>,
    pen: Pen,
}

impl ChunkWriter {
    /// Sets memory aside for `layout`, not zeroed, counted in `meter` as long as the chunk lives.
    ///
    /// With `Compression::None` the chunk stays plain, whatever the chooser at `seal` says: it has the cheapest
    /// reads. Take the argument from [`Chooser::next`], which knows of a column group that does not compress.
    pub fn new(layout: Arc<Layout>, compression: Compression, meter: &Arc<Meter>) -> Self {
        let (slab, pen) = Slab::new(layout);
        let (storage, packable) = match compression {
            Compression::None => (Storage::Plain(slab), None),
            _ => {
                let slab = Arc::new(slab);
                (Storage::packable(slab.clone()), Some(slab))
            }
        };
        Self { chunk: Chunk::new(storage, meter), packable, pen }
    }

    /// Writes the next cell of the column. Panics where the column is full or `cell` has another width.
    #[inline]
    pub fn push(&mut self, column: usize, cell: &[u8]) {
        self.push_cells(column, cell, 1);
    }

    /// Writes the next `n` cells of the column, whose bytes lie one behind another.
    /// Panics where they do not fit or have another width.
    #[inline]
    pub fn push_cells(&mut self, column: usize, cells: &[u8], n: usize) {
        Self::slab(&self.packable, &self.chunk).push(&mut self.pen, column, cells, n);
    }

    /// Writes the next `n` cells of every column: `columns` are their bytes, in order. Readers see them at once.
    /// Panics where they do not fit, have another width, or are not as many as the columns.
    #[inline]
    pub fn push_rows<'a>(&mut self, columns: impl Iterator<Item = &'a [u8]>, n: usize) {
        Self::slab(&self.packable, &self.chunk).push_rows(&mut self.pen, columns, n);
    }

    /// As [`ChunkWriter::push_cells`], the bytes coming from `fill(at, to)`, which fills all of `to` with the bytes from
    /// the `at`th on and gives it back: from memory that can only be copied. Asked once where the cells lie one behind
    /// another, else cell by cell. Panics where they do not fit, or where something else is given back.
    pub fn push_cells_with(
        &mut self,
        column: usize,
        n: usize,
        fill: impl for<'a> FnMut(usize, &'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) {
        Self::slab(&self.packable, &self.chunk).push_with(&mut self.pen, column, n, fill);
    }

    /// Counts a cell as written that holds no value. Panics where the column is full.
    pub fn skip(&mut self, column: usize) {
        Self::slab(&self.packable, &self.chunk).skip(&mut self.pen, column);
    }

    /// Cells written to the column.
    pub fn len(&self, column: usize) -> usize {
        Self::slab(&self.packable, &self.chunk).len(column)
    }

    /// True where no column was written.
    pub fn is_empty(&self) -> bool {
        (0..self.layout().num_columns()).all(|column| self.len(column) == 0)
    }

    /// True where no column has room.
    pub fn is_full(&self) -> bool {
        let layout = self.layout();
        (0..layout.num_columns()).all(|column| self.len(column) == layout.capacity())
    }

    /// Where the columns lie.
    pub fn layout(&self) -> &Arc<Layout> {
        self.chunk.layout()
    }

    /// The chunk: readers see each cell from the moment that it is written.
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Nothing more will come: packs the chunk where the chooser says so. The raw bytes are freed when the last
    /// reader lets go of them. Compresses on the caller's thread, under no lock.
    pub fn seal(self, chooser: &mut Chooser) -> Arc<Chunk> {
        match &self.packable {
            None => chooser.pass(),
            Some(slab) => {
                if let Some(packed) = chooser.pack(slab) {
                    self.chunk.replace(packed);
                }
            }
        }
        self.chunk
    }

    /// Nothing more will come, and the packed form was made elsewhere, of these cells and perhaps more: it takes the
    /// place of the raw bytes. `Damaged` where the bytes cannot be that, or lack a cell that was written here: the chunk
    /// then stays as it is. Panics where the chunk was made without compression.
    pub fn seal_packed(self, bytes: Box<[u8]>) -> Result<Arc<Chunk>> {
        let slab = self.packable.as_ref().expect("a chunk that may be packed");
        let packed = Packed::parse(bytes, slab.layout())?;
        for column in 0..slab.layout().num_columns() {
            let lost = (0..slab.len(column)).find(|cell| slab.has(column, *cell) && !packed.has(column, *cell));
            if packed.len(column) < slab.len(column) || lost.is_some() {
                return Err(Error::Damaged(format!("column {column} lacks cells in its packed form")));
            }
        }
        self.chunk.replace(packed);
        Ok(self.chunk)
    }

    #[inline]
    fn slab<'a>(packable: &'a Option<Arc<Slab>>, chunk: &'a Chunk) -> &'a Slab {
        match (packable, &chunk.storage) {
            (Some(slab), _) => slab,
            (None, Storage::Plain(slab)) => slab,
            (None, Storage::Packable(_)) => unreachable!("the writer of a packable chunk holds its memory"),
        }
    }
}
