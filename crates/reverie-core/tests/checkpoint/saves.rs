//! Taking checkpoints: at a cost of what is new, at one moment, and with what need not stay removed.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, NOW, ROOT, busy, contents, insert, restore, save, store};
use super::support::{self, Rows, options, tables};
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::checkpoint::{
    Disk, LocalFileSystem, PeriodicThread, RetentionPolicy, Store, describe, list, load, verify,
};
use reverie_core::chunk::{Compression, Meter};
use reverie_core::error::Error;
use reverie_core::journal::Saver;
use reverie_core::spec::DType;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn a_chunk_is_written_once_and_again_only_while_it_grows() {
    let (tables, _) = tables(vec![options("t", 1_000)]);
    let disk = FakeDisk::default();
    let store = store(&disk, KEEP);
    let mut rows = Rows::new(&tables);
    insert(&tables, "t", (0..50).map(|value| (rows.item(f64::from(value)), 1.0)));
    rows.close();
    let first = save(&store, &tables);
    assert_eq!(first.new_chunks, first.chunks);
    let second = save(&store, &tables);
    assert_eq!((second.new_chunks, second.chunks), (0, first.chunks));
    // The open chunk alone.
    insert(&tables, "t", [(rows.item(50.0), 1.0)]);
    assert_eq!(save(&store, &tables).new_chunks, 1);
    assert_eq!(save(&store, &tables).new_chunks, 0);
    insert(&tables, "t", [(rows.item(51.0), 1.0)]);
    let last = save(&store, &tables);
    assert_eq!((last.new_chunks, last.chunks), (1, first.chunks + 1));
    let (restored, _) = restore(&disk, vec![options("t", 1_000)]);
    assert_eq!(contents(&restored, "t"), contents(&tables, "t"));
}

#[test]
fn segments_go_with_the_last_checkpoint_that_refers_to_them() {
    let (tables, _) = tables(vec![options("t", 8)]);
    let disk = FakeDisk::default();
    let store = store(&disk, RetentionPolicy { count: 2, max_age: None }).with_segment_bytes(1);
    let mut rows = Rows::new(&tables);
    for round in 0..6 {
        for value in 0..8 {
            insert(&tables, "t", [(rows.item(f64::from(round * 8 + value)), 1.0)]);
            rows.close();
        }
        save(&store, &tables);
        for (path, summary) in list(&disk, Path::new(ROOT)).unwrap() {
            assert_eq!(summary.unwrap().num_chunks, 8);
            verify(&disk, &path).unwrap();
        }
    }
    let names = disk.names();
    let count = |kind: &str| names.iter().filter(|name| name.ends_with(kind)).count();
    assert_eq!((count(".checkpoint"), count(".segment"), names.len()), (2, 16, 18), "{names:?}");
}

#[test]
fn a_segment_that_is_hardly_in_use_is_given_up_and_its_last_chunks_written_again() {
    let (tables, _) = tables(vec![options("t", 1_000)]);
    let disk = FakeDisk::default();
    let store = store(&disk, RetentionPolicy { count: 1, max_age: None }).with_segment_bytes(2_000);
    let mut rows = Rows::new(&tables);
    let mut keys = Vec::new();
    for value in 0..100 {
        keys.extend(insert(&tables, "t", [(rows.item(f64::from(value)), 1.0)]));
        rows.close();
    }
    save(&store, &tables);
    let bytes = |disk: &FakeDisk| disk.files().iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let full = bytes(&disk);
    // One chunk of each segment stays.
    let gone: Vec<i64> = keys.iter().copied().enumerate().filter(|(at, _)| at % 10 != 0).map(|(_, key)| key).collect();
    tables.get("t").unwrap().delete(&gone).unwrap();
    let saved = save(&store, &tables);
    assert!(saved.new_chunks >= 7 && saved.new_chunks <= 10, "{}", saved.new_chunks);
    assert!(bytes(&disk) * 3 < full, "{} of {full}", bytes(&disk));
    let (restored, _) = restore(&disk, vec![options("t", 1_000)]);
    assert_eq!(contents(&restored, "t"), contents(&tables, "t"));
}

