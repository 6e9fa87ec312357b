//! The threads that make the commits of a journal, and the time at which commits are on the disk.

use super::support::disk::{FakeDisk, Names, Pages, Tail};
use super::support::journaled::{LONG, Server, all, left, now, options_of, server, small_segments, wait};
use super::support::saving::{NOW, ROOT};
use super::support::{Rows, tables};
use reverie_core::checkpoint::{RetentionPolicy, Store};
use reverie_core::error::Error;
use reverie_core::journal::{JournalEnd, JournalOptions, Log, Saver, SyncPolicy, recover, verify};
use reverie_core::sample::SampleRequest;
use reverie_core::table::{Lessee, TableJournal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn with(syncs: SyncPolicy) -> Server {
    server(options_of(syncs))
}

#[test]
fn a_thread_that_waits_makes_the_commit_itself_for_all_that_wait() {
    for syncs in [SyncPolicy::Os, SyncPolicy::Interval(LONG)] {
        let mut server = server(options_of(syncs));
        let mut inserts = [server.insert("rows", 1.0), server.insert("queue", 2.0)];
        server.journal.commit_here();
        assert!(inserts.iter_mut().all(|insert| insert.poll().is_some()), "{syncs:?}");
        assert_eq!(left(&server.disk.after_crash(Names::All, Tail::All))[1].lines().count(), 3, "{syncs:?}");
        let rounds = server.journal.info().rounds;
        server.journal.commit_here();
        assert_eq!(server.journal.info().rounds, rounds, "no request waits");
        server.journal.stop().unwrap();
    }
}

#[test]
fn a_thread_that_waits_leaves_a_commit_to_the_journals_own_if_it_must_be_on_the_disk_or_finds_no_room() {
    let mut server = with(SyncPolicy::Always);
    let insert = server.insert("rows", 1.0);
    server.journal.commit_here();
    wait(insert).unwrap();
    assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None)), now(&server));
    server.journal.stop().unwrap();

    let mut server = with(SyncPolicy::Os);
    server.disk.set_capacity(Some(server.disk.size() + 20));
    let mut insert = server.insert("rows", 1.0);
    server.journal.commit_here();
    assert!(insert.poll().is_none());
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
    server.journal.commit_here();
    assert!(insert.poll().is_none());
    server.disk.set_capacity(None);
    wait(insert).unwrap();
    server.journal.stop().unwrap();
}

#[test]
fn a_commit_of_a_waiting_thread_counts_for_the_bytes_after_which_a_checkpoint_is_asked_for() {
    let mut server = with(SyncPolicy::Os);
    let (asks, asked) = std::sync::mpsc::channel();
    server.journal.checkpoint_by(2000, move || asks.send(()).unwrap());
    for value in 0..40 {
        drop(server.insert("rows", f64::from(value)));
        server.journal.commit_here();
        assert_eq!(asked.try_recv().is_ok(), server.journal.info().log_bytes >= 2000, "{:?}", server.journal.info());
        if server.journal.info().log_bytes >= 2000 {
            return server.journal.stop().unwrap();
        }
    }
    panic!("{:?}", server.journal.info());
}

#[test]
fn a_commit_of_a_waiting_thread_that_fails_stops_the_journal_for_good() {
    let mut server = server(options_of(SyncPolicy::Os));
    let (mut one, other) = (server.insert("rows", 1.0), server.insert("rows", 2.0));
    server.disk.stop_after(0);
    server.journal.commit_here();
    assert!(matches!(one.poll(), Some(Err(Error::Storage { .. }))));
    assert!(matches!(wait(other), Err(Error::Storage { .. })));
    server.disk.stop_after(1 << 40);
    assert!(matches!(wait(server.journal.durable(true)), Err(Error::Storage { .. })), "the disk works again");
    let files = server.disk.files();
    assert!(server.journal.stop().is_err());
    assert_eq!(server.disk.files(), files, "nothing is tried again");
}

#[test]
fn threads_that_wait_at_the_same_time_each_have_their_items_in_the_journal() {
    for syncs in [SyncPolicy::Os, SyncPolicy::Always] {
        let server = server(options_of(syncs));
        let table = Arc::clone(server.tables.get("rows").unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (tables, table, disk) = (&server.tables, Arc::clone(&table), &server.disk);
                scope.spawn(move || {
                    let mut rows = Rows::new(tables);
                    for value in 0..25 {
                        rows.close();
                        let insert = table.insert(rows.inserts(&[f64::from(1000 * thread + value)])).unwrap();
                        let key = wait(insert).unwrap()[0].get();
                        let there = left(&disk.after_crash(Names::All, Tail::All))[0].clone();
                        // Items of other threads may have evicted it by now.
                        let is_here = table.get(&[key]).is_ok();
                        assert!(!is_here || there.contains(&key.to_string()), "{key} is not in {there}");
                    }
                });
            }
        });
        server.journal.stop().unwrap();
        assert_eq!(left(&server.disk), now(&server), "{syncs:?}");
    }
}

