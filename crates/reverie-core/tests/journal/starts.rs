//! Starts of servers with a journal: on a folder of another server, and those that end before they have begun.

use super::crash::{ACTS, KILLED, POWER_LOSSES, Server, check, run};
use super::support::disk::{FakeDisk, Names, Tail};
use super::support::journaled::{all, left, now, options_of, server, wait};
use super::support::saving::{NOW, ROOT};
use super::support::{Rows, options, queue, tables};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use reverie_core::checkpoint::{CancellableDisk, Disk, RetentionPolicy, Store, cancellable, latest};
use reverie_core::error::Error;
use reverie_core::journal::{Saver, SyncPolicy, recover, verify};
use reverie_core::sample::SampleRequest;
use reverie_core::table::{Lessee, TableOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn saver(disk: &FakeDisk, made: Vec<TableOptions>) -> Saver {
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    Saver::new(tables(made).0, Arc::new(disk.clone()), store, || NOW)
}

pub fn is_free(disk: &FakeDisk) -> bool {
    disk.lock(&Path::new(ROOT).join("lock")).unwrap().is_some()
}

/// The segment that was written last.
fn newest_segment(disk: &FakeDisk) -> PathBuf {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|it| it == "segment")).max().unwrap()
}

#[test]
fn a_server_that_starts_while_another_writes_the_journal_reads_none_of_it_before_that_one_has_ended() {
    let mut first = server(options_of(SyncPolicy::Always));
    wait(first.insert("rows", 1.0)).unwrap();
    let second = saver(&first.disk, all());
    let refused = second.recover(false, false, |_| ()).unwrap_err();
    let text = refused.to_string();
    assert!(text.starts_with("cannot start in") && text.contains("wait until it has ended"), "{text}");
    // The state that the second one had read would lack this.
    wait(first.insert("rows", 2.0)).unwrap();
    let acknowledged = now(&first);
    first.journal.stop().unwrap();
    first.store.release();
    second.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    assert!(!is_free(&first.disk), "no other server writes before the journal begins");
    second.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    assert_eq!(left(&first.disk), acknowledged);
    second.end_journal().unwrap();
}

#[test]
fn a_start_that_fails_leaves_the_folder_to_other_servers() {
    let first = server(options_of(SyncPolicy::Os));
    first.journal.stop().unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    let manifest = latest(&disk, Path::new(ROOT)).unwrap().unwrap();
    disk.edit(&manifest, |bytes| bytes[30] ^= 1);
    assert!(matches!(saver(&disk, all()).recover(false, false, |_| ()), Err(Error::DamagedFile { .. })));
    assert!(is_free(&disk));
    let second = saver(&disk, all());
    assert!(second.recover(false, false, |_| ()).is_err() && is_free(&disk));
    disk.edit(&manifest, |bytes| bytes[30] ^= 1);
    second.recover(false, false, |_| ()).unwrap();
    disk.stop_after(0);
    assert!(second.begin_journal(options_of(SyncPolicy::Os)).is_err());
    disk.stop_after(1 << 40);
    assert!(is_free(&disk));
}

#[test]
fn a_journal_does_not_begin_in_a_folder_whose_tables_were_not_recovered() {
    let first = server(options_of(SyncPolicy::Os));
    first.journal.stop().unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    let refused = saver(&disk, all()).begin_journal(options_of(SyncPolicy::Os)).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains("recovered"), "{refused}");
    let second = saver(&disk, all());
    second.recover(false, false, |_| ()).unwrap();
    second.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    assert!(matches!(second.begin_journal(options_of(SyncPolicy::Os)), Err(Error::InvalidArgument(_))));
    assert!(!is_free(&disk), "the journal goes on");
    second.end_journal().unwrap();
}

/// A folder whose server was killed while a client held a draw of its queue; with bytes of a write that did not finish.
fn killed(torn: bool) -> FakeDisk {
    let mut first = server(options_of(SyncPolicy::Os));
    for value in 0..8 {
        wait(first.insert("queue", f64::from(value))).unwrap();
    }
    let lessee = Some(Lessee { sender: [7; 16], request: 1 });
    let request = SampleRequest { num_samples: 2, lessee, ..SampleRequest::default() };
    let draws = wait(first.tables.get("queue").unwrap().sample(request).unwrap()).unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    if torn {
        disk.edit(&newest_segment(&disk), |bytes| bytes.extend([9; 700]));
    }
    drop(draws);
    first.journal.stop().unwrap();
    disk
}

