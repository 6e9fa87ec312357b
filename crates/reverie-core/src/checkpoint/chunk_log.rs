//! The chunks that are in the segments of a folder, and the records that wait to be written there.

use super::plan::AddressHasher;
use super::segment::{RecordKind, RecordPlace, Records, WAITING};
use super::segments::{Segments, UnsyncedFiles};
use crate::chunk::{Chunk, SavedChunk};
use crate::disk::Disk;
use crate::error::Result;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Bytes that are buffered before they are written.
const AT_ONCE: usize = 1 << 20;
/// Chunks that may be gone before they are looked for.
const FEW: usize = 1024;

/// The places of chunks on the disk, and the segment that the next records go to.
pub(crate) struct ChunkLog {
    pub(crate) segments: Segments,
    next_number: u64,
    /// Grows with each [`ChunkLog::rotate`].
    epoch: u32,
    /// The chunks by address. The weak references prevent the reuse of the addresses.
    chunks: HashMap<usize, LoggedChunk, BuildHasherDefault<AddressHasher>>,
    /// The number of chunks above which those that are gone are forgotten.
    most: usize,
    waiting: Records,
    /// The addresses of chunks with a place among the waiting records.
    placed: Vec<usize>,
    /// The chunks with a record since the last [`ChunkLog::settle`].
    written: Vec<usize>,
}

/// A chunk on the disk. There is one for each chunk of the tables: what most of them do not have is in `grows`.
pub(crate) struct LoggedChunk {
    chunk: Weak<Chunk>,
    /// The number that commits refer to it by.
    number: u64,
    /// The number of saved cells, see [`Chunk::published`].
    cells: u64,
    /// The first record, or the only one.
    first: RecordPlace,
    grows: Option<Box<ChunkGrowth>>,
    /// See [`ChunkLog::epoch`]. A commit cannot rely on a record of an earlier one, which the next recovery may not
    /// read.
    epoch: u32,
    /// No failed checkpoint takes it back.
    settled: bool,
    /// The record has the packed form of the chunk.
    packed: bool,
}

/// A chunk that was not full when it was written first.
#[derive(Default)]
struct ChunkGrowth {
    /// The records behind the first.
    more: Vec<RecordPlace>,
    /// The start of the next part, unless the chunk is full.
    next: Option<Box<[u32]>>,
}

impl LoggedChunk {
    fn more(&self) -> &[RecordPlace] {
        self.grows.as_ref().map_or(&[], |grows| &grows.more)
    }

    fn parts(&self) -> impl Iterator<Item = &RecordPlace> {
        std::iter::once(&self.first).chain(self.more())
    }

    fn parts_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut RecordPlace> {
        let more = self.grows.as_mut().map_or(&mut [][..], |grows| &mut grows.more);
        std::iter::once(&mut self.first).chain(more)
    }
}

