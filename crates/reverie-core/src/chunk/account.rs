//! The accounting of a chunk's bytes: charged once to the server, and once to each table that refers to it.

use super::tier::{Memory, SegmentStore, Tier, TierInfo, TierOptions};
use crate::disk::Disk;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Attempts to read two counters that belong together.
const ATTEMPTS: u32 = 8;

/// The bytes of the chunks of one server, each chunk counted once.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    chunks: AtomicU64,
    in_tables: AtomicU64,
    /// The part of `bytes` on the disk.
    on_disk: AtomicU64,
    /// The part of `in_tables` on the disk.
    in_tables_on_disk: AtomicU64,
    /// The memory of the chunks of `in_tables` that are on the disk.
    index: AtomicU64,
    /// The bytes of the chunks of `in_tables` that are still being written, if there is a disk tier.
    open: AtomicU64,
    freed: Hook,
    tier: OnceLock<Tier>,
}

/// The bytes that a chunk counts for.
pub(super) struct Size {
    /// In memory and on the disk.
    pub(super) bytes: u64,
    /// The part of these on the disk.
    pub(super) on_disk: u64,
    /// The chunk is still being written, and will be able to move to the disk.
    pub(super) open: bool,
}

impl Size {
    /// Bytes of memory that no move to the disk frees: of the index, and of open chunks.
    fn unmovable(&self) -> (u64, u64) {
        match self {
            Self { on_disk: 1.., .. } => (self.bytes - self.on_disk, 0),
            Self { open: true, .. } => (0, self.bytes),
            _ => (0, 0),
        }
    }
}

/// Called after a chunk became smaller; set at most once.
#[derive(Default)]
struct Hook(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "Hook(set)" } else { "Hook(unset)" })
    }
}

impl Meter {
    /// A meter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the live chunks: allocations and headers.
    pub fn live_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The number of live chunks.
    pub fn live_chunks(&self) -> u64 {
        self.chunks.load(Relaxed)
    }

    /// Bytes of the chunks that tables refer to, each counted once. Only writers and readers hold the rest.
    pub fn table_bytes(&self) -> u64 {
        self.in_tables.load(Relaxed)
    }

    /// Bytes of memory of the chunks that tables refer to.
    pub fn table_memory(&self) -> u64 {
        let on_disk = self.in_tables_on_disk.load(Relaxed);
        self.table_bytes().saturating_sub(on_disk)
    }

    /// The part of [`Meter::table_memory`] that no move to the disk frees: the index of the chunks that are there,
    /// which finds and checks their cells, and the chunks that are still being written. (0, 0) without a disk tier.
    pub fn unmovable_memory(&self) -> (u64, u64) {
        (self.index.load(Relaxed), self.open.load(Relaxed))
    }

    /// Lets chunks move to the disk from now on: those that are created later. Called once at most.
    ///
    /// `InvalidArgument` for limits of zero, and the second time; `Storage` for a folder that cannot be used.
    pub fn set_tier(self: &Arc<Self>, options: TierOptions, disk: Arc<dyn Disk>) -> Result<()> {
        let tier = Tier::new(options, disk)?;
        tier.begin(Arc::downgrade(self) as _)?;
        self.tier.set(tier).map_err(|_| Error::InvalidArgument("a server has one disk tier".to_owned()))
    }

    /// The disk tier, if chunks move to the disk.
    pub(crate) fn tier(&self) -> Option<&Tier> {
        self.tier.get()
    }

    /// Chunks that are in these segments need not be written to the disk tier's files. Does nothing without one.
    pub(crate) fn share(&self, segments: Weak<dyn SegmentStore>) {
        if let Some(tier) = self.tier() {
            tier.share(segments);
        }
    }

    /// The figures of the disk tier; `None` without one.
    pub fn tier_info(&self) -> Option<TierInfo> {
        self.tier().map(|tier| tier.info(self.memory_bytes()))
    }

    /// Waits until the memory for chunks is within its limit, or no chunk can be moved. Returns at once without a tier.
    pub(crate) fn make_room(&self) {
        if let Some(tier) = self.tier() {
            tier.make_room(self);
        }
    }

    /// Sets a hook that runs each time chunks become smaller, by packing or by moving, which no table notices.
    ///
    /// It runs on the thread that packed or moved, with no lock of a chunk or a table held. Only the first call has an
    /// effect.
    pub(crate) fn on_freed(&self, then: impl Fn() + Send + Sync + 'static) {
        let _ = self.freed.0.set(Box::new(then));
    }

    /// Bytes of memory of the live chunks.
    pub fn memory_bytes(&self) -> u64 {
        // Bytes that move to the disk between the two reads, for which others came, would be counted twice.
        let mut on_disk = self.on_disk.load(Relaxed);
        for _ in 0..ATTEMPTS {
            let live = self.live_bytes();
            let now = self.on_disk.load(Relaxed);
            if now == on_disk {
                return live.saturating_sub(on_disk);
            }
            on_disk = now;
        }
        self.live_bytes().saturating_sub(on_disk)
    }

    /// A first table refers to a chunk of that size.
    pub(super) fn enter_tables(&self, size: &Size) {
        self.in_tables.fetch_add(size.bytes, Relaxed);
        if size.on_disk > 0 {
            self.in_tables_on_disk.fetch_add(size.on_disk, Relaxed);
        }
        self.change_unmovable((0, 0), size.unmovable());
    }

    /// The last table released a chunk of that size.
    pub(super) fn leave_tables(&self, size: &Size) {
        self.in_tables.fetch_sub(size.bytes, Relaxed);
        if size.on_disk > 0 {
            self.in_tables_on_disk.fetch_sub(size.on_disk, Relaxed);
        }
        self.change_unmovable(size.unmovable(), (0, 0));
    }

