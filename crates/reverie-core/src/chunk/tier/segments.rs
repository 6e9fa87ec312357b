//! Chunks whose bytes are in the segments of checkpoints and journals: they are read there, and not written again.
//!
//! Segments belong to checkpoints. One that is removed while chunks are read from it stays open, and so do its bytes.

use super::files::{File, Place};
use super::ledger::{Ledger, lock_unpoisoned};
use super::movable::Movable;
use super::record::Record;
use super::shape::LastShape;
use super::stored::ChunkOnDisk;
use crate::disk::Input;
use crate::error::Result;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

/// The bytes before a chunk in a record that also has the chunk's number: the number, and a flag.
pub(crate) const NUMBERED: u64 = 9;

/// The bytes of a chunk in a segment: the payload of a record, which may begin with [`NUMBERED`] bytes more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRange {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// All cells of a chunk in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedChunk {
    pub(crate) at: SegmentRange,
    /// In the chunk's packed form.
    pub(crate) packed: bool,
}

impl SavedChunk {
    /// The bytes of the chunk alone, `saved_bytes` of them. `None` if it was not saved in this form.
    fn bytes(self, saved_bytes: u64, packed: bool) -> Option<SegmentRange> {
        let before = self.at.length.checked_sub(saved_bytes).filter(|before| [0, NUMBERED].contains(before))?;
        let at = SegmentRange { offset: self.at.offset + before, length: saved_bytes, ..self.at };
        (self.packed == packed).then_some(at)
    }
}

/// The segments that a server writes.
pub(crate) trait SegmentStore: Send + Sync {
    /// The place of the chunk at this address, if one record that stays has all its cells: `published` of them.
    fn find(&self, address: usize, published: u64) -> Option<SavedChunk>;

    /// Opens a segment to read.
    fn open(&self, segment: u64) -> Result<(PathBuf, Box<dyn Input>)>;
}

/// The segments that chunks are read from.
pub(super) struct ReadSegments {
    ledger: Arc<Ledger>,
    /// Guards what is open. Segments are opened under it.
    state: Mutex<SegmentsState>,
}

#[derive(Default)]
struct SegmentsState {
    of: Option<Weak<dyn SegmentStore>>,
    open: HashMap<u64, Weak<File>>,
}

impl ReadSegments {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, state: Mutex::default() }
    }

    /// Sets the segments: chunks in them are read from there from now on, and not written to files of the tier.
    ///
    /// Chunks that are read from earlier segments stay there.
    pub(super) fn set(&self, segments: Weak<dyn SegmentStore>) {
        *lock_unpoisoned(&self.state) = SegmentsState { of: Some(segments), open: HashMap::new() };
    }

    /// True if chunks may be in segments.
    pub(super) fn is_set(&self) -> bool {
        self.segments().is_some()
    }

    fn segments(&self) -> Option<Arc<dyn SegmentStore>> {
        lock_unpoisoned(&self.state).of.as_ref()?.upgrade()
    }

    /// The place of these bytes of a segment, which `open` opens if no chunk is read from it.
    pub(super) fn place(
        &self,
        at: SegmentRange,
        open: impl FnOnce() -> Result<(PathBuf, Box<dyn Input>)>,
    ) -> Result<Place> {
        let mut state = lock_unpoisoned(&self.state);
        let known = state.open.get(&at.segment).and_then(Weak::upgrade);
        let file = match known {
            Some(file) => file,
            None => {
                let (path, input) = open()?;
                let file = Arc::new(File::segment(at.segment, path, input, Arc::clone(&self.ledger)));
                state.open.retain(|_, file| file.strong_count() > 0);
                state.open.insert(at.segment, Arc::downgrade(&file));
                file
            }
        };
        drop(state);
        Ok(Place::new(&file, at.offset, at.length))
    }

    /// Reads a chunk that is on the disk from the segment in which it was saved since.
    pub(super) fn follow(&self, chunk: &dyn Movable, saved: SavedChunk, last: &mut LastShape) {
        let Some(old) = chunk.stored() else { return };
        let Some(bytes) = saved.bytes(old.saved_bytes(), old.was_packed()) else { return };
        if old.place().is_at(bytes.segment, bytes.offset) || !old.is_checked() {
            return;
        }
        let Some(segments) = self.segments() else { return };
        // It stays where it is if the segment cannot be opened.
        if let Ok(place) = self.place(bytes, || segments.open(bytes.segment)) {
            chunk.store(old.saved_at(place, last));
        }
    }

    /// The form of a chunk in memory whose bytes are in a segment; `None` if they are not, or in another form.
    pub(super) fn found(
        &self,
        chunk: &dyn Movable,
        scratch: &mut Vec<u8>,
        last: &mut LastShape,
    ) -> Option<ChunkOnDisk> {
        let segments = self.segments()?;
        let saved = segments.find(chunk.address(), chunk.published())?;
        scratch.clear();
        let record: Record = chunk.record(scratch)?;
        let bytes = saved.bytes(record.saved_bytes(), record.is_packed())?;
        let place = self.place(bytes, || segments.open(bytes.segment)).ok()?;
        Some(ChunkOnDisk::of(record.into_saved(), place, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_found_behind_its_number_or_without_one_and_never_in_another_form() {
        let saved = |length, packed| SavedChunk { at: SegmentRange { segment: 3, offset: 100, length }, packed };
        for before in [0, NUMBERED] {
            let found = saved(50 + before, true).bytes(50, true).unwrap();
            assert_eq!((found.segment, found.offset, found.length), (3, 100 + before, 50));
            assert!(saved(50 + before, false).bytes(50, true).is_none(), "the same length by chance");
        }
        for length in [49, 51, 58, 60] {
            assert!(saved(length, true).bytes(50, true).is_none(), "{length}");
        }
    }
}
