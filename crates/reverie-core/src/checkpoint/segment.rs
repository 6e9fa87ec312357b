//! **Segments**: append-only files of chunks.
//!
//! `head: "REVSEGM\x01" | number u64 | crc u32 of the 16 bytes before`, then records: `crc u32 | length u64 | payload`,
//! the CRC (CRC-32, IEEE) over length and payload.

use super::disk::{Disk, Input, Output, damaged, reading, storage};
use super::names;
use super::version::Format;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

const FORMAT: Format = Format { magic: *b"REVSEGM", version: 1, name: "segment" };
const HEAD: u64 = 20;
const RECORD: usize = 12;
/// Bytes that are buffered before they are written, and that are read ahead.
const AT_ONCE: usize = 1 << 20;

/// The place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    /// The offset of the record.
    pub(super) offset: u64,
    /// Bytes of the payload.
    pub(super) length: u64,
    pub(super) crc: u32,
}

impl Place {
    /// Bytes of the whole record.
    pub(super) fn size(&self) -> u64 {
        self.length + RECORD as u64
    }
}

/// A segment that is being written.
pub(super) struct SegmentWriter {
    pub(super) number: u64,
    path: PathBuf,
    output: Box<dyn Output>,
    /// The offset of the next record.
    pub(super) end: u64,
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
}

impl SegmentWriter {
    pub(super) fn create(disk: &dyn Disk, root: &Path, number: u64) -> Result<Self> {
        let path = names::segment(root, number);
        let output = disk.create(&path).map_err(storage("create", &path))?;
        let mut waiting = Vec::with_capacity(AT_ONCE);
        waiting.extend_from_slice(&FORMAT.head());
        waiting.extend_from_slice(&number.to_le_bytes());
        waiting.extend_from_slice(&crc32fast::hash(&waiting).to_le_bytes());
        Ok(Self { number, path, output, end: HEAD, waiting })
    }

    /// Appends a record, whose payload `fill` appends to its argument.
    pub(super) fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Place> {
        let start = self.waiting.len();
        self.waiting.extend_from_slice(&[0; RECORD]);
        fill(&mut self.waiting);
        let record = &mut self.waiting[start..];
        let length = (record.len() - RECORD) as u64;
        record[4..RECORD].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        let place = Place { segment: self.number, offset: self.end, length, crc };
        self.end += place.size();
        if self.waiting.len() >= AT_ONCE {
            self.write()?;
        }
        Ok(place)
    }

    fn write(&mut self) -> Result<()> {
        self.output.write(&self.waiting).map_err(storage("write", &self.path))?;
        self.waiting.clear();
        Ok(())
    }

    /// Waits until all records are on the disk; the file's name is on the disk once its folder is synced.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.output.sync().map_err(storage("sync", &self.path))
    }
}

/// A segment that is being read, best from front to back.
pub(super) struct SegmentReader {
    number: u64,
    path: PathBuf,
    input: Box<dyn Input>,
    /// Bytes of the file from `start` on.
    ahead: Vec<u8>,
    start: u64,
}

impl SegmentReader {
    pub(super) fn open(disk: &dyn Disk, root: &Path, number: u64) -> Result<Self> {
        let path = names::segment(root, number);
        let input = disk.open(&path).map_err(reading(&path, 0))?;
        let mut reader = Self { number, path: path.clone(), input, ahead: Vec::new(), start: 0 };
        let head = reader.bytes(0, HEAD as usize)?;
        let (ours, crc) = head.split_at(16);
        FORMAT.check(&path, ours, crc)?;
        if ours[8..] != number.to_le_bytes() {
            return Err(damaged(&path, format!("this is not the head of segment {number}"), 0));
        }
        Ok(reader)
    }

    /// The payload of a record.
    pub(super) fn read(&mut self, place: &Place) -> Result<&[u8]> {
        debug_assert_eq!(place.segment, self.number);
        let (path, offset) = (self.path.clone(), place.offset);
        // Check before memory is allocated for a length that only a damaged file has.
        let end = place.offset.checked_add(RECORD as u64).and_then(|end| end.checked_add(place.length));
        if end.is_none_or(|end| end > self.input.size()) {
            return Err(damaged(&path, "the file ends within a chunk", offset));
        }
        let record = self.bytes(offset, RECORD + place.length as usize)?;
        let (crc, rest) = record.split_at(4);
        if crc != place.crc.to_le_bytes() || crc32fast::hash(rest) != place.crc {
            return Err(damaged(&path, "a chunk is not what was written", offset));
        }
        let (length, payload) = rest.split_at(8);
        if length != place.length.to_le_bytes() {
            return Err(damaged(&path, "a chunk of another length", offset));
        }
        Ok(payload)
    }

    /// Adds this segment to an error about a chunk that was read from it.
    pub(super) fn named(&self, place: &Place, error: Error) -> Error {
        match error {
            Error::Damaged(what) => damaged(&self.path, format!("a chunk is none: {what}"), place.offset),
            other => other,
        }
    }

    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let (start, end) = (self.start, self.start + self.ahead.len() as u64);
        if offset < start || offset + length as u64 > end {
            let ahead = (self.input.size().saturating_sub(offset)).min(AT_ONCE as u64) as usize;
            self.ahead.clear();
            self.ahead.resize(length.max(ahead), 0);
            self.start = offset;
            let read = self.input.read_at(offset, &mut self.ahead);
            if read.is_err() {
                self.ahead.clear();
            }
            read.map_err(reading(&self.path, offset))?;
        }
        Ok(&self.ahead[(offset - self.start) as usize..][..length])
    }
}
