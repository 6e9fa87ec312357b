//! The folder of a journal: who may read it while a server uses it, and what failed starts leave in it.

use super::starts::{is_free, saver};
use super::support::disk::{FakeDisk, Names, Tail};
use super::support::journaled::{all, left, options_of, server, wait};
use super::support::saving::{NOW, ROOT, contents};
use super::support::{Rows, tables};
use reverie_core::checkpoint::{
    CancellableDisk, Disk, DiskLock, RetentionPolicy, Store, cancellable, list, verify as verify_checkpoint,
};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::journal::{Journal, JournalEnd, Loss, Saver, SyncPolicy, repair, verify};
use reverie_core::table::TableJournal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn a_folder_that_a_server_uses_is_neither_checked_nor_repaired_until_that_has_released_it() {
    let mut first = server(options_of(SyncPolicy::Always));
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
    let mut first = server(options_of(SyncPolicy::Always));
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
        let begun = start.begin_journal(options_of(SyncPolicy::Os));
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
    only.begin_journal(options_of(SyncPolicy::Os)).unwrap();
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

/// A folder with two checkpoints of a server that was killed, each with segments of its own; and the path of the older
/// one.
fn two_checkpoints() -> (FakeDisk, PathBuf) {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let two = RetentionPolicy { count: 2, max_age: None };
    let store = Arc::new(Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), two).unwrap());
    let (options, start) = (options_of(SyncPolicy::Always), JournalEnd::default());
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
        let begun = start.begin_journal(options_of(SyncPolicy::Os)).is_ok();
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
    // The checkpoint gets the version of a newer format.
    disk.edit(&older, |bytes| {
        bytes[7] = 99;
        let crc = crc32fast::hash(&bytes[..8]).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
    });
    let (before, names) = (left(&disk), disk.names());
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 3, max_age: None }).unwrap();
    let start = Saver::new(tables(all()).0, Arc::new(disk.clone()), store, || NOW);
    start.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
    start.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    start.end_journal().unwrap();
    assert_eq!(left(&disk), before);
    let now = disk.names();
    assert!(names.iter().all(|name| now.contains(name)), "{names:?} {now:?}");
}

#[test]
fn damage_in_the_newest_checkpoint_of_a_folder_is_reported_also_while_a_server_without_a_journal_uses_it() {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let one = RetentionPolicy { count: 1, max_age: None };
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), one).unwrap();
    let saved = store.save(&made, NOW).unwrap();
    assert!(!is_free(&disk));
    assert_eq!(verify(&disk, Path::new(ROOT)).unwrap(), None);
    disk.edit(&saved.path, |bytes| bytes[30] ^= 1);
    let found = verify(&disk, Path::new(ROOT));
    assert!(matches!(&found, Err(Error::DamagedFile { path, .. }) if saved.path == Path::new(path)), "{found:?}");
}

fn lock() -> PathBuf {
    Path::new(ROOT).join("lock")
}

/// A reader of the folder, which ends when callers have waited so long; what `then` makes is kept from then on.
fn is_read(disk: &FakeDisk, until: Duration, then: impl Fn(&FakeDisk) -> Option<Box<dyn DiskLock>> + Send + 'static) {
    let mut reader = Some(disk.lock_to_read(&lock()).unwrap().expect("no server is there"));
    let (theirs, mut kept) = (disk.clone(), None);
    disk.on_wait(move |waited| {
        if waited >= until && reader.take().is_some() {
            kept = then(&theirs);
        }
        assert!(waited >= until || kept.is_none());
    });
}

#[test]
fn a_server_that_starts_while_a_command_reads_the_folder_waits_for_its_end_and_reports_why() {
    let (disk, _) = two_checkpoints();
    for (ends, starts) in [(29, true), (31, false)] {
        let disk = disk.copy();
        is_read(&disk, Duration::from_secs(ends), |_| None);
        let start = saver(&disk, all());
        let (report, reports) = std::sync::mpsc::channel();
        start.store().report_waits(move |why| report.send(why.to_owned()).unwrap());
        let recovered = start.recover(false, true, |_| ()).map(|_| ());
        assert_eq!(disk.waited().as_secs(), ends.min(30));
        let reports: Vec<String> = reports.try_iter().collect();
        assert!(matches!(&reports[..], [why] if why.contains("reverie checkpoint verify")), "{reports:?}");
        match recovered {
            Ok(()) => assert!(starts && !is_free(&disk)),
            Err(error) => {
                assert!(!starts && matches!(&error, Error::Storage { .. }), "{error}");
                assert!(error.to_string().contains("has not ended in 30 seconds"), "{error}");
                assert!(!error.to_string().contains("another server"), "{error}");
            }
        }
    }
}

#[test]
fn a_server_that_waits_for_a_command_is_refused_at_once_if_another_server_takes_the_folder_meanwhile() {
    let (disk, _) = two_checkpoints();
    is_read(&disk, Duration::from_secs(1), |disk| disk.lock(&lock()).unwrap());
    let refused = saver(&disk, all()).recover(false, true, |_| ()).unwrap_err();
    assert!(refused.to_string().contains("another server saves there"), "{refused}");
    assert_eq!(disk.waited(), Duration::from_secs(1));
}

