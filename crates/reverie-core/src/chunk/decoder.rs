//! Unpacks chunks, and reads them from the disk.

use super::Layout;
use super::codec::{Coding, Method, Packed, RAW, damaged, undo_delta};
use super::tier::Stored;
use crate::error::{Error, Result};
use std::ops::Range;

/// Selects the cells of a column that are read; `None` for none.
pub type Wanted<'a> = &'a dyn Fn(usize) -> Option<Range<usize>>;

fn does_not_unpack(column: usize, reason: &str) -> Error {
    damaged(format!("column {column} does not unpack: {reason}"))
}

/// The cells of one column, unpacked.
#[derive(Clone, Debug)]
struct Unpacked {
    /// The beginning in the decoder's bytes.
    start: usize,
    cells: Range<usize>,
}

/// Unpacks chunks, one after another, into reused memory: no more than the largest chunk's raw bytes.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    columns: Vec<Option<Unpacked>>,
    stored: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Decoder {
    /// Unpacks the columns of which `wanted` selects cells.
    pub(super) fn decode(&mut self, packed: &Packed, layout: &Layout, wanted: Wanted<'_>) -> Result<()> {
        self.columns.clear();
        let mut end = 0;
        for (column, section) in packed.sections().iter().enumerate() {
            let (width, all) = (layout.width(column), section.cells as usize);
            let cells = wanted(column).map(|cells| match section.coding {
                RAW => cells.start.min(all)..cells.end.min(all),
                _ => 0..all,
            });
            let from = cells.as_ref().map_or(0, |cells| cells.start * width);
            if let Some(to) = self.make_room(&mut end, cells, width) {
                let stored = &packed.stored(section)[from..];
                let stored = if section.coding == RAW { &stored[..to.len()] } else { stored };
                self.decode_column(section.coding, stored, to, width)
                    .map_err(|reason| does_not_unpack(column, &reason))?;
            }
        }
        Ok(())
    }

    /// The same for a chunk on the disk; reads only the cells that `wanted` selects where they are not packed.
    pub(super) fn decode_stored(&mut self, stored: &Stored, layout: &Layout, wanted: Wanted<'_>) -> Result<()> {
        self.columns.clear();
        let mut end = 0;
        for column in 0..layout.num_columns() {
            let (width, coding) = (layout.width(column), stored.coding(column));
            let cells = wanted(column).map(|cells| stored.whole_blocks(column, width, &cells));
            let from = cells.as_ref().map_or(0, |cells| cells.start * width);
            let Some(to) = self.make_room(&mut end, cells, width) else { continue };
            if coding == RAW {
                stored.read(column, from as u64, &mut self.bytes[to])?;
                continue;
            }
            let mut bytes = std::mem::take(&mut self.stored);
            let read = stored.read_stored(column, &mut bytes);
            let decoded = read.and_then(|()| {
                self.decode_column(coding, &bytes, to, width).map_err(|reason| does_not_unpack(column, &reason))
            });
            self.stored = bytes;
            decoded?;
        }
        Ok(())
    }

    /// Makes room for cells of the next column behind `end`; returns its bytes. `None` if it is not wanted.
    fn make_room(&mut self, end: &mut usize, cells: Option<Range<usize>>, width: usize) -> Option<Range<usize>> {
        let start = *end;
        *end += cells.as_ref().map_or(0, |cells| cells.len() * width);
        if self.bytes.len() < *end {
            self.bytes.resize(*end, 0);
        }
        let wanted = cells.is_some();
        self.columns.push(cells.map(|cells| Unpacked { start, cells }));
        wanted.then_some(start..*end)
    }

    fn decode_column(
        &mut self,
        coding: Coding,
        stored: &[u8],
        to: std::ops::Range<usize>,
        width: usize,
    ) -> Result<(), String> {
        let to = &mut self.bytes[to];
        let len = match coding.method {
            Method::Raw => {
                to.copy_from_slice(stored);
                to.len()
            }
            Method::Lz4 => lz4_flex::block::decompress_into(stored, to).map_err(|error| error.to_string())?,
            Method::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
                };
                zstd.decompress_to_buffer(stored, to).map_err(|error| error.to_string())?
            }
        };
        if len != to.len() {
            return Err(format!("{len} bytes, want {}", to.len()));
        }
        if coding.delta {
            undo_delta(to, width);
        }
        Ok(())
    }

    /// `n` cells of a requested column, each `width` bytes.
    #[inline]
    pub(super) fn run(&self, column: usize, width: usize, first: usize, n: usize) -> Option<&[u8]> {
        let Unpacked { start, cells } = self.columns[column].as_ref()?;
        let end = first.checked_add(n).filter(|end| *end <= cells.end)?;
        let (first, end) = (first.checked_sub(cells.start)?, end.checked_sub(cells.start)?);
        self.bytes.get(start + first * width..start + end * width)
    }
}
