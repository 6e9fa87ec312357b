//! The budget of bytes that the tables of a server share, and the inserts that wait for it.

use super::reason;
use crate::chunk::{Chunk, Meter, Tier};
use crate::error::Result;
use crate::item::Item;
use crate::table::policy::table::Table;
use crate::table::types::inserts::Priority;
use crate::table::types::why::{Limit, Starved, Unmovable};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

/// A table as its server's budget of bytes sees it. Each call takes the table's lock.
pub(super) trait Holder: Send + Sync {
    /// True if this table will free bytes: sampling removes its items, or some must leave now.
    fn consumes(&self) -> bool;

    /// See [`Table::makes_room_for`]; also true if the table is closed, so that the insert itself reports it.
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
/// an item each.
pub(super) struct Budget {
    meter: Arc<Meter>,
    max_bytes: Option<u64>,
    tables: OnceLock<Vec<Weak<dyn Holder>>>,
    /// An insert waited for bytes at the last check: each change of a table checks again.
    starving: AtomicBool,
}

impl Budget {
    /// A budget without tables.
    pub(super) fn new(meter: Arc<Meter>, max_bytes: Option<u64>) -> Self {
        Self { meter, max_bytes, tables: OnceLock::new(), starving: false.into() }
    }

    /// Sets the tables that share the budget; called once, before they are used.
    pub(super) fn hold(&self, tables: impl Iterator<Item = Weak<dyn Holder>>) {
        // Only just made, so it cannot have been set.
        let _ = self.tables.set(tables.collect());
    }

    /// The bytes that an item (or the smallest possible one) waits for at this table; `None` if it need not wait.
    ///
    /// An insert that makes room for itself need not wait.
    /// With a disk tier none does: what it evicts is on the disk by then, so that it would make no room in memory.
    pub(super) fn blocks(&self, table: &Table, item: Option<&Item>) -> Option<Starved> {
        let new = item.map_or(New { bytes: 1, memory: 1, least: 1, most: 1 }, |item| New::of(std::iter::once(item)));
        let starved = self.starved(&new)?;
        (self.moving_helps(&starved) || !table.makes_room_for(1, new.most)).then_some(starved)
    }

    fn starved(&self, new: &New) -> Option<Starved> {
        self.over(Limit::Total, new.bytes, 0).or_else(|| self.over(Limit::Memory, new.memory, new.least))
    }

    /// `needed` bytes more than a limit, of which at least `least` stay in memory; `None` if they are within it.
    fn over(&self, of: Limit, needed: u64, least: u64) -> Option<Starved> {
        let (held, budget) = match of {
            Limit::Total => (self.meter.table_bytes(), self.max_bytes?),
            Limit::Memory => (self.meter.table_memory(), self.meter.tier()?.memory_limit()),
        };
        let unmovable =
            || self.unmovable().filter(|one| of == Limit::Memory && one.finding + one.open + least > budget);
        (held + needed > budget).then(|| Starved { of, held, needed, budget, unmovable: unmovable() })
    }

    fn unmovable(&self) -> Option<Unmovable> {
        self.meter.tier()?;
        let (finding, all) = (self.meter.finding_memory(), self.meter.unmovable_memory());
        Some(Unmovable { finding, open: all.saturating_sub(finding) })
    }

    /// True if chunks that move to the disk may make room for it.
    pub(super) fn moving_helps(&self, starved: &Starved) -> bool {
        starved.of == Limit::Memory && starved.unmovable.is_none() && self.meter.tier().is_some_and(Tier::may_free)
    }

    /// Why no chunk can move to the disk now, whatever is in memory; `None` if one can, or there is no disk tier.
    pub(super) fn trouble(&self) -> Option<String> {
        self.meter.tier().and_then(Tier::trouble)
    }

    /// Refuses items that would wait for bytes that no call can free. Takes the tables' locks, one after the other.
    pub(super) fn refuse_hopeless(&self, name: &str, table: &dyn Holder, items: &[(Item, Priority)]) -> Result<()> {
        let new = New::of(items.iter().map(|(item, _)| item));
        if self.starved(&new).is_none() {
            return Ok(());
        }
        let largest = |bytes: fn(&New) -> u64| {
            items.iter().map(|(item, _)| bytes(&New::of(std::iter::once(item)))).max().unwrap_or(0)
        };
        for (of, largest) in [(Limit::Total, largest(|new| new.most)), (Limit::Memory, largest(|new| new.memory))] {
            // More than the limit by itself.
            if let Some(starved) = self.over(of, largest, 0).filter(|starved| largest > starved.budget) {
                return Err(reason::refusal(name, &starved));
            }
        }
        if table.makes_room_for(items.len() as u64, new.most) || self.anything_consumed() {
            return Ok(());
        }
        // The last consumable item may have gone just now, and made room. One item after the other needs memory.
        let new = New { least: largest(|new| new.least), ..new };
        match self.starved(&new) {
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
    fn each(&self, ask: fn(&dyn Holder) -> bool) -> bool {
        self.tables().filter(|table| ask(&**table)).count() > 0
    }

    fn tables(&self) -> impl Iterator<Item = Arc<dyn Holder>> {
        self.tables.get().into_iter().flatten().filter_map(Weak::upgrade)
    }
}

/// The bytes of items' chunks, each chunk once.
struct New {
    /// Of the chunks that no table holds yet.
    bytes: u64,
    /// The same in memory.
    memory: u64,
    /// The same in memory once those that can have moved to the disk.
    least: u64,
    /// Of all.
    most: u64,
}

impl New {
    fn of<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut chunks: SmallVec<[&Arc<Chunk>; 4]> = items.flat_map(Item::chunks).collect();
        chunks.sort_unstable_by_key(|chunk| Arc::as_ptr(chunk));
        chunks.dedup_by_key(|chunk| Arc::as_ptr(chunk));
        let new = || chunks.iter().filter(|chunk| !chunk.in_tables());
        Self {
            bytes: new().map(|chunk| chunk.size_bytes()).sum(),
            memory: new().map(|chunk| chunk.memory_bytes()).sum(),
            least: new().map(|chunk| chunk.least_memory()).sum(),
            most: chunks.iter().map(|chunk| chunk.size_bytes()).sum(),
        }
    }
}
