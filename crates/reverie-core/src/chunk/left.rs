//! Chunks of a checkpoint that stay on the disk when it is loaded: only what finds their cells is read.

use super::codec::Packed;
use super::form::{Form, Packable};
use super::saved::{Restorer, SavedPart, head_bytes};
use super::tier::{InSegment, Stored, Unread};
use super::{Chunk, Storage};
use crate::disk::Input;
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// A chunk of fewer bytes is read: its head is most of it, and what stays in memory for it is as large.
const SMALL: u64 = 4096;

/// The record of a chunk.
pub(crate) struct Record {
    /// The bytes of the chunk.
    pub(crate) at: InSegment,
    /// Bytes of the record before them, of which the CRC covers all but the first four.
    pub(crate) before: u32,
    pub(crate) crc: u32,
}

impl Restorer {
    /// True if a chunk of so many bytes stays on the disk: there is a disk tier, and the chunk is not small.
    pub(crate) fn leaves(&self, length: u64) -> bool {
        length > SMALL && self.meter.tier().is_some()
    }

    /// The sealed chunk of a record that stays where it is. `read` fills its argument from an offset of the chunk's bytes
    /// on; `open` opens the segment once more.
    ///
    /// All of the record is read and checked with the first cell. `Damaged` if these cannot be the bytes of a chunk.
    pub(crate) fn leave(
        &mut self,
        record: &Record,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
        open: impl FnOnce() -> Result<(PathBuf, Box<dyn Input>)>,
    ) -> Result<Arc<Chunk>> {
        let ends = || Error::Damaged("it ends within its head".to_owned());
        let length = usize::try_from(record.at.length).map_err(|_| ends())?;
        let mut head = vec![0; length.min(SMALL as usize)];
        read(0, &mut head)?;
        let needed = head_bytes(SavedPart::columns(&head));
        if needed > length {
            return Err(ends());
        }
        if head.len() < needed {
            head.resize(needed, 0);
            read(0, &mut head)?;
        }
        let part = SavedPart::parse(&head[..needed])?;
        let form_bytes = length - (needed - part.form.len());
        let layout = self.layout(part.by_column, part.entries, part.capacity)?;
        let sections = Packed::sections_of(part.form, form_bytes, &layout)?;
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
        let unread = Unread { crc: record.crc, before: record.before };
        let widths = (0..sections.len()).map(|column| layout.width(column));
        let (packs, columns) = (!part.plain, sections.iter().copied().zip(widths));
        let stored = Stored::unread(place, unread, columns, holes, packs, &mut self.last);
        let form = Form::Stored(Arc::new(stored));
        Ok(Chunk::new(Storage::Packable(Packable::new(form, layout, packs)), &self.meter))
    }
}
