//! **Segments**: append-only files of chunks, and of the commits of a journal.
//!
//! `head: "REVSEGM\x02" | number u64 | crc u32 of the 16 bytes before`, then records: `crc u32 | length 7 bytes |
//! kind u8 | payload`, the CRC (CRC-32, IEEE) over everything behind it.

use super::names;
use super::version::Format;
use crate::chunk::{NUMBERED, RecordOnDisk as ChunkRecord, SegmentRange};
use crate::disk::{Disk, Input, Output, damaged, read_error, storage};
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: Format = Format { magic: *b"REVSEGM", name: "segment" };
const HEAD: u64 = 20;
const RECORD: usize = 12;
/// Bytes of the record of a [`PredecessorState`] at most.
const FIRST: u64 = RECORD as u64 + 16;
/// Bytes that are buffered before they are written, and that are read ahead.
const AT_ONCE: usize = 1 << 20;
/// The segment of a place that is not written yet; its offset is that among the waiting records.
pub(super) const WAITING: u64 = u64::MAX;

/// The place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) segment: u64,
    /// The offset of the record.
    pub(crate) offset: u64,
    /// Bytes of the payload.
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

impl RecordPlace {
    /// Bytes of the whole record.
    pub(crate) fn size(&self) -> u64 {
        self.length + RECORD as u64
    }

    /// True for a record that is not written yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.segment == WAITING
    }

    /// The bytes of the payload.
    pub(crate) fn payload(&self) -> SegmentRange {
        SegmentRange { segment: self.segment, offset: self.offset + RECORD as u64, length: self.length }
    }
}

/// Bytes before those of the chunk in a record of [`RecordKind::Part`]: its number, and 1 if they follow those before.
const PART: usize = NUMBERED as usize;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A chunk, as a checkpoint refers to it.
    Chunk = 0,
    /// A chunk or a part of it with its number, for the commits of a journal.
    Part = 1,
    /// The changes of all tables, see `journal/commit.rs`.
    Commit = 2,
    /// The number and the end of the segment before, which may not be on the disk: the first record, if it is there.
    After = 3,
    /// The number of a checkpoint: the first record of the first segment that a server with a journal wrote at its
    /// start.
    Start = 4,
}

/// The state of the earlier segments, in the first record of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PredecessorState {
    /// The earlier segments were on the disk.
    #[default]
    Nothing,
    /// The number and the end of the one before, which may not have been on the disk.
    After((u64, u64)),
    /// A server had read them, and began a journal with the checkpoint of this number.
    Start(u64),
}

impl PredecessorState {
    /// The record.
    fn record(self) -> Records {
        let (kind, numbers) = match self {
            Self::Nothing => return Records::default(),
            Self::After((number, end)) => (RecordKind::After, vec![number, end]),
            Self::Start(checkpoint) => (RecordKind::Start, vec![checkpoint]),
        };
        let mut records = Records::default();
        records.append(kind, |out| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            Some(())
        });
        records
    }
}

impl RecordKind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Chunk, Self::Part, Self::Commit, Self::After, Self::Start].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Length and kind as they are written.
    fn with(self, length: u64) -> [u8; 8] {
        (length | (self as u64) << 56).to_le_bytes()
    }
}

/// Records that are written together.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) bytes: Vec<u8>,
}

impl Records {
    /// Appends a record, whose payload `fill` appends to its argument; returns its place, its offset being that in
    /// these records. `None` if `fill` returns `None`: there is no record then.
    pub(crate) fn append<T>(
        &mut self,
        kind: RecordKind,
        fill: impl FnOnce(&mut Vec<u8>) -> Option<T>,
    ) -> Option<(RecordPlace, T)> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD]);
        let Some(filled) = fill(&mut self.bytes) else {
            self.bytes.truncate(start);
            return None;
        };
        let record = &mut self.bytes[start..];
        let length = (record.len() - RECORD) as u64;
        record[4..RECORD].copy_from_slice(&kind.with(length));
        let crc = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        Some((RecordPlace { segment: 0, offset: start as u64, length, crc }, filled))
    }
}