#[test]
fn at_half_of_the_bytes_that_may_be_lost_the_disk_begins_to_work_and_no_request_waits_for_it() {
    for (most, syncs) in [(10_000, 1), (1 << 20, 0)] {
        let mut server = server(JournalOptions { max_unsynced_bytes: most, ..options_of(SyncPolicy::Os) });
        while server.journal.info().unsynced_bytes <= 5_000 && server.journal.info().syncs == 0 {
            wait(server.insert("rows", 1.0)).unwrap();
        }
        while server.journal.info().syncs < syncs {
            std::thread::yield_now();
        }
        wait(server.insert("rows", 2.0)).unwrap();
        assert_eq!(server.journal.info().syncs, syncs, "{most}");
        server.journal.stop().unwrap();
    }
}

#[test]
fn while_a_request_waits_for_the_disk_every_commit_has_priorities_and_counts() {
    // A sync that follows completes the request, whichever thread made the commits.
    for waits in [true, false] {
        let mut server = server(options_of(SyncPolicy::Os));
        wait(server.insert("rows", 1.0)).unwrap();
        server.disk.hold_syncs(true);
        let flush = waits.then(|| server.journal.durable(true));
        while waits && server.disk.held_syncs() == 0 {
            std::thread::yield_now();
        }
        wait(server.draw("rows")).unwrap();
        wait(server.insert("rows", 2.0)).unwrap();
        let written = left(&server.disk.after_crash(Names::All, Tail::All));
        assert_eq!(written == now(&server), waits, "{written:?}");
        server.disk.hold_syncs(false);
        flush.into_iter().for_each(|flush| wait(flush).unwrap());
        server.journal.stop().unwrap();
    }
}

/// A journal in segments of 300 bytes, with some commits; the last of them is on the disk if `synced`.
fn in_segments(synced: bool) -> FakeDisk {
    let (tables, disk, log) = small_segments();
    let mut rows = Rows::new(&tables);
    for value in 0..6 {
        rows.close();
        drop(tables.get("rows").unwrap().insert(rows.inserts(&[f64::from(value)])).unwrap());
        log.commit(false).unwrap();
    }
    if synced {
        log.sync().unwrap();
    }
    disk
}

fn segments(disk: &FakeDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect()
}

#[test]
fn a_full_segment_goes_to_the_disk_with_the_next_sync_and_no_commit_waits_for_it() {
    let disk = in_segments(false);
    assert!(segments(&disk).len() > 3);
    assert_eq!(left(&disk.after_crash(Names::Synced, Tail::None))[0].lines().count(), 1, "nothing waited for the disk");
    let disk = in_segments(true);
    assert_eq!(left(&disk.after_crash(Names::Synced, Tail::None)), left(&disk));
}

/// The offset behind the first record of a segment that follows another: its head has 20 bytes, and the record of the
/// segment before 28.
fn behind_first(bytes: &[u8]) -> usize {
    let word = u64::from_le_bytes(bytes[52..60].try_into().unwrap());
    60 + (word & ((1 << 56) - 1)) as usize
}

#[test]
fn a_segment_that_lost_its_name_or_its_end_with_the_machine_ends_the_journal_unless_it_was_on_the_disk() {
    for synced in [false, true] {
        for left_of_it in
            ["nothing", "a name", "a head", "half of what says which segment is before it", "a record", "half a record"]
        {
            let disk = in_segments(synced);
            let (lost, bytes) =
                disk.files().into_iter().filter(|(path, _)| segments(&disk).contains(path)).nth(2).unwrap();
            let size = match left_of_it {
                "nothing" => None,
                "a name" => Some(0),
                "a head" => Some(20),
                "half of what says which segment is before it" => Some(33),
                "a record" => Some(behind_first(&bytes)),
                _ => Some(behind_first(&bytes) - 5),
            };
            match size {
                None => disk.delete(&lost),
                Some(size) => disk.keep(&lost, size),
            }
            let (tables, _) = tables(all());
            let recovered = recover(&disk, Path::new(ROOT), tables.bytes().0);
            if synced {
                let refused = matches!(&recovered, Err(Error::DamagedFile { path, .. }) if lost.ends_with(path));
                assert!(refused, "{left_of_it}: {recovered:?}");
                continue;
            }
            let recovered = recovered.unwrap_or_else(|error| panic!("{left_of_it}: {error}")).expect("a checkpoint");
            assert_eq!(recovered.torn.map(|(path, _)| path), Some(lost), "{left_of_it}");
            assert!((1..5).contains(&recovered.commits), "{left_of_it}: {}", recovered.commits);
        }
    }
}

