//! The thread of a journal: which requests wait for it, and what happens when the disk does not take what it writes.

use super::support::disk::{FakeDisk, Names, Pages, Tail};
use super::support::journaled::{LONG, Server, all, left, now, options_of, server, small_segments, wait};
use super::support::saving::{NOW, ROOT, contents};
use super::support::{self, Rows, options, queue, tables};
use reverie_core::checkpoint::{Disk, RetentionPolicy, Store};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::journal::{JournalEnd, JournalOptions, Log, RepairOutcome, SyncPolicy, recover, repair, verify};
use reverie_core::replay::Replay;
use reverie_core::sample::SampleRequest;
use reverie_core::table::{Change, InsertReason, Lessee, TableJournal, TableOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn acknowledged_changes_are_there_after_the_end_of_the_process_and_with_always_after_that_of_the_machine() {
    for syncs in [SyncPolicy::Os, SyncPolicy::Interval(LONG), SyncPolicy::Always] {
        let mut server = server(options_of(syncs));
        wait(server.insert("rows", 1.0)).unwrap();
        wait(server.insert("queue", 2.0)).unwrap();
        wait(server.insert("queue", 3.0)).unwrap();
        wait(server.draw("queue")).unwrap();
        // The end of the process keeps all that was written, that of the machine what is known to be on the disk.
        let names = |tail| match tail {
            Tail::All => left(&server.disk.after_crash(Names::All, tail)),
            tail => left(&server.disk.after_crash(Names::Synced, tail)),
        };
        let counters = |state: &[String]| state[1].split(" Stats").next().map(str::to_owned);
        assert_eq!(counters(&names(Tail::All)), counters(&now(&server)), "{syncs:?}");
        let lines = |state: &[String]| state.iter().map(|table| table.lines().count()).collect::<Vec<_>>();
        assert_eq!(lines(&names(Tail::All)), lines(&now(&server)), "{syncs:?}");
        let is_there = lines(&names(Tail::None)) == lines(&now(&server));
        assert_eq!(is_there, syncs == SyncPolicy::Always, "{syncs:?}");
        wait(server.journal.durable(true)).unwrap();
        assert_eq!(lines(&names(Tail::None)), lines(&now(&server)), "{syncs:?}: a request for the disk has it");
        server.journal.stop().unwrap();
        assert_eq!(names(Tail::None), now(&server), "{syncs:?}: counts of draws, too, once it is stopped");
    }
}

#[test]
fn deletes_resets_and_configurations_are_written_before_they_are_acknowledged() {
    let mut server = server(options_of(SyncPolicy::Always));
    let keys: Vec<i64> = wait(server.insert("rows", 1.0)).unwrap().iter().map(|key| key.get()).collect();
    wait(server.insert("queue", 1.0)).unwrap();
    let count = |server: &Server| left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count();
    assert_eq!(count(&server), 3);
    wait(server.tables.delete_where("rows", Some(&keys), &[])).unwrap();
    assert_eq!(count(&server), 1);
    wait(server.insert("rows", 1.0)).unwrap();
    assert_eq!(count(&server), 3);
    wait(Replay::reset(&*server.tables, "rows")).unwrap();
    assert_eq!(count(&server), 1);
    server.journal.stop().unwrap();
}

#[test]
fn a_full_disk_holds_inserts_back_and_lets_them_go_on_when_there_is_room() {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    wait(server.insert("rows", 1.0)).unwrap();
    server.disk.set_capacity(Some(server.disk.size() + 20));
    let mut waiting = server.insert("rows", 2.0);
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
    assert!(waiting.poll().is_none());
    assert!(server.journal.info().error.is_some());
    let why = server.tables.get("rows").unwrap().why();
    assert!(matches!(why.insert_reason, Some(InsertReason::Journal(_))) && why.journal_error.is_none());
    assert!(why.to_string().contains("one would: the journal waits for room on the disk ("), "{why}");
    // Draws from a table that keeps its items go on.
    wait(server.draw("rows")).unwrap();
    server.disk.set_capacity(None);
    wait(waiting).unwrap();
    let info = server.journal.info();
    assert_eq!((info.is_full, info.error), (false, None));
    assert_eq!(server.tables.get("rows").unwrap().why().insert_reason, None);
    wait(server.insert("rows", 3.0)).unwrap();
    let state = left(&server.disk.after_crash(Names::All, Tail::All));
    assert_eq!(state[0].lines().count(), now(&server)[0].lines().count());
    server.journal.stop().unwrap();
}

#[test]
fn a_disk_that_stays_full_is_tried_again_without_new_files_and_all_is_there_at_the_end() {
    // Room for none, a part or all of a segment's head, and for the records of some inserts.
    for room in [0, 7, 20, 60, 700] {
        let (tables, disk, log) = small_segments();
        let mut rows = Rows::new(&tables);
        let mut insert = |value: f64| {
            rows.close();
            drop(tables.get("rows").unwrap().insert(rows.inserts(&[value])).unwrap());
        };
        disk.set_capacity(Some(disk.size() + room));
        let failed = (0..10).filter(|value| {
            insert(f64::from(*value));
            let failed = log.commit(false).is_err();
            assert_eq!(failed, log.is_full(), "{room}: the only error is that of a full disk");
            failed
        });
        assert!(failed.count() > 5, "{room}");
        let files = disk.names().len();
        for _ in 0..5 {
            assert!(log.commit(false).is_err());
        }
        assert_eq!(disk.names().len(), files, "{room}");
        disk.set_capacity(None);
        log.commit(true).unwrap();
        insert(10.0);
        log.commit(true).unwrap();
        let want: Vec<_> = tables.iter().map(|table| contents(&tables, table.name())).collect();
        assert_eq!(left(&disk.after_crash(Names::All, Tail::All)), want, "{room}");
    }
}

#[test]
fn a_write_that_fails_stops_the_journal_and_inserts_with_it_while_draws_go_on() {
    let mut server = server(options_of(SyncPolicy::Always));
    wait(server.insert("rows", 1.0)).unwrap();
    server.disk.stop_after(0);
    assert!(matches!(wait(server.insert("rows", 2.0)), Err(Error::Storage { .. })));
    let refused = server.tables.get("rows").unwrap().insert(server.rows.inserts(&[3.0]));
    assert!(matches!(refused, Err(Error::Storage { .. })), "the next is refused at once");
    let info = server.tables.journal().expect("the tables have it");
    assert!(info.error.is_some() && !info.is_full);
    let why = server.tables.get("queue").unwrap().why();
    assert_eq!(why.journal_error, info.error);
    assert!(why.to_string().contains("The journal has stopped, and every insert is refused"), "{why}");
    assert!(matches!(wait(server.journal.durable(true)), Err(Error::Storage { .. })));
    wait(server.draw("rows")).unwrap();
    assert!(matches!(server.journal.save(), Err(Error::Storage { .. })));
    assert!(server.journal.stop().is_err(), "the end says that not all is on the disk");
}

#[test]
fn a_sync_that_fails_stops_the_journal_also_if_a_checkpoint_made_it() {
    for by_checkpoint in [false, true] {
        let mut server = server(options_of(SyncPolicy::Interval(LONG)));
        wait(server.insert("rows", 1.0)).unwrap();
        wait(server.journal.durable(true)).unwrap();
        wait(server.insert("rows", 2.0)).unwrap();
        server.disk.fail_sync(0, Pages::Lost);
        let failed = if by_checkpoint { server.journal.save().map(drop) } else { wait(server.journal.durable(true)) };
        assert!(matches!(failed, Err(Error::Storage { .. })), "{failed:?}");
        // The disk works again, and would report the lost pages as written.
        assert!(matches!(wait(server.journal.durable(true)), Err(Error::Storage { .. })), "{by_checkpoint}");
        let refused = server.tables.get("rows").unwrap().insert(server.rows.inserts(&[3.0])).and_then(wait);
        assert!(matches!(refused, Err(Error::Storage { .. })), "{by_checkpoint}");
        let info = server.journal.info();
        assert!(info.error.is_some() && !info.is_full, "{info:?}");
        assert!(server.journal.save().is_err() && server.journal.stop().is_err());
        assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count(), 3);
    }
}

