//! Tables whose chunks are partly on the disk.

use super::shared::{cell, leaf, options, queue};
use super::tiers::{self, Temporary, until};
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::{BatchOptions, Planner};
use reverie_core::checkpoint::{Disk, Input, LocalFileSystem, Output, RetentionPolicy, Store, load};
use reverie_core::chunk::{Compression, TierOptions};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::item::Item;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::DType;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{InsertReason, Inserts, Priority, SharedTable, TableOptions, Tables, Ticket};
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of an item: a chunk of one step.
pub const ITEM: usize = 32 << 10;

pub fn tables(made: Vec<TableOptions>, tier: TierOptions, disk: Arc<dyn Disk>, max_bytes: Option<u64>) -> Arc<Tables> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    Arc::new(Tables::with_disk(made, max_bytes, Some((tier, disk)), &clock, 7).unwrap())
}

/// Items of one step each, in chunks of their own; their bytes differ.
pub struct Writer(pub RowWriter);

impl Writer {
    pub fn new(tables: &Arc<Tables>) -> Self {
        Self::packing(tables, Compression::None)
    }

    pub fn packing(tables: &Arc<Tables>, compression: Compression) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        Self(RowWriter::new(sink, compression, false))
    }

    fn item(&mut self, number: u64) -> Item {
        let bytes: Vec<u8> = content(number);
        let schema = leaf(DType::UInt8, &[ITEM]);
        let item = self.0.append(&schema, &[ColumnCells { itemsize: 1, bytes: &bytes }], 1).unwrap().remove(0);
        self.0.close();
        item
    }

    pub fn inserts(&mut self, number: u64) -> Inserts {
        std::iter::once((self.item(number), Priority::Value(1.0))).collect()
    }
}

/// The number, and bytes that depend on it.
pub fn content(number: u64) -> Vec<u8> {
    let rest = (8..ITEM as u64).map(|at| (number.wrapping_mul(2_654_435_761) >> (at % 32)) as u8 ^ at as u8);
    number.to_le_bytes().into_iter().chain(rest).collect()
}

/// The number of an item, whose bytes must be those of the number.
fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == content(number), "the bytes of item {number} are not its own");
    number
}

/// The outcome of a request, which must have one within some seconds.
pub fn done<T>(ticket: Result<Ticket<T>, Error>) -> Result<T, Error> {
    let mut ticket = ticket?;
    // A wait may end early.
    (0..20).find_map(|_| ticket.wait(Duration::from_secs(1))).expect("it waits for ever")
}

pub fn drawn(table: &Arc<SharedTable>) -> Vec<u8> {
    let draws = done(table.sample(SampleRequest { num_samples: 1, ..SampleRequest::default() })).unwrap();
    cell(&draws.items[0], 0, 0)
}

#[test]
fn a_queue_of_four_times_the_memory_gives_every_item_back() {
    let folder = Temporary::new();
    let tables =
        tables(vec![queue("q", 200)], tiers::options(&folder, 50 * ITEM as u64), Arc::new(LocalFileSystem), None);
    let (table, mut writer) = (tables.get("q").unwrap().clone(), Writer::new(&tables));
    for number in 0..200 {
        done(table.insert(writer.inserts(number))).unwrap();
        let held = tables.bytes().0.table_memory();
        assert!(held <= 50 * ITEM as u64, "after item {number} the tables hold {held} bytes of memory");
    }
    let info = tables.bytes().0.tier_info().unwrap();
    assert!(info.chunks >= 150 && info.stored >= 150 * ITEM as u64, "{info:?}");
    assert!(table.info().bytes >= 200 * ITEM as u64, "a table counts what is on the disk, too");
    for number in 0..200 {
        assert!(drawn(&table) == content(number), "item {number}");
    }
    assert_eq!((table.info().bytes, tables.bytes().0.table_memory()), (0, 0));
}

