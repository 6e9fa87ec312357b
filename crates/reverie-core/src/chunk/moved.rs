//! A chunk as the disk tier sees it.

use super::form::ChunkForm;
use super::slab::zeroed;
use super::tier::{ChunkOnDisk, LastShape, Movable, Record, SavedChunk};
use super::{Chunk, HEADER, Storage};
use crate::error::Result;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Movable for Chunk {
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn published(&self) -> u64 {
        self.published()
    }

    fn has_packed_bytes(&self) -> bool {
        matches!(&self.storage, Storage::Packable(packable) if matches!(packable.form(), ChunkForm::Packed(_)))
    }

    fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    fn stored(&self) -> Option<Arc<ChunkOnDisk>> {
        match &self.storage {
            Storage::Plain(_) => None,
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Stored(stored) => Some(stored),
                ChunkForm::Raw(_) | ChunkForm::Packed(_) => None,
            },
        }
    }

    fn record(&self, out: &mut Vec<u8>) -> Option<Record> {
        let Storage::Packable(packable) = &self.storage else { return None };
        match packable.form() {
            ChunkForm::Raw(slab) => Some(Record::of_slab(&slab, out)),
            ChunkForm::Packed(packed) => Some(Record::of_packed(&packed, |column| packable.layout.width(column), out)),
            ChunkForm::Stored(_) => None,
        }
    }

    fn store(&self, stored: ChunkOnDisk) {
        self.replace(ChunkForm::Stored(Arc::new(stored)));
    }
}

impl Chunk {
    /// The bytes of memory that it counts for, and if it can move to the disk the fewest that it will count for there.
    pub(crate) fn least_memory(&self) -> u64 {
        let moves = !self.is_open() && !self.is_on_disk();
        if moves { self.memory_bytes().min(HEADER + ChunkOnDisk::LEAST) } else { self.memory_bytes() }
    }

    /// True while it is written, if a disk tier can move it once it is not.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// See [`Chunk::is_open`].
    pub(super) fn set_open(&self, open: bool) {
        let Storage::Packable(packable) = &self.storage else { return };
        let state = packable.state();
        let old = self.counts_for(&state.form);
        self.open.store(open, Relaxed);
        if !state.accounts.is_empty() {
            self.meter.replace_in_tables(&old, &self.counts_for(&state.form));
        }
    }

    /// True if its bytes are packed, wherever they are.
    pub(crate) fn is_packed(&self) -> bool {
        match &self.storage {
            Storage::Plain(_) => false,
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Raw(_) => false,
                ChunkForm::Packed(_) => true,
                ChunkForm::Stored(stored) => stored.was_packed(),
            },
        }
    }
}

/// Lets chunks on the disk be read from segments. Those of equal columns share them.
#[derive(Default)]
pub(crate) struct Follower {
    last: LastShape,
}

impl Follower {
    /// All bytes of the chunk are in this segment: if it is on the disk, it is read from there from now on.
    pub(crate) fn follow(&mut self, chunk: &Chunk, saved: SavedChunk) {
        if let Some(tier) = chunk.meter.tier() {
            tier.follow(chunk, saved, &mut self.last);
        }
    }
}

/// Cells on the disk that are read directly to where they are wanted.
pub(crate) struct CellsOnDisk {
    stored: Arc<ChunkOnDisk>,
    column: usize,
    from: u64,
}

impl CellsOnDisk {
    /// The order of these cells on the disk: cells with a smaller order lie before others.
    pub(crate) fn order(&self) -> (u64, u64) {
        let (file, offset) = self.stored.order();
        (file, offset + self.from)
    }

    /// Fills `to`. The errors are those of [`Chunk::read`].
    pub(crate) fn read(&self, to: &mut [MaybeUninit<u8>]) -> Result<()> {
        self.stored.read(self.column, self.from, zeroed(to))
    }
}

impl Chunk {
    /// Reads and checks the chunk if it is on the disk, unless its bytes were in memory and `is_written`.
    ///
    /// `DamagedFile` or `Storage` if it cannot be read.
    pub(crate) fn check_on_disk(&self, is_written: impl FnOnce() -> bool) -> Result<()> {
        match self.stored() {
            None => Ok(()),
            Some(stored) if !stored.is_checked() => stored.check(),
            Some(_) if is_written() => Ok(()),
            Some(stored) => stored.check_again(),
        }
    }

    /// Chunks on the disk in this order lie one behind the other; `None` in memory.
    pub(crate) fn place_on_disk(&self) -> Option<(u64, u64)> {
        self.stored().map(|stored| stored.order())
    }

    /// Cells that can be read directly; `None` if they are in memory, packed, or checked only together with others.
    pub(crate) fn on_disk(&self, column: usize, cells: Range<usize>) -> Option<CellsOnDisk> {
        let (stored, width) = (self.stored()?, self.layout().width(column));
        let from = (cells.start * width) as u64;
        stored.is_read_alone(column, width, &cells).then(|| CellsOnDisk { stored, column, from })
    }
}