#[test]
fn a_request_for_the_disk_makes_the_journal_write_at_once_or_waits_for_its_turn_and_is_counted() {
    // Longer than the test waits.
    let never = Duration::from_secs(3600);
    let mut server = server(JournalOptions { interval: never, ..options_of(SyncPolicy::Interval(never)) });
    wait(server.insert("rows", 1.0)).unwrap();
    let mut later = server.journal.durable(false);
    assert_eq!((later.poll(), server.journal.info().waiting, server.journal.info().syncs), (None, 0, 0));
    wait(server.tables.durable(true)).unwrap();
    wait(later).unwrap();
    assert_eq!(server.journal.info().syncs, 1);
    server.disk.set_capacity(Some(server.disk.size()));
    drop(server.insert("rows", 2.0));
    let waiting = Replay::durable(&*server.tables);
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
    assert_eq!(server.journal.info().waiting, 1);
    let why = server.tables.get("queue").unwrap().why().to_string();
    assert!(why.contains("1 request waiting for the disk"), "{why}");
    server.disk.set_capacity(None);
    wait(waiting).unwrap();
    server.journal.stop().unwrap();
    let refused = wait(tables(all()).0.durable(true)).unwrap_err().to_string();
    assert!(refused.contains("no journal") && refused.contains("--journal"), "{refused}");
}

