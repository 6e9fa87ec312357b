//! A chunk as bytes that outlive the process.
//!
//! Little-endian: `order u8 (0 column after column, 1 row after row) | plain u8 (1 if the chunk was not packed) |
//! columns u32 | capacity u32 | columns x (width u64, itemsize u64) | the packed form` (see `codec`), whose columns are
//! all raw if the chunk was plain. For an open chunk, the published cells are saved.

use super::chooser::hole_bits;
use super::codec::{PackedChunk, RAW, SAVED_ENTRY as ENTRY, SAVED_HEAD as HEAD, Section};
use super::form::ChunkForm;
use super::slab::Slab;
use super::tier::LastShape;
use super::{Chunk, ChunkWriter, Compression, Layout, Meter, Storage};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// A plain chunk is restored as a plain one if it takes at most this many times its saved bytes, plus [`ROOM_MORE`].
///
/// Otherwise a few cells of one column would bring back the memory that all columns once had.
const ROOM: usize = 2;
const ROOM_MORE: usize = 4096;

impl Chunk {
    /// The number of published cells of all columns together: it only grows, so that equal numbers mean equal bytes.
    pub fn published(&self) -> u64 {
        (0..self.layout().num_columns()).map(|column| self.len(column) as u64).sum()
    }

    /// Appends the chunk as bytes to `out`; returns the [`Chunk::published`] of these bytes.
    ///
    /// `Storage` or `DamagedFile` if the chunk is on the disk and cannot be read.
    pub fn save(&self, out: &mut Vec<u8>) -> Result<u64> {
        let saved = self.content()?.save_from(&[], out).expect("a chunk has a first part");
        Ok(saved.into_iter().map(u64::from).sum())
    }

    /// The part to save now. Reads the disk if the chunk is there; the errors are those of [`Chunk::save`].
    pub fn content(&self) -> Result<Content<'_>> {
        let of = match &self.storage {
            Storage::Plain(plain) => SavedSource::Plain(&plain.slab),
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Raw(slab) => SavedSource::Raw(slab),
                ChunkForm::Packed(packed) => SavedSource::Packed(packed),
                ChunkForm::Stored(stored) => {
                    let loaded = Arc::new(stored.load()?);
                    if stored.was_packed() { SavedSource::Packed(loaded) } else { SavedSource::Loaded(loaded) }
                }
            },
        };
        Ok(Content { layout: self.layout(), of })
    }
}

/// The bytes of a chunk, to be saved.
pub struct Content<'a> {
    layout: &'a Layout,
    of: SavedSource<'a>,
}

enum SavedSource<'a> {
    Plain(&'a Slab),
    Raw(Arc<Slab>),
    Packed(Arc<PackedChunk>),
    /// A chunk that was not packed and was on the disk.
    Loaded(Arc<PackedChunk>),
}

impl Content<'_> {
    /// True if packed bytes are saved.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.of, SavedSource::Packed(_))
    }

    /// Appends the cells of each column from these on as bytes to `out`; returns where the next part begins.
    ///
    /// [`Restorer::joined`] makes the chunk of its parts. A chunk that is packed or was on the disk has one part: `None`
    /// for a later one, and then `out` is as it was.
    pub fn save_from(&self, from: &[u32], out: &mut Vec<u8>) -> Option<Vec<u32>> {
        let (slab, packed, is_plain) = match &self.of {
            SavedSource::Plain(slab) => (Some(*slab), None, true),
            SavedSource::Raw(slab) => (Some(&**slab), None, true),
            SavedSource::Packed(_) | SavedSource::Loaded(_) if !from.is_empty() => return None,
            SavedSource::Packed(packed) => (None, Some(packed), false),
            SavedSource::Loaded(packed) => (None, Some(packed), true),
        };
        let layout = self.layout;
        out.reserve(HEAD + ENTRY * layout.num_columns());
        out.extend([u8::from(layout.is_interleaved()), u8::from(is_plain)]);
        out.extend((layout.num_columns() as u32).to_le_bytes());
        out.extend((layout.capacity() as u32).to_le_bytes());
        for place in layout.places() {
            out.extend((place.width as u64).to_le_bytes());
            out.extend((place.itemsize as u64).to_le_bytes());
        }
        if let Some(slab) = slab {
            return Some(put_raw(slab, from, out));
        }
        let packed = packed?;
        out.extend_from_slice(packed.bytes());
        Some((0..layout.num_columns()).map(|column| packed.len(column) as u32).collect())
    }
}

