//! The form of a chunk that is on the disk.
//!
//! The file has the stored bytes of the columns, one after the other. What finds and checks them stays in memory: the
//! columns, which chunks of equal columns share, the CRC-32 of each block, and the bits of cells without a value.

use super::super::chooser::hole_bits;
use super::super::codec::{Coding, Packed, RAW, Section};
use super::super::slab::Slab;
use super::files::Place;
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Cells are checked in blocks of at least this many bytes: a smaller read would not be cheaper.
const BLOCK: usize = 4096;

/// The stored bytes of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::chunk) struct Column {
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

/// A chunk on the disk.
#[derive(Debug)]
pub(in crate::chunk) struct Stored {
    place: Place,
    columns: Arc<[Column]>,
    crcs: Box<[u32]>,
    /// The bits of the columns that have cells without a value, in order.
    holes: Box<[Box<[u8]>]>,
    /// The chunk was packed before it was moved.
    packed: bool,
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
        let block = match coding == RAW {
            true => BLOCK.div_ceil(width.max(1)).saturating_mul(width).max(1),
            false => stored.len().max(1),
        };
        self.columns.push(Column {
            cells,
            coding,
            holes: !holes.is_empty(),
            start: self.columns.last().map_or(0, |last| last.start + last.stored),
            stored: stored.len() as u64,
            block: block as u64,
            first_crc: self.crcs.len() as u32,
        });
        self.crcs.extend(stored.chunks(block).map(crc32fast::hash));
        if !holes.is_empty() {
            self.holes.push(holes.into());
        }
    }

    fn end(mut self, out: &[u8]) -> Self {
        self.bytes.end = out.len();
        self
    }

    /// The form of the chunk once its bytes are at `place`. `last` are the columns of the one before.
    pub(super) fn stored(self, place: Place, last: &mut Option<Arc<[Column]>>) -> Stored {
        let columns = match last {
            Some(last) if **last == self.columns[..] => Arc::clone(last),
            _ => Arc::clone(last.insert(self.columns.into())),
        };
        Stored { place, columns, crcs: self.crcs.into(), holes: self.holes.into(), packed: self.packed }
    }
}

impl Stored {
    /// Bytes in the file.
    pub(in crate::chunk) fn disk_bytes(&self) -> u64 {
        self.place.length
    }

    /// Bytes of memory. Columns that chunks share are not counted.
    pub(in crate::chunk) fn memory_bytes(&self) -> u64 {
        let holes: usize = self.holes.iter().map(|bits| bits.len() + size_of::<Box<[u8]>>()).sum();
        (size_of::<Self>() + size_of_val::<[u32]>(&self.crcs) + holes) as u64
    }

    /// Chunks in this order lie one behind the other.
    pub(in crate::chunk) fn order(&self) -> (u64, u64) {
        self.place.order()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(in crate::chunk) fn was_packed(&self) -> bool {
        self.packed
    }

    pub(in crate::chunk) fn len(&self, column: usize) -> usize {
        self.columns[column].cells as usize
    }

    fn holes(&self, column: usize) -> &[u8] {
        let Some(Column { holes: true, .. }) = self.columns.get(column) else { return &[] };
        &self.holes[self.columns[..column].iter().filter(|column| column.holes).count()]
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
        let column = &self.columns[column];
        column.coding.unpacked_with(width, cells, column.cells as usize).len() as u64 * width as u64
    }

    pub(in crate::chunk) fn coding(&self, column: usize) -> Coding {
        self.columns[column].coding
    }

    /// The cells that must be read for these, so that whole blocks are checked: all of a packed column.
    pub(in crate::chunk) fn whole_blocks(&self, column: usize, width: usize, cells: &Range<usize>) -> Range<usize> {
        let column = &self.columns[column];
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
        let column = &self.columns[column];
        let offset = column.start + from;
        self.place.read(offset, into)?;
        let first = column.first_crc as usize + (from / column.block) as usize;
        for (block, crc) in into.chunks(column.block as usize).zip(&self.crcs[first..]) {
            if crc32fast::hash(block) != *crc {
                return Err(self.place.damaged(offset));
            }
        }
        Ok(())
    }

    /// True if these cells can be read by themselves: they are not packed, and whole blocks.
    pub(in crate::chunk) fn is_read_alone(&self, column: usize, width: usize, cells: &Range<usize>) -> bool {
        self.columns[column].coding == RAW
            && width > 0
            && cells.end <= self.len(column)
            && self.whole_blocks(column, width, cells) == *cells
    }

    /// The stored bytes of a whole column.
    pub(in crate::chunk) fn read_stored(&self, column: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        into.resize(self.columns[column].stored as usize, 0);
        self.read(column, 0, into)
    }

    /// The chunk in memory; all its columns are raw if it was not packed before.
    pub(in crate::chunk) fn load(&self) -> Result<Packed> {
        let (mut bodies, mut sections, mut stored) = (Vec::new(), Vec::with_capacity(self.columns.len()), Vec::new());
        for (index, column) in self.columns.iter().enumerate() {
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
        for (index, column) in self.columns.iter().enumerate() {
            let at = out.len();
            out.resize(at + column.stored as usize, 0);
            let read = self.read(index, 0, &mut out[at..]);
            if read.is_err() {
                out.truncate(start);
            }
            read?;
        }
        Ok(Record {
            columns: self.columns.to_vec(),
            crcs: self.crcs.to_vec(),
            holes: self.holes.to_vec(),
            packed: self.packed,
            bytes: start..out.len(),
        })
    }
}
