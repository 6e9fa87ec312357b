//! A view of the cells of a chunk, in whatever form it is.

use super::decoder::{CellSelector, Decoder};
use super::form::{ChunkForm, PackableChunk};
use super::slab::Slab;
use super::{Chunk, Layout, Storage};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The cells of a chunk, readable.
#[derive(Debug)]
pub struct CellsView<'a> {
    source: CellSource<'a>,
    layout: &'a Layout,
}

#[derive(Debug)]
enum CellSource<'a> {
    Slab(&'a Slab),
    Shared(Arc<Slab>),
    Owned(Box<Decoder>),
    Borrowed(&'a Decoder),
}

impl Chunk {
    /// A view of all columns: borrowed if the chunk is raw, unpacked or read from the disk otherwise.
    ///
    /// No lock is held on return, nor while unpacking or reading. `Damaged` if the packed bytes are corrupt,
    /// `DamagedFile` or `Storage` if those on the disk are, or cannot be read.
    pub fn read(&self) -> Result<CellsView<'_>> {
        match self.source() {
            Ok(source) => Ok(CellsView { source, layout: self.layout() }),
            Err(form) => {
                let mut decoder = Box::new(Decoder::default());
                decode(&form, &mut decoder, self.layout(), &|_| Some(0..usize::MAX))?;
                Ok(CellsView { source: CellSource::Owned(decoder), layout: self.layout() })
            }
        }
    }

    /// Like [`Chunk::read`], with only the cells that `wanted` selects where others cost something, into reused memory.
    pub fn read_with<'a>(&'a self, decoder: &'a mut Decoder, wanted: CellSelector<'_>) -> Result<CellsView<'a>> {
        match self.source() {
            Ok(source) => Ok(CellsView { source, layout: self.layout() }),
            Err(form) => {
                decode(&form, decoder, self.layout(), wanted)?;
                Ok(CellsView { source: CellSource::Borrowed(decoder), layout: self.layout() })
            }
        }
    }

    /// The present form. Marks the chunk as read for the disk tier.
    fn form_to_read(&self, packable: &PackableChunk) -> ChunkForm {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        packable.form()
    }

    /// The raw bytes, or else the form that has to be unpacked or read.
    fn source(&self) -> Result<CellSource<'_>, ChunkForm> {
        match &self.storage {
            Storage::Plain(plain) => Ok(CellSource::Slab(&plain.slab)),
            Storage::Packable(packable) => match self.form_to_read(packable) {
                ChunkForm::Raw(slab) => Ok(CellSource::Shared(slab)),
                other => Err(other),
            },
        }
    }
}

fn decode(form: &ChunkForm, decoder: &mut Decoder, layout: &Layout, wanted: CellSelector<'_>) -> Result<()> {
    match form {
        ChunkForm::Raw(_) => unreachable!("raw cells are read where they lie"),
        ChunkForm::Packed(packed) => decoder.decode(packed, layout, wanted),
        ChunkForm::Stored(stored) => decoder.decode_stored(stored, layout, wanted),
    }
}

impl CellsView<'_> {
    /// The bytes of a cell, zeros if it holds no value; `None` if it is not published.
    ///
    /// Cells published after the view was made may be missing from it, except in an open chunk.
    #[inline]
    pub fn cell(&self, column: usize, index: usize) -> Option<&[u8]> {
        match &self.source {
            CellSource::Slab(slab) => slab.cell(column, index),
            CellSource::Shared(slab) => slab.cell(column, index),
            CellSource::Owned(decoder) => decoder.run(column, self.layout.width(column), index, 1),
            CellSource::Borrowed(decoder) => decoder.run(column, self.layout.width(column), index, 1),
        }
    }

    /// `n` cells in one slice, if they are contiguous and all published.
    #[inline]
    pub fn run(&self, column: usize, first: usize, n: usize) -> Option<&[u8]> {
        match &self.source {
            CellSource::Slab(slab) => slab.run(column, first, n),
            CellSource::Shared(slab) => slab.run(column, first, n),
            CellSource::Owned(decoder) => decoder.run(column, self.layout.width(column), first, n),
            CellSource::Borrowed(decoder) => decoder.run(column, self.layout.width(column), first, n),
        }
    }
}
