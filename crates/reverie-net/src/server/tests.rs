//! Sessions over a scripted transport.

mod bounds;
mod held;
mod logged;
mod scripted;

use super::outcomes::MOST_REMEMBERED;
use super::{Limits, ServerState};
use crate::proto::client_message::Body as ClientBody;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientMessage, ServerMessage, request};
use crate::token::{Exchange, NONCE_BYTES, Prover, Token};
use reverie_core::Error;
use reverie_core::chunk::Compression;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Keys, SentInsert};
use scripted::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

#[tokio::test]
async fn batches_that_are_not_read_stay_within_the_sessions_bound() {
    let limits = Limits { session_batch_bytes: 10_000, ..Limits::default() };
    let (shared, connection) = (shared(2900, limits, None), ScriptedConnection::default());
    connect(&shared, &connection).await;
    (1..=8).for_each(|id| connection.ask(id, 1));
    settle().await;
    let batches = |connection: &ScriptedConnection| {
        connection.script().queued.iter().filter(|message| matches!(message.body, Some(Body::Batch(_)))).count()
    };
    assert_eq!(batches(&connection), 3, "three fit");
    for _ in 0..24 {
        connection.read();
        settle().await;
    }
    let Script { most, bytes, ref queued, .. } = *connection.script();
    assert!(most <= 10_000 + 10, "{most} bytes");
    assert_eq!((queued.len(), bytes), (0, 0), "all were sent in the end");
}

#[tokio::test]
async fn sessions_take_their_turns_at_the_servers_bound() {
    let limits = Limits { total_batch_bytes: 128 << 10, ..Limits::default() };
    let shared = shared(100_000, limits, None);
    let mut all = Vec::new();
    for name in 0..3 {
        let connection = ScriptedConnection::default();
        connection.hello();
        if let Some(ClientBody::Hello(hello)) = &mut connection.script().messages[0].body {
            hello.session = vec![name; 16];
        }
        Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
        connection.ask(1, 1);
        settle().await;
        all.push(connection);
    }
    let has = |connection: &ScriptedConnection| connection.script().bytes > 1000;
    for turn in 0..3 {
        let holders: Vec<usize> = (0..3).filter(|at| has(&all[*at])).collect();
        assert_eq!(holders, [turn], "one batch fits, and the client that asked first is first");
        while all[turn].read().is_some() {}
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_for_a_minute_is_let_go() {
    let (shared, connection) = (shared(1000, Limits::default(), None), ScriptedConnection::default());
    connect(&shared, &connection).await;
    while connection.read().is_some() {}
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!connection.script().closed, "a client with nothing to read may be silent");
    (1..4).for_each(|id| connection.ask(id, 1));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(29)).await;
        let closed = connection.script().closed;
        assert!(!closed && connection.read().is_some(), "a slow reader is served");
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(connection.script().closed);
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_clients_the_grace_time_to_read_what_they_asked_for_and_no_more() {
    let limits = Limits { session_batch_bytes: 1500, ..Limits::default() };
    let grace = Duration::from_secs(7);
    for reads in [true, false] {
        let (shared, connection) = (shared(1000, limits, None), ScriptedConnection::default());
        connect(&shared, &connection).await;
        (1..=3).for_each(|id| connection.ask(id, 1));
        settle().await;
        let start = tokio::time::Instant::now();
        let stopping = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.stop(grace).await }
        });
        settle().await;
        assert!(!stopping.is_finished(), "one batch fits, two are still to be sent");
        let mut read = Vec::new();
        while let Some(message) = connection.read().filter(|_| reads) {
            read.push(message);
            settle().await;
        }
        stopping.await.unwrap();
        let took = start.elapsed();
        assert_eq!((took >= grace, took <= grace + Duration::from_secs(1)), (!reads, true), "{took:?}");
        let parts = read.iter().filter(|message| matches!(message.body, Some(Body::Part(_)))).count();
        assert_eq!(parts, if reads { 3 } else { 0 });
        assert!(!reads || matches!(&read.last().unwrap().body, Some(Body::Goodbye(goodbye)) if goodbye.stopping));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_returns_to_a_restarted_server_after_its_sessions_ended_is_refused_as_too_late() {
    let linger = Limits::default().linger;
    for comes_first in [false, true] {
        let shared = shared(10, Limits::default(), None);
        let table = Arc::clone(shared.tables.get("a").unwrap());
        // As a checkpoint contained them.
        for name in [3, 9] {
            let sent = SentInsert { sender: [name; 16], number: 1 };
            assert!(table.insert_sent(row(&shared.tables, 10), sent, Keys::new()).unwrap().is_done());
        }
        let (_in_time, forgot) = connect_as(&shared, 3).await;
        assert!(!forgot);
        tokio::time::sleep(linger + Duration::from_secs(1)).await;
        if !comes_first {
            assert!(!connect_as(&shared, 5).await.1, "nothing was known of it");
            assert_eq!(shared.tables.forgotten().names(), [[9; 16]]);
        }
        assert!(connect_as(&shared, 9).await.1);
        let known = |name| !table.arrivals(&[name; 16]).is_empty();
        assert_eq!((known(3), known(9)), (true, false), "a connected client is still known");
    }
}