#[test]
fn inserts_that_waited_for_room_are_on_the_disk_before_they_are_acknowledged_if_they_must_be() {
    let mut server = with(SyncPolicy::Always);
    wait(server.insert("rows", 1.0)).unwrap();
    server.disk.set_capacity(Some(server.disk.size() + 20));
    let waiting = server.insert("rows", 2.0);
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
    server.disk.set_capacity(None);
    wait(waiting).unwrap();
    assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None)), now(&server));
    server.journal.stop().unwrap();
}

#[test]
fn changes_that_survived_the_end_of_the_process_are_on_the_disk_once_the_next_one_has_begun() {
    let mut server = with(SyncPolicy::Os);
    // So that most of the segment is a chunk: little of it would be written again.
    let values: Vec<f64> = (0..400).map(f64::from).collect();
    let items = server.rows.inserts(&values);
    wait(server.tables.get("rows").unwrap().insert(items).unwrap()).unwrap();
    let killed = server.disk.after_crash(Names::All, Tail::All);
    let before = left(&killed);
    let (tables, _) = tables(all());
    let store =
        Store::new(Arc::new(killed.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let saver = Saver::new(tables, Arc::new(killed.clone()), store, || NOW);
    saver.recover(false, false, |_| ()).unwrap().expect("a checkpoint");
    saver.begin_journal(options_of(SyncPolicy::Os)).unwrap();
    assert_eq!(left(&killed.after_crash(Names::Synced, Tail::None)), before);
    saver.end_journal().unwrap();
    server.journal.stop().unwrap();
}

#[test]
fn draws_that_a_reader_in_the_process_had_not_taken_are_not_held_after_its_end() {
    let client = Lessee { sender: [7; 16], request: 1 };
    for (lessee, is_held) in [(Lessee::HERE, false), (client, true)] {
        let mut server = with(SyncPolicy::Os);
        wait(server.insert("queue", 1.0)).unwrap();
        let request = SampleRequest { num_samples: 1, lessee: Some(lessee), ..SampleRequest::default() };
        let draws = wait(server.tables.get("queue").unwrap().sample(request).unwrap()).unwrap();
        let killed = server.disk.after_crash(Names::All, Tail::All);
        let (tables, _) = tables(all());
        let store =
            Store::new(Arc::new(killed.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None })
                .unwrap();
        let saver = Saver::new(Arc::clone(&tables), Arc::new(killed), store, || NOW);
        saver.recover(false, true, |_| ()).unwrap().expect("a checkpoint");
        assert_eq!(tables.holds_leases(), is_held);
        assert_eq!(tables.get("queue").unwrap().info().size, u64::from(!is_held));
        drop(draws);
        server.journal.stop().unwrap();
    }
}

#[test]
fn bytes_that_a_sync_waits_for_count_until_they_are_on_the_disk() {
    let (tables, _) = tables(all());
    let disk = FakeDisk::default();
    let store =
        Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None }).unwrap();
    let log = Log::begin(Arc::clone(&tables), Arc::new(store), JournalEnd::default(), || NOW).unwrap();
    drop(tables.get("rows").unwrap().insert(Rows::new(&tables).inserts(&[1.0])).unwrap());
    let unsynced = log.commit(false).unwrap();
    assert!(unsynced > 0);
    disk.fail_sync(0, Pages::Kept);
    assert!(log.sync().is_err());
    assert_eq!(log.unsynced_bytes(), unsynced);
}

