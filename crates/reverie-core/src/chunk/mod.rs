//! **Chunk**: consecutive steps of one writer, column by column.
//!
//! A chunk is open while its [`ChunkWriter`] lives: its published cells only grow, and readers see them at once. Once
//! sealed, it is immutable; packing it, or moving it to the disk, replaces its bytes. It lives while an item or its
//! writer refers to it.

mod account;
mod cells;
mod chooser;
mod codec;
mod compression;
mod decoder;
mod form;
mod layout;
mod left;
mod moved;
mod raw;
mod saved;
pub(crate) mod slab;
pub(crate) mod tier;
mod writer;

pub use account::{Account, Meter};
pub use cells::CellsView;
pub use chooser::Chooser;
pub use compression::Compression;
pub(crate) use decoder::SpareDecoder;
pub use decoder::{CellSelector, Decoder};
pub use layout::Layout;
pub(crate) use left::RecordOnDisk;
pub(crate) use moved::{CellsOnDisk, Follower};
pub use raw::{PackedBytes, RawCells};
pub use saved::{Content, Restorer};
pub use slab::{fill, filled};
pub(crate) use tier::{NUMBERED, SavedChunk, SegmentRange, SegmentStore, Tier};
pub use tier::{TierInfo, TierOptions};
pub use writer::ChunkWriter;

use crate::error::Result;
use account::{Size, TableRefs};
use codec::PackedChunk;
use form::{ChunkForm, PackableChunk};
use slab::Slab;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tier::Memory;

/// Bytes of consecutive steps.
#[derive(Debug)]
#[repr(C)] // fields that every read needs come first
pub struct Chunk {
    storage: Storage,
    meter: Arc<Meter>,
    size: AtomicU64,
    /// The number of tables that refer to the chunk.
    tables: AtomicU32,
    /// The chunk may be packed; otherwise it only moves.
    packs: bool,
    /// The chunk was read since the disk tier looked at it. Not set for a plain chunk.
    used: AtomicBool,
    /// The chunk stays raw, although it was made to be packed or moved. Not set for a plain chunk.
    stays_raw: AtomicBool,
    /// The chunk is still being written, and a disk tier can move it once it is not.
    open: AtomicBool,
}

#[derive(Debug)]
enum Storage {
    /// Raw for ever: read without a lock.
    Plain(PlainChunk),
    /// Raw until sealed, then perhaps packed, moved to the disk, or both.
    Packable(PackableChunk),
}

#[derive(Debug)]
#[repr(C)] // as of `Chunk`
struct PlainChunk {
    slab: Slab,
    refs: TableRefs,
}

/// The size of the chunk itself and of its two reference counts.
const HEADER: u64 = (size_of::<Chunk>() + 2 * size_of::<usize>()) as u64;

impl Chunk {
    /// Bytes at the start of a plain chunk that a gather reads: where its cells are, and how many.
    pub(crate) const READ_FIRST: usize = std::mem::offset_of!(Chunk, storage) + size_of::<usize>() + size_of::<Slab>();

    fn plain_of(slab: Slab, meter: &Arc<Meter>) -> Arc<Self> {
        Self::new(Storage::Plain(PlainChunk { slab, refs: TableRefs::default() }), false, meter)
    }

    /// `packs`: it may be packed; otherwise it only moves.
    fn packable(form: ChunkForm, layout: Arc<Layout>, packs: bool, meter: &Arc<Meter>) -> Arc<Self> {
        Self::new(Storage::Packable(PackableChunk::new(form, layout)), packs, meter)
    }