#[test]
fn checkpoints_stay_by_number_and_age_and_the_newest_always() {
    let (tables, _) = tables(vec![options("t", 8)]);
    let disk = FakeDisk::default();
    let store = store(&disk, RetentionPolicy { count: 3, max_age: Some(Duration::from_secs(10)) });
    let kept_at = |seconds: u64| {
        store.save(&tables, NOW + Duration::from_secs(seconds)).unwrap();
        let all = list(&disk, Path::new(ROOT)).unwrap();
        all.into_iter().map(|(_, summary)| summary.unwrap().number).collect::<Vec<_>>()
    };
    assert_eq!(kept_at(0), [1]);
    assert_eq!(kept_at(1), [1, 2]);
    assert_eq!(kept_at(2), [1, 2, 3]);
    assert_eq!(kept_at(3), [2, 3, 4]);
    assert_eq!(kept_at(13), [4, 5], "4 is 10 seconds old");
    assert_eq!(kept_at(100), [6]);
    assert_eq!(kept_at(50), [6, 7], "a clock that was set back makes none old");
    let no_checkpoint = RetentionPolicy { count: 0, max_age: None };
    assert!(Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), no_checkpoint).is_err());
}

#[test]
fn files_deleted_behind_the_stores_back_are_written_again() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    let store = store(&disk, KEEP);
    let first = save(&store, &tables);
    disk.files().iter().for_each(|(path, _)| disk.delete(path));
    let again = save(&store, &tables);
    assert_eq!(again.new_chunks, first.new_chunks);
    let (restored, _) = restore(&disk, all);
    assert_eq!(contents(&restored, "per"), contents(&tables, "per"));
}

#[test]
fn a_checkpoint_that_stays_and_cannot_be_read_keeps_its_segments() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let first = save(&store(&disk, KEEP), &tables);
    disk.edit(&first.path, |bytes| bytes[30] ^= 1);
    tables.iter().for_each(|table| table.reset().unwrap());
    let second = store(&disk, KEEP).save(&tables, NOW).unwrap();
    assert!(
        matches!(second.left_behind, Some(Error::DamagedFile { ref path, .. }) if *path == first.path.display().to_string())
    );
    disk.edit(&first.path, |bytes| bytes[30] ^= 1);
    verify(&disk, &first.path).unwrap();
}

#[test]
fn a_second_server_in_the_same_folder_is_refused_until_the_first_lets_go_and_then_the_first() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let first = store(&disk, KEEP);
    save(&first, &tables);
    let second = store(&disk, KEEP);
    let error = second.save(&tables, NOW).unwrap_err();
    assert!(error.to_string().contains("another server saves there"), "{error}");
    first.release();
    let theirs = save(&second, &tables);
    second.release();
    let error = first.save(&tables, NOW).unwrap_err();
    assert!(error.to_string().contains("another server took a checkpoint"), "{error}");
    verify(&disk, &theirs.path).unwrap();
    save(&second, &tables);
}

#[test]
fn a_server_that_found_no_checkpoint_removes_none_that_another_one_took_meanwhile() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    let one = RetentionPolicy { count: 1, max_age: None };
    let elsewhere = Store::new(Arc::new(disk.clone()), PathBuf::from("/elsewhere"), one).unwrap();
    let fallback = save(&elsewhere, &tables).path;
    // With nothing to start from, and with a checkpoint of another folder.
    for fallback in [None, Some(fallback)] {
        let disk = disk.copy();
        let (ours, _) = support::tables(all.clone());
        let saver = Saver::new(Arc::clone(&ours), Arc::new(disk.clone()), store(&disk, one), || NOW);
        assert_eq!(saver.store().found(), None);
        fallback.iter().for_each(|path| _ = saver.restore(path, |_| ()).unwrap());
        let other = store(&disk, one);
        let theirs = save(&other, &tables);
        other.release();
        let error = saver.save().unwrap_err();
        assert!(error.to_string().contains("another server took a checkpoint"), "{error}");
        verify(&disk, &theirs.path).unwrap();
        // Nor is the folder held for it: it never saves there.
        let next = store(&disk, one);
        assert_eq!(next.found(), Some(theirs.path));
        save(&next, &tables);
    }
}