/// A segment that is being written.
pub(crate) struct SegmentWriter {
    pub(crate) number: u64,
    path: PathBuf,
    output: Box<dyn Output>,
    /// The offset of the next record.
    pub(crate) end: u64,
}

impl SegmentWriter {
    /// Creates a segment. After an error there is none, or, if it could not be removed, one without a record.
    pub(crate) fn create(disk: &dyn Disk, root: &Path, number: u64, first: PredecessorState) -> io::Result<Self> {
        let path = names::segment(root, number);
        let mut output = disk.create(&path)?;
        let mut head = FORMAT.head().to_vec();
        head.extend_from_slice(&number.to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        head.extend_from_slice(&first.record().bytes);
        if let Err(error) = output.write(&head) {
            let _ = disk.remove(&path);
            return Err(error);
        }
        Ok(Self { number, path, output, end: head.len() as u64 })
    }

    /// Writes records; returns the offset of the first. After an error an unknown part of them is in the file.
    pub(crate) fn write(&mut self, records: &Records) -> io::Result<u64> {
        self.output.write(&records.bytes)?;
        let at = self.end;
        self.end += records.bytes.len() as u64;
        Ok(at)
    }

    /// Removes what a failed write left; it is on the disk after the next sync. The next write continues behind the
    /// whole records.
    pub(crate) fn cut(&mut self, disk: &dyn Disk) -> Result<()> {
        disk.shorten(&self.path, self.end).map_err(storage("shorten", &self.path))
    }

    /// Another handle of the file, see [`Output::duplicate`].
    pub(crate) fn duplicate(&self) -> Result<(PathBuf, Box<dyn Output>)> {
        let output = self.output.duplicate().map_err(storage("duplicate the handle of", &self.path))?;
        Ok((self.path.clone(), output))
    }

    /// Waits until all records are on the disk; the file's name is on the disk once its folder is synced.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.output.sync().map_err(storage("sync", &self.path))
    }
}

/// A segment that is being read, best from front to back.
pub(crate) struct SegmentReader {
    number: u64,
    path: PathBuf,
    input: Box<dyn Input>,
    /// Bytes of the file from `start` on.
    ahead: Vec<u8>,
    start: u64,
}

impl SegmentReader {
    pub(crate) fn open(disk: &dyn Disk, root: &Path, number: u64) -> Result<Self> {
        let reader = Self::open_unchecked(disk, root, number)?;
        let path = reader.path.clone();
        let mut head = [0; HEAD as usize];
        // Not ahead: its chunks may not be read.
        reader.read_at(0, &mut head)?;
        let (ours, crc) = head.split_at(16);
        FORMAT.check(&path, ours, crc)?;
        if ours[8..] != number.to_le_bytes() {
            return Err(damaged(&path, format!("this is not the head of segment {number}"), 0));
        }
        Ok(reader)
    }

    /// Opens a segment without a check of its head, which may be damaged.
    pub(crate) fn open_unchecked(disk: &dyn Disk, root: &Path, number: u64) -> Result<Self> {
        let path = names::segment(root, number);
        let input = disk.open(&path).map_err(read_error(&path, 0))?;
        Ok(Self { number, path, input, ahead: Vec::new(), start: 0 })
    }

    /// Fails if the file has no room for a record.
    fn check_room(&self, place: &RecordPlace) -> Result<()> {
        let end = place.offset.checked_add(RECORD as u64).and_then(|end| end.checked_add(place.length));
        if end.is_none_or(|end| end > self.input.size()) {
            return Err(damaged(&self.path, "the file ends within a chunk", place.offset));
        }
        Ok(())
    }

    /// The record of a chunk that is not read: of it only the first bytes are checked.
    pub(crate) fn chunk_record(&self, place: &RecordPlace) -> Result<ChunkRecord> {
        self.check_room(place)?;
        let mut head = [0; RECORD];
        self.read_at(place.offset, &mut head)?;
        let (kind, at) = (head[RECORD - 1], place.payload());
        let known = [RecordKind::Chunk, RecordKind::Part].into_iter().find(|of| *of as u8 == kind);
        let expected = known.map(|kind| kind.with(place.length));
        if head[..4] != place.crc.to_le_bytes() || expected.is_none_or(|expected| head[4..] != expected) {
            return Err(damaged(&self.path, "a chunk is not what was written", place.offset));
        }
        let before = if kind == RecordKind::Part as u8 { NUMBERED } else { 0 };
        let Some(length) = at.length.checked_sub(before) else {
            return Err(damaged(&self.path, "a chunk has no number", place.offset));
        };
        let at = SegmentRange { offset: at.offset + before, length, ..at };
        Ok(ChunkRecord { at, before: RECORD as u32 + before as u32, crc: place.crc })
    }