#[test]
fn cancelled_work_fails_and_leaves_what_it_reads_as_it_was_and_other_work_goes_on() {
    let disk = killed(false);
    let (before, root) = (left(&disk), Path::new(ROOT));
    let theirs = CancellableDisk(disk.clone());
    let store =
        Store::new(Arc::new(theirs.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let start = Saver::new(tables(all()).0, Arc::new(theirs.clone()), store, || NOW);
    let is_cancelled =
        |error: Option<Error>| matches!(error, Some(Error::Storage { reason, .. }) if reason.contains("interrupted"));
    for is_set in [true, false] {
        let cancel = || Arc::new(AtomicBool::new(is_set));
        assert_eq!(is_cancelled(cancellable(cancel(), || verify(&theirs, root)).err()), is_set);
        let found = cancellable(cancel(), || start.recover(false, false, |_| ()));
        assert_eq!(
            (is_cancelled(found.err()), is_free(&disk)),
            (is_set, is_set),
            "a start that failed frees the folder"
        );
        start.store().release();
        assert!(verify(&theirs, root).is_ok(), "the work has ended");
    }
    assert_eq!(left(&disk), before);
}

/// The next server starts, and ends before its checkpoint is there.
fn fail_a_start(disk: &FakeDisk, made: Vec<TableOptions>) {
    let start = saver(disk, made);
    start.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
    disk.fail_renames(Some(false));
    start.begin_journal(options_of(SyncPolicy::Os)).unwrap_err();
    disk.fail_renames(None);
    assert!(disk.names().iter().any(|name| name.ends_with(".unfinished")), "it has written its manifest, or more");
}

#[test]
fn a_torn_journal_with_leases_is_read_again_after_starts_that_ended_before_their_checkpoint() {
    for torn in [false, true] {
        let disk = killed(torn);
        let before = left(&disk);
        let mut torn_at = None;
        for _ in 0..3 {
            fail_a_start(&disk, all());
            let recovered = recover(&disk, Path::new(ROOT), tables(all()).0.bytes().0).unwrap().unwrap();
            assert_eq!((recovered.torn.is_some(), recovered.leases.len()), (torn, 1));
            assert_eq!(*torn_at.get_or_insert(recovered.torn.clone()), recovered.torn, "it ends where it ended");
            verify(&disk, Path::new(ROOT)).unwrap();
        }
        let last = saver(&disk, all());
        last.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
        last.begin_journal(options_of(SyncPolicy::Os)).unwrap();
        last.end_journal().unwrap();
        assert_eq!(left(&disk), before, "torn: {torn}");
    }
}

#[test]
fn a_start_with_other_tables_that_ended_before_its_checkpoint_adds_nothing_to_the_journal() {
    let disk = killed(false);
    let commits = || recover(&disk, Path::new(ROOT), tables(all()).0.bytes().0).unwrap().unwrap().commits;
    let (before, contents) = (commits(), left(&disk));
    fail_a_start(&disk, vec![options("rows", 10), queue("queue", 3)]);
    assert_eq!((commits(), left(&disk)), (before, contents));
}

#[test]
fn a_journal_that_lost_its_end_with_the_machine_during_the_next_start_is_read_to_what_is_left() {
    let disk = killed(false);
    let (end, bytes) = (newest_segment(&disk), disk.files());
    let size = bytes.into_iter().find(|(path, _)| *path == end).unwrap().1.len();
    fail_a_start(&disk, all());
    // At the end of a record, and within one.
    for (less, torn) in [(0, false), (last_record(&disk, &end), false), (5, true)] {
        let left = disk.copy();
        left.keep(&end, size - less);
        let recovered = recover(&left, Path::new(ROOT), tables(all()).0.bytes().0).unwrap().unwrap();
        assert_eq!(recovered.torn.is_some(), torn, "{less} bytes less");
    }
}

#[test]
fn without_the_checkpoint_of_a_start_that_went_on_the_one_before_it_has_what_came_after_both() {
    let mut first = server(options_of(SyncPolicy::Os));
    // So that the next server goes on with this segment: most of it is a chunk of which it has items.
    let values: Vec<f64> = (0..400).map(f64::from).collect();
    let items = first.rows.inserts(&values);
    wait(first.tables.get("rows").unwrap().insert(items).unwrap()).unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    first.journal.stop().unwrap();
    fail_a_start(&disk, all());
    let two = RetentionPolicy { count: 2, max_age: None };
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), two).unwrap();
    let (made, _) = tables(all());
    let second = Saver::new(Arc::clone(&made), Arc::new(disk.clone()), store, || NOW);
    second.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
    second.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    wait(made.get("queue").unwrap().insert(Rows::new(&made).inserts(&[5.0])).unwrap()).unwrap();
    let disk = disk.after_crash(Names::All, Tail::All);
    second.end_journal().unwrap();
    let whole = left(&disk);
    disk.delete(&latest(&disk, Path::new(ROOT)).unwrap().unwrap());
    assert_eq!(left(&disk), whole);
}