#[test]
fn a_draw_counts_whose_item_was_deleted_or_evicted_before_it_was_acknowledged() {
    let twice = TableOptions { max_times_sampled: 2, ..options("rows", 2) };
    for evicts in [false, true] {
        let (tables, _) = tables(vec![twice.clone()]);
        let disk = FakeDisk::default();
        let store =
            Store::new(Arc::new(disk.clone()), PathBuf::from(ROOT), RetentionPolicy { count: 1, max_age: None })
                .unwrap();
        let log = Log::begin(Arc::clone(&tables), Arc::new(store), JournalEnd::default(), || NOW).unwrap();
        let (table, mut rows) = (tables.get("rows").unwrap(), Rows::new(&tables));
        drop(table.insert(rows.inserts(&[1.0])).unwrap());
        let lessee = Some(Lessee { sender: [7; 16], request: 1 });
        let request = SampleRequest { num_samples: 1, lessee, ..SampleRequest::default() };
        let draws = table.sample(request).unwrap().poll().unwrap().unwrap();
        log.commit(true).unwrap();
        match evicts {
            true => drop(table.insert(rows.inserts(&[2.0, 3.0])).unwrap()),
            false => _ = table.delete(&[draws.keys[0].get()]).unwrap(),
        }
        log.commit(true).unwrap();
        let (again, _) = support::tables(vec![twice.clone()]);
        let recovered = recover(&disk.copy(), Path::new(ROOT), again.bytes().0).unwrap().expect("a checkpoint");
        assert!(recovered.leases.is_empty());
        recovered.checkpoint.restore(&again, NOW).unwrap();
        let (of, live) = (again.get("rows").unwrap().info(), table.info());
        assert_eq!(of.counters, live.counters, "{evicts}");
        assert_eq!((of.counters.samples, of.stats.age_sum), (1, live.stats.age_sum), "{evicts}");
        // One that comes back is undone here, and in the next commit.
        drop(draws);
        log.commit(true).unwrap();
        let (again, _) = support::tables(vec![twice.clone()]);
        let recovered = recover(&disk.copy(), Path::new(ROOT), again.bytes().0).unwrap().expect("a checkpoint");
        recovered.checkpoint.restore(&again, NOW).unwrap();
        assert_eq!(again.get("rows").unwrap().info().counters.samples, 0, "{evicts}");
    }
}

