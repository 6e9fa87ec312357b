use crate::support::*;
use reverie_core::table::{Change, Keys, Priority, SentInsert, TableOptions};
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, reply, request};
use reverie_net::server::{Limits, ServerOptions};
use std::time::Duration;

/// Comes back under the same name, as the same client or as a new one.
pub async fn again(host: &Host, name: u8) -> (Session, bool) {
    let (session, hello) = Session::open(host.client().await, [name; 16]).await;
    (session, hello.resumed)
}

/// Loses the connection, and opens a new one that resumes the session.
pub async fn reconnected(host: &Host, session: Session) -> Session {
    session.lose();
    let (session, resumed) = again(host, 1).await;
    assert!(resumed);
    session
}

/// Withdraws an insert, or another request.
pub fn cancel(session: &Session, id: u64, insert: bool) {
    session.send.send(message(ClientBody::Cancel(proto::Cancel { id, insert }))).unwrap();
}

pub async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(200), waited).await.expect("it never comes about");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_is_sent_again_is_done_once_and_confirmed_with_the_same_keys() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0]);
    let keys = session.inserted(first, 2).await;
    let mut session = reconnected(&host, session).await;
    session.insert_again(first, 0, &[1.0, 2.0]);
    assert_eq!(session.inserted(first, 1).await, keys[..1]);
    assert_eq!(session.inserted(first + 1, 1).await, keys[1..]);
    assert_eq!(host.size("a"), 2);
    // Another session has none of these inserts.
    let (mut other, resumed) = again(&host, 2).await;
    assert!(!resumed);
    other.insert_again(first, 0, &[3.0]);
    other.inserted(first, 1).await;
    assert_eq!(host.size("a"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_waits_goes_on_without_its_connection() {
    let host = Host::new(vec![queue("a", 1)]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0]);
    session.inserted(first, 1).await;
    session.lose();
    until(|| host.tables.get("a").unwrap().info().pending_inserts == 1).await;
    let (mut session, resumed) = again(&host, 1).await;
    assert!(resumed);
    session.insert_again(first + 1, 0, &[2.0]);
    let id = session.take_id(3) + 2;
    session.ask_again(id, sample("a", 1), None);
    let mut seen = (false, false);
    while seen != (true, true) {
        match session.next().await.unwrap() {
            proto::server_message::Body::Inserted(inserted) => {
                assert_eq!((inserted.first_id, inserted.requests), (first + 1, 1));
                seen.0 = true;
            }
            proto::server_message::Body::Part(part) => {
                seen.1 |= part.id == id;
                session.received(0, &[id]);
            }
            _ => {}
        }
    }
    assert_eq!(host.tables.get("a").unwrap().info().counters.inserts, 2, "and not a third time");
    assert_eq!(session.held.first(), Some(&true), "a new connection receives that it waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_of_a_consuming_table_are_given_again_until_they_were_received() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    let batch = session.whole(id).await;
    let mut session = reconnected(&host, session).await;
    assert_eq!(session.take_id(1), id);
    session.ask_again(id, sample("a", 2), None);
    let same = session.whole(id).await;
    assert_eq!((same.values(), same.keys()), (batch.values(), batch.keys()));
    assert!(same.message.new_head.is_none() && same.message.head == 1, "heads begin again with a connection");
    session.received(id + 1, &[]);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    session.reply(info).await;
    session.lose();
    let (_, resumed) = again(&host, 1).await;
    assert!(!resumed, "what is received is not remembered");
    assert_eq!(host.size("a"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_drawn_from_a_queue_while_its_client_is_not_connected() {
    let host = Host::new(vec![queue("a", 10)]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    session.lose();
    until(|| host.tables.get("a").unwrap().info().pending_samples == 0).await;
    host.fill("a", [1.0, 2.0]);
    assert_eq!(host.size("a"), 2, "others may have them");
    let (mut session, _) = again(&host, 1).await;
    session.take_id(id + 1);
    session.ask_again(id, sample("a", 2), None);
    assert_eq!(session.whole(id).await.values(), [1.0, 2.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_mutation_is_done_once() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let reset = session.ask(request::Body::Reset("a".to_owned()), None);
    session.reply(reset).await;
    host.fill("a", [2.0]);
    session.ask_again(reset, request::Body::Reset("a".to_owned()), None);
    assert_eq!(session.reply(reset).await, reply::Body::Done(proto::Done {}));
    assert_eq!(host.size("a"), 1, "what came after the reset is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_connection_takes_the_place_of_a_half_open_one() {
    let host = Host::new(vec![queue("a", 10)]);
    let mut old = host.session(1).await;
    let id = old.ask(sample("a", 1), None);
    let info = old.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(old.reply(info).await, reply::Body::Info(_)));
    let (mut new, resumed) = again(&host, 1).await;
    assert!(resumed);
    assert!(old.next().await.is_none(), "the old connection is ended");
    host.fill("a", [1.0]);
    new.ask_again(id, sample("a", 1), None);
    assert_eq!(new.whole(id).await.values(), [1.0], "what was asked before is answered on the new one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_is_forgotten_after_a_while() {
    let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
    let host = Host::with(vec![queue("a", 10)], ServerOptions { limits, ..options() });
    let mut session = host.session(1).await;
    session.ask(sample("a", 1), None);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    assert_eq!(host.tables.get("a").unwrap().info().pending_samples, 1);
    session.lose();
    until(|| host.tables.get("a").unwrap().info().pending_samples == 0).await;
    let (mut session, resumed) = again(&host, 1).await;
    assert!(!resumed);
    // A cancel of an unknown request has no reply.
    session.send.send(message(ClientBody::Cancel(proto::Cancel { id: 77, insert: false }))).unwrap();
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn waiting_inserts_of_a_session_that_is_forgotten_never_go_in() {
    let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1)], ServerOptions { limits, ..options() });
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0, 3.0]);
    session.inserted(first, 1).await;
    until(|| host.pending_inserts("a") == 2).await;
    session.lose();
    host.nothing_waits("a").await;
    let mut other = host.session(2).await;
    let id = other.ask(sample("a", 1), None);
    assert_eq!(other.whole(id).await.values(), [1.0]);
    other.received(id + 1, &[]);
    other.settle().await;
    let info = host.tables.get("a").unwrap().info();
    assert_eq!((info.size, info.counters.inserts), (0, 1), "the client learns that their outcome is not known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_forgotten_session_with_outcomes_is_reported_until_its_client_sends_a_message() {
    let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
    let host = Host::with(vec![table("a")], ServerOptions { limits, ..options() });
    // Comes back when the session before is gone.
    let reconnected = async |name: u8| loop {
        let (session, hello) = Session::open(host.client().await, [name; 16]).await;
        if !hello.resumed {
            return (session, hello.forgot);
        }
    };
    let (session, forgot) = reconnected(1).await;
    assert!(!forgot);
    session.lose();
    let (mut session, forgot) = reconnected(1).await;
    assert!(!forgot, "nothing was done, there is nothing to forget");
    let first = session.insert(0, &[1.0]);
    session.inserted(first, 1).await;
    session.lose();
    let (session, forgot) = reconnected(1).await;
    assert!(forgot);
    assert!(!reconnected(2).await.1, "another client is another session");
    session.lose();
    let (mut session, forgot) = reconnected(1).await;
    assert!(forgot, "it may not have read the hello before");
    let first = session.insert(0, &[2.0]);
    session.inserted(first, 1).await;
    session.received(first + 1, &[]);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    session.lose();
    assert!(!reconnected(1).await.1, "it was notified, and has had all outcomes since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stop_forgets_no_client_so_that_a_last_checkpoint_has_the_inserts_of_each() {
    let host = Host::new(vec![queue("a", 2), table("b")]);
    // Two of five items of a request are in; one client is there, and one has lost its connection.
    let mut there = host.session(1).await;
    let id = there.take_id(1);
    let mut part = insert(id, 0, &[1.0, 2.0, 3.0, 4.0, 5.0], 1);
    part.runs = vec![proto::InsertRun { table: 0, requests: 1, items: 5, skipped: 0 }];
    there.send.send(message(ClientBody::Insert(part))).unwrap();
    until(|| host.tables.get("a").unwrap().info().pending_inserts == 3).await;
    let mut gone = host.session(2).await;
    let whole = gone.insert(1, &[6.0]);
    let keys = gone.inserted(whole, 1).await;
    gone.lose();
    let one_is_left = async { while there_are(&mut there).await > 1 {} };
    tokio::time::timeout(Duration::from_secs(200), one_is_left).await.expect("it never comes about");
    host.server.stop();
    let known = |table: &str, name: u8| host.tables.get(table).unwrap().arrivals(&[name; 16]);
    let numbers =
        |table: &str, name: u8| known(table, name).iter().map(|(id, keys)| (*id, keys.len())).collect::<Vec<_>>();
    assert_eq!((numbers("a", 1), numbers("b", 2)), (vec![(id, 2)], vec![(whole, 1)]));
    assert_eq!(known("b", 2)[0].1[0].get(), keys[0]);
    assert_eq!(
        host.tables.forgotten().names(),
        Vec::<[u8; 16]>::new(),
        "a client that comes back is not asked to abandon anything"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_waits_at_a_stop_is_not_answered_so_that_its_client_sends_it_to_the_next_server() {
    let host = Host::new(vec![queue("a", 1)]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0]);
    session.inserted(first, 1).await;
    session.insert(0, &[2.0, 3.0]);
    until(|| host.tables.get("a").unwrap().info().pending_inserts == 2).await;
    let server = host.server;
    let stopped = tokio::task::spawn_blocking(move || server.stop());
    match session.next().await {
        Some(proto::server_message::Body::Goodbye(goodbye)) => assert!(goodbye.stopping),
        other => panic!("answered before the goodbye: {other:?}"),
    }
    stopped.await.unwrap();
}

/// The number of connections of the server.
async fn there_are(session: &mut Session) -> u64 {
    let id = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    match session.reply(id).await {
        reply::Body::Info(info) => info.grpc_connections,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_that_wait_since_an_earlier_connection_take_no_credit_of_the_new_one() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), table("b")], ServerOptions { limits, ..options() });
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0]);
    session.inserted(first, 1).await;
    // A message may pass the credit.
    session.insert(0, &vec![2.0; 200]);
    until(|| host.tables.get("a").unwrap().info().pending_inserts == 200).await;
    let mut session = reconnected(&host, session).await;
    session.take_id(300);
    let other = session.insert(1, &[3.0]);
    session.inserted(other, 1).await;
    assert_eq!(session.held, [true], "a client that comes back receives what waits, before anything is sent again");
    // One of them goes in, and the others are still of that connection.
    let id = session.ask(sample("a", 1), None);
    let (mut confirmed, mut drawn) = (false, false);
    while !(confirmed && drawn) {
        match session.next().await.unwrap() {
            proto::server_message::Body::Inserted(inserted) => confirmed |= inserted.first_id == first + 1,
            proto::server_message::Body::Part(part) => {
                drawn |= part.id == id;
                session.received(0, &[id]);
            }
            _ => {}
        }
    }
    let other = session.insert(1, &[4.0]);
    session.inserted(other, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_that_was_left_behind_when_it_was_in_its_table_in_part_continues_when_it_is_sent_again() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 2), queue("b", 1)], ServerOptions { limits, ..options() });
    let mut session = host.session(1).await;
    let id = session.take_id(1);
    let whole = |chunk| proto::Insert {
        runs: vec![proto::InsertRun { table: 0, requests: 1, items: 3, skipped: 0 }],
        ..insert(id, 0, &[1.0, 2.0, 3.0], chunk)
    };
    session.send_insert(whole(1));
    until(|| host.pending_inserts("a") == 1).await;
    for _ in 0..2 {
        session.lose();
        let resumed;
        (session, resumed) = again(&host, 1).await;
        assert!(resumed);
    }
    session.take_id(10);
    // More than the credit.
    session.insert(1, &[4.0; 20]);
    host.nothing_waits("a").await;
    session.settle().await;
    assert_eq!(host.size("a"), 2);
    session.send_insert(whole(7));
    session.settle().await;
    let table = host.tables.get("a").unwrap();
    table.configure(Change { limiter: Some(queue_limiter(9)), ..Change::default() }).unwrap();
    assert_eq!(session.inserted(id, 1).await.len(), 3);
    assert_eq!(host.size("a"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_whose_outcomes_a_client_has_are_not_kept_for_a_checkpoint() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0, 3.0]);
    session.inserted(first, 3).await;
    let known = || host.tables.get("a").unwrap().arrivals(&[1; 16]).iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(known(), [first, first + 1, first + 2]);
    for (below, ids, left) in [(first + 1, vec![], vec![first + 1, first + 2]), (0, vec![first + 2], vec![first + 1])] {
        session.received(below, &ids);
        let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
        session.reply(info).await;
        assert_eq!(known(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn items_inserted_before_a_restart_are_confirmed_again_and_only_the_rest_goes_in() {
    let host = Host::new(vec![table("a")]);
    // As a checkpoint knew it: one request, and two of three items of another.
    let (mut rows, known) = (Rows::new(&host.tables), host.tables.get("a").unwrap());
    let mut sent = |number: u64, values: &[f64]| {
        let items = values.iter().map(|value| (rows.item(&[*value]), Priority::Value(1.0))).collect();
        let mut ticket = known.insert_sent(items, SentInsert { sender: [1; 16], number }, Keys::new()).unwrap();
        ticket.poll().unwrap().unwrap().iter().map(|key| key.get()).collect::<Vec<_>>()
    };
    let (one, two, three) = (sent(1, &[1.0]), sent(2, &[2.0]), sent(3, &[3.0, 4.0]));
    let numbers = || known.arrivals(&[1; 16]).iter().map(|(number, _)| *number).collect::<Vec<_>>();
    let mut session = host.session(1).await;
    session.take_id(10);
    session.received(2, &[]);
    session.insert_again(2, 0, &[2.0]);
    assert_eq!(session.inserted(2, 1).await, two);
    assert_eq!(numbers(), [2, 3], "{one:?} is not asked for any more");
    for chunk in [8, 9] {
        let mut whole = insert(3, 0, &[3.0, 4.0, 5.0], chunk);
        whole.runs = vec![proto::InsertRun { table: 0, requests: 1, items: 3, skipped: 0 }];
        session.send.send(message(ClientBody::Insert(whole))).unwrap();
        let keys = session.inserted(3, 1).await;
        assert_eq!((&keys[..2], keys.len(), host.size("a")), (&three[..], 3, 5));
    }
    session.received(4, &[]);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    assert_eq!(numbers(), Vec::<u64>::new());
    session.lose();
    // The server may take the next connection before it notices that this one is lost.
    let mut attempts = 0;
    while let (session, true) = again(&host, 1).await {
        session.lose();
        attempts += 1;
        assert!(attempts < 100, "nothing is left that would have to be remembered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_refusal_of_the_rest_of_an_insert_names_what_is_in_since_before_a_restart() {
    let host = Host::new(vec![TableOptions { max_bytes: Some(1000), ..table("a") }]);
    let (mut rows, known) = (Rows::new(&host.tables), host.tables.get("a").unwrap());
    let items = [1.0, 2.0].map(|value| (rows.item(&[value]), Priority::Value(1.0))).into_iter().collect();
    let mut ticket = known.insert_sent(items, SentInsert { sender: [1; 16], number: 3 }, Keys::new()).unwrap();
    let keys: Vec<i64> = ticket.poll().unwrap().unwrap().iter().map(|key| key.get()).collect();
    let mut session = host.session(1).await;
    session.take_id(10);
    // The chunk of all its items has more bytes than the table may have.
    let mut whole = insert(3, 0, &[1.0; 500], 8);
    whole.runs = vec![proto::InsertRun { table: 0, requests: 1, items: 500, skipped: 0 }];
    session.send_insert(whole);
    let reply::Body::Error(detail) = session.reply(3).await else { panic!("it is refused") };
    assert!(matches!(detail.kind, Some(Kind::ResourceExhausted(_))), "{detail:?}");
    assert_eq!((detail.keys, host.size("a")), (keys, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_draw_that_waits_and_is_asked_for_again_is_made_once() {
    let host = Host::new(vec![queue("a", 10)]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 1), None);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    session.lose();
    // Meanwhile it takes nothing from others.
    until(|| host.tables.get("a").unwrap().info().pending_samples == 0).await;
    let (mut session, _) = again(&host, 1).await;
    session.ask_again(id, sample("a", 1), None);
    session.take_id(10);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
    host.fill("a", [1.0, 2.0]);
    assert_eq!(session.whole(id).await.values(), [1.0]);
    assert_eq!((host.size("a"), host.tables.get("a").unwrap().info().pending_samples), (1, 0));
}