    /// The size of a chunk that tables refer to changed.
    pub(super) fn replace_in_tables(&self, old: &Size, new: &Size) {
        self.in_tables.fetch_add(new.bytes.wrapping_sub(old.bytes), Relaxed);
        self.in_tables_on_disk.fetch_add(new.on_disk.wrapping_sub(old.on_disk), Relaxed);
        self.change_unmovable(old.unmovable(), new.unmovable());
    }

    fn change_unmovable(&self, old: (u64, u64), new: (u64, u64)) {
        if old.0 != new.0 {
            self.index.fetch_add(new.0.wrapping_sub(old.0), Relaxed);
        }
        if old.1 != new.1 {
            self.open.fetch_add(new.1.wrapping_sub(old.1), Relaxed);
        }
    }

    pub(super) fn add(&self, bytes: u64, on_disk: u64) {
        if on_disk > 0 {
            self.on_disk.fetch_add(on_disk, Relaxed);
        }
        self.bytes.fetch_add(bytes, Relaxed);
        self.chunks.fetch_add(1, Relaxed);
        if let Some(tier) = self.tier() {
            tier.grown(self.memory_bytes());
        }
    }

    pub(super) fn replace(&self, old: (u64, u64), new: (u64, u64)) {
        self.bytes.fetch_add(new.0.wrapping_sub(old.0), Relaxed);
        self.on_disk.fetch_add(new.1.wrapping_sub(old.1), Relaxed);
    }

    pub(super) fn remove(&self, bytes: u64, on_disk: u64) {
        // In this order a reader of both counters never counts memory that is free.
        self.bytes.fetch_sub(bytes, Relaxed);
        if on_disk > 0 {
            self.on_disk.fetch_sub(on_disk, Relaxed);
        }
        self.chunks.fetch_sub(1, Relaxed);
    }
}

impl Memory for Meter {
    fn used(&self) -> u64 {
        self.memory_bytes()
    }

    fn freed(&self) {
        if let Some(then) = self.freed.0.get() {
            then();
        }
    }
}

/// Bytes of the chunks that one table refers to, each chunk counted once however many items share it.
///
/// The chunks keep it exact: [`Chunk::table_ref`](super::Chunk::table_ref) adds at the table's first reference,
/// `table_unref` subtracts at its last, and a chunk that is packed meanwhile corrects by the difference.
#[derive(Debug)]
pub struct Account {
    id: u32,
    bytes: AtomicU64,
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

impl Account {
    /// An account at zero. Each has a unique identity in this process.
    pub fn new() -> Self {
        // Zero means "no table" in a chunk's header.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        assert!(id != 0, "more tables than a process can tell apart");
        Self { id, bytes: AtomicU64::new(0) }
    }

    /// Bytes of the chunks that the table refers to.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn replace(&self, old: u64, new: u64) {
        self.bytes.fetch_add(new.wrapping_sub(old), Relaxed);
    }

    pub(super) fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// References per table, for chunks whose size never changes.
///
/// A slot is `account id << 32 | references`, zero if free. Only the table that owns a slot changes it, under its own
/// lock; tables share access only when they take a free slot, and, from the third table on, in a list with its own
/// lock.
#[derive(Debug, Default)]
pub(super) struct TableRefs {
    slots: [AtomicU64; 2],
    /// Guards (account id, references) of the third table on. Nothing else happens under it.
    more: OnceLock<Box<OverflowRefs>>,
}

type OverflowRefs = Mutex<Vec<(u32, u32)>>;

impl TableRefs {
    fn owned(&self, id: u32) -> Option<&AtomicU64> {
        self.slots.iter().find(|slot| (slot.load(Relaxed) >> 32) as u32 == id)
    }

    /// True if this is the table's first reference.
    pub(super) fn add(&self, account: &Account) -> bool {
        if let Some(slot) = self.owned(account.id) {
            slot.store(slot.load(Relaxed) + 1, Relaxed);
            return false;
        }
        if self.add_to_listed(account.id) {
            return false;
        }
        let first = u64::from(account.id) << 32 | 1;
        if self.slots.iter().any(|slot| slot.compare_exchange(0, first, Relaxed, Relaxed).is_ok()) {
            return true;
        }
        let more = self.more.get_or_init(Default::default);
        more.lock().unwrap_or_else(PoisonError::into_inner).push((account.id, 1));
        true
    }

    fn add_to_listed(&self, id: u32) -> bool {
        let Some(more) = self.more.get() else { return false };
        let mut listed = more.lock().unwrap_or_else(PoisonError::into_inner);
        let found = listed.iter_mut().find(|(other, _)| *other == id);
        found.map(|(_, references)| *references += 1).is_some()
    }

    /// True if this was the table's last reference.
    pub(super) fn remove(&self, account: &Account) -> bool {
        if let Some(slot) = self.owned(account.id) {
            let references = slot.load(Relaxed);
            let last = references as u32 == 1;
            slot.store(if last { 0 } else { references - 1 }, Relaxed);
            return last;
        }
        let more = self.more.get().expect("a table gives back a reference that it never took");
        let mut listed = more.lock().unwrap_or_else(PoisonError::into_inner);
        let at = listed.iter().position(|(id, _)| *id == account.id);
        let at = at.expect("a table gives back a reference that it never took");
        listed[at].1 -= 1;
        let last = listed[at].1 == 0;
        if last {
            listed.swap_remove(at);
        }
        last
    }
}