#[test]
fn a_checkpoint_is_asked_for_after_so_many_bytes_and_after_as_many_again_if_none_was_taken() {
    let mut server = server(options_of(SyncPolicy::Os));
    let (asks, asked) = std::sync::mpsc::channel();
    server.journal.checkpoint_by(2000, move || asks.send(()).unwrap());
    // The bytes two rounds before the end, and at the end: a thread that commits wakes this one before it asks, so that
    // this one may have begun another round.
    let insert_until_asked = |server: &mut Server| -> (u64, u64) {
        let mut written = vec![server.journal.info().log_bytes; 3];
        while asked.try_recv().is_err() {
            wait(server.insert("rows", 1.0)).unwrap();
            wait(server.journal.durable(true)).unwrap();
            written.push(server.journal.info().log_bytes);
        }
        (written[written.len() - 3], server.journal.info().log_bytes)
    };
    let (before, first) = insert_until_asked(&mut server);
    assert!(before < 2000 && first >= 2000, "{before} {first}");
    let (before, second) = insert_until_asked(&mut server);
    assert!(before < first + 2000 && second >= 4000, "{first} {before} {second}");
    server.journal.save().unwrap();
    let (before, third) = insert_until_asked(&mut server);
    assert!(before < 2000 && third >= 2000, "{before} {third}");
    server.journal.stop().unwrap();
}

#[test]
fn a_checkpoint_shortens_the_journal_and_the_next_start_goes_on_from_it() {
    let mut server = server(options_of(SyncPolicy::Os));
    for value in 0..30 {
        wait(server.insert("rows", f64::from(value))).unwrap();
    }
    let before = server.disk.size();
    server.journal.save().unwrap();
    assert!(server.disk.size() < before / 2, "{} of {before}", server.disk.size());
    wait(server.insert("rows", 30.0)).unwrap();
    server.journal.stop().unwrap();
    assert_eq!(left(&server.disk), now(&server));
}

#[test]
fn settings_without_a_meaning_are_refused() {
    let refused = |options: JournalOptions| assert!(matches!(options.validate(), Err(Error::InvalidArgument(_))));
    refused(JournalOptions { interval: Duration::ZERO, ..JournalOptions::default() });
    refused(JournalOptions { syncs: SyncPolicy::Interval(Duration::ZERO), ..JournalOptions::default() });
    refused(JournalOptions { max_unsynced_bytes: 0, ..JournalOptions::default() });
    JournalOptions::default().validate().unwrap();
}

#[test]
fn beyond_the_bytes_that_may_be_lost_a_commit_waits_for_the_disk() {
    for (most, is_there) in [(1, true), (1 << 20, false)] {
        let mut server = server(JournalOptions { max_unsynced_bytes: most, ..options_of(SyncPolicy::Os) });
        wait(server.insert("rows", 1.0)).unwrap();
        let found = left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count();
        assert_eq!(found == 3, is_there, "{most}");
        server.journal.stop().unwrap();
    }
}

#[test]
fn a_flipped_bit_of_what_was_on_the_disk_is_refused_or_harmless_wherever_it_is() {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    for value in 0..4 {
        wait(server.insert("rows", f64::from(value))).unwrap();
    }
    server.journal.stop().unwrap();
    let want = left(&server.disk);
    let (mut refused, mut harmless) = (0, 0);
    for (path, bytes) in server.disk.files() {
        for at in 0..bytes.len() {
            let disk = server.disk.copy();
            disk.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let (tables, _) = tables(all());
            let verified = verify(&disk, Path::new(ROOT));
            let recovered = recover(&disk, Path::new(ROOT), tables.bytes().0);
            assert_eq!(verified.is_ok(), recovered.is_ok(), "{path:?} {at}: a verification finds what a start finds");
            match recovered {
                Err(Error::DamagedFile { .. } | Error::Storage { .. }) => refused += 1,
                Err(other) => panic!("{path:?} {at}: {other}"),
                Ok(found) => {
                    found.expect("a checkpoint").checkpoint.restore(&tables, NOW).unwrap();
                    let got: Vec<_> = tables.iter().map(|table| contents(&tables, table.name())).collect();
                    assert_eq!(got, want, "{path:?} {at}");
                    harmless += 1;
                }
            }
        }
    }
    // The harmless bits are those of the last mark, on which nothing depends.
    assert!(refused > 500 && harmless < 200, "{refused} refused, {harmless} harmless");
}

