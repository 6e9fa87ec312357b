//! The form of a chunk that is on the disk.
//!
//! The file has the stored bytes of the columns, one after the other; a segment has the form of `saved.rs`. The data
//! that finds and checks them stays in memory: the shape, which chunks of equal columns share, the CRC-32 of each
//! block, and the bits of cells without a value. A chunk that was never in memory has the CRC-32 of its record until it
//! is first read.

use super::super::codec::{Coding, PackedChunk, RAW, Section};
use super::files::Place;
use super::record::Record;
use super::shape::{LastShape, Shape, StoredColumn, as_saved, saved_bytes, shared, side_by_side};
use crate::error::Result;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A chunk on the disk. It is in memory for each of them: what most chunks do not have is in `rest`.
#[derive(Debug)]
pub(in crate::chunk) struct ChunkOnDisk {
    place: Place,
    shape: Arc<Shape>,
    /// Empty if the bytes were never in memory.
    crcs: Crcs,
    rest: Option<Box<RareFields>>,
}

/// The CRCs of the blocks of all columns, in order.
#[derive(Clone, Debug)]
enum Crcs {
    One(u32),
    Many(Box<[u32]>),
}

/// The fields that only some chunks have.
#[derive(Clone, Debug, Default)]
struct RareFields {
    /// The bits of the columns that have cells without a value, in order.
    holes: Box<[Box<[u8]>]>,
    /// The bytes were never in memory; the CRCs are set by the first read.
    unread: Option<(RecordCheck, OnceLock<Box<[u32]>>)>,
}

/// The check of a chunk that was not read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::chunk) struct RecordCheck {
    /// The checksum of its record without the first four bytes.
    pub(in crate::chunk) crc: u32,
    /// Bytes of the record before those of the chunk.
    pub(in crate::chunk) before: u32,
}