#[test]
fn items_that_a_full_table_evicts_make_no_room_in_memory() {
    let folder = Temporary::new();
    let tables =
        tables(vec![options("t", 100)], tiers::options(&folder, 20 * ITEM as u64), Arc::new(LocalFileSystem), None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    for number in 0..400 {
        done(table.insert(writer.inserts(number))).unwrap();
        let held = tables.bytes().0.table_memory();
        assert!(held <= 20 * ITEM as u64, "after item {number} the tables hold {held} bytes of memory");
    }
    assert!(drawn(&table) == content(300), "the oldest that is left");
}

#[test]
fn inserts_into_a_full_table_wait_for_memory_while_the_disk_takes_nothing() {
    let folder = Temporary::new();
    let refusing = Arc::new(RefusingDisk::default());
    let disk = Arc::new(Shared(Arc::clone(&refusing)));
    let tables = tables(vec![options("t", 40)], tiers::options(&folder, 10 * ITEM as u64), disk, None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    (0..40).for_each(|number| _ = done(table.insert(writer.inserts(number))).unwrap());
    refusing.writes.store(true, Ordering::SeqCst);
    // Each evicts an item that is on the disk.
    let waiting: Vec<_> = (40..60).map(|number| table.insert(writer.inserts(number)).unwrap()).collect();
    let held = tables.bytes().0.table_memory();
    assert!(held <= 10 * ITEM as u64, "the tables hold {held} bytes of memory");
    refusing.writes.store(false, Ordering::SeqCst);
    waiting.into_iter().for_each(|ticket| _ = done(Ok(ticket)).unwrap());
    assert!(drawn(&table) == content(20), "the oldest that is left");
}

/// A disk that refuses all writes, those of the thread that moves chunks alone, or reads, while it is set to.
#[derive(Default)]
struct RefusingDisk {
    writes: AtomicBool,
    writes_of_the_mover: AtomicBool,
    reads: AtomicBool,
}

impl RefusingDisk {
    fn refuses_a_write(&self) -> bool {
        let is_mover = std::thread::current().name() == Some("reverie-tier");
        self.writes.load(Ordering::SeqCst) || (is_mover && self.writes_of_the_mover.load(Ordering::SeqCst))
    }
}

struct RefusingInput(Box<dyn Input>, Arc<RefusingDisk>);

impl Input for RefusingInput {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.1.reads.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the medium has an error")),
            false => self.0.read_at(offset, into),
        }
    }
}

struct RefusingOutput(Box<dyn Output>, Arc<RefusingDisk>);

impl Output for RefusingOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.1.refuses_a_write() {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => self.0.write(bytes),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn duplicate(&self) -> io::Result<Box<dyn Output>> {
        self.0.duplicate()
    }
}

struct Shared(Arc<RefusingDisk>);