/// A server that has taken a checkpoint before its first write, and was killed after `inserts` with `syncs`.
fn idle_at_first(syncs: SyncPolicy, inserts: u32) -> FakeDisk {
    let mut first = server(options_of(syncs));
    first.journal.save().unwrap();
    for value in 0..inserts {
        wait(first.insert("queue", f64::from(value))).unwrap();
    }
    let disk = first.disk.after_crash(Names::All, Tail::All);
    first.journal.stop().unwrap();
    disk
}

/// Fails where a start takes a changed byte of a segment before this offset, of what was acknowledged and synced, for
/// the end.
fn refuses_every_change(disk: &FakeDisk, segment: &Path, before: usize) {
    for at in 0..before {
        let changed = disk.copy();
        changed.edit(segment, |bytes| bytes[at] ^= 1);
        let found = recover(&changed, Path::new(ROOT), tables(all()).0.bytes().0);
        // The last of them: the commits before the start were removed with the checkpoint that is gone.
        let is_refused =
            matches!(found, Err(Error::DamagedFile { .. } | Error::Storage { .. } | Error::InvalidArgument(_)));
        assert!(is_refused, "byte {at} of {before}: {found:?}");
    }
}

#[test]
fn a_changed_byte_in_the_journal_of_a_server_that_was_idle_at_first_is_refused() {
    let disk = idle_at_first(SyncPolicy::Always, 3);
    let segment = newest_segment(&disk);
    // The last commits were not followed by one that records that they were on the disk.
    let size = disk.files().into_iter().find(|(path, _)| *path == segment).unwrap().1.len();
    refuses_every_change(&disk, &segment, size / 2);
}

#[test]
fn the_end_of_the_journal_of_a_server_that_was_idle_at_first_is_reported_as_torn() {
    let disk = idle_at_first(SyncPolicy::Os, 1);
    let segment = newest_segment(&disk);
    disk.edit(&segment, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let recovered = recover(&disk, Path::new(ROOT), tables(all()).0.bytes().0).unwrap().unwrap();
    assert!(recovered.torn.is_some_and(|(path, _)| path == segment));
}

#[test]
fn a_changed_byte_after_a_start_whose_checkpoint_is_gone_is_refused() {
    let disk = killed(false);
    let two = RetentionPolicy { count: 2, max_age: None };
    let store = Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), two).unwrap();
    let (made, _) = tables(all());
    let second = Saver::new(Arc::clone(&made), Arc::new(disk.clone()), store, || NOW);
    second.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
    // The lease makes it write a segment before its checkpoint is there.
    second.begin_journal(options_of(SyncPolicy::Always)).unwrap();
    let segment = newest_segment(&disk);
    let of_start = disk.files().into_iter().find(|(path, _)| *path == segment).unwrap().1.len();
    for value in [5.0, 6.0] {
        wait(made.get("rows").unwrap().insert(Rows::new(&made).inserts(&[value])).unwrap()).unwrap();
    }
    let disk = disk.after_crash(Names::All, Tail::All);
    second.end_journal().unwrap();
    disk.delete(&latest(&disk, Path::new(ROOT)).unwrap().unwrap());
    refuses_every_change(&disk, &segment, of_start + 60);
}

