//! The packed form of a chunk.
//!
//! Packed form, little-endian: `version u8 | columns u32 | columns x (cells u32, method u8, flags u8, stored u64) | per
//! column: bits of cells without value (ceil(cells / 8) bytes, if flagged), stored bytes`. The stored bytes of a column
//! in blocks (if flagged) are `blocks x end u32 | the blocks`, each packed by itself, and the ends counted from the
//! first block on. The reader trusts none of it: sizes come from the layout, and a damaged chunk fails before memory is
//! allocated for it.

use super::Layout;
use crate::error::{Error, Result};
use std::ops::Range;

const VERSION: u8 = 1;
const HEAD: usize = 5;
pub(super) const ENTRY: usize = 14;
/// Bytes before the packed form of a chunk that is saved (`saved.rs`), and of each of its columns there.
pub(super) const SAVED_HEAD: usize = 10;
pub(super) const SAVED_ENTRY: usize = 16;

/// Bytes of a saved chunk before those of its columns.
pub(super) const fn head_bytes(columns: usize) -> usize {
    SAVED_HEAD + HEAD + (SAVED_ENTRY + ENTRY) * columns
}
const FLAG_DELTA: u8 = 1;
const FLAG_HOLES: u8 = 2;
const FLAG_BLOCKS: u8 = 4;

/// Raw bytes of a block, or one cell where that is larger: less takes hardly less time to unpack.
const BLOCK_BYTES: usize = 32 << 10;
/// The bytes of a block's end.
const END: usize = 4;
/// The most raw bytes of a column in blocks: their ends fit four bytes, also those of blocks that grow.
pub(super) const MOST_IN_BLOCKS: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// The encoding of one stored column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coding {
    pub(super) method: Method,
    pub(super) delta: bool,
    /// Blocks of cells are packed each by itself, so that cells are read without the others.
    pub(super) blocks: bool,
}

pub(super) const RAW: Coding = Coding { method: Method::Raw, delta: false, blocks: false };

/// The number of cells of a block.
pub(super) fn block_cells(width: usize) -> usize {
    (BLOCK_BYTES / width.max(1)).max(1)
}

impl Coding {
    /// The cells that are unpacked for these of `all`.
    pub(super) fn unpacked_with(&self, width: usize, cells: &Range<usize>, all: usize) -> Range<usize> {
        if *self == RAW {
            return cells.start.min(all)..cells.end.min(all);
        }
        if !self.blocks {
            return 0..all;
        }
        let block = block_cells(width);
        let end = cells.end.min(all).next_multiple_of(block).min(all);
        (cells.start / block * block).min(end)..end
    }
}

/// Appends the stored bytes of a column in blocks; `pack` appends those of one block.
pub(super) fn put_blocks(raw: &[u8], width: usize, out: &mut Vec<u8>, mut pack: impl FnMut(&[u8], &mut Vec<u8>)) {
    let bytes = block_cells(width) * width.max(1);
    let (ends, start) = (out.len(), out.len() + END * raw.len().div_ceil(bytes));
    out.resize(start, 0);
    for (block, raw) in raw.chunks(bytes).enumerate() {
        pack(raw, out);
        let end = u32::try_from(out.len() - start).expect("no more than MOST_IN_BLOCKS, packed");
        out[ends + END * block..][..END].copy_from_slice(&end.to_le_bytes());
    }
}

/// The stored bytes of the block `index` of `blocks`; `None` if they are not there.
pub(super) fn block(stored: &[u8], blocks: usize, index: usize) -> Option<&[u8]> {
    let (ends, bytes) = stored.split_at_checked(END.checked_mul(blocks)?)?;
    let end = |index: usize| {
        let end = ends.get(END * index..END * (index + 1))?;
        Some(u32::from_le_bytes(end.try_into().expect("four bytes")) as usize)
    };
    bytes.get(if index == 0 { 0 } else { end(index - 1)? }..end(index)?)
}

/// Each cell minus the cell before it, byte by byte and wrapping: frames that hardly change become zeros.
pub(super) fn delta(raw: &[u8], width: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&raw[..width.min(raw.len())]);
    out.extend(raw.iter().zip(raw.get(width..).unwrap_or(&[])).map(|(before, now)| now.wrapping_sub(*before)));
}

pub(super) fn undo_delta(bytes: &mut [u8], width: usize) {
    for start in (width..bytes.len()).step_by(width.max(1)) {
        let (before, now) = bytes.split_at_mut(start);
        let before = &before[start - width..];
        now[..width].iter_mut().zip(before).for_each(|(now, before)| *now = now.wrapping_add(*before));
    }
}

/// One column of a packed chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) cells: u32,
    pub(super) coding: Coding,
    pub(super) holes: bool,
    /// The position of its bits (if any) and then its bytes, counted from the end of the entries.
    pub(super) start: usize,
    pub(super) stored: usize,
}

impl Section {
    /// The section as it is written, without its position, which follows from those before it.
    fn entry(&self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..4].copy_from_slice(&self.cells.to_le_bytes());
        let Coding { method, delta, blocks } = self.coding;
        let flags = [(delta, FLAG_DELTA), (self.holes, FLAG_HOLES), (blocks, FLAG_BLOCKS)];
        entry[4] = method as u8;
        entry[5] = flags.into_iter().fold(0, |all, (set, flag)| all | (u8::from(set) * flag));
        entry[6..].copy_from_slice(&(self.stored as u64).to_le_bytes());
        entry
    }

    pub(super) fn hole_bytes(&self) -> usize {
        if self.holes { (self.cells as usize).div_ceil(8) } else { 0 }
    }
}

/// A packed chunk.
#[derive(Debug)]
pub(super) struct PackedChunk {
    bytes: Box<[u8]>,
    sections: Box<[Section]>,
}

