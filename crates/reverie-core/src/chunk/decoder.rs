//! Unpacks chunks, and reads them from the disk.

use super::Layout;
use super::codec::{Coding, Method, PackedChunk, RAW, block, block_cells, damaged, undo_delta};
use super::tier::ChunkOnDisk;
use crate::error::{Error, Result};
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, PoisonError};

/// Selects the cells of a column that are read; `None` for none.
pub type CellSelector<'a> = &'a dyn Fn(usize) -> Option<Range<usize>>;

fn does_not_unpack(column: usize, reason: &str) -> Error {
    damaged(format!("column {column} cannot be unpacked: {reason}"))
}

/// The cells of one column, unpacked.
#[derive(Clone, Debug)]
struct UnpackedColumn {
    /// The beginning in the decoder's bytes.
    start: usize,
    cells: Range<usize>,
}

/// Unpacks chunks, one after another, into reused memory: no more than the largest chunk's raw bytes.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    columns: Vec<Option<UnpackedColumn>>,
    stored: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Decoder {
    fn size_bytes(&self) -> usize {
        self.bytes.capacity() + self.stored.capacity()
    }

    /// Unpacks the cells that `wanted` selects, and those that are packed together with them.
    pub(super) fn decode(&mut self, packed: &PackedChunk, layout: &Layout, wanted: CellSelector<'_>) -> Result<()> {
        self.columns.clear();
        let mut end = 0;
        for (column, section) in packed.sections().iter().enumerate() {
            let (width, all, coding) = (layout.width(column), section.cells as usize, section.coding);
            let cells = wanted(column).map(|cells| coding.unpacked_with(width, &cells, all));
            let Some((cells, to)) = self.make_room(&mut end, cells, width) else { continue };
            let stored = packed.stored(section);
            let decoded = match coding {
                RAW => {
                    self.bytes[to].copy_from_slice(&stored[cells.start * width..cells.end * width]);
                    Ok(())
                }
                _ => self.decode_column(coding, stored, (cells, all), to, width),
            };
            decoded.map_err(|reason| does_not_unpack(column, &reason))?;
        }
        Ok(())
    }

    /// Like [`Decoder::decode`], for a chunk on the disk; reads only the cells that `wanted` selects if they are not
    /// packed.
    pub(super) fn decode_stored(
        &mut self,
        stored: &ChunkOnDisk,
        layout: &Layout,
        wanted: CellSelector<'_>,
    ) -> Result<()> {
        stored.check()?;
        self.columns.clear();
        let mut end = 0;
        for column in 0..layout.num_columns() {
            let (width, coding, all) = (layout.width(column), stored.coding(column), stored.len(column));
            let cells = wanted(column).map(|cells| match coding {
                RAW => stored.whole_blocks(column, width, &cells),
                _ => coding.unpacked_with(width, &cells, all),
            });
            let Some((cells, to)) = self.make_room(&mut end, cells, width) else { continue };
            if coding == RAW {
                stored.read(column, (cells.start * width) as u64, &mut self.bytes[to])?;
                continue;
            }
            let mut bytes = std::mem::take(&mut self.stored);
            let read = stored.read_stored(column, &mut bytes);
            let decoded = read.and_then(|()| {
                self.decode_column(coding, &bytes, (cells, all), to, width)
                    .map_err(|reason| does_not_unpack(column, &reason))
            });
            self.stored = bytes;
            decoded?;
        }
        Ok(())
    }

    /// Makes room for cells of the next column behind `end`; returns them and the place of their bytes.
    ///
    /// `None` if the column is not wanted.
    fn make_room(
        &mut self,
        end: &mut usize,
        cells: Option<Range<usize>>,
        width: usize,
    ) -> Option<(Range<usize>, Range<usize>)> {
        let start = *end;
        *end += cells.as_ref().map_or(0, |cells| cells.len() * width);
        if self.bytes.len() < *end {
            self.bytes.resize(*end, 0);
        }
        self.columns.push(cells.clone().map(|cells| UnpackedColumn { start, cells }));
        cells.map(|cells| (cells, start..*end))
    }

    /// Unpacks `cells` of `all` from the stored bytes of the column.
    fn decode_column(
        &mut self,
        coding: Coding,
        stored: &[u8],
        (cells, all): (Range<usize>, usize),
        to: Range<usize>,
        width: usize,
    ) -> Result<(), String> {
        if !coding.blocks {
            return self.decode_block(coding, stored, to, width);
        }
        let (each, mut to) = (block_cells(width), to);
        if cells.is_empty() {
            return Ok(());
        }
        for index in cells.start / each..cells.end.div_ceil(each) {
            let packed = block(stored, all.div_ceil(each), index).ok_or("a block is missing")?;
            let end = to.start + ((each * (index + 1)).min(cells.end) - each * index) * width;
            self.decode_block(coding, packed, to.start..end, width)?;
            to.start = end;
        }
        Ok(())
    }

    fn decode_block(&mut self, coding: Coding, stored: &[u8], to: Range<usize>, width: usize) -> Result<(), String> {
        let to = &mut self.bytes[to];
        let len = match coding.method {
            Method::Raw if stored.len() == to.len() => {
                to.copy_from_slice(stored);
                to.len()
            }
            Method::Raw => stored.len(),
            Method::Lz4 => {
                let (Ok(len), Ok(_)) = (i32::try_from(to.len()), i32::try_from(stored.len())) else {
                    return Err("too many bytes for lz4".to_owned());
                };
                lz4::block::decompress_to_buffer(stored, Some(len), to).map_err(|error| error.to_string())?
            }
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
        let UnpackedColumn { start, cells } = self.columns[column].as_ref()?;
        let end = first.checked_add(n).filter(|end| *end <= cells.end)?;
        let (first, end) = (first.checked_sub(cells.start)?, end.checked_sub(cells.start)?);
        self.bytes.get(start + first * width..start + end * width)
    }
}

/// A decoder that is used again: its memory was written before, and no thread waits for pages of it.
///
/// Those that are not in use are kept; their number and their bytes are bounded, and all together stay under 20 MiB.
pub(crate) struct SpareDecoder(Option<Decoder>);

static SPARE: Mutex<Vec<Decoder>> = Mutex::new(Vec::new());
/// The number of decoders that are kept.
const MOST_SPARE: usize = 16;
/// The most bytes that one of them keeps; in addition zstd has some 100 KiB.
const MOST_SPARE_BYTES: usize = 1 << 20;

impl SpareDecoder {
    pub(crate) fn take() -> Self {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(spare.unwrap_or_default()))
    }
}

impl Drop for SpareDecoder {
    fn drop(&mut self) {
        let Some(decoder) = self.0.take().filter(|spare| spare.size_bytes() <= MOST_SPARE_BYTES) else { return };
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE {
            spare.push(decoder);
        }
    }
}

impl Deref for SpareDecoder {
    type Target = Decoder;

    fn deref(&self) -> &Decoder {
        self.0.as_ref().expect("taken when it is dropped")
    }
}

impl DerefMut for SpareDecoder {
    fn deref_mut(&mut self) -> &mut Decoder {
        self.0.as_mut().expect("taken when it is dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_decoders_are_few_and_none_of_them_is_large() {
        let taken: Vec<_> = (0..3 * MOST_SPARE).map(|_| SpareDecoder::take()).collect();
        drop(taken);
        assert!(SPARE.lock().unwrap().len() <= MOST_SPARE);
        let mut large = SpareDecoder::take();
        large.bytes.resize(MOST_SPARE_BYTES + 1, 0);
        drop(large);
        let spare = SPARE.lock().unwrap();
        assert!(!spare.is_empty() && spare.iter().all(|spare| spare.size_bytes() <= MOST_SPARE_BYTES));
    }
}
