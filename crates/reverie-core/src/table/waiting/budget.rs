//! The budget of bytes that the tables of a server share, and the inserts that wait for it.

use super::reason;
use crate::chunk::{Chunk, Meter};
use crate::error::Result;
use crate::item::Item;
use crate::table::policy::table::Table;
use crate::table::types::inserts::Priority;
use crate::table::types::why::Starved;
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

    /// True while the first insert waits for bytes.
    fn is_starving(&self) -> bool;

    /// Refuses the inserts that wait for bytes; true if there was one.
    fn refuse_starving(&self) -> bool;
}

/// The budget of bytes for the chunks of a server's tables.
///
/// Chunks that only writers and readers hold do not count: the in-flight limit bounds writers, and a reader that waits
/// for its own draws to be released would wait for ever. Tables that insert at the same moment may exceed the budget by
/// an item each.
pub(super) struct Budget {
    meter: Arc<Meter>,
    max_bytes: u64,
    tables: OnceLock<Vec<Weak<dyn Holder>>>,
    /// An insert waited for bytes at the last check: each change of a table checks again.
    starving: AtomicBool,
}

impl Budget {
    /// A budget without tables.
    pub(super) fn new(meter: Arc<Meter>, max_bytes: u64) -> Self {
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
    pub(super) fn blocks(&self, table: &Table, item: Option<&Item>) -> Option<Starved> {
        let (needed, most) = item.map_or((1, 1), |item| new_bytes(std::iter::once(item)));
        self.starved(needed).filter(|_| !table.makes_room_for(1, most))
    }

    fn starved(&self, needed: u64) -> Option<Starved> {
        let (held, budget) = (self.meter.table_bytes(), self.max_bytes);
        (held + needed > budget).then_some(Starved { held, needed, budget })
    }

    /// Refuses items that would wait for bytes that no call can free. Takes the tables' locks, one after the other.
    pub(super) fn refuse_hopeless(&self, name: &str, table: &dyn Holder, items: &[(Item, Priority)]) -> Result<()> {
        let (needed, most) = new_bytes(items.iter().map(|(item, _)| item));
        if self.starved(needed).is_none() {
            return Ok(());
        }
        let largest = items.iter().map(|(item, _)| new_bytes(std::iter::once(item)).1).max().unwrap_or(0);
        if largest > self.max_bytes {
            let (held, budget) = (self.meter.table_bytes(), self.max_bytes);
            return Err(reason::refusal(name, &Starved { held, needed: largest, budget }));
        }
        if table.makes_room_for(items.len() as u64, most) || self.anything_consumed() {
            return Ok(());
        }
        // The last consumable item may have gone just now, and made room.
        self.starved(needed).map_or(Ok(()), |starved| Err(reason::refusal(name, &starved)))
    }

    fn anything_consumed(&self) -> bool {
        self.tables().any(|table| table.consumes())
    }

    /// True if an insert waited for bytes at the last check.
    pub(super) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::SeqCst)
    }

    /// A chunk was packed: inserts that wait for bytes may continue. Visits no table while none waits for bytes.
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
            let starving = self.each(|table| table.is_starving());
            if starving {
                self.starving.store(true, Ordering::SeqCst);
                // A chunk packed before this is counted by now; the writer of a chunk packed later sees the mark.
                fence(Ordering::SeqCst);
                if self.each(|table| table.serve_waiting()) {
                    continue;
                }
            }
            if !starving || self.anything_consumed() || !self.each(|table| table.refuse_starving()) {
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

/// Bytes of the items' chunks, each chunk once: of those that no table holds yet, and of all.
fn new_bytes<'a>(items: impl Iterator<Item = &'a Item>) -> (u64, u64) {
    let mut chunks: SmallVec<[&Arc<Chunk>; 4]> = items.flat_map(Item::chunks).collect();
    chunks.sort_unstable_by_key(|chunk| Arc::as_ptr(chunk));
    chunks.dedup_by_key(|chunk| Arc::as_ptr(chunk));
    let bytes =
        |new: bool| chunks.iter().filter(|chunk| !new || !chunk.in_tables()).map(|chunk| chunk.size_bytes()).sum();
    (bytes(true), bytes(false))
}
