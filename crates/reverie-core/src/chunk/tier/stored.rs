//! The form of a chunk that is on the disk.
//!
//! The file has the stored bytes of the columns, one after the other; a segment has what `saved.rs` says. What finds and
//! checks them stays in memory: the shape, which chunks of equal columns share, the CRC-32 of each block, and the bits
//! of cells without a value. A chunk that was never in memory has the CRC-32 of its record until it is first read.

use super::super::chooser::hole_bits;
use super::super::codec::{Coding, Packed, RAW, Section, head_bytes};
use super::super::slab::Slab;
use super::files::Place;
use crate::error::Result;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Cells are checked in blocks of at least this many bytes: a smaller read would not be cheaper.
const BLOCK: usize = 4096;

/// The stored bytes of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    cells: u32,
    coding: Coding,
    holes: bool,
    /// The offset of its bytes in the record.
    start: u64,
    stored: u64,
    /// Bytes that one CRC covers; the last block may have fewer.
    block: u64,
    /// The index of the CRC of its first block.
    first_crc: u32,
}

/// A chunk on the disk. It is in memory for each of them: what most chunks do not have is in `rest`.
#[derive(Debug)]
pub(in crate::chunk) struct Stored {
    place: Place,
    shape: Arc<Shape>,
    /// Empty if the bytes were never in memory.
    crcs: Crcs,
    rest: Option<Box<Rest>>,
}

/// What chunks of equal columns share.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::chunk) struct Shape {
    columns: Box<[Column]>,
    /// The chunks were packed before they were moved.
    packed: bool,
    /// The place of the first of them, with which the shape's bytes are counted.
    first: (u64, u64),
}

/// The CRCs of the blocks of all columns, in order.
#[derive(Clone, Debug)]
enum Crcs {
    One(u32),
    Many(Box<[u32]>),
}

/// What only some chunks have.
#[derive(Clone, Debug, Default)]
struct Rest {
    /// The bits of the columns that have cells without a value, in order.
    holes: Box<[Box<[u8]>]>,
    /// The bytes were never in memory; the CRCs are set by the first read.
    unread: Option<(Unread, OnceLock<Box<[u32]>>)>,
}

/// How a chunk is checked that was not read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::chunk) struct Unread {
    /// Of its record, but for the first four bytes.
    pub(in crate::chunk) crc: u32,
    /// Bytes of the record before those of the chunk.
    pub(in crate::chunk) before: u32,
}

/// The shape of the chunk before, which the next one shares if it is equal.
pub(in crate::chunk) type LastShape = Option<Arc<Shape>>;

/// The shape of a chunk of these columns at this place: that of the chunk before, or a new one.
fn shared(columns: Vec<Column>, packed: bool, place: &Place, last: &mut LastShape) -> Arc<Shape> {
    match last {
        Some(last) if last.packed == packed && *last.columns == columns[..] => Arc::clone(last),
        _ => Arc::clone(last.insert(Arc::new(Shape { columns: columns.into(), packed, first: place.order() }))),
    }
}

impl Shape {
    /// Bytes of memory, its reference counts included.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + size_of_val(&*self.columns)
    }
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

impl Rest {
    /// `None` if there is nothing.
    fn of(holes: Vec<Box<[u8]>>, unread: Option<Unread>) -> Option<Box<Self>> {
        let unread = unread.map(|unread| (unread, OnceLock::new()));
        (!holes.is_empty() || unread.is_some()).then(|| Box::new(Self { holes: holes.into(), unread }))
    }
}

impl Column {
    fn hole_bytes(&self) -> u64 {
        if self.holes { u64::from(self.cells).div_ceil(8) } else { 0 }
    }

    fn block_of(coding: Coding, width: usize, stored: usize) -> u64 {
        let block = match coding == RAW {
            true => BLOCK.div_ceil(width.max(1)).saturating_mul(width).max(1),
            false => stored.max(1),
        };
        block as u64
    }

    fn num_blocks(&self) -> u64 {
        self.stored.div_ceil(self.block)
    }
}

/// Bytes of a chunk of these columns as it is saved.
fn saved_bytes(columns: &[Column]) -> u64 {
    head_bytes(columns.len()) as u64 + columns.iter().map(|column| column.hole_bytes() + column.stored).sum::<u64>()
}

/// The columns as they lie in a saved chunk.
fn as_saved(columns: &[Column]) -> Vec<Column> {
    let mut at = head_bytes(columns.len()) as u64;
    let place = |column: &Column| {
        let start = at + column.hole_bytes();
        at = start + column.stored;
        Column { start, ..column.clone() }
    };
    columns.iter().map(place).collect()
}

/// The columns as they lie in a file of the tier.
fn side_by_side(columns: &[Column]) -> Vec<Column> {
    let mut at = 0;
    let place = |column: &Column| {
        let start = at;
        at += column.stored;
        Column { start, ..column.clone() }
    };
    columns.iter().map(place).collect()
}

