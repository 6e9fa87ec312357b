//! The folder of a journal: who may read it while a server uses it, and what failed starts leave in it.

use super::starts::{is_free, saver};
use super::support::disk::{FakeDisk, Names, Tail};
use super::support::journaled::{all, left, options_of, server, wait};
use super::support::saving::{NOW, ROOT};
use super::support::{Rows, tables};
use reverie_core::checkpoint::{Disk, Keep, Store, list, verify as verify_checkpoint};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::journal::{Journal, JournalEnd, Saver, Syncs, repair, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn a_folder_that_a_server_uses_is_neither_checked_nor_repaired_until_that_has_released_it() {
    let mut first = server(options_of(Syncs::Always));
    wait(first.insert("rows", 1.0)).unwrap();
    let (any, root): (Arc<dyn Disk>, _) = (Arc::new(first.disk.clone()), Path::new(ROOT));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let repaired = || repair(&any, root, PathBuf::from("/repaired"), &clock, |_| {}, NOW).err();
    for refused in [verify(&*any, root).err(), repaired()] {
        let text = refused.expect("a server writes there").to_string();
        assert!(text.contains("a server writes there") && text.contains("wait until it has ended"), "{text}");
    }
    first.journal.stop().unwrap();
    assert!(verify(&*any, root).is_err(), "it may take a last checkpoint");
    first.store.release();
    assert_eq!(verify(&*any, root).unwrap().expect("a journal").items, 1);
    assert!(is_free(&first.disk) && repaired().is_none() && is_free(&first.disk));
}

#[test]
fn starts_that_fail_on_a_full_disk_leave_all_its_room_to_the_next_one() {
    let mut first = server(options_of(Syncs::Always));
    wait(first.insert("rows", 1.0)).unwrap();
    first.journal.save().unwrap();
    for value in 2..30 {
        wait(first.insert("rows", f64::from(value))).unwrap();
    }
    first.journal.stop().unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    let (before, num_files, size) = (left(&disk), disk.names().len(), disk.size());
    // Each of them fills the room that was made for it.
    let failed = (1..).take_while(|nth| {
        disk.set_capacity(Some(size + 300 * nth));
        let start = saver(&disk, all());
        start.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
        let begun = start.begin_journal(options_of(Syncs::Os));
        assert_eq!(left(&disk), before, "start {nth}");
        if begun.is_err() {
            assert!(disk.names().len() <= num_files + 2, "start {nth}: {:?}", disk.names());
        }
        begun.is_err() && *nth < 100
    });
    assert!((2..10).contains(&failed.count()), "the next one has all the room");
}

#[test]
fn a_folder_is_released_when_its_journal_has_ended_though_its_caller_did_not_wait_for_that() {
    let disk = FakeDisk::default();
    let only = Arc::new(saver(&disk, all()));
    only.begin_journal(options_of(Syncs::Os)).unwrap();
    let (keeps, theirs) = (only.keep_folder(), Arc::clone(&only));
    only.release();
    assert!(!is_free(&disk), "the journal is still written");
    let ending = std::thread::spawn(move || {
        let _keeps = keeps;
        theirs.end_journal()
    });
    ending.join().unwrap().unwrap();
    assert!(is_free(&disk));
    only.release();
}

/// A folder with two checkpoints of a server that was killed, each with segments of its own; and the path of the older one.
fn two_checkpoints() -> (FakeDisk, PathBuf) {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let two = Keep { count: 2, max_age: None };
    let store = Arc::new(Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), two).unwrap());
    let (options, start) = (options_of(Syncs::Always), JournalEnd::default());
    let journal = Journal::begin(Arc::clone(&made), store, start, options, || NOW).unwrap();
    let mut rows = Rows::new(&made);
    for _ in 0..2 {
        // As many as there is room for: none of those before is left.
        let values: Vec<f64> = (0..10).map(f64::from).collect();
        wait(made.get("rows").unwrap().insert(rows.inserts(&values)).unwrap()).unwrap();
        journal.save().unwrap();
    }
    journal.stop().unwrap();
    let disk = disk.copy();
    let found: Vec<PathBuf> = list(&disk, Path::new(ROOT)).unwrap().into_iter().map(|(path, _)| path).collect();
    assert_eq!(found.len(), 2);
    (disk, found[0].clone())
}

#[test]
fn a_start_removes_no_segment_of_a_checkpoint_that_a_loss_of_power_brings_back() {
    for stop in 0.. {
        let (disk, older) = two_checkpoints();
        let start = saver(&disk, all());
        start.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
        // The server before was killed when it had removed the file: that is not on the disk.
        disk.remove(&older).unwrap();
        disk.stop_after(stop);
        let begun = start.begin_journal(options_of(Syncs::Os)).is_ok();
        let left = disk.after_crash(Names::AllAndOldCheckpoints, Tail::All);
        for (path, _) in list(&left, Path::new(ROOT)).unwrap() {
            let whole = verify_checkpoint(&left, &path);
            assert!(whole.is_ok(), "the start was stopped after {stop} operations: {whole:?}");
        }
        if begun {
            disk.stop_after(1 << 40);
            return start.end_journal().unwrap();
        }
    }
}

#[test]
fn a_start_goes_on_where_an_older_checkpoint_cannot_be_read_and_leaves_its_segments() {
    let (disk, older) = two_checkpoints();
    // Of a newer format.
    disk.edit(&older, |bytes| {
        bytes[7] = 99;
        let crc = crc32fast::hash(&bytes[..8]).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
    });
    let (before, names) = (left(&disk), disk.names());
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), Keep { count: 3, max_age: None }).unwrap();
    let start = Saver::new(tables(all()).0, Arc::new(disk.clone()), store, || NOW);
    start.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
    start.begin_journal(options_of(Syncs::Os)).unwrap();
    start.end_journal().unwrap();
    assert_eq!(left(&disk), before);
    let now = disk.names();
    assert!(names.iter().all(|name| now.contains(name)), "{names:?} {now:?}");
}

#[test]
fn damage_in_the_newest_checkpoint_of_a_folder_is_reported_also_while_a_server_without_a_journal_uses_it() {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let one = Keep { count: 1, max_age: None };
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), one).unwrap();
    let saved = store.save(&made, NOW).unwrap();
    assert!(!is_free(&disk));
    assert_eq!(verify(&disk, Path::new(ROOT)).unwrap(), None);
    disk.edit(&saved.path, |bytes| bytes[30] ^= 1);
    let found = verify(&disk, Path::new(ROOT));
    assert!(matches!(&found, Err(Error::DamagedFile { path, .. }) if saved.path == Path::new(path)), "{found:?}");
}