/// Polls until it holds, for some seconds at most.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed().as_secs() < 60, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_request_that_no_thread_waits_for_is_committed_while_the_disk_is_slow() {
    for syncs in [SyncPolicy::Os, SyncPolicy::Interval(LONG)] {
        let mut server = with(syncs);
        let mut first = server.insert("rows", 1.0);
        server.disk.hold_syncs(true);
        let mut durable = server.journal.durable(true);
        until("the disk works", || server.disk.held_syncs() == 1);
        assert!(first.poll().is_some(), "it is written");
        let mut later = server.insert("queue", 2.0);
        until("it is committed", || later.poll().is_some());
        assert_eq!(left(&server.disk.after_crash(Names::All, Tail::All)), now(&server));
        assert!(durable.poll().is_none(), "the disk still works");
        // A request for the disk that comes meanwhile is not answered by the sync that began before.
        let mut last = server.journal.durable(true);
        server.disk.hold_syncs(false);
        wait(durable).unwrap();
        until("the second one", || last.poll().is_some());
        assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None)), now(&server));
        assert_eq!(server.journal.info().waiting, 0);
        server.journal.stop().unwrap();
    }
}

#[test]
fn a_journal_that_ends_waits_for_the_disk_that_works() {
    let mut server = with(SyncPolicy::Os);
    drop(server.insert("rows", 1.0));
    server.disk.hold_syncs(true);
    let durable = server.journal.durable(true);
    until("the disk works", || server.disk.held_syncs() == 1);
    drop(server.insert("rows", 2.0));
    std::thread::scope(|scope| {
        let end = scope.spawn(|| server.journal.stop());
        server.disk.hold_syncs(false);
        end.join().unwrap().unwrap();
    });
    wait(durable).unwrap();
    assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None)), now(&server));
}

#[test]
fn a_sync_that_fails_fails_those_that_were_asked_for_meanwhile() {
    let (tables, disk, log) = small_segments();
    drop(tables.get("rows").unwrap().insert(Rows::new(&tables).inserts(&[1.0])).unwrap());
    log.commit(false).unwrap();
    disk.hold_syncs(true);
    disk.fail_sync(0, Pages::Lost);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| log.sync());
        until("the disk works", || disk.held_syncs() == 1);
        let other = scope.spawn(|| log.sync());
        // Time for the other to do what it must not: report success before the failure is known.
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        disk.hold_syncs(false);
        assert!(one.join().unwrap().is_err());
        assert!(other.join().unwrap().is_err());
    });
    assert!(log.commit(false).is_err());
}

#[test]
fn no_request_waits_for_room_on_a_disk_that_failed_after_it_was_full() {
    let mut server = with(SyncPolicy::Os);
    wait(server.insert("rows", 1.0)).unwrap();
    server.disk.set_capacity(Some(server.disk.size() + 20));
    let waiting = server.insert("rows", 2.0);
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
    server.disk.fail_sync(0, Pages::Lost);
    server.disk.set_capacity(None);
    server.journal.save().unwrap_err();
    // It is in the journal if the journal's thread was first.
    assert!(wait(waiting).is_ok_and(|keys| keys.len() == 1) || server.journal.info().error.is_some());
    let refused = server.tables.get("rows").unwrap().insert(server.rows.inserts(&[3.0])).and_then(wait);
    assert!(matches!(refused, Err(Error::Storage { .. })));
}

#[test]
fn a_segment_of_a_newer_version_is_refused_and_not_taken_for_the_end_of_the_journal() {
    let mut server = server(options_of(SyncPolicy::Os));
    wait(server.insert("rows", 1.0)).unwrap();
    server.journal.stop().unwrap();
    server.store.release();
    let is_segment = |(path, _): &(PathBuf, Vec<u8>)| path.extension().is_some_and(|kind| kind == "segment");
    let (path, _) = server.disk.files().into_iter().rfind(is_segment).unwrap();
    server.disk.edit(&path, |bytes| {
        bytes[7] += 1;
        let crc = crc32fast::hash(&bytes[..16]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    });
    let (tables, _) = tables(all());
    let Err(refused) = recover(&server.disk, Path::new(ROOT), tables.bytes().0) else { panic!("it is refused") };
    for error in [refused, verify(&server.disk, Path::new(ROOT)).unwrap_err()] {
        assert!(
            matches!(&error, Error::Storage { path: named, .. } if *named == path.display().to_string()),
            "{error}"
        );
        assert!(error.to_string().contains("use a newer Reverie"), "{error}");
    }
}

#[test]
fn commits_go_to_the_disk_in_each_interval_without_being_asked_for() {
    let interval = Duration::from_millis(5);
    let mut server = server(JournalOptions { interval, ..options_of(SyncPolicy::Interval(interval)) });
    for value in 0..3 {
        wait(server.insert("rows", f64::from(value))).unwrap();
        let want = now(&server)[0].lines().count();
        until("it is on the disk", || {
            left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count() == want
        });
    }
    server.journal.stop().unwrap();
}