impl PackedChunk {
    pub(super) fn new(sections: Vec<Section>, bodies: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEAD + ENTRY * sections.len() + bodies.len());
        bytes.push(VERSION);
        bytes.extend((sections.len() as u32).to_le_bytes());
        sections.iter().for_each(|section| bytes.extend(section.entry()));
        bytes.extend_from_slice(bodies);
        Self { bytes: bytes.into(), sections: sections.into() }
    }

    /// Appends a packed form of `columns` columns to `out`; `body` appends their bytes, column by column.
    pub(super) fn put(out: &mut Vec<u8>, columns: usize, mut body: impl FnMut(usize, &mut Vec<u8>) -> Section) {
        out.push(VERSION);
        out.extend((columns as u32).to_le_bytes());
        let entries = out.len();
        out.resize(entries + ENTRY * columns, 0);
        for column in 0..columns {
            let section = body(column, out);
            out[entries + ENTRY * column..][..ENTRY].copy_from_slice(&section.entry());
        }
    }

    /// Reads the entries, and checks them against the layout and the number of bytes.
    pub(super) fn parse(bytes: Box<[u8]>, layout: &Layout) -> Result<Self> {
        let sections = Self::sections_of(&bytes, bytes.len(), layout)?.into();
        Ok(Self { bytes, sections })
    }

    /// The sections of a packed form of `length` bytes that begins with these; checks them as [`PackedChunk::parse`].
    pub(super) fn sections_of(bytes: &[u8], length: usize, layout: &Layout) -> Result<Vec<Section>> {
        let head = bytes.get(..HEAD).ok_or_else(|| damaged("it ends within its head"))?;
        let columns = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if head[0] != VERSION || columns != layout.num_columns() {
            return Err(damaged(format!(
                "it has version {} and {columns} columns, want version {VERSION} and {}",
                head[0],
                layout.num_columns()
            )));
        }
        let entries = bytes.get(HEAD..HEAD + ENTRY * columns).ok_or_else(|| damaged("it ends within its entries"))?;
        let room = length - HEAD - entries.len();
        let mut sections = Vec::with_capacity(columns);
        let mut start = 0;
        for (column, entry) in entries.chunks_exact(ENTRY).enumerate() {
            let section = parse_entry(entry, start, layout, column)?;
            start = section
                .stored
                .checked_add(section.hole_bytes())
                .and_then(|length| length.checked_add(start))
                .filter(|end| *end <= room)
                .ok_or_else(|| damaged(format!("column {column} ends beyond the chunk's {room} bytes")))?;
            sections.push(section);
        }
        if start != room {
            return Err(damaged(format!("{} bytes follow its last column", room - start)));
        }
        Ok(sections)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of memory that it uses.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len() + size_of_val::<[Section]>(&self.sections)
    }

    pub(super) fn len(&self, column: usize) -> usize {
        self.sections[column].cells as usize
    }

    pub(super) fn has(&self, column: usize, cell: usize) -> bool {
        let section = &self.sections[column];
        cell < section.cells as usize && !(section.holes && self.body(section)[cell / 8] & (1 << (cell % 8)) != 0)
    }

    /// True if all these cells hold values.
    pub(super) fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        let section = &self.sections[column];
        let end = first.checked_add(n).filter(|end| *end <= section.cells as usize);
        let bits = || self.body(section);
        end.is_some_and(|end| !section.holes || !(first..end).any(|cell| bits()[cell / 8] & (1 << (cell % 8)) != 0))
    }

    /// The contiguous bytes of a column's cells; `None` if they are packed.
    pub(super) fn raw(&self, column: usize) -> Option<&[u8]> {
        let section = &self.sections[column];
        (section.coding == RAW).then(|| self.stored(section))
    }

    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The stored bytes of a column.
    pub(super) fn stored(&self, section: &Section) -> &[u8] {
        &self.body(section)[section.hole_bytes()..]
    }

    /// The bits of its cells without a value; empty if all have values.
    pub(super) fn hole_bits(&self, section: &Section) -> &[u8] {
        &self.body(section)[..section.hole_bytes()]
    }

    fn body(&self, section: &Section) -> &[u8] {
        &self.bytes[HEAD + ENTRY * self.sections.len() + section.start..][..section.hole_bytes() + section.stored]
    }
}

fn parse_entry(entry: &[u8], start: usize, layout: &Layout, column: usize) -> Result<Section> {
    let cells = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
    let stored = u64::from_le_bytes(entry[6..].try_into().expect("eight bytes"));
    let method = match entry[4] {
        0 => Method::Raw,
        1 => Method::Lz4,
        2 => Method::Zstd,
        other => return Err(damaged(format!("column {column} has the unknown method {other}"))),
    };
    let flags = entry[5];
    let has = |flag: u8| flags & flag != 0;
    let known = flags & !(FLAG_DELTA | FLAG_HOLES | FLAG_BLOCKS) == 0 && !(method == Method::Raw && has(FLAG_BLOCKS));
    if !known || cells as usize > layout.capacity() {
        return Err(damaged(format!("column {column} has {cells} cells and flags {flags:#x}")));
    }
    let stored = usize::try_from(stored).map_err(|_| damaged(format!("column {column} has {stored} bytes")))?;
    if method == Method::Raw && stored != cells as usize * layout.width(column) {
        return Err(damaged(format!("column {column} has {stored} raw bytes for {cells} cells")));
    }
    let coding = Coding { method, delta: has(FLAG_DELTA), blocks: has(FLAG_BLOCKS) };
    Ok(Section { cells, coding, holes: has(FLAG_HOLES), start, stored })
}

pub(super) fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged(what.into())
}