#[test]
fn a_checkpoint_that_a_journal_continues_is_not_restored_without_it() {
    let mut first = server(options_of(SyncPolicy::Os));
    wait(first.insert("rows", 1.0)).unwrap();
    let disk = first.disk.after_crash(Names::All, Tail::All);
    let path = latest(&disk, Path::new(ROOT)).unwrap().unwrap();
    let files = disk.files();
    let refused = saver(&disk, all()).restore(&path, |_| ()).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains(": 1 commit after"),
        "{refused}"
    );
    assert_eq!(disk.files(), files);
    // A checkpoint of another folder leaves that one as it is.
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from("/other"), RetentionPolicy { count: 1, max_age: None })
            .unwrap();
    Saver::new(tables(all()).0, Arc::new(disk), store, || NOW).restore(&path, |_| ()).unwrap();
    first.journal.stop().unwrap();
}

#[test]
fn a_checkpoint_that_has_all_of_a_journal_but_leases_is_restored_without_it() {
    let mut first = server(options_of(SyncPolicy::Always));
    (0..2).for_each(|value| _ = wait(first.insert("queue", f64::from(value))).unwrap());
    let lessee = Some(Lessee { sender: [7; 16], request: 1 });
    let request = SampleRequest { num_samples: 1, lessee, ..SampleRequest::default() };
    let draws = wait(first.tables.get("queue").unwrap().sample(request).unwrap()).unwrap();
    let saved = first.journal.save().unwrap();
    drop(draws);
    let disk = first.disk.after_crash(Names::All, Tail::All);
    first.journal.stop().unwrap();
    saver(&disk, all()).restore(&saved.path, |_| ()).unwrap();
}

/// The size of a segment's last record.
fn last_record(disk: &FakeDisk, path: &Path) -> usize {
    let bytes = disk.files().into_iter().find(|(of, _)| of == path).unwrap().1;
    let (mut at, mut size) = (20, 0);
    while at < bytes.len() {
        let word = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().unwrap());
        size = 12 + (word & ((1 << 56) - 1)) as usize;
        at += size;
    }
    size
}

#[test]
fn a_machine_that_stops_at_any_operation_of_a_start_loses_nothing_acknowledged() {
    let every = if std::env::var_os("CI").is_some() { 1 } else { 5 };
    let random = || Xoshiro256PlusPlus::seed_from_u64(3);
    let whole = run(&mut Server::start(&FakeDisk::default(), None).unwrap(), &mut random(), ACTS, None);
    let (mut starts, mut kinds) = (0, [0; 4]);
    for stop in 40.. {
        let disk = FakeDisk::default();
        let (mut random, mut server) = (random(), Server::start(&disk, None).unwrap());
        disk.stop_after(stop);
        let history = run(&mut server, &mut random, ACTS, Some(&whole));
        let killed = disk.after_crash(KILLED.0, KILLED.1);
        let recovered = recover(&killed, Path::new(ROOT), server.tables.bytes().0).unwrap().unwrap();
        let kind = 2 * usize::from(recovered.torn.is_some()) + usize::from(!recovered.leases.is_empty());
        // One of each kind: with an end that is torn and without, and with leases and without.
        if kinds[kind] == 0 {
            kinds[kind] += 1;
            for second in (0..).step_by(every) {
                let disk = killed.after_crash(KILLED.0, KILLED.1);
                disk.stop_after(second);
                let started = Server::start(&disk, None).is_ok();
                for (names, tail) in POWER_LOSSES.into_iter().chain([KILLED]) {
                    let is_kill = matches!((names, tail), (Names::All, Tail::All));
                    let least = if is_kill { history.written } else { history.synced };
                    let place = format!("stopped after {stop}, its start after {second}, {names:?} {tail:?}");
                    check(&disk.after_crash(names, tail), None, &history, least, &place);
                    starts += 1;
                }
                if started {
                    break;
                }
            }
        }
        if kinds == [1; 4] || history.finished {
            break;
        }
    }
    println!("{starts} starts, {kinds:?}");
    assert_eq!(kinds, [1; 4]);
}
