//! Chunks on the disk whose bytes are in the segments of a journal or of checkpoints.

use super::shared::disk::FakeDisk;
use super::shared::saving::{NOW, ROOT};
use super::shared::{cell, options, queue};
use super::tables::{ITEM, Writer, content, done, drawn, tables};
use super::tiers::{self, Temporary, until};
use reverie_core::checkpoint::{LocalFileSystem, RetentionPolicy, Store};
use reverie_core::chunk::{Compression, TierInfo, TierOptions};
use reverie_core::error::Error;
use reverie_core::item::{Item, Key};
use reverie_core::journal::{JournalOptions, Saver, SyncPolicy};
use reverie_core::sample::SampleRequest;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{CopyStats, InsertOnSample, Priority, SharedTable, TableOptions, Tables};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A server with a disk tier, and a folder of checkpoints on a simulated disk.
struct Server {
    tables: Arc<Tables>,
    saver: Saver,
    folder: Temporary,
}

fn server(made: TableOptions, disk: &FakeDisk, memory_items: usize) -> Server {
    // The tier's files have 1 MiB each.
    server_of(made, disk, memory_items, 16 << 20)
}

fn server_of(made: TableOptions, disk: &FakeDisk, memory_items: usize, disk_bytes: u64) -> Server {
    server_with(vec![made], disk, memory_items, disk_bytes)
}

fn server_with(made: Vec<TableOptions>, disk: &FakeDisk, memory_items: usize, disk_bytes: u64) -> Server {
    let folder = Temporary::new();
    let tier = TierOptions { disk_bytes: Some(disk_bytes), ..tiers::options(&folder, (memory_items * ITEM) as u64) };
    let tables = tables(made, tier, Arc::new(LocalFileSystem), None);
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let saver = Saver::new(Arc::clone(&tables), Arc::new(disk.clone()), store, || NOW);
    Server { tables, saver, folder }
}

fn journal() -> JournalOptions {
    let interval = Duration::from_secs(3600);
    JournalOptions { syncs: SyncPolicy::Os, interval, ..JournalOptions::default() }
}

impl Server {
    fn insert(&self, writer: &mut Writer, number: u64) {
        let table = self.tables.iter().next().unwrap();
        done(table.insert(writer.inserts(number))).unwrap();
        let held = self.tables.bytes().0.table_memory();
        let most = self.info().memory_bytes;
        assert!(held <= most, "after item {number} the tables hold {held} bytes of memory");
    }

    fn info(&self) -> TierInfo {
        self.tables.bytes().0.tier_info().unwrap()
    }

    fn draw(&self) -> Vec<u8> {
        drawn(self.tables.iter().next().unwrap())
    }
}

#[test]
fn a_chunk_that_a_journal_has_is_read_there_and_not_written_again() {
    // Packed ones are so small that in memory 300 of them take as much as four that are not.
    for (compression, memory_items, items) in [(Compression::None, 50, 200), (Compression::Zstd, 3, 300)] {
        let disk = FakeDisk::default();
        let server = server(queue("q", 300), &disk, memory_items);
        server.saver.begin_journal(journal()).unwrap();
        let mut writer = Writer::packing(&server.tables, compression);
        (0..items).for_each(|number| server.insert(&mut writer, number));
        // How many depends on when the mover looks, and while it works its figures are read one after the other.
        until("the chunks that moved are read from the journal", || {
            let info = server.info();
            info.chunks >= 50 && info.moved >= info.chunks && (info.used, info.stored) == (0, info.shared)
        });
        assert!(server.folder.files().is_empty());
        for number in 0..items {
            assert!(server.draw() == content(number), "item {number}");
        }
        assert_eq!(server.tables.bytes().0.table_bytes(), 0);
        until("the mover has released its last chunk", || {
            let info = server.info();
            (info.stored, info.shared, info.chunks) == (0, 0, 0)
        });
        server.saver.end_journal().unwrap();
    }
}

#[test]
fn a_checkpoint_takes_over_what_the_tier_had_written_and_the_tiers_files_go() {
    let disk = FakeDisk::default();
    let server = server(queue("q", 200), &disk, 20);
    let mut writer = Writer::new(&server.tables);
    (0..200).for_each(|number| server.insert(&mut writer, number));
    let before = server.info();
    assert!(before.used > 0 && before.shared == 0, "{before:?}");
    // A chunk that moves while a checkpoint is taken is in the next one.
    until("all are read from the checkpoint", || {
        server.saver.save().unwrap();
        server.info().shared == server.info().stored
    });
    assert!(server.info().chunks >= before.chunks);
    until("the files are gone", || server.folder.files().len() <= 1 && server.info().used <= 1 << 20);
    for number in 0..200 {
        assert!(server.draw() == content(number), "item {number}");
    }
}

