//! The budget of bytes that the tables of a server share, and the inserts that wait for it.

use super::reason;
use crate::chunk::{Chunk, Meter, Tier};
use crate::error::Result;
use crate::item::Item;
use crate::table::policy::table::Table;
use crate::table::types::inserts::Priority;
use crate::table::types::wait_report::{ByteLimit, ByteShortage, UnmovableBytes};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

/// A table as its server's budget of bytes sees it. Each call takes the table's lock.
pub(super) trait BudgetedTable: Send + Sync {
    /// True if this table will free bytes: sampling removes its items, or some must leave now.
    fn consumes(&self) -> bool;

    /// See [`Budget::makes_room`]; also true if the table is closed, so that the insert itself reports it.
    fn makes_room_for(&self, items: u64, bytes: u64) -> bool;

    /// Serves waiting inserts after bytes were freed at another table, or by packing; true if that freed bytes here.
    fn serve_waiting(&self) -> bool;

    /// True while the first insert may wait for bytes, also if there are enough by now.
    fn is_starving(&self) -> bool;

    /// Refuses the inserts that wait for bytes that no chunk frees by moving to the disk; true if there was one.
    fn refuse_starving(&self) -> bool;
}

/// The budget of bytes for the chunks of a server's tables: of all of them, and with a disk tier of those in memory.
///
/// Chunks that only writers and readers hold do not count: the in-flight limit bounds writers, and a reader that waits
/// for its own draws to be released would wait for ever. Tables that insert at the same moment may exceed the budget by
/// an item each, and so may tables that exchange items of unequal sizes.
pub(super) struct Budget {
    meter: Arc<Meter>,
    max_bytes: Option<u64>,
    tables: OnceLock<Vec<Weak<dyn BudgetedTable>>>,
    /// An insert waited for bytes at the last check: each change of a table checks again.
    starving: AtomicBool,
    /// The bytes of each table's largest item after its last decision, if there is a `max_bytes`.
    largest: Vec<AtomicU64>,
}

impl Budget {
    /// A budget for this number of tables, which [`Budget::hold`] sets.
    pub(super) fn new(meter: Arc<Meter>, max_bytes: Option<u64>, tables: usize) -> Self {
        let largest = (0..if max_bytes.is_some() { tables } else { 0 }).map(|_| AtomicU64::new(0)).collect();
        Self { meter, max_bytes, tables: OnceLock::new(), starving: false.into(), largest }
    }

    /// True if tables keep their largest items for it.
    pub(super) fn needs_largest_items(&self) -> bool {
        !self.largest.is_empty()
    }

    /// Notes the table's largest item, for the others. Called under the table's lock.
    pub(super) fn note_largest_item(&self, table: &Table) {
        if let Some(number) = table.number_in_budget() {
            self.largest[number].store(table.largest_item(), Ordering::Relaxed);
        }
    }

    /// Sets the tables that share the budget; called once, before they are used.
    pub(super) fn hold(&self, tables: impl Iterator<Item = Weak<dyn BudgetedTable>>) {
        // Only just made, so it cannot have been set.
        let _ = self.tables.set(tables.collect());
    }

    /// The bytes that an item (or the smallest possible one) waits for at this table; `None` if it need not wait.
    ///
    /// An insert that makes room for itself need not wait, unless memory is short: what it evicts is on the disk by
    /// then, so that it would make no room there.
    pub(super) fn blocks(&self, table: &Table, item: Option<&Item>) -> Option<ByteShortage> {
        let new = item.map_or(ChunkBytes::SMALLEST, |item| ChunkBytes::of(std::iter::once(item)));
        let least = || item.map_or(1, |item| LeastMemory::of(std::iter::once(item)).sum());
        let total = self.over(ByteLimit::Total, new.bytes, || 0).filter(|_| !self.makes_room(table, 1, new.most));
        total.or_else(|| self.over(ByteLimit::Memory, new.memory, least))
    }

