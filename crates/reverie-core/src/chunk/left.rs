//! Chunks of a checkpoint that stay on the disk when it is loaded: only what finds their cells is read.

use super::Chunk;
use super::codec::{PackedChunk, head_bytes};
use super::form::ChunkForm;
use super::saved::{Restorer, SplitBytes};
use super::tier::{ChunkOnDisk, RecordCheck, SegmentRange};
use crate::disk::Input;
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A chunk of fewer bytes is read: its head is most of it, and what stays in memory for it is as large.
const SMALL: u64 = 4096;

/// The record of a chunk.
pub(crate) struct RecordOnDisk {
    /// The bytes of the chunk.
    pub(crate) at: SegmentRange,
    /// Bytes of the record before them, of which the CRC covers all but the first four.
    pub(crate) before: u32,
    pub(crate) crc: u32,
}

impl Restorer {
    /// True if a chunk of `length` bytes stays on the disk: there is a disk tier, and the chunk is not small.
    pub(crate) fn leaves(&self, length: u64) -> bool {
        length > SMALL && self.meter.tier().is_some()
    }

    /// The sealed chunk of a record that stays where it is. `read` fills its argument from an offset of the chunk's
    /// bytes on; `open` opens the segment once more.
    ///
    /// All of the record is read and checked with the first cell. `Damaged` if these cannot be the bytes of a chunk.
    pub(crate) fn leave(
        &mut self,
        record: &RecordOnDisk,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
        open: impl FnOnce() -> Result<(PathBuf, Box<dyn Input>)>,
    ) -> Result<Arc<Chunk>> {
        let ends = || Error::Damaged("it ends within its head".to_owned());
        let length = usize::try_from(record.at.length).map_err(|_| ends())?;
        let mut head = vec![0; length.min(SMALL as usize)];
        read(0, &mut head)?;
        let needed = head_bytes(SplitBytes::columns(&head));
        if needed > length {
            return Err(ends());
        }
        if head.len() < needed {
            head.resize(needed, 0);
            read(0, &mut head)?;
        }
        let part = SplitBytes::parse(&head[..needed])?;
        let form_bytes = length - (needed - part.form.len());
        let layout = self.layout(part.by_column, part.entries, part.capacity)?;
        let sections = PackedChunk::sections_of(part.form, form_bytes, &layout)?;
        // As large as that of a chunk that is read.
        let longest = sections.iter().map(|section| section.cells as usize).max().unwrap_or(0).max(1);
        let layout = if part.plain { self.layout(part.by_column, part.entries, longest)? } else { layout };
        let mut holes: Vec<Box<[u8]>> = Vec::new();
        for section in sections.iter().filter(|section| section.holes) {
            let mut bits = vec![0; section.hole_bytes()];
            read((needed + section.start) as u64, &mut bits)?;
            holes.push(bits.into());
        }
        let tier = self.meter.tier().expect("chunks are left to a disk tier");
        let place = tier.place(record.at, open)?;
        let unread = RecordCheck { crc: record.crc, before: record.before };
        let widths = (0..sections.len()).map(|column| layout.width(column));
        let (packs, columns) = (!part.plain, sections.iter().copied().zip(widths));
        let stored = ChunkOnDisk::unread(place, unread, columns, holes, packs, &mut self.last);
        let form = ChunkForm::Stored(Arc::new(stored));
        Ok(Chunk::packable(form, layout, packs, &self.meter))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tier::TierOptions;
    use super::super::{Chooser, ChunkWriter, Compression, Layout, Meter};
    use super::*;
    use crate::disk::{LocalFileSystem, read_error};
    use std::io::{self, ErrorKind};
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Bytes of the head of a record, and of what is between it and the chunk.
    const BEFORE: usize = 21;
    const WIDTHS: [(usize, usize); 3] = [(700, 1), (8, 8), (900, 1)];
    const STEPS: usize = 9;

    struct Bytes(Vec<u8>);

    impl Input for Bytes {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            let from = self.0.get(offset as usize..).and_then(|from| from.get(..into.len()));
            into.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn cell(column: usize, index: usize) -> Vec<u8> {
        let noise = |at: usize| ((at * 7919 + index * 31).wrapping_mul(2_654_435_761) >> 16) as u8;
        // Column 2 packs well.
        (0..WIDTHS[column].0).map(|at| if column == 2 && at > 9 { 7 } else { noise(at) }).collect()
    }

    /// A sealed chunk whose column 1 has no value in cell 3.
    fn chunk(compression: Compression) -> Arc<Chunk> {
        let meter = Arc::new(Meter::new());
        let mut writer = ChunkWriter::new(Arc::new(Layout::columnar(&WIDTHS, STEPS + 4)), compression, &meter);
        for index in 0..STEPS {
            for column in 0..WIDTHS.len() {
                match (column, index) {
                    (1, 3) => writer.skip(column),
                    _ => writer.push(column, &cell(column, index)),
                }
            }
        }
        writer.seal(&mut Chooser::new(compression))
    }

    /// The record of a chunk: a head of which only the CRC matters here, and the chunk.
    fn record(chunk: &Chunk) -> (Vec<u8>, u32) {
        let mut bytes = vec![9; BEFORE];
        chunk.save(&mut bytes).unwrap();
        let crc = crc32fast::hash(&bytes[4..]);
        (bytes, crc)
    }

    fn leave(restorer: &mut Restorer, bytes: Vec<u8>, crc: u32) -> Result<Arc<Chunk>> {
        static SEGMENT: AtomicU64 = AtomicU64::new(1);
        let (segment, length) = (SEGMENT.fetch_add(1, Relaxed), (bytes.len() - BEFORE) as u64);
        let at = SegmentRange { segment, offset: BEFORE as u64, length };
        let segment = Bytes(bytes.clone());
        let read = |offset, into: &mut [u8]| {
            segment.read_at(BEFORE as u64 + offset, into).map_err(read_error(Path::new("segment"), offset))
        };
        let open = || Ok((PathBuf::from("segment"), Box::new(Bytes(bytes)) as Box<dyn Input>));
        restorer.leave(&RecordOnDisk { at, before: BEFORE as u32, crc }, read, open)
    }

    fn with_tier(name: &str, test: impl FnOnce(&Arc<Meter>)) {
        let folder = std::env::temp_dir().join(format!("reverie-left-{}-{name}", std::process::id()));
        let meter = Arc::new(Meter::new());
        let options = TierOptions { folder: folder.clone(), memory_bytes: 1 << 20, ..TierOptions::default() };
        meter.set_tier(options, Arc::new(LocalFileSystem)).unwrap();
        test(&meter);
        drop(meter);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// True if it has the cells of [`chunk`].
    fn is_whole(left: &Chunk) -> bool {
        let Ok(cells) = left.read() else { return false };
        (0..WIDTHS.len()).all(|column| {
            left.len(column) == STEPS
                && (0..STEPS).all(|index| match (column, index) {
                    (1, 3) => !left.has(column, index),
                    _ => left.has(column, index) && cells.cell(column, index) == Some(&cell(column, index)),
                })
        })
    }

    #[test]
    fn a_chunk_that_is_left_on_the_disk_has_all_its_cells_and_is_saved_as_it_was() {
        with_tier("cells", |meter| {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let (bytes, crc) = record(&chunk(compression));
                let left = leave(&mut Restorer::new(meter), bytes.clone(), crc).unwrap();
                assert_eq!(left.size_bytes() - left.memory_bytes(), (bytes.len() - BEFORE) as u64);
                assert_eq!((meter.live_bytes(), meter.memory_bytes()), (left.size_bytes(), left.memory_bytes()));
                let mut again = vec![9; BEFORE];
                left.save(&mut again).unwrap();
                // But for the capacity of a chunk that was not full.
                assert!(again[BEFORE + 10..] == bytes[BEFORE + 10..], "{compression:?}");
                assert!(is_whole(&left), "{compression:?}");
                assert_eq!(left.memory_bytes(), meter.memory_bytes());
                drop(left);
                assert_eq!((meter.live_bytes(), meter.memory_bytes(), meter.tier_info().unwrap().stored), (0, 0, 0));
            }
        });
    }

    #[test]
    fn a_flipped_bit_of_a_chunk_that_is_left_on_the_disk_never_gives_a_wrong_cell() {
        with_tier("bits", |meter| {
            for compression in [Compression::None, Compression::Zstd] {
                let (bytes, crc) = record(&chunk(compression));
                // Each bit of what is read at the start, and some of the cells.
                let head = 8 * (BEFORE + head_bytes(WIDTHS.len()));
                let mut refused = 0;
                for bit in (0..head).chain((head..8 * bytes.len()).step_by(211)) {
                    let mut bytes = bytes.clone();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    let outcome = leave(&mut Restorer::new(meter), bytes, crc);
                    let reads = outcome.map(|left| left.read().is_ok());
                    match reads {
                        // The first four bytes are those of the CRC itself, which the manifest has, too.
                        Ok(reads) => assert_eq!(reads, bit < 32, "{compression:?}, bit {bit}"),
                        Err(_) => refused += 1,
                    }
                }
                assert!(refused > 100, "{compression:?}: {refused}");
            }
        });
    }
}