#[test]
fn a_server_that_has_locked_the_folder_finds_the_newest_checkpoint() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let (first, second) = (store(&disk, KEEP), store(&disk, KEEP));
    let theirs = save(&first, &tables);
    assert_eq!(second.found(), None);
    let error = second.hold().unwrap_err();
    assert!(error.to_string().contains("another server saves there"), "{error}");
    first.release();
    second.hold().unwrap();
    assert_eq!(second.found(), Some(theirs.path));
    assert!(matches!(first.hold(), Err(Error::Storage { .. })));
    second.hold().unwrap();
    save(&second, &tables);
}

#[test]
fn the_machines_own_locks_have_one_holder_at_a_time() {
    let path = std::env::temp_dir().join(format!("reverie-lock-{}", std::process::id()));
    let held = LocalFileSystem.lock(&path).unwrap();
    assert!(held.is_some() && LocalFileSystem.lock(&path).unwrap().is_none());
    drop(held);
    assert!(LocalFileSystem.lock(&path).unwrap().is_some());
    LocalFileSystem.remove(&path).unwrap();
}

#[test]
fn a_server_that_restored_a_checkpoint_goes_on_from_its_files() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    let first = save(&store(&disk, KEEP), &tables);
    let (again, _) = support::tables(all.clone());
    let store = store(&disk, KEEP);
    let checkpoint = load(&disk, &first.path, again.bytes().0).unwrap();
    store.adopt(&checkpoint);
    checkpoint.restore(&again, NOW).unwrap();
    assert_eq!(save(&store, &again).new_chunks, 0);
    insert(&again, "empty", [(Rows::new(&again).item(1.0), 1.0)]);
    let last = save(&store, &again);
    assert_eq!(last.new_chunks, 1);
    let (restored, _) = restore(&disk, all.clone());
    for name in ["per", "packed", "empty"] {
        assert_eq!(contents(&restored, name), contents(&again, name));
    }
    // A checkpoint of another folder is none of its own, whatever that one's files are called.
    let elsewhere = || Store::new(Arc::new(disk.clone()), PathBuf::from("/elsewhere"), KEEP).unwrap();
    let (other, _) = support::tables(vec![options("t", 5)]);
    insert(&other, "t", [(Rows::new(&other).item(1.0), 1.0)]);
    save(&elsewhere(), &other);
    let (third, _) = support::tables(all.clone());
    let (checkpoint, store) = (load(&disk, &last.path, third.bytes().0).unwrap(), elsewhere());
    store.adopt(&checkpoint);
    checkpoint.restore(&third, NOW).unwrap();
    verify(&disk, &save(&store, &third).path).unwrap();
}

#[test]
fn tables_that_are_closed_are_not_saved_any_more() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let store = store(&disk, KEEP);
    save(&store, &tables);
    tables.close();
    store.release();
    assert!(matches!(store.save(&tables, NOW), Err(Error::Closed { .. })));
    assert!(disk.lock(&Path::new(ROOT).join("lock")).unwrap().is_some(), "nor is the folder held for them");
    assert_eq!(list(&disk, Path::new(ROOT)).unwrap().len(), 1);
}

#[test]
fn a_last_checkpoint_has_what_closed_tables_hold_and_no_open_table_has_one() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let store = store(&disk, KEEP);
    assert!(matches!(store.save_last(&tables, NOW), Err(Error::InvalidArgument(_))));
    let before = save(&store, &tables);
    tables.close();
    let last = store.save_last(&tables, NOW).unwrap();
    assert_eq!((last.items, last.new_chunks), (before.items, 0));
    verify(&disk, &last.path).unwrap();
}

