//! Requests that come while a journal ends, and afterwards.

use super::support::disk::{Names, Tail};
use super::support::journaled::{LONG, Server, left, now, options_of, server, wait};
use reverie_core::error::Error;
use reverie_core::journal::SyncPolicy;
use reverie_core::table::{Keys, TableJournal, Ticket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

#[test]
fn a_request_that_comes_while_the_journal_ends_has_the_outcome_of_the_last_commit_and_a_later_one_is_refused() {
    for has_room in [true, false] {
        let mut server = server(options_of(SyncPolicy::Interval(LONG)));
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
        for outcome in [refused, wait(server.journal.durable(true)).err()] {
            assert_eq!(matches!(&outcome, Some(Error::Closed { name }) if name == "rows"), has_room, "{outcome:?}");
            assert_eq!(is_refused(outcome), !has_room);
        }
        // A change of a table that is still open may be in no commit.
        let done = wait(server.journal.barrier()).err();
        assert_eq!(matches!(&done, Some(Error::Undecided(_))), has_room, "{done:?}");
        assert_eq!(is_refused(done), !has_room);
    }
}

#[test]
fn a_request_that_was_done_before_its_table_closed_is_not_refused_when_it_asks_the_ended_journal_for_its_outcome() {
    for late in [false, true] {
        let mut server = server(options_of(SyncPolicy::Interval(LONG)));
        wait(server.insert("rows", 1.0)).unwrap();
        if late {
            // The state of the second-to-last commit, in which the tables are open.
            server.disk.hold_syncs(true);
        }
        let table = Arc::clone(server.tables.get("rows").unwrap());
        let (journal, mut waits) = (Arc::clone(&server.journal), None);
        if !late {
            table.reset().unwrap();
            server.tables.close();
        }
        let stopping = std::thread::spawn(move || journal.stop());
        if late {
            while server.disk.held_syncs() == 0 {
                std::thread::yield_now();
            }
            // The last commit is for this one.
            waits = Some(server.insert("queue", 2.0));
            table.reset().unwrap();
            server.tables.close();
            server.disk.hold_syncs(false);
        }
        stopping.join().unwrap().unwrap();
        waits.into_iter().for_each(|waits| _ = wait(waits).unwrap());
        assert_eq!(left(&server.disk.after_crash(Names::Synced, Tail::None))[0].lines().count(), 1, "it is reset");
        assert_eq!(table.barrier().map(wait), Some(Ok(())), "late: {late}");
    }
}

/// A writer that inserts the next item as soon as the one before is confirmed.
struct SteadyWriter {
    server: Mutex<Server>,
    waiting: Mutex<Option<Ticket<Keys>>>,
    confirmed: AtomicUsize,
    refused: Mutex<Option<Error>>,
}

/// The most items that it inserts: a journal that waits until it has no more to do ends with these.
const MOST: usize = 50;

impl SteadyWriter {
    fn goes_on(self: &Arc<Self>) {
        let waker: Waker = Arc::clone(self).into();
        let mut waiting = self.waiting.lock().unwrap();
        while self.confirmed.load(SeqCst) < MOST {
            let mut ticket = match waiting.take() {
                Some(ticket) => ticket,
                None => {
                    let mut server = self.server.lock().unwrap();
                    let items = server.rows.inserts(&[1.0]);
                    server.tables.get("rows").unwrap().insert(items).unwrap_or_else(|error| Ticket::done(Err(error)))
                }
            };
            if !ticket.is_done_or_wakes(&waker) {
                *waiting = Some(ticket);
                return;
            }
            match ticket.poll().expect("it is done") {
                Ok(_) => _ = self.confirmed.fetch_add(1, SeqCst),
                Err(error) => return *self.refused.lock().unwrap() = Some(error),
            }
        }
    }
}

impl Wake for SteadyWriter {
    /// In the thread of the journal, before that looks for requests again.
    fn wake(self: Arc<Self>) {
        self.goes_on();
    }
}

#[test]
fn a_journal_ends_while_its_open_tables_have_a_writer_that_never_pauses() {
    let mut server = server(options_of(SyncPolicy::Interval(LONG)));
    wait(server.insert("rows", 0.0)).unwrap();
    let (disk, journal) = (server.disk.clone(), Arc::clone(&server.journal));
    let (waiting, refused) = (Mutex::default(), Mutex::default());
    let writer =
        Arc::new(SteadyWriter { server: Mutex::new(server), waiting, confirmed: AtomicUsize::new(0), refused });
    disk.hold_syncs(true);
    let stopping = std::thread::spawn(move || journal.stop());
    // Wait for the sync of the first of the last two commits.
    while disk.held_syncs() == 0 {
        std::thread::yield_now();
    }
    writer.goes_on();
    disk.hold_syncs(false);
    stopping.join().unwrap().unwrap();
    let refused = writer.refused.lock().unwrap().clone();
    assert!(matches!(&refused, Some(Error::Closed { name }) if name == "rows"), "{refused:?}");
    assert_eq!(writer.confirmed.load(SeqCst), 1, "the one that came before the last commit");
    assert_eq!(left(&disk.after_crash(Names::Synced, Tail::None)), now(&writer.server.lock().unwrap()));
}