/// A chunk as it will be on the disk.
pub(in crate::chunk) struct Record {
    columns: Vec<Column>,
    crcs: Vec<u32>,
    holes: Vec<Box<[u8]>>,
    packed: bool,
    /// Where its bytes begin among those that are written together, and how many there are.
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
    pub(in crate::chunk) fn of_packed(packed: &Packed, width: impl Fn(usize) -> usize, out: &mut Vec<u8>) -> Self {
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
        let block = Column::block_of(coding, width, stored.len());
        self.columns.push(Column {
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

    /// The form of the chunk once its bytes are at `place`. `last` is the shape of the one before.
    pub(super) fn stored(self, place: Place, last: &mut LastShape) -> Stored {
        let shape = shared(self.columns, self.packed, &place, last);
        Stored { place, shape, crcs: Crcs::of(&self.crcs), rest: Rest::of(self.holes, None) }
    }

    /// Bytes of the chunk as it is saved.
    pub(super) fn saved_bytes(&self) -> u64 {
        saved_bytes(&self.columns)
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packed
    }

    /// The form of the chunk whose saved bytes are at `place`.
    pub(super) fn saved_at(mut self, place: Place, last: &mut LastShape) -> Stored {
        self.columns = as_saved(&self.columns);
        self.stored(place, last)
    }
}

impl Stored {
    /// The form of a chunk whose saved bytes are at `place` and were not read: of each column the section and the bytes of
    /// a cell.
    pub(in crate::chunk) fn unread(
        place: Place,
        unread: Unread,
        sections: impl Iterator<Item = (Section, usize)>,
        holes: Vec<Box<[u8]>>,
        packed: bool,
        last: &mut LastShape,
    ) -> Self {
        let mut first_crc = 0;
        let column = |(section, width): (Section, usize)| {
            let Section { cells, coding, holes, stored, .. } = section;
            let block = Column::block_of(coding, width, stored);
            let column = Column { cells, coding, holes, start: 0, stored: stored as u64, block, first_crc };
            first_crc += column.num_blocks() as u32;
            column
        };
        let columns = as_saved(&sections.map(column).collect::<Vec<_>>());
        let shape = shared(columns, packed, &place, last);
        Self { place, shape, crcs: Crcs::Many(Box::default()), rest: Rest::of(holes, Some(unread)) }
    }

    /// The same chunk, whose saved bytes are at `place`. `last` is the shape of the one before.
    pub(super) fn saved_at(&self, place: Place, last: &mut LastShape) -> Self {
        let shape = shared(as_saved(&self.shape.columns), self.shape.packed, &place, last);
        let (crcs, rest) = match self.first_read().and_then(|(_, known)| known.get()) {
            // It was read: what checked the first read is not needed any more.
            Some(known) => (Crcs::of(known), Rest::of(self.hole_bits().to_vec(), None)),
            None => (self.crcs.clone(), self.rest.clone()),
        };
        Self { place, shape, crcs, rest }
    }

    /// The bits of the columns that have cells without a value.
    fn hole_bits(&self) -> &[Box<[u8]>] {
        self.rest.as_ref().map_or(&[], |rest| &rest.holes)
    }

    fn columns(&self) -> &[Column] {
        &self.shape.columns
    }

    /// Bytes of the chunk as it is saved.
    pub(super) fn saved_bytes(&self) -> u64 {
        saved_bytes(self.columns())
    }

    /// What checks the first read of a chunk that was never in memory.
    fn first_read(&self) -> Option<&(Unread, OnceLock<Box<[u32]>>)> {
        self.rest.as_ref()?.unread.as_ref()
    }

    /// False for a chunk that was neither in memory nor read.
    pub(super) fn is_checked(&self) -> bool {
        self.first_read().is_none_or(|(_, crcs)| crcs.get().is_some())
    }

    /// Checks a chunk that was never in memory, before memory is allocated for its cells; nothing is read of others.
    pub(in crate::chunk) fn check(&self) -> Result<()> {
        self.crcs().map(|_| ())
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

    /// Bytes of memory, its reference counts included. What chunks share is counted with the first of them.
    pub(in crate::chunk) fn memory_bytes(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| {
            let holes: usize = rest.holes.iter().map(|bits| bits.len() + size_of::<Box<[u8]>>()).sum();
            holes + size_of::<Rest>()
        });
        let crcs = match self.crcs {
            Crcs::One(_) => 0,
            // Also those that the first read will compute.
            Crcs::Many(_) => self.columns().last().map_or(0, |last| u64::from(last.first_crc) + last.num_blocks()),
        };
        let shape = if self.shape.first == self.place.order() { self.shape.memory_bytes() } else { 0 };
        (size_of::<Self>() + 2 * size_of::<usize>() + rest + shape) as u64 + size_of::<u32>() as u64 * crcs
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
        let (Some(Column { holes: true, .. }), Some(rest)) = (columns.get(column), &self.rest) else { return &[] };
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
    pub(in crate::chunk) fn load(&self) -> Result<Packed> {
        let (mut bodies, mut sections, mut stored) = (Vec::new(), Vec::with_capacity(self.columns().len()), Vec::new());
        for (index, column) in self.columns().iter().enumerate() {
            let start = bodies.len();
            bodies.extend_from_slice(self.holes(index));
            self.read_stored(index, &mut stored)?;
            bodies.extend_from_slice(&stored);
            let Column { cells, coding, holes, .. } = *column;
            sections.push(Section { cells, coding, holes, start, stored: stored.len() });
        }
        Ok(Packed::new(sections, &bodies))
    }

    /// The same chunk for another place, with its bytes appended to `out`.
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
