//! Requests that are withdrawn when they are done at their tables and the journal has not written it.

use super::support::disk::{Names, Tail};
use super::support::journaled::{LONG, Server, left, now, options_of, server, wait};
use reverie_core::append::{MultiTableInsert, SplitInsert};
use reverie_core::batch::ONE_BY_ONE;
use reverie_core::error::Error;
use reverie_core::journal::SyncPolicy;
use reverie_core::replay::Replay;
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::table::{Change, Keys, Priority, TableJournal, Ticket};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// A server with an item in each table, whose disk has no room for more.
fn full() -> Server {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    wait(server.insert("rows", 1.0)).unwrap();
    wait(server.insert("queue", 1.0)).unwrap();
    server.disk.set_capacity(Some(server.disk.size() + 20));
    server
}

/// Waits until the journal has found no room.
fn found_full(server: &Server) {
    while !server.journal.info().is_full {
        std::thread::yield_now();
    }
}

/// A request for more draws than there are items.
fn draw_three(server: &Server) -> Ticket<Draws> {
    server.tables.get("queue").unwrap().sample(of(3)).unwrap()
}

fn of(num_samples: usize) -> SampleRequest {
    SampleRequest { num_samples, ..SampleRequest::default() }
}

/// An insert of two items more than the queue has places for.
fn insert_too_many(server: &mut Server) -> Ticket<Keys> {
    let places = 10 - server.tables.get("queue").unwrap().info().size as usize;
    let rows = server.rows.inserts(&vec![2.0; places + 2]);
    server.tables.get("queue").unwrap().insert(rows).unwrap()
}

fn assert_names_the_journal(why: &str) {
    assert!(why.contains("not committed: the journal waits for room on the disk ("), "{why}");
}