#[test]
fn a_first_checkpoint_waits_for_a_command_that_reads_the_folder_and_is_not_lost() {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    is_read(&disk, Duration::from_secs(1), |_| None);
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    assert_eq!(store.save(&made, NOW).unwrap().number, 1);
    assert_eq!(disk.waited(), Duration::from_secs(1));
}

#[test]
fn a_start_that_is_cancelled_waits_for_no_command() {
    let (disk, _) = two_checkpoints();
    let reader = disk.lock_to_read(&lock()).unwrap().expect("no server is there");
    let (cancel, theirs) = (Arc::new(AtomicBool::new(false)), Arc::new(CancellableDisk(disk.clone())));
    let flag = Arc::clone(&cancel);
    disk.on_wait(move |waited| flag.store(waited >= Duration::from_secs(1), Relaxed));
    let store = Store::new(theirs, PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let refused = cancellable(cancel, || store.hold()).unwrap_err();
    assert!(refused.to_string().contains("interrupted"), "{refused}");
    assert_eq!(disk.waited(), Duration::from_secs(1));
    drop(reader);
    store.hold().unwrap();
}

#[test]
fn a_disk_that_fails_while_a_start_waits_for_a_command_is_reported_as_such_and_not_as_another_server() {
    let mut reasons = Vec::new();
    for operations in 0..8 {
        let (disk, _) = two_checkpoints();
        let _reader = disk.lock_to_read(&lock()).unwrap().expect("no server is there");
        let one = RetentionPolicy { count: 1, max_age: None };
        let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), one).unwrap();
        disk.stop_after(operations);
        reasons.push(store.hold().unwrap_err().to_string());
    }
    assert!(reasons.iter().all(|reason| !reason.contains("another server")), "{reasons:?}");
    for action in ["lock", "wait for"] {
        assert!(reasons.iter().any(|reason| reason.contains(action)), "{reasons:?}");
    }
}

/// A folder that keeps two checkpoints, of which the older one lacks commits; with the paths of both, and the tables as
/// the older one has them.
fn without_commits(syncs: SyncPolicy) -> (FakeDisk, [PathBuf; 2], Vec<String>) {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let two = RetentionPolicy { count: 2, max_age: None };
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), two).unwrap().with_segment_bytes(300);
    let (store, options) = (Arc::new(store), options_of(syncs));
    let journal = Journal::begin(Arc::clone(&made), store, JournalEnd::default(), options, || NOW).unwrap();
    let mut rows = Rows::new(&made);
    let mut insert = |values: std::ops::Range<i32>| {
        for value in values {
            wait(made.get("rows").unwrap().insert(rows.inserts(&[f64::from(value)])).unwrap()).unwrap();
        }
    };
    insert(0..30);
    journal.save().unwrap();
    let older = made.iter().map(|table| contents(&made, table.name())).collect();
    // Items of the first of these commits are gone when the next checkpoint is taken.
    insert(30..60);
    journal.save().unwrap();
    insert(60..63);
    journal.stop().unwrap();
    let disk = disk.copy();
    let found: Vec<PathBuf> = list(&disk, Path::new(ROOT)).unwrap().into_iter().map(|(path, _)| path).collect();
    (disk, found.try_into().unwrap(), older)
}

/// True for the refusal of this checkpoint that names what can be done.
fn is_not_continued(error: Option<&Error>, checkpoint: &Path) -> bool {
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    let parts = ["cannot be continued", "are not in", "newer checkpoint", "fallback_checkpoint_path="];
    matches!(error, Some(Error::InvalidArgument(_)))
        && text.starts_with(&checkpoint.display().to_string())
        && parts.iter().all(|part| text.contains(part))
}

#[test]
fn a_kept_checkpoint_whose_commits_were_removed_with_a_newer_one_is_refused_as_that_and_not_as_damaged() {
    for syncs in [SyncPolicy::Always, SyncPolicy::Os] {
        is_refused_as_not_continued(syncs);
    }
}