/// A start with a constructor that gives `max_size`; returns the limit that applies.
fn started_with(disk: &FakeDisk, max_size: u64, always: bool) -> u64 {
    let (tables, _) = tables(vec![options("rows", max_size), queue("queue", 10)]);
    let checkpoint = recover(disk, Path::new(ROOT), tables.bytes().0).unwrap().expect("a checkpoint").checkpoint;
    checkpoint.restore_limits(&tables, always).unwrap();
    checkpoint.restore(&tables, NOW).unwrap();
    tables.get("rows").unwrap().info().options.max_size
}

#[test]
fn limits_that_were_changed_are_there_after_a_start_unless_the_constructor_gives_others_than_before() {
    let mut server = server(options_of(SyncPolicy::Always));
    let configure = |max_size| {
        let change = Change { max_size: Some(max_size), ..Change::default() };
        wait(server.tables.configure("rows", change)).unwrap();
    };
    configure(7);
    assert_eq!(started_with(&server.disk, 10, false), 7, "as acknowledged");
    assert_eq!(started_with(&server.disk, 12, false), 12, "the constructor's has changed");
    assert_eq!(started_with(&server.disk, 12, true), 7, "the saved ones are asked for");
    server.journal.save().unwrap();
    assert_eq!(started_with(&server.disk, 10, false), 7, "from the manifest");
    configure(8);
    assert_eq!(started_with(&server.disk, 10, false), 8, "the second change");
    configure(10);
    assert_eq!(started_with(&server.disk, 10, false), 10);
    wait(server.insert("rows", 1.0)).unwrap();
}

#[test]
fn a_repair_keeps_only_what_was_written_wherever_a_bit_is_flipped_and_changes_nothing_in_the_damaged_folder() {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    for value in 0..4 {
        wait(server.insert("rows", f64::from(value))).unwrap();
    }
    server.journal.stop().unwrap();
    let written = left(&server.disk);
    let written: BTreeSet<&str> = written[0].lines().skip(1).collect();
    let (mut whole, mut lossy) = (0, 0);
    for (path, bytes) in server.disk.files() {
        for at in (0..bytes.len()).step_by(7) {
            let disk = server.disk.copy();
            disk.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let before: Vec<_> = disk.files().into_iter().filter(|(path, _)| path.starts_with(ROOT)).collect();
            let any: Arc<dyn Disk> = Arc::new(disk.clone());
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            match repair(&any, Path::new(ROOT), PathBuf::from("/repaired"), &clock, |_| {}, NOW) {
                Err(error) => panic!("{path:?} {at}: {error}"),
                Ok(RepairOutcome { losses, .. }) => {
                    let (tables, _) = tables(all());
                    let found =
                        recover(&disk, Path::new("/repaired"), tables.bytes().0).unwrap().expect("it was saved");
                    found.checkpoint.restore(&tables, NOW).unwrap();
                    let got = contents(&tables, "rows");
                    let lines: Vec<&str> = got.lines().skip(1).collect();
                    assert!(lines.iter().all(|line| written.contains(line)), "{path:?} {at}: {got}");
                    let is_whole = lines.len() == 8;
                    assert!(is_whole || !losses.is_empty(), "{path:?} {at}: {got}");
                    *if is_whole { &mut whole } else { &mut lossy } += 1;
                }
            }
            let after: Vec<_> = disk.files().into_iter().filter(|(path, _)| path.starts_with(ROOT)).collect();
            assert_eq!(after, before, "{path:?} {at}");
        }
    }
    // The only manifest is that of the beginning: without it the journal is read from its first commit.
    assert!(whole > 0 && lossy > 15, "{whole} whole, {lossy} lossy");
}