impl ChunkLog {
    pub(crate) fn new(disk: Arc<dyn Disk>, root: PathBuf, segment_bytes: u64) -> Self {
        Self {
            segments: Segments::new(disk, root, segment_bytes),
            next_number: 1,
            epoch: 0,
            chunks: HashMap::default(),
            most: FEW,
            waiting: Records::default(),
            placed: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Chunks that are written later have at least this number.
    pub(crate) fn number_after(&mut self, next_number: u64) {
        self.next_number = self.next_number.max(next_number);
    }

    /// Forgets all chunks and the segments.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.chunks.clear();
        self.waiting.bytes.clear();
        self.placed.clear();
        self.written.clear();
    }

    /// Adds a chunk that is on the disk as one record.
    pub(crate) fn adopt(&mut self, chunk: &Weak<Chunk>, place: RecordPlace) {
        let Some((cells, packed)) = chunk.upgrade().map(|chunk| (chunk.published(), chunk.is_packed())) else { return };
        let number = self.take_number();
        let (chunk_ref, epoch) = (chunk.clone(), self.epoch);
        let on_disk =
            LoggedChunk { chunk: chunk_ref, number, cells, first: place, grows: None, epoch, settled: true, packed };
        self.chunks.insert(chunk.as_ptr() as usize, on_disk);
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// The place of a chunk of which all present cells are on the disk in one record.
    pub(crate) fn find(&self, chunk: &Arc<Chunk>) -> Option<RecordPlace> {
        Some(self.find_at(Arc::as_ptr(chunk) as usize, chunk.published())?.1)
    }

    fn find_at(&self, address: usize, published: u64) -> Option<(&LoggedChunk, RecordPlace)> {
        let known = self.chunks.get(&address)?;
        let is_whole = known.more().is_empty() && !known.first.is_waiting() && known.cells == published;
        is_whole.then_some((known, known.first))
    }

    /// The bytes of the chunk at this address, if all its `published` cells are in one record that stays.
    pub(crate) fn find_saved(&self, address: usize, published: u64) -> Option<SavedChunk> {
        let (known, place) = self.find_at(address, published)?;
        // A journal takes nothing back.
        let stays = known.settled || self.segments.is_journaled();
        stays.then_some(SavedChunk { at: place.payload(), packed: known.packed })
    }

    /// The number of a chunk, and the place of its first record.
    ///
    /// That has the cells of a cut if the chunk was found or appended after the cut. Panics if it was not.
    pub(crate) fn first_part(&self, chunk: &Arc<Chunk>) -> (u64, RecordPlace) {
        let known = self.chunks.get(&(Arc::as_ptr(chunk) as usize)).expect("the chunk was found or appended");
        (known.number, known.first)
    }

    /// Appends a chunk as one record; returns the bytes of the record.
    pub(crate) fn append(&mut self, chunk: &Arc<Chunk>) -> Result<u64> {
        let number = self.chunks.get(&(Arc::as_ptr(chunk) as usize)).map(|known| known.number);
        let number = number.unwrap_or_else(|| self.take_number());
        let place = if self.segments.is_journaled() {
            self.put_whole(chunk, number)?
        } else {
            let content = chunk.content()?;
            let fill = |out: &mut Vec<u8>| content.save_from(&[], out);
            let (place, cells) = self.waiting.append(RecordKind::Chunk, fill).expect("a chunk has a first part");
            let cells = cells.into_iter().map(u64::from).sum();
            self.place(
                chunk,
                LoggedChunk {
                    chunk: Arc::downgrade(chunk),
                    number,
                    cells,
                    first: place,
                    grows: None,
                    epoch: self.epoch,
                    settled: false,
                    packed: content.is_packed(),
                },
            );
            place
        };
        let waiting = self.waiting.bytes.len();
        if waiting >= AT_ONCE || self.segments.is_full_with(waiting as u64) {
            self.write()?;
        }
        Ok(place.size())
    }

    /// True if [`ChunkLog::put`] would write nothing of the chunk.
    pub(crate) fn has(&self, chunk: &Arc<Chunk>) -> bool {
        let known = self.chunks.get(&(Arc::as_ptr(chunk) as usize));
        known.is_some_and(|known| known.epoch == self.epoch && known.cells == chunk.published())
    }

    /// The number of a chunk, after a record with its cells that are not on the disk yet, if there are any.
    ///
    /// The errors are those of [`Chunk::save`].
    pub(crate) fn put(&mut self, chunk: &Arc<Chunk>) -> Result<u64> {
        let Some(known) = self.chunks.get_mut(&(Arc::as_ptr(chunk) as usize)) else {
            let number = self.take_number();
            self.put_whole(chunk, number)?;
            return Ok(number);
        };
        let number = known.number;
        if known.epoch != self.epoch {
            self.put_whole(chunk, number)?;
            return Ok(number);
        }
        if known.cells == chunk.published() {
            return Ok(number);
        }
        let content = chunk.content()?;
        let more = known.grows.as_ref().and_then(|grows| grows.next.as_ref()).and_then(|from| {
            let fill = |out: &mut Vec<u8>| {
                out.extend(number.to_le_bytes());
                out.push(1);
                content.save_from(from, out)
            };
            self.waiting.append(RecordKind::Part, fill)
        });
        match more {
            Some((place, next)) => {
                let (first, mut grows) = (known.first, known.grows.take().unwrap_or_default());
                grows.more.push(place);
                self.place_grown(chunk, number, (first, Some(grows)), next, false);
            }
            // A packed chunk replaces the parts that were written while it was raw.
            None => _ = self.put_whole(chunk, number)?,
        }
        Ok(number)
    }

    fn put_whole(&mut self, chunk: &Arc<Chunk>, number: u64) -> Result<RecordPlace> {
        let content = chunk.content()?;
        let fill = |out: &mut Vec<u8>| {
            out.extend(number.to_le_bytes());
            out.push(0);
            content.save_from(&[], out)
        };
        let (place, next) = self.waiting.append(RecordKind::Part, fill).expect("a chunk has a first part");
        self.place_grown(chunk, number, (place, None), next, content.is_packed());
        Ok(place)
    }

    fn place_grown(
        &mut self,
        chunk: &Arc<Chunk>,
        number: u64,
        (first, grows): (RecordPlace, Option<Box<ChunkGrowth>>),
        next: Vec<u32>,
        packed: bool,
    ) {
        let cells = next.iter().map(|cells| u64::from(*cells)).sum();
        let full = next.iter().all(|cells| *cells as usize >= chunk.layout().capacity());
        let grows = grows.or_else(|| (!full).then(Box::default)).map(|mut grows| {
            grows.next = (!full).then(|| next.into());
            grows
        });
        let (chunk_ref, epoch) = (Arc::downgrade(chunk), self.epoch);
        self.place(chunk, LoggedChunk { chunk: chunk_ref, number, cells, first, grows, epoch, settled: false, packed });
    }

    /// Notes a chunk whose last part is among the waiting records.
    fn place(&mut self, chunk: &Arc<Chunk>, mut on_disk: LoggedChunk) {
        let address = Arc::as_ptr(chunk) as usize;
        on_disk.parts_mut().next_back().expect("the first is one").segment = WAITING;
        self.chunks.insert(address, on_disk);
        self.placed.push(address);
        self.written.push(address);
    }

    /// Appends a commit.
    pub(crate) fn commit(&mut self, payload: &[u8]) {
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(payload);
            Some(())
        };
        self.waiting.append(RecordKind::Commit, fill);
    }

    /// Writes what waits. On an error it stays, and the next call tries again.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.segments.check_synced()?;
        if self.waiting.bytes.is_empty() {
            return Ok(());
        }
        let (number, at) = self.segments.write(&self.waiting)?;
        self.waiting.bytes.clear();
        for address in self.placed.drain(..) {
            let Some(known) = self.chunks.get_mut(&address) else { continue };
            for place in known.parts_mut().rev().take_while(|place| place.is_waiting()) {
                (place.segment, place.offset) = (number, place.offset + at);
            }
        }
        Ok(())
    }