fn not_committed<T: Default + std::fmt::Debug>(server: &Server, mut ticket: Ticket<T>) -> usize {
    found_full(server);
    assert!(ticket.poll().is_none());
    match ticket.cancel() {
        Err(Error::NotCommitted { keys, why }) => {
            assert_names_the_journal(&why);
            keys.len()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_insert_that_is_withdrawn_before_its_commit_is_an_error_with_all_keys_and_is_committed_when_there_is_room() {
    let mut server = full();
    let ticket = server.insert("rows", 2.0);
    assert_eq!(not_committed(&server, ticket), 1);
    assert_eq!(server.tables.get("rows").unwrap().info().size, 2);
    server.disk.set_capacity(None);
    wait(server.insert("rows", 3.0)).unwrap();
    let state = left(&server.disk.after_crash(Names::All, Tail::All));
    assert_eq!(state[0].lines().count(), now(&server)[0].lines().count());
    server.journal.stop().unwrap();
}

#[test]
fn a_kill_after_the_answer_of_a_withdrawn_request_undoes_no_part_of_it() {
    for syncs in [SyncPolicy::Os, SyncPolicy::Interval(LONG), SyncPolicy::Always] {
        let mut server = server(options_of(syncs));
        // With `always` also a loss of power.
        let (names, tail) =
            if syncs == SyncPolicy::Always { (Names::Synced, Tail::None) } else { (Names::All, Tail::All) };
        let in_queue = |server: &Server| left(&server.disk.after_crash(names, tail))[1].lines().count();
        let mut insert = insert_too_many(&mut server);
        assert!(insert.poll().is_none());
        insert.withdraw();
        assert_eq!(wait(insert).unwrap().len(), 10, "the part that is in");
        assert_eq!(in_queue(&server), now(&server)[1].lines().count(), "{syncs:?}");
        let mut draws = server.tables.get("queue").unwrap().sample(of(12)).unwrap();
        assert!(draws.poll().is_none());
        draws.withdraw();
        let draws = wait(draws).unwrap();
        assert_eq!((draws.len(), draws.not_committed), (10, None));
        assert_eq!(in_queue(&server), 1, "{syncs:?}: a kill must not bring them back");
        server.journal.stop().unwrap();
    }
}

#[test]
fn a_wait_for_the_commit_of_a_part_makes_that_commit() {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    assert_eq!(insert_too_many(&mut server).cancel_within(LONG).unwrap().len(), 10);
    let killed = |server: &Server| left(&server.disk.after_crash(Names::All, Tail::All))[1].lines().count();
    assert_eq!(killed(&server), now(&server)[1].lines().count());
    let draws = server.tables.get("queue").unwrap().sample(of(12)).unwrap().cancel_within(LONG).unwrap();
    assert_eq!((draws.len(), draws.not_committed, killed(&server)), (10, None, 1));
    server.journal.stop().unwrap();
}

#[test]
fn a_part_that_is_withdrawn_before_its_commit_is_reported_as_such() {
    let mut server = full();
    let draws = draw_three(&server);
    let draws = draws.cancel().unwrap();
    assert_eq!(draws.len(), 1);
    assert!(draws.not_committed.expect("a kill brings it back").contains("not committed"));
    let insert = insert_too_many(&mut server);
    match insert.cancel_within(NOW) {
        Err(Error::NotCommitted { keys, why }) => {
            assert_eq!(keys.len(), 10);
            assert!(why.contains("not committed"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let sampled = Replay::sample(&*server.tables, "queue", of(12), &ONE_BY_ONE, None).cancel().unwrap();
    assert_eq!(sampled.batches.iter().map(|batch| batch.len()).sum::<usize>(), 10);
    assert!(matches!(sampled.error, Some(Error::NotCommitted { .. })), "{:?}", sampled.error);
    let none = draw_three(&server).cancel().unwrap();
    assert_eq!((none.len(), none.not_committed), (0, None), "there is nothing to commit");
    server.disk.set_capacity(None);
    server.journal.stop().unwrap();
}

#[test]
fn changes_that_are_withdrawn_before_their_commit_name_the_journal() {
    let server = full();
    assert_eq!(not_committed(&server, Replay::reset(&*server.tables, "rows")), 0);
    let configured = Change { max_size: Some(5), ..Change::default() };
    assert_eq!(not_committed(&server, Replay::configure(&*server.tables, "queue", configured)), 0);
    assert_eq!(server.tables.get("rows").unwrap().info().size, 0, "they are done");
    server.disk.set_capacity(None);
    server.journal.stop().unwrap();
}

#[test]
fn draws_that_are_withdrawn_before_their_commit_are_handed_over_with_the_reason() {
    let server = full();
    let ticket = server.draw("queue");
    found_full(&server);
    let draws = ticket.cancel().unwrap();
    assert_eq!(draws.len(), 1, "they exist nowhere else");
    assert_names_the_journal(&draws.not_committed.expect("a kill brings their items back"));
    server.disk.set_capacity(None);
    server.journal.stop().unwrap();
}

#[test]
fn an_insert_of_which_a_part_has_no_commit_is_not_complete_and_has_the_keys_and_tables() {
    let mut server = full();
    let rows = server.rows.inserts(&[2.0, 3.0]);
    let mut split = SplitInsert::send(&*server.tables, "rows", rows, 10).unwrap();
    assert_eq!(split.wait(NOW), None);
    found_full(&server);
    assert_eq!(split.cancel(NOW), Ok(()));
    assert_eq!((split.keys().len(), split.is_complete()), (2, false));
    assert_names_the_journal(split.not_committed().expect("it has no commit"));
    let targets = [("rows", Priority::Value(1.0)), ("queue", Priority::Value(1.0))];
    let item = server.rows.item(4.0);
    let mut both = MultiTableInsert::send(&*server.tables, item, &targets).unwrap().expect("the journal waits");
    assert_eq!(both.wait(NOW), None);
    assert_eq!(both.cancel(NOW), Ok(()));
    assert_eq!((both.taken(), both.is_complete()), (&["rows", "queue"][..], false));
    assert_names_the_journal(both.not_committed().expect("it has no commit"));
    server.disk.set_capacity(None);
    server.journal.stop().unwrap();
}