impl Disk for Shared {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(RefusingOutput(LocalFileSystem.create(path)?, Arc::clone(&self.0))))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(RefusingInput(LocalFileSystem.open(path)?, Arc::clone(&self.0))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalFileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalFileSystem.remove(path)
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        LocalFileSystem.shorten(path, size)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        LocalFileSystem.list(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        LocalFileSystem.make_folder(folder)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalFileSystem.sync(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        LocalFileSystem.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn reverie_core::checkpoint::DiskLock>>> {
        LocalFileSystem.lock(path)
    }
}

#[test]
fn a_disk_that_is_full_holds_inserts_back_with_that_reason_until_it_has_room() {
    let folder = Temporary::new();
    let refusing = Arc::new(RefusingDisk { writes: true.into(), ..RefusingDisk::default() });
    let disk = Arc::new(Shared(Arc::clone(&refusing)));
    let tables = tables(vec![options("t", 100)], tiers::options(&folder, 10 * ITEM as u64), disk, None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    let mut waiting = Vec::new();
    for number in 0..20 {
        waiting.push(table.insert(writer.inserts(number)).unwrap());
    }
    until("the disk was tried", || tables.bytes().0.tier_info().unwrap().error.is_some());
    let entered = waiting.iter().filter(|ticket| ticket.is_done()).count();
    assert!(entered < 10, "{entered} of 20 are in");
    let why = table.why();
    let Some(InsertReason::Memory { stall_reason: Some(stall_reason), .. }) = &why.insert_reason else {
        panic!("{why}")
    };
    assert!(stall_reason.contains("writing a chunk failed"), "{why}");
    refusing.writes.store(false, Ordering::SeqCst);
    waiting.into_iter().for_each(|ticket| _ = done(Ok(ticket)).unwrap());
    assert_eq!(table.why().insert_reason, None);
    assert!(tables.bytes().0.table_memory() <= 10 * ITEM as u64);
    assert_eq!(table.info().size, 20);
}

#[test]
fn an_insert_for_which_neither_memory_nor_disk_will_ever_have_room_is_refused() {
    let folder = Temporary::new();
    let limits = TierOptions { disk_bytes: Some(16 * ITEM as u64), ..tiers::options(&folder, 10 * ITEM as u64) };
    let tables = tables(vec![options("t", 100)], limits, Arc::new(LocalFileSystem), None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    let refused = (0..60).find_map(|number| done(table.insert(writer.inserts(number))).err());
    let refused = refused.expect("some insert is refused");
    assert!(matches!(&refused, Error::ResourceExhausted { hint, .. } if hint.contains("disk_bytes")), "{refused}");
    assert!(table.info().size >= 20, "{} items are in", table.info().size);
    let large = options("large", 1);
    tables.close();
    // Nor may its chunk move to the disk before the insert is looked at.
    let tier = TierOptions { disk_bytes: Some(ITEM as u64 / 2), ..tiers::options(&folder, ITEM as u64 / 2) };
    let tables = self::tables(vec![large], tier, Arc::new(LocalFileSystem), None);
    let refused = tables.get("large").unwrap().insert(Writer::new(&tables).inserts(0)).err();
    assert!(matches!(&refused, Some(Error::ResourceExhausted { .. })), "{refused:?}");
}

#[test]
fn a_server_that_has_ended_removes_no_file_of_the_one_that_follows_it_in_the_folder() {
    let folder = Temporary::new();
    let before =
        tables(vec![options("t", 100)], tiers::options(&folder, 10 * ITEM as u64), Arc::new(LocalFileSystem), None);
    let (table, mut writer) = (before.get("t").unwrap().clone(), Writer::new(&before));
    let inserted: Vec<_> = (0..40).flat_map(|number| done(table.insert(writer.inserts(number))).unwrap()).collect();
    let keys: Vec<_> = inserted.iter().map(|key| key.get()).collect();
    let items = table.get(&keys).unwrap().items;
    let mut names = folder.files();
    assert!(!names.is_empty());
    before.close();
    assert!(folder.files().is_empty());
    // In another container the next server has the same number of its process, and so its files have the same names.
    names.iter().for_each(|name| std::fs::write(folder.0.join(name), "of another server").unwrap());
    drop((items, table, writer, before));
    names.sort();
    let mut there = folder.files();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn a_checkpoint_has_what_is_on_the_disk_and_is_restored_within_the_memory() {
    let (folder, checkpoints) = (Temporary::new(), Temporary::new());
    let tier = || tiers::options(&folder, 20 * ITEM as u64);
    let before = tables(vec![options("t", 100)], tier(), Arc::new(LocalFileSystem), None);
    let mut writer = Writer::new(&before);
    let table = before.get("t").unwrap();
    let inserted = (0..100).flat_map(|number| done(table.insert(writer.inserts(number))).unwrap());
    let keys: Vec<_> = inserted.map(|key| key.get()).collect();
    let store =
        Store::new(Arc::new(LocalFileSystem), checkpoints.0.clone(), RetentionPolicy { count: 1, max_age: None })
            .unwrap();
    let path = store.save(&before, Duration::ZERO).unwrap().path;
    before.close();
    // A mover that is as quick as the disk would hide that the restart itself does not wait for it.
    let refusing = Arc::new(RefusingDisk { writes_of_the_mover: true.into(), ..RefusingDisk::default() });
    let after = tables(vec![options("t", 100)], tier(), Arc::new(Shared(Arc::clone(&refusing))), None);
    let checkpoint = load(&LocalFileSystem, &path, after.bytes().0).unwrap();
    let held = after.bytes().0.memory_bytes();
    assert!(held <= 21 * ITEM as u64, "{held} bytes of memory after it was read");
    refusing.writes_of_the_mover.store(false, Ordering::SeqCst);
    checkpoint.restore(&after, Duration::ZERO).unwrap();
    let table = after.get("t").unwrap();
    assert_eq!(table.info().size, 100);
    assert!(drawn(table) == content(0));
    let items: Vec<_> = table.get(&keys).unwrap().items;
    items.iter().enumerate().for_each(|(number, item)| assert!(cell(item, 0, 0) == content(number as u64)));
}

#[test]
fn a_read_that_the_disk_refuses_is_an_error_of_that_read_alone() {
    let folder = Temporary::new();
    let refusing = Arc::new(RefusingDisk::default());
    let disk = Arc::new(Shared(Arc::clone(&refusing)));
    let tables = tables(vec![options("t", 100)], tiers::options(&folder, 10 * ITEM as u64), disk, None);
    let (table, mut writer) = (tables.get("t").unwrap().clone(), Writer::new(&tables));
    let inserted = (0..40).flat_map(|number| done(table.insert(writer.inserts(number))).unwrap());
    let keys: Vec<_> = inserted.map(|key| key.get()).collect();
    let gathered = |keys: &[i64]| {
        let draws = table.get(keys).unwrap();
        let plan = Planner::new(&BatchOptions::default()).plan_draws(&draws).unwrap();
        let mut arrays: Vec<_> = plan.outputs.iter().map(|output| vec![MaybeUninit::new(0); output.bytes()]).collect();
        plan.gather_draws(&draws, &mut arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>())
    };
    refusing.reads.store(true, Ordering::SeqCst);
    let refused = gathered(&keys).unwrap_err();
    assert!(matches!(&refused, Error::Storage { action, .. } if action == "read"), "{refused}");
    let in_memory = |key: &&i64| {
        let items = table.get(&[**key]).unwrap().items;
        !items[0].chunks().any(|chunk| chunk.is_on_disk())
    };
    let kept: Vec<_> = keys.iter().filter(in_memory).copied().collect();
    assert!(kept.len() > 5, "{} are in memory", kept.len());
    gathered(&kept).unwrap();
    refusing.reads.store(false, Ordering::SeqCst);
    gathered(&keys).unwrap();
}

#[test]
fn draws_during_inserts_evictions_and_compaction_have_their_own_bytes() {
    // A long run asks for more.
    let soak = std::env::var("REVERIE_SOAK").ok().map(|items| items.parse().expect("a number of items"));
    let items: u64 = soak.unwrap_or(1500);
    let folder = Temporary::new();
    let limits = TierOptions {
        disk_bytes: Some(400 * ITEM as u64),
        compaction_bytes_per_second: 0,
        ..tiers::options(&folder, 20 * ITEM as u64)
    };
    let random =
        TableOptions { sampler: SelectorOptions::Uniform, remover: SelectorOptions::Uniform, ..options("t", 150) };
    let tables = tables(vec![random], limits, Arc::new(LocalFileSystem), None);
    let table = tables.get("t").unwrap().clone();
    std::thread::scope(|scope| {
        let inserted = scope.spawn(|| {
            let mut writer = Writer::new(&tables);
            for number in 0..items {
                done(table.insert(writer.inserts(number))).unwrap();
                let held = tables.bytes().0.table_memory();
                assert!(held <= 20 * ITEM as u64, "after item {number} the tables hold {held} bytes of memory");
            }
        });
        let mut newest = 0;
        while !inserted.is_finished() {
            newest = newest.max(number_of(&drawn(&table)));
        }
        assert!(newest > items / 2, "draws go on while items come: the newest was {newest}");
    });
    let info = tables.bytes().0.tier_info().unwrap();
    assert!(info.compacted > 0 && info.used <= 400 * ITEM as u64, "{info:?}");
    (0..300).for_each(|_| _ = number_of(&drawn(&table)));
    if soak.is_some() {
        println!("{items} items, {} MB moved to other files", info.compacted >> 20);
    }
    table.reset().unwrap();
    assert_eq!((tables.bytes().0.table_bytes(), tables.bytes().0.table_memory()), (0, 0));
    until("the mover has released its last chunk", || {
        let info = tables.bytes().0.tier_info().unwrap();
        (info.stored, info.chunks) == (0, 0)
    });
}

#[test]
fn an_insert_that_waits_for_memory_goes_on_as_soon_as_chunks_have_moved() {
    let folder = Temporary::new();
    let tables =
        tables(vec![options("t", 50)], tiers::options(&folder, 8 * ITEM as u64), Arc::new(LocalFileSystem), None);
    let table = tables.get("t").unwrap().clone();
    let mut writer = Writer::new(&tables);
    for number in 0..600 {
        let items: Inserts = (0..4).map(|at| (writer.item(4 * number + at), Priority::Value(1.0))).collect();
        done(table.insert(items)).unwrap();
    }
    assert_eq!(table.info().size, 50);
}
