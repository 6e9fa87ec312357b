//! Requests that come while a journal ends, and afterwards.

use super::support::disk::{Names, Tail};
use super::support::journaled::{LONG, left, now, options_of, server, wait};
use reverie_core::error::Error;
use reverie_core::journal::Syncs;
use reverie_core::table::Durable;
use std::sync::Arc;

#[test]
fn a_request_that_comes_while_the_journal_ends_has_the_outcome_of_the_last_commit_and_a_later_one_is_refused() {
    for has_room in [true, false] {
        let mut server = server(options_of(Syncs::Interval(LONG)));
        wait(server.insert("rows", 1.0)).unwrap();
        server.disk.hold_syncs(true);
        let journal = Arc::clone(&server.journal);
        let stopping = std::thread::spawn(move || journal.stop());
        while server.disk.held_syncs() == 0 {
            std::thread::yield_now();
        }
        let mut late = server.insert("rows", 2.0);
        assert!(late.poll().is_none(), "it is not written");
        if !has_room {
            server.disk.set_capacity(Some(server.disk.size() + 20));
        }
        server.disk.hold_syncs(false);
        let (stopped, late) = (stopping.join().unwrap(), wait(late));
        let is_refused = |outcome: Option<Error>| matches!(outcome, Some(Error::Storage { .. }));
        assert_eq!((is_refused(late.err()), is_refused(stopped.err())), (!has_room, !has_room));
        let found = left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count();
        let num_lost = if has_room { 0 } else { 2 };
        assert_eq!(found, now(&server)[0].lines().count() - num_lost);
        let refused = server.tables.get("rows").unwrap().insert(server.rows.inserts(&[3.0])).err();
        // A journal that has ended well has closed tables.
        for outcome in [refused, wait(server.journal.barrier()).err(), wait(server.journal.durable(true)).err()] {
            assert_eq!(matches!(&outcome, Some(Error::Closed { name }) if name == "rows"), has_room, "{outcome:?}");
            assert_eq!(is_refused(outcome), !has_room);
        }
    }
}