    /// Writes what waits, and waits until all of it is on the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.segments.sync()
    }

    /// True if records wait to be written.
    pub(crate) fn is_behind(&self) -> bool {
        self.segments.is_torn() || !self.waiting.bytes.is_empty()
    }

    /// Writes what waits; returns what is not on the disk.
    pub(crate) fn write_to_sync(&mut self) -> Result<UnsyncedFiles> {
        self.write()?;
        self.segments.unsynced()
    }

    /// The next record begins a new segment; returns its number. Earlier records are on the disk.
    pub(crate) fn rotate(&mut self) -> Result<u64> {
        self.write()?;
        let next = self.segments.rotate()?;
        self.epoch += 1;
        Ok(next)
    }

    /// Keeps what was written since the last call.
    pub(crate) fn settle(&mut self) {
        for address in self.written.drain(..) {
            if let Some(known) = self.chunks.get_mut(&address) {
                known.settled = true;
            }
        }
        // Chunks that are gone are forgotten, so that their addresses can be used again.
        if self.chunks.len() > self.most {
            self.chunks.retain(|_, known| known.chunk.strong_count() > 0);
            self.most = (2 * self.chunks.len()).max(FEW);
        }
    }

    /// Forgets what was written since the last [`ChunkLog::settle`]: it may not be there.
    pub(crate) fn undo(&mut self) {
        self.waiting.bytes.clear();
        self.placed.clear();
        for address in std::mem::take(&mut self.written) {
            self.chunks.remove(&address);
        }
        self.segments.clear();
    }

    /// The segments that have chunks.
    pub(crate) fn used_segments(&self) -> BTreeSet<u64> {
        let places = self.chunks.values().flat_map(LoggedChunk::parts);
        places.map(|place| place.segment).filter(|segment| *segment != WAITING).collect()
    }

    /// The bytes of chunks that are still in use in each segment, and the segment's size as far as it is known.
    pub(crate) fn live_bytes(&self, used: impl Iterator<Item = RecordPlace>) -> HashMap<u64, (u64, u64)> {
        let mut bytes: HashMap<u64, (u64, u64)> = HashMap::new();
        for place in self.chunks.values().flat_map(LoggedChunk::parts) {
            let (_, end) = bytes.entry(place.segment).or_default();
            *end = (*end).max(place.offset + place.size());
        }
        used.for_each(|place| bytes.entry(place.segment).or_default().0 += place.size());
        bytes
    }
}