#[test]
fn a_table_of_many_sections_comes_back() {
    // More items, chunks and patterns than a section takes.
    let (tables, _) = tables(vec![options("t", 100_000)]);
    let mut rows = Rows::new(&tables);
    for value in 0..9_000 {
        insert(&tables, "t", [(rows.item(f64::from(value)), 1.0)]);
        rows.close();
    }
    let disk = FakeDisk::default();
    let saved = save(&store(&disk, KEEP), &tables);
    assert_eq!((saved.items, saved.chunks), (9_000, 9_000));
    let (restored, _) = restore(&disk, vec![options("t", 100_000)]);
    assert_eq!(contents(&restored, "t"), contents(&tables, "t"));
}

#[test]
fn a_summary_has_what_a_checkpoint_holds_without_its_items() {
    let (tables, _) = busy();
    let disk = FakeDisk::default();
    let saved = save(&store(&disk, KEEP), &tables);
    let before = disk.operations();
    let summary = describe(&disk, &saved.path).unwrap();
    assert!(disk.operations() - before < 40);
    assert_eq!((summary.number, summary.created, summary.num_chunks), (1, NOW, saved.chunks));
    assert_eq!(summary.manifest_bytes + summary.chunk_bytes, saved.written);
    let sizes: Vec<_> = summary.tables.iter().map(|table| (table.options.name.as_str(), table.size)).collect();
    let want: Vec<_> = tables.iter().map(|table| (table.name(), table.info().size)).collect();
    assert_eq!(sizes, want);
    assert_eq!(summary.tables[0].counters, tables.get("queue").unwrap().info().counters);
}

#[test]
fn tables_are_cut_at_one_moment_while_they_are_written_to() {
    // Every row goes into both tables, first into a: whatever the moment, b has as many as a or one less.
    let all = vec![options("a", 100_000), options("b", 100_000)];
    let (tables, _) = tables(all.clone());
    let disk = FakeDisk::default();
    let store = store(&disk, KEEP);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let sink: Arc<dyn Sink> = tables.clone();
            let mut rows = RowWriter::new(sink, Compression::None, false);
            let schema = support::leaf(DType::Float64, &[]);
            for value in 0..3_000 {
                let bytes = f64::from(value).to_ne_bytes();
                let item = rows.append(&schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], 1).unwrap().remove(0);
                insert(&tables, "a", [(item.clone(), 1.0)]);
                insert(&tables, "b", [(item, 1.0)]);
            }
        });
        let mut seen = 0;
        while !writer.is_finished() {
            let path = save(&store, &tables).path;
            let checkpoint = load(&disk, &path, &Arc::new(Meter::new())).unwrap();
            let sizes: Vec<u64> = checkpoint.summary.tables.iter().map(|table| table.size).collect();
            assert!(sizes[0] == sizes[1] || sizes[0] == sizes[1] + 1, "{sizes:?}");
            seen += 1;
        }
        assert!(seen > 0);
    });
    let saved = save(&store, &tables);
    assert_eq!(saved.items, 6_000);
    let (restored, _) = restore(&disk, all);
    assert_eq!(contents(&restored, "b"), contents(&tables, "b"));
}

#[test]
fn a_periodic_thread_acts_until_it_is_stopped_and_never_after() {
    let (sender, receiver) = mpsc::channel();
    let periodic = PeriodicThread::start(Duration::from_nanos(1), move || _ = sender.send(())).unwrap();
    (0..3).for_each(|_| receiver.recv().unwrap());
    periodic.stop();
    while receiver.try_recv().is_ok() {}
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the thread and what it held are gone");
    periodic.stop();
    let (sender, receiver) = mpsc::channel();
    let (woken, wakes) = std::sync::mpsc::channel();
    let periodic = PeriodicThread::start(Duration::MAX, move || woken.send(()).unwrap()).unwrap();
    let wake = periodic.waker();
    for _ in 0..2 {
        wake();
        wakes.recv().unwrap();
    }
    periodic.stop();
    assert!(wakes.try_recv().is_err(), "it waits for its period otherwise");
    drop(PeriodicThread::start(Duration::MAX, move || _ = sender.send(())).unwrap());
    assert_eq!(receiver.recv(), Err(mpsc::RecvError), "a dropped one ends, too, without acting");
    assert!(PeriodicThread::start(Duration::ZERO, || ()).is_err());
}