#[test]
fn a_chunk_of_a_checkpoint_that_may_still_fail_is_written_by_the_tier() {
    let disk = FakeDisk::default();
    let server = server(queue("q", 200), &disk, 20);
    let mut writer = Writer::new(&server.tables);
    (0..18).for_each(|number| server.insert(&mut writer, number));
    disk.hold_syncs(true);
    let info = std::thread::scope(|scope| {
        let saving = scope.spawn(|| server.saver.save());
        until("its chunks are written", || disk.held_syncs() == 1);
        (18..60).for_each(|number| server.insert(&mut writer, number));
        let info = server.info();
        disk.stop_after(0);
        disk.hold_syncs(false);
        saving.join().unwrap().unwrap_err();
        info
    });
    assert!(info.chunks >= 18 && info.shared == 0 && info.used > 0, "{info:?}");
    for number in 0..60 {
        assert!(server.draw() == content(number), "item {number}");
    }
}

/// A folder with the checkpoint and the journal of a server that ended: 100 items.
fn stopped() -> FakeDisk {
    let disk = FakeDisk::default();
    let server = server(options("t", 100), &disk, 20);
    server.saver.begin_journal(journal()).unwrap();
    let mut writer = Writer::new(&server.tables);
    (0..100).for_each(|number| server.insert(&mut writer, number));
    server.tables.close();
    server.saver.save_last().unwrap();
    server.saver.end_journal().unwrap();
    server.saver.store().release();
    disk
}

fn items(table: &SharedTable) -> Vec<Item> {
    table.cut().iter().map(|(_, slot, _)| slot.item.clone().unwrap()).collect()
}

#[test]
fn a_start_reads_only_the_heads_of_chunks_and_has_their_items() {
    let disk = stopped();
    disk.take_read();
    let server = server(options("t", 100), &disk, 20);
    server.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    let (read, info) = (disk.take_read(), server.info());
    assert!(read < 100 * 6000, "{read} bytes of {}", 100 * ITEM);
    assert!(info.memory < 100 * 600, "{info:?}");
    assert_eq!((info.chunks, info.shared, info.used), (100, info.stored, 0), "{info:?}");
    assert!(info.stored >= 100 * ITEM as u64, "{info:?}");
    server.saver.begin_journal(journal()).unwrap();
    let table = Arc::clone(server.tables.get("t").unwrap());
    assert_eq!(disk.take_read() / ITEM as u64, 0, "a journal that begins reads none");
    let mut found: Vec<Vec<u8>> = items(&table).iter().map(|item| cell(item, 0, 0)).collect();
    found.sort();
    let mut wanted: Vec<Vec<u8>> = (0..100).map(content).collect();
    wanted.sort();
    assert!(found == wanted);
    assert!(disk.take_read() >= 100 * ITEM as u64);
    let mut writer = Writer::new(&server.tables);
    (100..200).for_each(|number| server.insert(&mut writer, number));
    assert_eq!(server.info().used, 0);
    server.saver.end_journal().unwrap();
}