impl Crcs {
    fn of(crcs: &[u32]) -> Self {
        match crcs {
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }

    fn all(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl RareFields {
    /// `None` if there is nothing.
    fn of(holes: Vec<Box<[u8]>>, unread: Option<RecordCheck>) -> Option<Box<Self>> {
        let unread = unread.map(|unread| (unread, OnceLock::new()));
        (!holes.is_empty() || unread.is_some()).then(|| Box::new(Self { holes: holes.into(), unread }))
    }
}

impl ChunkOnDisk {
    /// The form of a chunk whose record is at `place`. `last` is the shape of the one before.
    pub(super) fn of(record: Record, place: Place, last: &mut LastShape) -> Self {
        let shape = shared(record.columns, record.packed, &place, last);
        Self { place, shape, crcs: Crcs::of(&record.crcs), rest: RareFields::of(record.holes, None) }
    }

    /// The form of a chunk whose saved bytes are at `place` and were not read: of each column the section and the bytes
    /// of a cell.
    pub(in crate::chunk) fn unread(
        place: Place,
        unread: RecordCheck,
        sections: impl Iterator<Item = (Section, usize)>,
        holes: Vec<Box<[u8]>>,
        packed: bool,
        last: &mut LastShape,
    ) -> Self {
        let mut first_crc = 0;
        let column = |(section, width): (Section, usize)| {
            let Section { cells, coding, holes, stored, .. } = section;
            let block = StoredColumn::block_of(coding, width, stored);
            let column = StoredColumn { cells, coding, holes, start: 0, stored: stored as u64, block, first_crc };
            first_crc += column.num_blocks() as u32;
            column
        };
        let columns = as_saved(&sections.map(column).collect::<Vec<_>>());
        let shape = shared(columns, packed, &place, last);
        Self { place, shape, crcs: Crcs::Many(Box::default()), rest: RareFields::of(holes, Some(unread)) }
    }

    /// This chunk, with its saved bytes at `place`. `last` is the shape of the chunk before.
    pub(super) fn saved_at(&self, place: Place, last: &mut LastShape) -> Self {
        let shape = shared(as_saved(&self.shape.columns), self.shape.packed, &place, last);
        let (crcs, rest) = match self.first_read().and_then(|(_, known)| known.get()) {
            // It was read: what checked the first read is not needed any more.
            Some(known) => (Crcs::of(known), RareFields::of(self.hole_bits().to_vec(), None)),
            None => (self.crcs.clone(), self.rest.clone()),
        };
        Self { place, shape, crcs, rest }
    }

    /// The bits of the columns that have cells without a value.
    fn hole_bits(&self) -> &[Box<[u8]>] {
        self.rest.as_ref().map_or(&[], |rest| &rest.holes)
    }

    fn columns(&self) -> &[StoredColumn] {
        &self.shape.columns
    }

    /// Bytes of the chunk as it is saved.
    pub(super) fn saved_bytes(&self) -> u64 {
        saved_bytes(self.columns())
    }

    /// The data that checks the first read of a chunk that was never in memory.
    fn first_read(&self) -> Option<&(RecordCheck, OnceLock<Box<[u32]>>)> {
        self.rest.as_ref()?.unread.as_ref()
    }

    /// False for a chunk that was neither in memory nor read.
    pub(in crate::chunk) fn is_checked(&self) -> bool {
        self.first_read().is_none_or(|(_, crcs)| crcs.get().is_some())
    }

    /// Checks a chunk that was never in memory, before memory is allocated for its cells; nothing is read of others.
    pub(in crate::chunk) fn check(&self) -> Result<()> {
        self.crcs().map(|_| ())
    }

    /// Reads and checks all its bytes.
    pub(in crate::chunk) fn check_again(&self) -> Result<()> {
        let mut bytes = Vec::new();
        (0..self.columns().len()).try_for_each(|column| self.read_stored(column, &mut bytes))
    }

    /// The CRCs of the blocks; the first call reads and checks all of a chunk that was never in memory.
    fn crcs(&self) -> Result<&[u32]> {
        let Some((unread, known)) = self.first_read() else { return Ok(self.crcs.all()) };
        if let Some(crcs) = known.get() {
            return Ok(crcs);
        }
        let before = u64::from(unread.before);
        let mut record = vec![0; (before + self.place.length) as usize];
        self.place.read_before(before, &mut record)?;
        if crc32fast::hash(&record[4..]) != unread.crc {
            return Err(self.place.damaged(0));
        }
        let bytes = &record[before as usize..];
        let blocks = self
            .columns()
            .iter()
            .flat_map(|column| bytes[column.start as usize..][..column.stored as usize].chunks(column.block as usize));
        let crcs = blocks.map(crc32fast::hash).collect();
        Ok(known.get_or_init(|| crcs))
    }

    /// Bytes in the file.
    pub(in crate::chunk) fn disk_bytes(&self) -> u64 {
        self.place.length
    }

    /// Bytes of memory of the smallest, its reference counts included.
    pub(in crate::chunk) const LEAST: u64 = (size_of::<Self>() + 2 * size_of::<usize>()) as u64;

    /// Bytes of memory, its reference counts included. Memory that chunks share is counted with the first of them.
    pub(in crate::chunk) fn memory_bytes(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| {
            let holes: usize = rest.holes.iter().map(|bits| bits.len() + size_of::<Box<[u8]>>()).sum();
            holes + size_of::<RareFields>()
        });
        let crcs = match self.crcs {
            Crcs::One(_) => 0,
            // Also those that the first read will compute.
            Crcs::Many(_) => self.columns().last().map_or(0, |last| u64::from(last.first_crc) + last.num_blocks()),
        };
        let shape = if self.shape.first == self.place.order() { self.shape.memory_bytes() } else { 0 };
        Self::LEAST + (rest + shape) as u64 + size_of::<u32>() as u64 * crcs
    }

    /// Chunks in this order lie one behind the other.
    pub(in crate::chunk) fn order(&self) -> (u64, u64) {
        self.place.order()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(in crate::chunk) fn was_packed(&self) -> bool {
        self.shape.packed
    }

    pub(in crate::chunk) fn len(&self, column: usize) -> usize {
        self.columns()[column].cells as usize
    }

    fn holes(&self, column: usize) -> &[u8] {
        let columns = self.columns();
        let (Some(StoredColumn { holes: true, .. }), Some(rest)) = (columns.get(column), &self.rest) else {
            return &[];
        };
        &rest.holes[columns[..column].iter().filter(|column| column.holes).count()]
    }

    pub(in crate::chunk) fn has(&self, column: usize, cell: usize) -> bool {
        self.has_run(column, cell, 1)
    }

    pub(in crate::chunk) fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        let Some(end) = first.checked_add(n).filter(|end| *end <= self.len(column)) else { return false };
        let bits = self.holes(column);
        bits.is_empty() || !(first..end).any(|cell| bits[cell / 8] & (1 << (cell % 8)) != 0)
    }

    /// The bytes that reading these cells yields.
    pub(in crate::chunk) fn read_bytes(&self, column: usize, width: usize, cells: &Range<usize>) -> u64 {
        let column = &self.columns()[column];
        column.coding.unpacked_with(width, cells, column.cells as usize).len() as u64 * width as u64
    }

    pub(in crate::chunk) fn coding(&self, column: usize) -> Coding {
        self.columns()[column].coding
    }

    /// The cells that must be read for these, so that whole blocks are checked: all of a packed column.
    pub(in crate::chunk) fn whole_blocks(&self, column: usize, width: usize, cells: &Range<usize>) -> Range<usize> {
        let column = &self.columns()[column];
        let all = column.cells as usize;
        if column.coding != RAW || width == 0 {
            return 0..all;
        }
        let block = column.block as usize / width;
        let first = (cells.start.min(all) / block) * block;
        first..cells.end.min(all).next_multiple_of(block).min(all)
    }

    /// Reads the stored bytes of whole blocks of a column, from the byte `from` of the column on, and checks them.
    ///
    /// `Storage` if they cannot be read, `DamagedFile` if they are not what was written.
    pub(in crate::chunk) fn read(&self, column: usize, from: u64, into: &mut [u8]) -> Result<()> {
        let crcs = self.crcs()?;
        let column = &self.columns()[column];
        let offset = column.start + from;
        self.place.read(offset, into)?;
        let first = column.first_crc as usize + (from / column.block) as usize;
        for (block, crc) in into.chunks(column.block as usize).zip(&crcs[first..]) {
            if crc32fast::hash(block) != *crc {
                return Err(self.place.damaged(offset));
            }
        }
        Ok(())
    }

    /// True if these cells can be read by themselves: they are not packed, and whole blocks.
    pub(in crate::chunk) fn is_read_alone(&self, column: usize, width: usize, cells: &Range<usize>) -> bool {
        self.columns()[column].coding == RAW
            && width > 0
            && cells.end <= self.len(column)
            && self.whole_blocks(column, width, cells) == *cells
    }

    /// The stored bytes of a whole column.
    pub(in crate::chunk) fn read_stored(&self, column: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        into.resize(self.columns()[column].stored as usize, 0);
        self.read(column, 0, into)
    }

    /// The chunk in memory; all its columns are raw if it was not packed before.
    pub(in crate::chunk) fn load(&self) -> Result<PackedChunk> {
        let (mut bodies, mut sections, mut stored) = (Vec::new(), Vec::with_capacity(self.columns().len()), Vec::new());
        for (index, column) in self.columns().iter().enumerate() {
            let start = bodies.len();
            bodies.extend_from_slice(self.holes(index));
            self.read_stored(index, &mut stored)?;
            bodies.extend_from_slice(&stored);
            let StoredColumn { cells, coding, holes, .. } = *column;
            sections.push(Section { cells, coding, holes, start, stored: stored.len() });
        }
        Ok(PackedChunk::new(sections, &bodies))
    }

    /// This chunk for another place, with its bytes appended to `out`.
    pub(super) fn copied(&self, out: &mut Vec<u8>) -> Result<Record> {
        let start = out.len();
        for (index, column) in self.columns().iter().enumerate() {
            let at = out.len();
            out.resize(at + column.stored as usize, 0);
            let read = self.read(index, 0, &mut out[at..]);
            if read.is_err() {
                out.truncate(start);
            }
            read?;
        }
        Ok(Record {
            columns: side_by_side(self.columns()),
            crcs: self.crcs()?.to_vec(),
            holes: self.hole_bits().to_vec(),
            packed: self.shape.packed,
            bytes: start..out.len(),
        })
    }
}
