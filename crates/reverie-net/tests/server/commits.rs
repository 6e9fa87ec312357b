//! Requests that are done at their tables while the journal takes nothing.

use crate::full_journal::FullJournal;
use crate::resume::{cancel, reconnected, until};
use crate::support::*;
use reverie_core::table::{Change, Keys, Priority, SentInsert};
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, reply, request};
use reverie_net::server::Limits;
use std::sync::Arc;

/// A server with such a journal.
fn host(tables: Vec<reverie_core::table::TableOptions>, limits: Limits) -> (Host, Arc<FullJournal>) {
    let (host, journal) = (Host::with(tables, limited(limits)), Arc::new(FullJournal::default()));
    for table in host.tables.iter() {
        assert!(table.set_durable(Arc::clone(&journal) as _));
    }
    (host, journal)
}

fn not_committed(kind: Kind) -> usize {
    let Kind::Deadline(deadline) = kind else { panic!("{kind:?}") };
    assert!(deadline.not_committed, "{deadline:?}");
    assert!(deadline.why.contains("the journal waits for room on the disk (no space left)"), "{}", deadline.why);
    deadline.keys.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_is_withdrawn_before_its_commit_is_answered_by_a_deadline_that_reports_it() {
    let (host, _journal) = host(vec![table("a")], Limits::default());
    let mut session = host.session(1).await;
    let id = session.insert(0, &[1.0]);
    cancel(&session, id, true);
    assert_eq!(not_committed(session.refusal(id).await), 1);
    assert_eq!(host.size("a"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_hello_has_how_long_a_server_with_a_journal_may_wait_beyond_a_deadline() {
    let (with_journal, _journal) = host(vec![table("a")], Limits::default());
    for (host, commit_grace_ms) in [(with_journal, 100), (Host::new(vec![table("a")]), 0)] {
        let (_session, hello) = Session::open(host.client().await, [1; 16]).await;
        assert_eq!(hello.commit_grace_ms, commit_grace_ms);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_error_of_an_insert_whose_rest_goes_in_when_its_journal_fails_names_what_was_in_before() {
    for fails_late in [false, true] {
        let (host, journal) = host(vec![table("a")], Limits::default());
        let (mut rows, known) = (Rows::new(&host.tables), host.tables.get("a").unwrap());
        let items = [1.0, 2.0].map(|value| (rows.item(&[value]), Priority::Value(1.0))).into_iter().collect();
        drop(known.insert_sent(items, SentInsert { sender: [1; 16], number: 3 }, Keys::new()).unwrap());
        journal.commit();
        let mut session = host.session(1).await;
        session.take_id(10);
        journal.set_failed(!fails_late);
        session.send_insert(of_items(3, 0, &[1.0, 2.0, 3.0], 8));
        if fails_late {
            until(|| journal.num_barriers() == 1).await;
            journal.fail();
        }
        let reply::Body::Error(detail) = session.reply(3).await else { panic!("it is refused") };
        assert!(matches!(detail.kind, Some(Kind::Storage(_))), "{detail:?}");
        assert_eq!((detail.keys.len(), host.size("a")), (2, 3), "fails late: {fails_late}");
    }
}

/// One insert of so many items.
fn of_items(id: u64, table: u32, values: &[f64], chunk: u64) -> proto::Insert {
    let runs = vec![proto::InsertRun { table, requests: 1, items: values.len() as u32, skipped: 0 }];
    proto::Insert { runs, ..insert(id, table, values, chunk) }
}

/// Inserts these values, one by one, and waits until all are confirmed.
async fn confirm(session: &mut Session, journal: &FullJournal, values: &[f64]) {
    let first = session.insert(0, values);
    until(|| journal.num_barriers() == values.len()).await;
    journal.commit();
    for id in first..first + values.len() as u64 {
        session.inserted(id, 1).await;
    }
}

/// Leaves the inserts of a connection behind, twice. Then one of more than the credit waits for the journal, as they
/// do.
async fn left_behind(host: &Host, journal: &FullJournal, mut session: Session) -> Session {
    for _ in 0..2 {
        session = reconnected(host, session).await;
    }
    session.take_id(10);
    session.insert(1, &[4.0; 20]);
    // Inserts that were withdrawn, and not committed within their time, still wait for the journal.
    until(|| journal.num_barriers() == 3).await;
    session
}

/// The number of items of this insert, once it is confirmed.
async fn confirmed(session: &mut Session, id: u64) -> usize {
    loop {
        match session.next().await.unwrap() {
            Body::Inserted(inserted) if inserted.first_id == id => break inserted.keys.len(),
            Body::Goodbye(goodbye) => panic!("{goodbye:?}"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_part_of_a_withdrawn_insert_is_answered_after_its_commit_or_reports_that_it_has_none() {
    for commits in [true, false] {
        let (host, journal) = host(vec![queue("a", 2)], Limits::default());
        let mut session = host.session(1).await;
        let id = session.take_id(1);
        session.send_insert(of_items(id, 0, &[1.0, 2.0, 3.0], 7));
        session.settle().await;
        assert_eq!((host.size("a"), journal.num_barriers()), (2, 0), "it waits for its table");
        journal.set_works(commits);
        cancel(&session, id, true);
        let Kind::Deadline(deadline) = session.refusal(id).await else { panic!("not a deadline") };
        assert_eq!((deadline.keys.len(), deadline.not_committed), (2, !commits), "{deadline:?}");
        assert_eq!(journal.take_committed(), usize::from(commits));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_part_of_the_draws_is_sent_after_its_commit_or_with_a_deadline_that_reports_that_it_has_none() {
    for (commits, at_once) in [(true, false), (false, false), (true, true), (false, true)] {
        let (host, journal) = host(vec![queue("a", 10)], Limits::default());
        let mut session = host.session(1).await;
        confirm(&mut session, &journal, &[1.0, 2.0]).await;
        journal.take_committed();
        journal.set_works(commits);
        let mut body = sample("a", 5);
        if let request::Body::Sample(sample) = &mut body {
            sample.at_once = at_once;
        }
        session.ask(body, Some(0.0));
        let mut drawn = 0;
        loop {
            match session.next().await.unwrap() {
                Body::Batch(batch) if commits && at_once => break assert!(batch.last && batch.num_draws == 2),
                Body::Batch(batch) => drawn += batch.num_draws,
                Body::Reply(reply) => match reply.body {
                    Some(reply::Body::Error(detail)) => {
                        let Some(Kind::Deadline(deadline)) = detail.kind else { panic!("{detail:?}") };
                        assert_eq!((drawn, deadline.not_committed), (2, !commits), "{deadline:?}");
                        break;
                    }
                    other => panic!("{other:?}"),
                },
                _ => {}
            }
        }
        assert_eq!(journal.take_committed(), usize::from(commits));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_part_of_an_insert_that_was_left_behind_is_no_whole_insert_after_its_commit_and_its_rest_goes_in() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let (host, journal) = host(vec![queue("a", 2), queue("b", 1)], limits);
    let mut session = host.session(1).await;
    let id = session.take_id(1);
    session.send_insert(of_items(id, 0, &[1.0, 2.0, 3.0], 7));
    session.settle().await;
    let mut session = left_behind(&host, &journal, session).await;
    session.send_insert(of_items(id, 0, &[1.0, 2.0, 3.0], 8));
    session.settle().await;
    host.tables
        .get("a")
        .unwrap()
        .configure(Change { max_size: Some(3), limiter: Some(queue_limiter(3)), ..Change::default() })
        .unwrap();
    journal.commit();
    until(|| host.size("a") == 3).await;
    until(|| journal.num_barriers() == 1).await;
    journal.commit();
    assert_eq!(confirmed(&mut session, id).await, 3);
    assert_eq!(host.size("a"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_that_is_withdrawn_before_its_commit_is_answered_by_a_deadline_that_names_the_journal() {
    let (host, _journal) = host(vec![table("a")], Limits::default());
    let mut session = host.session(1).await;
    let id = session.ask(request::Body::Reset("a".to_owned()), None);
    cancel(&session, id, false);
    assert_eq!(not_committed(session.refusal(id).await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_that_is_withdrawn_before_its_commit_and_asked_for_again_is_done_once() {
    let (host, journal) = host(vec![table("a")], Limits::default());
    let mut session = host.session(1).await;
    let id = session.ask(request::Body::Reset("a".to_owned()), None);
    cancel(&session, id, false);
    session.ask_again(id, request::Body::Reset("a".to_owned()), None);
    session.settle().await;
    assert_eq!(journal.num_barriers(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_use_items_up_before_a_commit_are_sent_with_a_deadline_that_reports_it() {
    let (host, journal) = host(vec![queue("a", 10)], Limits::default());
    let mut session = host.session(1).await;
    confirm(&mut session, &journal, &[1.0]).await;
    let id = session.ask(sample("a", 1), Some(0.0));
    let mut drawn = false;
    let kind = loop {
        match session.next().await.unwrap() {
            Body::Part(part) => drawn |= part.id == id,
            Body::Reply(reply) => match reply.body {
                Some(reply::Body::Error(detail)) => break detail.kind.unwrap(),
                other => panic!("{other:?}"),
            },
            _ => {}
        }
    };
    assert!(drawn, "they exist nowhere else");
    not_committed(kind);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_was_left_behind_before_its_commit_is_confirmed_after_it_when_it_is_sent_again() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let (host, journal) = host(vec![table("a"), queue("b", 1)], limits);
    let mut session = host.session(1).await;
    let id = session.insert(0, &[1.0]);
    until(|| journal.num_barriers() == 1).await;
    let mut session = left_behind(&host, &journal, session).await;
    session.insert_again(id, 0, &[1.0]);
    let info = session.ask(request::Body::Can(proto::Can { table: "a".to_owned(), count: 1, insert: true }), None);
    loop {
        match session.next().await.unwrap() {
            Body::Inserted(inserted) => panic!("{inserted:?}"),
            Body::Reply(reply) if reply.id == info => break,
            _ => {}
        }
    }
    journal.commit();
    assert_eq!(confirmed(&mut session, id).await, 1);
    assert_eq!(host.size("a"), 1);
}