/// Appends the published cells of each column from these on, not packed; returns how many the columns have by now.
fn put_raw(slab: &Slab, from: &[u32], out: &mut Vec<u8>) -> Vec<u32> {
    let mut ends = Vec::with_capacity(slab.layout().num_columns());
    PackedChunk::put(out, slab.layout().num_columns(), |column, out| {
        let first = from.get(column).map_or(0, |first| *first as usize);
        let cells = first..slab.len(column).max(first);
        ends.push(cells.end as u32);
        let holes = hole_bits(slab, column, cells.clone());
        out.extend_from_slice(&holes);
        let (before, n) = (out.len(), cells.len());
        match slab.run(column, first, n) {
            Some(run) => out.extend_from_slice(run),
            None => cells.filter_map(|cell| slab.cell(column, cell)).for_each(|cell| out.extend_from_slice(cell)),
        }
        let stored = out.len() - before;
        Section { cells: n as u32, coding: RAW, holes: !holes.is_empty(), start: 0, stored }
    });
    ends
}

/// Restores chunks; chunks with the same layout share it.
#[derive(Debug)]
pub struct Restorer {
    pub(super) meter: Arc<Meter>,
    /// The columns of the last chunk that was left on the disk.
    pub(super) last: LastShape,
    layouts: HashMap<(Vec<u8>, usize), Arc<Layout>>,
}

impl Restorer {
    /// A restorer whose chunks are counted in `meter`.
    pub fn new(meter: &Arc<Meter>) -> Self {
        Self { meter: Arc::clone(meter), last: None, layouts: HashMap::new() }
    }

    /// The sealed chunk from the bytes that [`Chunk::save`] wrote. `Damaged` if they cannot be those of a chunk.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<Arc<Chunk>> {
        let part = SplitBytes::parse(bytes)?;
        let layout = self.layout(part.by_column, part.entries, part.capacity)?;
        if !part.plain {
            return Chunk::from_packed(layout, part.form, &self.meter);
        }
        let packed = PackedChunk::parse(part.form.into(), &layout)?;
        let longest = (0..layout.num_columns()).map(|column| packed.len(column)).max().unwrap_or(0).max(1);
        let layout = self.layout(part.by_column, part.entries, longest)?;
        if layout.size_bytes() > ROOM * part.form.len() + ROOM_MORE {
            return Chunk::from_packed(layout, part.form, &self.meter);
        }
        self.plain(layout, &[packed])
    }

    /// The sealed chunk from the parts that [`Content::save_from`] wrote, in order.
    ///
    /// `Damaged` if they cannot be those of one chunk.
    pub fn joined(&mut self, parts: &[Vec<u8>]) -> Result<Arc<Chunk>> {
        let damaged = |what: &str| Error::Damaged(what.to_owned());
        let [first, more @ ..] = parts else { return Err(damaged("it has no part")) };
        if more.is_empty() {
            return self.chunk(first);
        }
        let of = SplitBytes::parse(first)?;
        let whole = self.layout(of.by_column, of.entries, of.capacity)?;
        let mut packed = Vec::with_capacity(parts.len());
        for part in parts {
            let part = SplitBytes::parse(part)?;
            if !part.plain || (part.by_column, part.entries, part.capacity) != (of.by_column, of.entries, of.capacity) {
                return Err(damaged("its parts belong to several chunks"));
            }
            packed.push(PackedChunk::parse(part.form.into(), &whole)?);
        }
        let cells = |column: usize| packed.iter().map(|part| part.len(column)).sum::<usize>();
        let longest = (0..whole.num_columns()).map(cells).max().unwrap_or(0).max(1);
        if longest > of.capacity {
            return Err(damaged("its parts have more cells than its capacity"));
        }
        let layout = self.layout(of.by_column, of.entries, longest)?;
        self.plain(layout, &packed)
    }

    fn plain(&self, layout: Arc<Layout>, parts: &[PackedChunk]) -> Result<Arc<Chunk>> {
        let chunk = plain(layout, parts, &self.meter)?;
        self.meter.make_room();
        Ok(chunk)
    }

    pub(super) fn layout(&mut self, by_column: bool, entries: &[u8], capacity: usize) -> Result<Arc<Layout>> {
        let mut key = entries.to_vec();
        key.push(u8::from(by_column));
        if let Some(known) = self.layouts.get(&(key.clone(), capacity)) {
            return Ok(Arc::clone(known));
        }
        let number = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.try_into().expect("eight bytes"))).ok();
        let cells: Option<Vec<(usize, usize)>> =
            entries.chunks_exact(ENTRY).map(|entry| Some((number(&entry[..8])?, number(&entry[8..])?))).collect();
        // Far below an overflow, however the columns are aligned.
        let most = isize::MAX as usize / 8;
        let size = |cells: &[(usize, usize)]| {
            let row = cells.iter().try_fold(0_usize, |sum, (width, _)| sum.checked_add(width.checked_add(64)?))?;
            row.checked_mul(capacity)?.checked_add(128 * cells.len()).filter(|size| *size < most)
        };
        let Some(cells) = cells.filter(|cells| size(cells).is_some()) else {
            return Err(Error::Damaged("its columns are too large for the address space".to_owned()));
        };
        let layout = if by_column { Layout::columnar(&cells, capacity) } else { Layout::interleaved(&cells, capacity) };
        let layout = Arc::new(layout);
        self.layouts.insert((key, capacity), Arc::clone(&layout));
        Ok(layout)
    }
}