    /// True if this many inserts, with this many bytes of chunks, evict items, and the tables exceed `max_bytes`
    /// afterwards by no more than an item for each table: its largest one, or these.
    ///
    /// The bytes that an eviction frees are unknown before it: the item may be smaller, or another table may hold its
    /// chunks. Other tables may be about to evict for what they took in. With its own largest item, a table that took
    /// in a large one goes on with its usual items until that one leaves.
    pub(super) fn makes_room(&self, table: &Table, items: u64, bytes: u64) -> bool {
        let after = || self.meter.table_bytes().saturating_add(bytes);
        let within = |most: u64| after() <= most.saturating_add(self.largest_items(bytes));
        table.makes_room_for(items, bytes) && self.max_bytes.is_none_or(within)
    }

    /// The sum of the tables' largest items, each at least this many bytes.
    fn largest_items(&self, least: u64) -> u64 {
        self.largest.iter().map(|largest| largest.load(Ordering::Relaxed).max(least)).fold(0, u64::saturating_add)
    }

    fn starved(&self, new: &ChunkBytes, least: impl FnOnce() -> u64) -> Option<ByteShortage> {
        self.over(ByteLimit::Total, new.bytes, || 0).or_else(|| self.over(ByteLimit::Memory, new.memory, least))
    }

    /// `needed` bytes more than a limit, of which `least` stay in memory; `None` if they are within it, or there are
    /// none.
    fn over(&self, of: ByteLimit, needed: u64, least: impl FnOnce() -> u64) -> Option<ByteShortage> {
        let (held, budget) = match of {
            ByteLimit::Total => (self.meter.table_bytes(), self.max_bytes?),
            ByteLimit::Memory => (self.meter.table_memory(), self.meter.tier()?.memory_limit()),
        };
        let unmovable = || {
            let (index, open) = self.meter.unmovable_memory();
            (of == ByteLimit::Memory && index + open + least() > budget).then_some(UnmovableBytes { index, open })
        };
        let exceeds = needed > 0 && held + needed > budget;
        exceeds.then(|| ByteShortage { of, held, needed, budget, unmovable: unmovable() })
    }

    fn disk_may_free(&self) -> bool {
        self.meter.tier().is_some_and(Tier::may_free)
    }

    /// True if chunks that move to the disk may make room for it.
    pub(super) fn moving_helps(&self, starved: &ByteShortage) -> bool {
        starved.of == ByteLimit::Memory && starved.unmovable.is_none() && self.disk_may_free()
    }

    /// The reason why no chunk can move to the disk now, whatever is in memory; `None` if one can, or there is no disk
    /// tier.
    pub(super) fn stall_reason(&self) -> Option<String> {
        self.meter.tier().and_then(Tier::stall_reason)
    }

    /// Refuses items that would wait for bytes that no call can free. Takes the tables' locks, one after the other.
    pub(super) fn refuse_unsatisfiable(
        &self,
        name: &str,
        table: &dyn BudgetedTable,
        items: &[(Item, Priority)],
    ) -> Result<()> {
        let each = || items.iter().map(|(item, _)| item);
        let new = ChunkBytes::of(each());
        // Each of them needs memory for its open chunks only until these move, and then for their index.
        let all = || LeastMemory {
            open: each().map(|item| LeastMemory::of(std::iter::once(item)).open).max().unwrap_or(0),
            ..LeastMemory::of(each())
        };
        if self.starved(&new, || all().sum()).is_none() {
            return Ok(());
        }
        let largest = |bytes: fn(&ChunkBytes) -> u64| {
            each().map(|item| bytes(&ChunkBytes::of(std::iter::once(item)))).max().unwrap_or(0)
        };
        for (of, largest) in
            [(ByteLimit::Total, largest(|new| new.most)), (ByteLimit::Memory, largest(|new| new.memory))]
        {
            // More than the limit by itself.
            if let Some(starved) = self.over(of, largest, || 0).filter(|starved| largest > starved.budget) {
                return Err(reason::refusal(name, &starved));
            }
        }
        if self.anything_consumed() {
            return Ok(());
        }
        let makes_room = table.makes_room_for(items.len() as u64, new.most);
        // Items that leave for others take their index with them.
        let one = || each().map(|item| LeastMemory::of(std::iter::once(item)).sum()).max().unwrap_or(0);
        // The last consumable item may have gone just now, and made room.
        let total = self.over(ByteLimit::Total, new.bytes, || 0).filter(|_| !makes_room);
        let memory = || self.over(ByteLimit::Memory, new.memory, || if makes_room { one() } else { all().sum() });
        match total.or_else(memory) {
            Some(starved) if !self.moving_helps(&starved) => Err(reason::refusal(name, &starved)),
            _ => Ok(()),
        }
    }