fn is_refused_as_not_continued(syncs: SyncPolicy) {
    let (disk, [older, newest], contents_then) = without_commits(syncs);
    let refused = saver(&disk, all()).restore(&older, |_| ()).err();
    assert!(is_not_continued(refused.as_ref(), &older), "{refused:?}");
    let refused = saver(&disk, all()).recover_copy(&older, false, |_| ()).err();
    assert!(refused.is_some_and(|error| error.to_string().contains("it has a newer checkpoint now")));
    // As the guide has it for a damaged one.
    disk.delete(&newest);
    let refused = [
        saver(&disk, all()).recover(false, true, |_| ()).err(),
        saver(&disk, all()).restore(&older, |_| ()).err(),
        saver(&disk, all()).recover_copy(&older, false, |_| ()).err(),
        verify(&disk, Path::new(ROOT)).err(),
    ];
    assert!(refused.iter().all(|error| is_not_continued(error.as_ref(), &older)), "{refused:?}");
    assert!(is_free(&disk));
    // Follow the advice of the error.
    let (tables, _) = tables(all());
    let elsewhere =
        Store::new(Arc::new(disk.clone()), PathBuf::from("/new"), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let start = Saver::new(Arc::clone(&tables), Arc::new(disk.clone()), elsewhere, || NOW);
    assert!(start.recover(false, true, |_| ()).unwrap().is_none());
    start.restore(&older, |_| ()).unwrap();
    start.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    let now: Vec<String> = tables.iter().map(|table| contents(&tables, table.name())).collect();
    assert_eq!(now, contents_then);
    start.end_journal().unwrap();
}

#[test]
fn a_repair_of_a_folder_whose_newest_checkpoint_is_gone_reports_the_commits_that_were_removed_with_it() {
    let (disk, [older, newest], _) = without_commits(SyncPolicy::Os);
    disk.delete(&newest);
    let (any, clock): (Arc<dyn Disk>, Arc<dyn Clock>) = (Arc::new(disk), Arc::new(ManualClock::default()));
    let repaired = repair(&any, Path::new(ROOT), PathBuf::from("/repaired"), &clock, |_| {}, NOW).unwrap();
    let [Loss::Commits(error)] = &repaired.losses[..] else { panic!("{:?}", repaired.losses) };
    assert!(is_not_continued(Some(error), &older), "{error}");
}

#[test]
fn damage_after_commits_that_are_there_is_damage_though_older_files_were_removed() {
    let (disk, [_, newest], _) = without_commits(SyncPolicy::Os);
    let from = reverie_core::checkpoint::describe(&disk, &newest).unwrap().journal.unwrap().segment;
    disk.edit(&Path::new(ROOT).join(format!("{from:010}.segment")), |bytes| bytes[40] ^= 1);
    let found = verify(&disk, Path::new(ROOT));
    assert!(matches!(found, Err(Error::DamagedFile { .. })), "{found:?}");
}

#[test]
fn a_journal_whose_lock_was_removed_reports_nothing_more_as_durable_and_a_second_server_loses_nothing_that_was() {
    for syncs in [SyncPolicy::Always, SyncPolicy::Os] {
        let mut first = server(options_of(syncs));
        wait(first.insert("rows", 1.0)).unwrap();
        wait(first.journal.durable(true)).unwrap();
        first.disk.remove_lock(&lock());
        let second = saver(&first.disk, all());
        second.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
        second.begin_journal(options_of(SyncPolicy::Always)).unwrap();
        let inserted = wait(first.insert("rows", 2.0));
        let refused = wait(first.journal.durable(true)).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Error::Storage { .. }) && text.contains("/lock: "), "{text}");
        assert!(text.contains("another server may have started"), "{text}");
        assert!(syncs == SyncPolicy::Os || inserted.is_err(), "it waits for the disk");
        assert!(first.journal.check().is_err(), "the journal has stopped");
        assert!(first.journal.save().is_err() && first.journal.stop().is_err());
        drop(first.store);
        assert!(!is_free(&first.disk), "the second server has the folder");
        second.end_journal().unwrap();
    }
}

#[test]
fn a_journal_without_anything_to_sync_takes_no_checkpoint_once_its_lock_was_removed() {
    let first = server(options_of(SyncPolicy::Os));
    first.disk.remove_lock(&lock());
    assert!(first.journal.save().is_err());
    assert!(wait(first.journal.durable(true)).is_err() || first.journal.stop().is_err());
}

#[test]
fn a_journal_whose_open_segment_was_removed_reports_nothing_more_as_durable() {
    let mut first = server(options_of(SyncPolicy::Os));
    wait(first.insert("rows", 1.0)).unwrap();
    first.disk.delete(&Path::new(ROOT).join("0000000001.segment"));
    wait(first.insert("rows", 2.0)).unwrap();
    let text = wait(first.journal.durable(true)).unwrap_err().to_string();
    assert!(text.contains("0000000001.segment: the file was removed"), "{text}");
    assert!(first.journal.stop().is_err());
}

#[test]
fn a_server_without_a_journal_locks_its_folder_again_if_the_lock_was_removed_and_no_other_server_came() {
    let (disk, (made, _)) = (FakeDisk::default(), tables(all()));
    let one = || RetentionPolicy { count: 1, max_age: None };
    let of = |disk: &FakeDisk| Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), one()).unwrap();
    let store = of(&disk);
    store.save(&made, NOW).unwrap();
    disk.remove_lock(&lock());
    assert!(is_free(&disk));
    store.save(&made, NOW).unwrap();
    assert!(!is_free(&disk));
    disk.remove_lock(&lock());
    of(&disk).save(&made, NOW).unwrap();
    assert!(store.save(&made, NOW).is_err(), "another server took a checkpoint");
}