    /// Fills `into` from `offset` of the file on.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.input.read_at(offset, into).map_err(read_error(&self.path, offset))
    }

    /// The payload of a record.
    pub(crate) fn read(&mut self, place: &RecordPlace) -> Result<&[u8]> {
        debug_assert_eq!(place.segment, self.number);
        let (path, offset) = (self.path.clone(), place.offset);
        // Check before memory is allocated for a length that only a damaged file has.
        self.check_room(place)?;
        let record = self.bytes(offset, RECORD + place.length as usize)?;
        let (crc, rest) = record.split_at(4);
        if crc != place.crc.to_le_bytes() || crc32fast::hash(rest) != place.crc {
            return Err(damaged(&path, "a chunk is not what was written", offset));
        }
        let (length, mut payload) = rest.split_at(8);
        if length[7] == RecordKind::Part as u8 {
            payload = payload.get(PART..).ok_or_else(|| damaged(&path, "a chunk has no number", offset))?;
        }
        if length[..7] != place.length.to_le_bytes()[..7] {
            return Err(damaged(&path, "a chunk has another length than its reference", offset));
        }
        Ok(payload)
    }

    /// The record at `offset`, checked; `None` if there is no whole record.
    pub(crate) fn record(&mut self, offset: u64) -> Result<Option<(RecordKind, RecordPlace, &[u8])>> {
        let number = self.number;
        let left = self.input.size().saturating_sub(offset);
        if left < RECORD as u64 {
            return Ok(None);
        }
        let head = self.bytes(offset, RECORD)?;
        let crc = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let word = u64::from_le_bytes(head[4..].try_into().expect("eight bytes"));
        let length = word & ((1 << 56) - 1);
        let Some(kind) = RecordKind::of((word >> 56) as u8).filter(|_| length <= left - RECORD as u64) else {
            return Ok(None);
        };
        let record = self.bytes(offset, RECORD + length as usize)?;
        if crc32fast::hash(&record[4..]) != crc {
            return Ok(None);
        }
        Ok(Some((kind, RecordPlace { segment: number, offset, length, crc }, &record[RECORD..])))
    }

    /// The size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.input.size()
    }

    /// True if there is no room for another record than the [`PredecessorState`]: creating the segment may have failed.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.size() <= HEAD + FIRST
    }

    /// The first record, if it is one about the segments before.
    pub(crate) fn first_record(&mut self) -> Result<PredecessorState> {
        let Some((kind, _, payload)) = self.record(HEAD)? else { return Ok(PredecessorState::Nothing) };
        let number = |at: usize| {
            payload.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        Ok(match kind {
            RecordKind::After => PredecessorState::After((number(0), number(8))),
            RecordKind::Start => PredecessorState::Start(number(0)),
            RecordKind::Chunk | RecordKind::Part | RecordKind::Commit => PredecessorState::Nothing,
        })
    }

    /// The offset of the first record.
    pub(crate) const fn first() -> u64 {
        HEAD
    }

    /// The bytes from `offset` to the end of the file.
    pub(crate) fn rest(&mut self, offset: u64) -> Result<&[u8]> {
        let length = self.input.size().saturating_sub(offset) as usize;
        self.bytes(offset, length)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds this segment to an error about a chunk that was read from it.
    pub(crate) fn named(&self, place: &RecordPlace, error: Error) -> Error {
        match error {
            Error::Damaged(what) => damaged(&self.path, format!("a chunk is invalid: {what}"), place.offset),
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
            read.map_err(read_error(&self.path, offset))?;
        }
        Ok(&self.ahead[(offset - self.start) as usize..][..length])
    }
}