    fn anything_consumed(&self) -> bool {
        self.tables().any(|table| table.consumes())
    }

    /// True if an insert waited for bytes at the last check.
    pub(super) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::SeqCst)
    }

    /// Chunks became smaller: inserts that wait for bytes may continue. Visits no table while none waits for bytes.
    pub(super) fn packed(&self) {
        // The bytes are counted before the mark is read; `settle` sets the mark before it reads the bytes.
        fence(Ordering::SeqCst);
        if self.is_starving() {
            self.settle();
        }
    }

    /// Serves or refuses the inserts that wait for bytes, after bytes were freed or no table can free any more.
    pub(super) fn settle(&self) {
        loop {
            // An insert that is served may free bytes for another, by what it evicts.
            while self.each(|table| table.serve_waiting()) {}
            // Clear it first: an insert that begins to wait meanwhile sets it after this, or is found below.
            self.starving.store(false, Ordering::SeqCst);
            if !self.each(|table| table.is_starving()) {
                return;
            }
            self.starving.store(true, Ordering::SeqCst);
            // Bytes that were freed before this are counted by now; a thread that frees bytes later sees the mark.
            fence(Ordering::SeqCst);
            if self.each(|table| table.serve_waiting()) {
                continue;
            }
            if self.anything_consumed() || !self.each(|table| table.refuse_starving()) {
                return;
            }
        }
    }

    /// Calls `ask` on every table; true if one returns true.
    fn each(&self, ask: fn(&dyn BudgetedTable) -> bool) -> bool {
        self.tables().filter(|table| ask(&**table)).count() > 0
    }

    fn tables(&self) -> impl Iterator<Item = Arc<dyn BudgetedTable>> {
        self.tables.get().into_iter().flatten().filter_map(Weak::upgrade)
    }
}

/// The chunks of items, each once.
fn chunks<'a>(items: impl Iterator<Item = &'a Item>) -> SmallVec<[&'a Arc<Chunk>; 4]> {
    let mut chunks: SmallVec<[&Arc<Chunk>; 4]> = items.flat_map(Item::chunks).collect();
    chunks.sort_unstable_by_key(|chunk| Arc::as_ptr(chunk));
    chunks.dedup_by_key(|chunk| Arc::as_ptr(chunk));
    chunks
}

/// The bytes of items' chunks, each chunk once.
struct ChunkBytes {
    /// The bytes of the chunks that no table holds yet.
    bytes: u64,
    /// The part of these bytes in memory.
    memory: u64,
    /// The bytes of all chunks.
    most: u64,
}

impl ChunkBytes {
    const SMALLEST: Self = Self { bytes: 1, memory: 1, most: 1 };

    fn of<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let chunks = chunks(items);
        let new = || chunks.iter().filter(|chunk| !chunk.in_tables());
        Self {
            bytes: new().map(|chunk| chunk.size_bytes()).sum(),
            memory: new().map(|chunk| chunk.memory_bytes()).sum(),
            most: chunks.iter().map(|chunk| chunk.size_bytes()).sum(),
        }
    }
}

/// The memory of the chunks that no table holds yet, once all that can have moved to the disk.
struct LeastMemory {
    /// The memory of chunks that are still being written.
    open: u64,
    /// The memory of the other chunks.
    sealed: u64,
}

impl LeastMemory {
    fn of<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut least = Self { open: 0, sealed: 0 };
        for chunk in chunks(items).iter().filter(|chunk| !chunk.in_tables()) {
            let of = if chunk.is_open() { &mut least.open } else { &mut least.sealed };
            *of += chunk.least_memory();
        }
        least
    }

    fn sum(&self) -> u64 {
        self.open + self.sealed
    }
}
