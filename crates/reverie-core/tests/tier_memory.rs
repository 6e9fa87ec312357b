//! The memory that an item on the disk takes, counted by the allocator.

#[path = "support/mod.rs"]
mod shared;
#[path = "support/tiers.rs"]
mod tiers;

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::checkpoint::{LocalFileSystem, RetentionPolicy, Store};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::journal::{JournalOptions, Saver, SyncPolicy};
use reverie_core::spec::DType;
use reverie_core::table::{Inserts, Priority, Tables};
use shared::disk::FakeDisk;
use shared::saving::{NOW, ROOT};
use shared::{leaf, options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tiers::{Temporary, until};

/// Counts the memory of all threads, without that of raw chunks and of the bytes of one write.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of an item, which is a chunk of one step.
const ITEM: usize = 40_000;
/// The overhead of an allocator for each allocation, in bytes.
const EACH: usize = 8;

/// Bytes as an allocator gives them, in steps of 16; 0 for raw chunks and what is written at once.
fn bytes(layout: Layout) -> usize {
    let (size, align) = (layout.size(), layout.align());
    let is_chunk = (ITEM..ITEM + 64).contains(&size);
    let is_bytes = size >= ITEM && align == 1;
    if is_chunk || is_bytes { 0 } else { (size + EACH).next_multiple_of(16).max(32) }
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(bytes(layout), Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(bytes(layout), Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes of memory for each item more of a table whose chunks move to the disk, and the median of those that are
/// accounted to a chunk.
fn for_each_item(journal: bool, compression: Compression) -> (f64, u64) {
    let folder = Temporary::new();
    let (few, many) = (512, 1536);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let tier = tiers::options(&folder, 64 * ITEM as u64);
    let tables = Tables::with_disk(vec![options("t", many)], None, Some((tier, Arc::new(LocalFileSystem))), &clock, 7);
    let tables = Arc::new(tables.unwrap());
    // The files of a simulated disk are large, and so are not counted.
    let disk = FakeDisk::default();
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let saver = Saver::new(Arc::clone(&tables), Arc::new(disk), store, || NOW);
    if journal {
        let options =
            JournalOptions { syncs: SyncPolicy::Os, interval: Duration::from_secs(3600), ..Default::default() };
        saver.begin_journal(options).unwrap();
    }
    let sink: Arc<dyn Sink> = tables.clone();
    let (schema, mut writer) = (leaf(DType::UInt8, &[ITEM]), RowWriter::new(sink, compression, false));
    let (table, meter) = (tables.get("t").unwrap(), tables.bytes().0);
    let mut grow = |from: u64, to: u64| {
        for number in from..to {
            // Half of it is noise, and each packs to another size.
            let noise = |at: usize| {
                ((number << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29).wrapping_mul(0xbf58_476d)
            };
            let cell = |at: usize| if at < ITEM / 2 - 8 * number as usize { (noise(at) >> 32) as u8 } else { 0 };
            let cells: Vec<u8> = (0..ITEM).map(cell).collect();
            let item = writer.append(&schema, &[ColumnCells { itemsize: 1, bytes: &cells }], 1).unwrap().remove(0);
            writer.close();
            let items: Inserts = std::iter::once((item, Priority::Value(1.0))).collect();
            let mut ticket = table.insert(items).unwrap();
            (0..20).find_map(|_| ticket.wait(Duration::from_secs(1))).expect("it ends").unwrap();
        }
        until("the mover rests", || meter.memory_bytes() <= 60 * ITEM as u64);
        LIVE.load(Relaxed)
    };
    let before = grow(0, few);
    let after = grow(few, many);
    let stored = |item: &reverie_core::item::Item| item.chunks().find(|chunk| chunk.is_on_disk()).cloned();
    let cut = table.cut();
    let on_disk = cut.iter().filter_map(|(_, slot, _)| stored(slot.item.as_ref()?));
    let mut accounted: Vec<u64> = on_disk.map(|chunk| chunk.memory_bytes()).collect();
    accounted.sort_unstable();
    if journal {
        saver.end_journal().unwrap();
    }
    ((after as f64 - before as f64) / (many - few) as f64, accounted[accounted.len() / 2])
}

#[test]
fn an_item_on_the_disk_takes_few_bytes_of_memory() {
    // Raw chunks of equal columns share a shape.
    for (journal, most) in [(false, 370.0), (true, 430.0)] {
        let (bytes, accounted) = for_each_item(journal, Compression::None);
        println!("{bytes:.1} bytes for an item, {accounted} of them accounted to its chunk; journal: {journal}");
        assert!(bytes <= most, "{bytes:.1} bytes for an item, journal: {journal}");
        assert_eq!(accounted, 176);
    }
}

#[test]
fn a_packed_chunk_on_the_disk_is_accounted_with_its_shape() {
    // Packed columns differ in size. How many of such chunks are in memory differs, too, so the bytes decide nothing.
    assert_eq!(for_each_item(false, Compression::Zstd).1, 176 + 56 + 40);
}