#[tokio::test]
async fn a_panic_ends_its_session_only_and_its_name_is_free_again() {
    let (shared, connection, other) =
        (shared(10, Limits::default(), None), ScriptedConnection::default(), ScriptedConnection::default());
    other.hello();
    if let Some(ClientBody::Hello(hello)) = &mut other.script().messages[0].body {
        hello.session = vec![9; 16];
    }
    Arc::clone(&shared).handshake(Box::new(other.clone())).await;
    connect(&shared, &connection).await;
    connection.script().panics = true;
    let waker = connection.script().waker.take();
    waker.unwrap().wake();
    settle().await;
    assert_eq!(shared.sessions().len(), 1, "the other one");
    let connection = ScriptedConnection::default();
    connect(&shared, &connection).await;
    let Some(Body::Hello(hello)) = connection.read().unwrap().body else { panic!("no hello") };
    assert!(!hello.resumed, "another session");
    other.ask(1, 1);
    settle().await;
    assert!(matches!(other.script().queued.back().unwrap().body, Some(Body::Part(_))));
}

#[tokio::test]
async fn waiting_inserts_of_a_session_that_panics_do_not_go_in_and_those_that_are_in_stay_known() {
    let shared = shared(10, Limits::default(), None);
    let table = Arc::clone(shared.tables.get("a").unwrap());
    let (connection, _) = connect_as(&shared, 3).await;
    let sent = |number| SentInsert { sender: [3; 16], number };
    let change = |limiter| reverie_core::table::Change { limiter: Some(limiter), ..Default::default() };
    assert!(table.insert_sent(row(&shared.tables, 10), sent(1), Keys::new()).unwrap().is_done());
    table.configure(change(Limiter::new(1.0, 1, 0.0, 1.0).unwrap())).unwrap();
    let waits = table.insert_sent(row(&shared.tables, 10), sent(2), Keys::new()).unwrap();
    assert!(!waits.is_done());
    connection.script().panics = true;
    connection.ask(1, 1);
    settle().await;
    assert_eq!(table.info().pending_inserts, 0, "it was taken out of the queue");
    table.configure(change(Limiter::min_size(1).unwrap())).unwrap();
    assert_eq!(table.arrivals(&[3; 16]).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn a_transport_without_a_token_is_asked_to_prove_that_it_has_it_and_gets_the_proof_of_the_server() {
    let shared = shared(10, Limits::default(), Some("secret"));
    for (token, prover, admitted) in
        [("wrong", Prover::Client, false), ("secret", Prover::Server, false), ("secret", Prover::Client, true)]
    {
        let connection = ScriptedConnection::default();
        connection.hello();
        let handshake = tokio::spawn(Arc::clone(&shared).handshake(Box::new(connection.clone())));
        settle().await;
        let Some(Body::Challenge(challenge)) = connection.read().unwrap().body else { panic!("no challenge") };
        let server_nonce = challenge.nonce.as_slice().try_into().unwrap();
        let exchange = Exchange { session: &[3; 16], client_nonce: &[5; NONCE_BYTES], server_nonce };
        assert!(Token::new("secret").is_proven(Prover::Server, &exchange, &challenge.proof));
        connection.send(ClientBody::Proof(proto::Proof { proof: Token::new(token).proof(prover, &exchange) }));
        handshake.await.unwrap();
        settle().await;
        let first = connection.read().unwrap().body;
        assert_eq!(matches!(first, Some(Body::Hello(_))), admitted, "{token}: {first:?}");
        assert_eq!(connection.script().closed, !admitted);
    }
}

#[tokio::test]
async fn a_client_that_answers_a_challenge_with_anything_else_is_refused() {
    let shared = shared(10, Limits::default(), Some("secret"));
    let connection = ScriptedConnection::default();
    connection.hello();
    connection.ask(1, 1);
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    assert!(matches!(connection.read().unwrap().body, Some(Body::Challenge(_))));
    let Some(Body::Goodbye(goodbye)) = connection.read().unwrap().body else { panic!("it is admitted") };
    assert!(matches!(goodbye.reason.unwrap().kind, Some(proto::error_detail::Kind::Unauthenticated(_))));
    assert!(connection.script().closed);
}

#[tokio::test]
async fn outcomes_that_are_never_received_are_remembered_up_to_a_bound_and_received_ones_do_not_count() {
    for receives in [true, false] {
        let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
        connect(&shared, &connection).await;
        for id in 1..=MOST_REMEMBERED as u64 + 1 {
            let mutate = proto::Mutate { table: "a".to_owned(), ..Default::default() };
            let body = Some(request::Body::Mutate(mutate));
            connection.send(ClientBody::Request(proto::Request { id, timeout: None, body }));
            let received = receives.then(|| proto::Received { below: id, ..Default::default() });
            connection.script().messages.back_mut().unwrap().received = received;
        }
        while !connection.script().messages.is_empty() {
            settle().await;
        }
        settle().await;
        let last = connection.script().queued.pop_back().unwrap().body;
        let is_ended =
            matches!(&last, Some(Body::Goodbye(goodbye)) if format!("{goodbye:?}").contains("never acknowledged"));
        assert_eq!((is_ended, connection.script().closed), (!receives, !receives), "{last:?}");
    }
}

#[tokio::test]
async fn a_stop_takes_what_has_arrived_and_not_all_that_a_client_goes_on_sending() {
    let shared = shared(8, Limits::default(), None);
    let connection = ScriptedConnection::default();
    connect(&shared, &connection).await;
    // There is one thread: all of it has arrived when the session is notified of the stop.
    (1..=300).for_each(|id| connection.ask(id, 1));
    shared.stop(Duration::from_secs(200)).await;
    let script = connection.script();
    let is_batch = |message: &&ServerMessage| matches!(message.body, Some(Body::Batch(_)));
    let batches = script.queued.iter().filter(is_batch).count();
    assert!((256..300).contains(&batches), "{batches} of 300 were answered");
    let Some(Body::Goodbye(goodbye)) = &script.queued.back().unwrap().body else { panic!("no goodbye") };
    assert!(goodbye.stopping);
}