#[test]
fn a_flipped_bit_of_a_chunk_that_was_not_read_at_the_start_fails_the_items_that_have_it_alone() {
    let disk = stopped();
    let (path, bytes) = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "segment"))
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    let item = content(7);
    let at = bytes.windows(64).position(|bytes| *bytes == item[..64]).expect("item 7 is there") + 20_000;
    disk.edit(&path, |bytes| bytes[at] ^= 1);
    let server = server(options("t", 100), &disk, 20);
    server.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    let items = items(server.tables.get("t").unwrap());
    let mut failed = 0;
    for item in &items {
        match item.chunks().next().unwrap().read() {
            Ok(_) => {}
            Err(Error::DamagedFile { path: named, .. }) => {
                assert_eq!(named, path.display().to_string());
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((items.len(), failed), (100, 1));
    // A later read of it finds the same.
    assert_eq!(items.iter().filter(|item| item.chunks().next().unwrap().read().is_err()).count(), 1);
}

#[test]
fn a_segment_that_ends_within_a_chunk_is_refused_at_the_start() {
    let disk = stopped();
    let (path, bytes) = disk.files().into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    disk.keep(&path, bytes.len() / 2);
    let server = server(options("t", 100), &disk, 20);
    let refused = server.saver.recover(false, false, |_| ()).unwrap_err();
    assert!(
        matches!(&refused, Error::DamagedFile { path: named, .. } if *named == path.display().to_string()),
        "{refused}"
    );
}

#[test]
fn a_damaged_chunk_that_was_never_read_stays_in_its_segment_and_fails_no_checkpoint() {
    let (disk, path) = damaged();
    let server = server(options("t", 100), &disk, 20);
    server.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    server.saver.begin_journal(journal()).unwrap();
    let table = Arc::clone(server.tables.get("t").unwrap());
    // So few chunks stay in the segment that they are written again.
    let mut gone = Vec::new();
    for (index, slot, _) in table.cut().iter() {
        let reads = slot.item.as_ref().unwrap().chunks().next().unwrap().read().is_ok();
        if reads && index % 10 != 0 {
            gone.push(Key::new(0, slot.generation, index).get());
        }
    }
    table.delete(&gone).unwrap();
    let left = items(&table).len();
    assert!((2..20).contains(&left), "{left}");
    for _ in 0..2 {
        let saved = server.saver.save().unwrap();
        assert!(saved.new_chunks < left as u64, "{}", saved.new_chunks);
    }
    assert!(disk.files().iter().any(|(name, _)| *name == path), "the damaged chunk is still there");
    assert_eq!(items(&table).iter().filter(|item| item.chunks().next().unwrap().read().is_err()).count(), 1);
    server.saver.end_journal().unwrap();
}

/// The checkpoint and the journal of a server that ended, in which one byte of item 7 is another one; and the file.
fn damaged() -> (FakeDisk, PathBuf) {
    let disk = stopped();
    let path = damage(&disk);
    (disk, path)
}

/// Flips a bit of item 7; returns the file.
fn damage(disk: &FakeDisk) -> PathBuf {
    let (path, bytes) = disk.files().into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let item = content(7);
    let at = bytes.windows(64).position(|bytes| *bytes == item[..64]).expect("item 7 is there") + 20_000;
    disk.edit(&path, |bytes| bytes[at] ^= 1);
    path
}

/// Like [`damaged`], with a server that begins a journal there and has these tables, of which "t" has the items. With
/// `read` the damage comes after all of them were read.
fn begun_on_damage(made: Vec<TableOptions>, read: bool) -> (FakeDisk, PathBuf, Server) {
    let disk = stopped();
    let before = (!read).then(|| damage(&disk));
    let server = server_with(made, &disk, 20, 1 << 30);
    server.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    server.saver.begin_journal(journal()).unwrap();
    let path = before.unwrap_or_else(|| {
        let found = items(server.tables.get("t").unwrap());
        assert!(found.iter().all(|item| item.chunks().next().unwrap().read().is_ok()));
        damage(&disk)
    });
    (disk, path, server)
}

/// True if it is an error that names the file and where the chunk is in it.
fn names(error: &Error, path: &Path) -> bool {
    matches!(error, Error::DamagedFile { path: named, offset, .. } if *named == path.display().to_string() && *offset > 0)
}

#[test]
fn a_damaged_chunk_that_was_never_read_is_not_copied_and_the_journal_goes_on() {
    copies_leave_out_the_damaged_chunk(false);
}

#[test]
fn a_chunk_that_is_damaged_after_it_was_read_is_not_copied_and_the_journal_goes_on() {
    copies_leave_out_the_damaged_chunk(true);
}

fn copies_leave_out_the_damaged_chunk(read: bool) {
    let sampler = TableOptions { sampler: SelectorOptions::Fifo, ..options("t", 100) };
    let copying = InsertOnSample { target: "copies".to_owned(), timeout: None };
    let source = TableOptions { extensions: vec![copying], max_times_sampled: 1, ..sampler };
    let (disk, path, server) = begun_on_damage(vec![source, options("copies", 100)], read);
    let (source, copies) = (server.tables.get("t").unwrap(), server.tables.get("copies").unwrap());
    let mut refused = 0;
    for _ in 0..100 {
        let draws = done(source.sample(SampleRequest { num_samples: 1, ..SampleRequest::default() })).unwrap();
        if let Err(error) = draws.items[0].chunks().next().unwrap().read().map(|_| ()) {
            assert!(names(&error, &path), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(source.info().copies[0], CopyStats { inserted: 99, dropped: 1, waiting: 0 });
    assert_eq!((copies.info().size, copies.journal().unwrap().error), (99, None));
    let mut writer = Writer::new(&server.tables);
    server.insert(&mut writer, 200);
    server.saver.end_journal().unwrap();
    server.saver.store().release();
    let after = server_with(vec![options("t", 100), options("copies", 100)], &disk, 20, 1 << 30);
    after.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    let mut found: Vec<_> = items(after.tables.get("copies").unwrap()).iter().map(|item| cell(item, 0, 0)).collect();
    found.sort();
    let mut wanted: Vec<_> = (0..100).filter(|number| *number != 7).map(content).collect();
    wanted.sort();
    assert!(found == wanted, "{} copies", found.len());
}

#[test]
fn a_copy_of_a_chunk_that_cannot_be_read_is_not_dropped_and_ends_the_journal() {
    let disk = stopped();
    let sampler = TableOptions { sampler: SelectorOptions::Fifo, ..options("t", 100) };
    let copying = InsertOnSample { target: "copies".to_owned(), timeout: None };
    let source = TableOptions { extensions: vec![copying], ..sampler };
    let server = server_with(vec![source, options("copies", 100)], &disk, 20, 1 << 30);
    server.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    server.saver.begin_journal(journal()).unwrap();
    let (source, copies) = (server.tables.get("t").unwrap(), server.tables.get("copies").unwrap());
    disk.fail_reads(true);
    let _ = done(source.sample(SampleRequest { num_samples: 1, ..SampleRequest::default() }));
    assert_eq!(source.info().copies[0], CopyStats { inserted: 1, dropped: 0, waiting: 0 });
    // The commit has to read it.
    let ended = server.saver.end_journal();
    assert!(matches!(ended, Err(Error::Storage { .. })), "{ended:?}");
    assert!(copies.journal().unwrap().error.is_some());
}

#[test]
fn an_insert_of_a_damaged_chunk_is_refused_alone_whether_it_was_read_before_or_not() {
    for read in [false, true] {
        let (disk, path, server) = begun_on_damage(vec![options("t", 100), options("other", 200)], read);
        let other = server.tables.get("other").unwrap();
        let inserts = |item: Item| std::iter::once((item, Priority::Value(1.0))).collect();
        let refused: Vec<Error> = items(server.tables.get("t").unwrap())
            .into_iter()
            .filter_map(|item| done(other.insert(inserts(item))).err())
            .collect();
        assert!(matches!(&refused[..], [error] if names(error, &path)), "{refused:?}");
        assert_eq!((other.info().size, other.journal().unwrap().error), (99, None));
        server.saver.save().unwrap();
        server.insert(&mut Writer::new(&server.tables), 200);
        server.saver.end_journal().unwrap();
        server.saver.store().release();
        let after = server_with(vec![options("t", 100), options("other", 200)], &disk, 20, 1 << 30);
        after.saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
        assert_eq!(after.tables.get("other").unwrap().info().size, 99);
    }
}

#[test]
fn an_insert_of_chunks_that_the_journal_has_reads_none_and_after_a_checkpoint_each_twice_for_all_its_items() {
    let disk = FakeDisk::default();
    let made = vec![options("t", 100), options("other", 300), options("another", 300)];
    let server = server_with(made, &disk, 20, 1 << 30);
    server.saver.begin_journal(journal()).unwrap();
    let mut writer = Writer::new(&server.tables);
    (0..100).for_each(|number| server.insert(&mut writer, number));
    let found = items(server.tables.get("t").unwrap());
    let on_disk = found.iter().filter(|item| item.chunks().next().unwrap().is_on_disk()).count();
    assert!(on_disk > 50, "{on_disk}");
    let insert_all = |table: &str| {
        let thrice = found.iter().flat_map(|item| std::iter::repeat_n(item, 3));
        let inserts = thrice.map(|item| (item.clone(), Priority::Value(1.0))).collect();
        disk.take_read();
        done(server.tables.get(table).unwrap().insert(inserts)).unwrap();
        disk.take_read() as usize
    };
    assert_eq!(insert_all("other"), 0);
    server.saver.save().unwrap();
    // To check each, and to write it again.
    let read = insert_all("another");
    assert!((2 * on_disk * ITEM..=2 * 100 * (ITEM + 200)).contains(&read), "{read} bytes of {on_disk} items");
    server.saver.end_journal().unwrap();
}

#[test]
fn chunks_in_segments_move_also_where_others_find_no_room() {
    let disk = FakeDisk::default();
    // The tier may not write a single item.
    let server = server_of(options("t", 100), &disk, 20, ITEM as u64 / 2);
    let mut writer = Writer::new(&server.tables);
    (0..10).for_each(|number| server.insert(&mut writer, number));
    server.saver.save().unwrap();
    (10..15).for_each(|number| server.insert(&mut writer, number));
    // Those of the checkpoint were read lately: the others are to move first.
    let saved = items(server.tables.get("t").unwrap()).into_iter().take(10);
    saved.for_each(|item| drop(cell(&item, 0, 0)));
    (15..27).for_each(|number| server.insert(&mut writer, number));
    let info = server.info();
    assert!(info.used == 0 && info.shared == info.stored && info.chunks >= 7, "{info:?}");
}