/// The bytes of a chunk or of a part of it, split.
pub(super) struct SplitBytes<'a> {
    pub(super) by_column: bool,
    pub(super) plain: bool,
    pub(super) capacity: usize,
    pub(super) entries: &'a [u8],
    pub(super) form: &'a [u8],
}

impl<'a> SplitBytes<'a> {
    /// The number of columns, from the first bytes of the chunk; zero if they are too few.
    pub(super) fn columns(bytes: &[u8]) -> usize {
        bytes.get(2..6).map_or(0, |number| u32::from_le_bytes(number.try_into().expect("four bytes")) as usize)
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let damaged = |what: &str| Error::Damaged(what.to_owned());
        let head = bytes.get(..HEAD).ok_or_else(|| damaged("it ends within its head"))?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
        let (columns, capacity) = (number(2), number(6));
        if head[0] > 1 || head[1] > 1 || capacity == 0 {
            return Err(damaged("its head is invalid"));
        }
        let end = columns.checked_mul(ENTRY).and_then(|entries| entries.checked_add(HEAD));
        let entries = end.and_then(|end| bytes.get(HEAD..end)).ok_or_else(|| damaged("it ends within its columns"))?;
        let form = &bytes[HEAD + entries.len()..];
        Ok(Self { by_column: head[0] == 0, plain: head[1] == 1, capacity, entries, form })
    }
}

/// Creates a chunk of these parts that is read without unpacking.
fn plain(layout: Arc<Layout>, parts: &[PackedChunk], meter: &Arc<Meter>) -> Result<Arc<Chunk>> {
    let mut writer = ChunkWriter::new(Arc::clone(&layout), Compression::None, meter);
    let columns = (0..layout.num_columns()).flat_map(|column| parts.iter().map(move |packed| (column, packed)));
    for (column, packed) in columns {
        let Some(cells) = packed.raw(column) else {
            return Err(Error::Damaged(format!("column {column} of a plain chunk is packed")));
        };
        let (n, width) = (packed.len(column), layout.width(column));
        if (0..n).all(|cell| packed.has(column, cell)) {
            writer.push_cells(column, cells, n);
            continue;
        }
        for cell in 0..n {
            match packed.has(column, cell) {
                true => writer.push(column, &cells[cell * width..][..width]),
                false => writer.skip(column),
            }
        }
    }
    Ok(Arc::clone(writer.chunk()))
}