    fn new(storage: Storage, packs: bool, meter: &Arc<Meter>) -> Arc<Self> {
        let size = match &storage {
            Storage::Plain(plain) => HEADER + plain.slab.layout().size_bytes() as u64,
            Storage::Packable(packable) => HEADER + packable.form().sizes(packable.raw_bytes()).0,
        };
        let on_disk = match &storage {
            Storage::Plain(_) => 0,
            Storage::Packable(packable) => packable.form().disk_bytes(),
        };
        meter.add(size, on_disk);
        let (size, tables, used) = (AtomicU64::new(size), AtomicU32::new(0), AtomicBool::new(false));
        let (stays_raw, open) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { storage, meter: meter.clone(), size, tables, packs, used, stays_raw, open })
    }

    /// A sealed chunk from its packed form, as returned by [`Chunk::packed`].
    ///
    /// `Damaged` if the bytes cannot be the packed form of a chunk of that layout. Damage inside a column is reported
    /// when the column is read.
    pub fn from_packed(layout: Arc<Layout>, bytes: &[u8], meter: &Arc<Meter>) -> Result<Arc<Self>> {
        let packed = Arc::new(PackedChunk::parse(bytes.into(), &layout)?);
        let chunk = Self::packable(ChunkForm::Packed(packed), layout, true, meter);
        chunk.enqueue();
        Ok(chunk)
    }

    /// The chunk is not written any more.
    #[inline]
    fn enqueue(self: &Arc<Self>) {
        if let Some(tier) = self.meter.tier() {
            self.set_open(false);
            tier.enqueue(Arc::downgrade(self) as _, self.meter.memory_bytes());
        } else if let Storage::Packable(packable) = &self.storage {
            // Only its writer could pack it, and only a tier that it was enlisted with could move it.
            self.stays_raw.store(matches!(packable.form(), ChunkForm::Raw(_)), Ordering::Relaxed);
        }
    }

    /// The packed bytes; `None` if the chunk is open, was left raw, or is on the disk.
    pub fn packed(&self) -> Option<Vec<u8>> {
        match &self.storage {
            Storage::Packable(packable) => match packable.form() {
                ChunkForm::Packed(packed) => Some(packed.bytes().to_vec()),
                ChunkForm::Raw(_) | ChunkForm::Stored(_) => None,
            },
            Storage::Plain(_) => None,
        }
    }

    /// Replaces the bytes by another form of them; readers keep the form that they read until they are done.
    fn replace(&self, form: ChunkForm) {
        let Storage::Packable(packable) = &self.storage else { unreachable!("a plain chunk stays raw") };
        let (bytes, on_disk) = form.sizes(packable.raw_bytes());
        let bytes = HEADER + bytes;
        let mut state = packable.state();
        let old = self.counts_for(&state.form);
        self.size.store(bytes, Ordering::Relaxed);
        let before = std::mem::replace(&mut state.form, form);
        state.accounts.replace(old.bytes, bytes);
        if !state.accounts.is_empty() {
            self.meter.replace_in_tables(&old, &self.counts_for(&state.form));
        }
        drop(state);
        self.meter.replace((old.bytes, old.on_disk), (bytes, on_disk));
        drop(before);
    }

    /// The bytes of the chunk in this form, whose lock is held.
    fn counts_for(&self, form: &ChunkForm) -> Size {
        let open = self.open.load(Ordering::Relaxed);
        Size { bytes: self.size_bytes(), on_disk: form.disk_bytes(), open }
    }

    /// Replaces the raw bytes by the packed form.
    fn pack(&self, packed: PackedChunk) {
        let before = self.size_bytes();
        self.replace(ChunkForm::Packed(Arc::new(packed)));
        if self.size_bytes() < before {
            Memory::freed(&*self.meter);
        }
    }

    /// True if the cell was written and holds a value; false for a column that does not exist.
    pub fn has(&self, column: usize, cell: usize) -> bool {
        if column >= self.layout().num_columns() {
            return false;
        }
        match &self.storage {
            Storage::Plain(plain) => plain.slab.has(column, cell),
            Storage::Packable(packable) => packable.form().has(column, cell),
        }
    }

    /// True if all these cells were written and hold values; false for a column that does not exist.
    pub fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        if column >= self.layout().num_columns() {
            return false;
        }
        match &self.storage {
            Storage::Plain(plain) => plain.slab.has_run(column, first, n),
            Storage::Packable(packable) => packable.form().has_run(column, first, n),
        }
    }

    /// The number of published cells of the column: only grows.
    pub fn len(&self, column: usize) -> usize {
        match &self.storage {
            Storage::Plain(plain) => plain.slab.len(column),
            Storage::Packable(packable) => packable.form().len(column),
        }
    }

    /// True if no column has a cell.
    pub fn is_empty(&self) -> bool {
        (0..self.layout().num_columns()).all(|column| self.len(column) == 0)
    }

    /// The layout of the columns while the chunk is raw; widths and element sizes also apply to the packed form.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        match &self.storage {
            Storage::Plain(plain) => plain.slab.layout(),
            Storage::Packable(packable) => &packable.layout,
        }
    }

    /// The bytes that the chunk counts for, its header included: in memory and on the disk.
    ///
    /// That is the whole allocation from the start, or the packed form once sealed so.
    pub fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The bytes of memory that the chunk counts for.
    pub fn memory_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Plain(_) => self.size_bytes(),
            Storage::Packable(packable) => {
                let (size, on_disk) = packable.form().sizes(packable.raw_bytes());
                HEADER + size - on_disk
            }
        }
    }

    /// The bytes that the chunk counts for while it is raw.
    pub fn raw_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Plain(_) => self.size_bytes(),
            Storage::Packable(packable) => HEADER + packable.raw_bytes(),
        }
    }

    /// Adds a reference of a table; true if it is the table's first, which charges the chunk to the table's account.
    ///
    /// Called under the table's lock; other tables may call at the same time. Packing the chunk adjusts the account.
    pub fn table_ref(&self, account: &Arc<Account>) -> bool {
        match &self.storage {
            Storage::Plain(plain) => {
                let first = plain.refs.add(account);
                if first {
                    account.add(self.size_bytes());
                    self.enter_table(&Size { bytes: self.size_bytes(), on_disk: 0, open: false });
                }
                first
            }
            Storage::Packable(packable) => {
                let mut state = packable.state();
                let first = state.accounts.add(account);
                if first {
                    account.add(self.size_bytes());
                    self.enter_table(&self.counts_for(&state.form));
                }
                first
            }
        }
    }

    /// Removes a reference of a table; true if it was the last, which takes the chunk off the table's account.
    ///
    /// Called as [`Chunk::table_ref`]. Panics if the table holds no reference.
    pub fn table_unref(&self, account: &Arc<Account>) -> bool {
        match &self.storage {
            Storage::Plain(plain) => {
                let last = plain.refs.remove(account);
                if last {
                    account.remove(self.size_bytes());
                    self.leave_table(&Size { bytes: self.size_bytes(), on_disk: 0, open: false });
                }
                last
            }
            Storage::Packable(packable) => {
                let mut state = packable.state();
                let last = state.accounts.remove(account);
                if last {
                    account.remove(self.size_bytes());
                    self.leave_table(&self.counts_for(&state.form));
                }
                last
            }
        }
    }

    fn enter_table(&self, size: &Size) {
        if self.tables.fetch_add(1, Ordering::Relaxed) == 0 {
            self.meter.enter_tables(size);
        }
    }

    fn leave_table(&self, size: &Size) {
        if self.tables.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.meter.leave_tables(size);
        }
    }

    /// True while a table refers to the chunk.
    pub fn in_tables(&self) -> bool {
        self.tables.load(Ordering::Relaxed) > 0
    }

    /// The memory of a chunk that is never packed nor moved.
    #[inline]
    pub(crate) fn plain(&self) -> Option<&Slab> {
        match &self.storage {
            Storage::Plain(plain) => Some(&plain.slab),
            Storage::Packable(_) => None,
        }
    }

    /// The memory of a chunk that was made to be packed and was left raw, if no disk tier can move it either: like that
    /// of a plain chunk, it lives as long as the chunk. Takes a lock.
    #[inline]
    pub(crate) fn left_raw(&self) -> Option<Arc<Slab>> {
        match &self.storage {
            Storage::Packable(packable) if self.stays_raw.load(Ordering::Relaxed) => match packable.form() {
                ChunkForm::Raw(slab) => Some(slab),
                ChunkForm::Packed(_) | ChunkForm::Stored(_) => None,
            },
            _ => None,
        }
    }

    /// True if the bytes are never packed or moved. Takes no lock.
    #[inline]
    pub(crate) fn stays_raw(&self) -> bool {
        matches!(self.storage, Storage::Plain(_)) || self.stays_raw.load(Ordering::Relaxed)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        crate::sync::DecisionGuard::check_not();
        let on_disk = match &self.storage {
            Storage::Plain(_) => 0,
            Storage::Packable(packable) => packable.state().form.disk_bytes(),
        };
        self.meter.remove(*self.size.get_mut(), on_disk);
    }
}
