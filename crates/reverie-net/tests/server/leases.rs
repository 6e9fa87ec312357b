//! Draws of tables that delete sampled items: their owner until their client reports that it has them.

use crate::resume::{again, cancel, reconnected, until};
use crate::support::*;
use reverie_core::table::{Change, SharedTable};
use reverie_net::convert::numbers;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, ClientMessage, reply, request};
use reverie_net::server::{Limits, ServerOptions};
use std::sync::Arc;
use std::time::Duration;

/// Size, and draws that are not acknowledged.
fn held(host: &Host) -> (u64, u64) {
    let info = host.tables.get("a").unwrap().info();
    (info.size, info.leased)
}

fn take_back(session: &Session, id: u64) {
    let received = proto::Received { returned: numbers::encode(&[id]), ..Default::default() };
    session.send.send(ClientMessage { received: Some(received), ..Default::default() }).unwrap();
}

/// A server with a table that keeps its items and has none, and a request for one that waits there.
async fn one_waits() -> (Host, Arc<SharedTable>, Session, u64) {
    let host = Host::new(vec![table("a")]);
    let a = Arc::clone(host.tables.get("a").unwrap());
    let mut session = host.session(1).await;
    let waits = session.ask(sample("a", 1), None);
    until(|| a.info().pending_samples == 1).await;
    (host, a, session, waits)
}

async fn is_done(session: &mut Session, id: u64) {
    assert!(matches!(session.reply(id).await, reply::Body::Done(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_are_leased_until_their_client_reports_that_it_received_them() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let mut session = host.session(1).await;
    let (first, second) = (session.ask(sample("a", 1), None), session.ask(sample("a", 1), None));
    assert!(session.whole(first).await.message.leased);
    session.whole(second).await;
    assert_eq!(held(&host), (1, 2));
    session.received(0, &[second]);
    until(|| held(&host) == (1, 1)).await;
    session.received(second, &[]);
    until(|| held(&host) == (1, 0)).await;
    // A table that keeps its items leases nothing.
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 1), None);
    assert!(!session.whole(id).await.message.leased);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_a_client_returns_are_given_to_the_next_in_the_order_that_they_had() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let (mut session, mut other) = (host.session(1).await, host.session(2).await);
    let id = session.ask(sample("a", 2), None);
    session.whole(id).await;
    take_back(&session, id);
    is_done(&mut session, id).await;
    assert_eq!(held(&host), (3, 0));
    let id = other.ask(sample("a", 3), None);
    assert_eq!(other.whole(id).await.values(), [1.0, 2.0, 3.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_is_returned_while_it_waits_takes_nothing_and_one_that_is_unknown_is_answered_too() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    until(|| held(&host) == (0, 1)).await;
    take_back(&session, id);
    is_done(&mut session, id).await;
    until(|| held(&host) == (1, 0)).await;
    host.fill("a", [2.0]);
    assert_eq!(held(&host), (2, 0));
    take_back(&session, 1000);
    is_done(&mut session, 1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_without_draws_that_is_returned_while_it_waits_is_answered_once() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let incarnation = host.tables.get("a").unwrap().tally(None).unwrap().incarnation;
    let seen = proto::Seen { incarnation, ..Default::default() };
    let look = proto::Grant { table: "a".to_owned(), unlike: Some(seen), ..Default::default() };
    let id = session.ask(request::Body::Grant(look), Some(100.0));
    take_back(&session, id);
    is_done(&mut session, id).await;
    // Were it answered again, that answer would come here.
    for _ in 0..10 {
        let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
        assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_whose_connection_is_lost_takes_nothing_more_and_what_was_sent_to_it_waits_for_it() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0]);
    let mut session = host.session(1).await;
    let sent = session.ask(sample("a", 1), None);
    session.whole(sent).await;
    let waits = session.ask(sample("a", 5), None);
    until(|| held(&host) == (0, 2)).await;
    session.lose();
    until(|| held(&host) == (1, 1)).await;
    host.fill("a", [3.0]);
    assert_eq!(held(&host), (2, 1), "nothing is drawn for a client that is gone");
    let (mut session, resumed) = again(&host, 1).await;
    assert!(resumed);
    session.ask_again(sent, sample("a", 1), None);
    assert_eq!(session.whole(sent).await.values(), [1.0], "the same draw");
    session.ask_again(waits, sample("a", 2), None);
    assert_eq!(session.whole(waits).await.values(), [2.0, 3.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_whose_table_begins_to_delete_what_is_sampled_while_it_waits_keeps_its_draws_for_its_client() {
    let (host, a, mut session, waits) = one_waits().await;
    a.configure(Change { max_times_sampled: Some(1), ..Change::default() }).unwrap();
    host.fill("a", [1.0]);
    assert!(session.whole(waits).await.message.leased);
    let waits = session.ask(sample("a", 1), None);
    until(|| a.info().pending_samples == 1).await;
    session.lose();
    until(|| a.info().pending_samples == 0).await;
    host.fill("a", [2.0]);
    assert_eq!(held(&host), (1, 1), "nothing is drawn for a client that is gone");
    let (mut session, _) = again(&host, 1).await;
    session.ask_again(waits, sample("a", 1), None);
    assert_eq!(session.whole(waits).await.values(), [2.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_waits_on_a_lost_connection_is_withdrawn_where_its_table_began_to_delete_what_is_sampled() {
    let (host, a, session, waits) = one_waits().await;
    a.configure(Change { max_times_sampled: Some(1), ..Change::default() }).unwrap();
    session.lose();
    until(|| a.info().pending_samples == 0).await;
    let (mut session, _) = again(&host, 1).await;
    session.ask_again(waits, sample("a", 1), None);
    host.fill("a", [1.0]);
    assert_eq!(session.whole(waits).await.values(), [1.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_waits_over_a_lost_connection_is_answered_where_its_table_then_deletes_what_is_sampled() {
    let (host, a, session, waits) = one_waits().await;
    let mut session = reconnected(&host, session).await;
    assert_eq!(a.info().pending_samples, 1);
    session.take_id(1 + waits);
    session.ask_again(waits, sample("a", 1), None);
    session.settle().await;
    a.configure(Change { max_times_sampled: Some(1), ..Change::default() }).unwrap();
    host.fill("a", [1.0]);
    assert_eq!(session.whole(waits).await.values(), [1.0]);
    assert_eq!(held(&host), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_were_never_acknowledged_come_back_when_their_session_is_forgotten() {
    let limits = Limits { linger: Duration::ZERO, ..Limits::default() };
    let host = Host::with(vec![queue("a", 10)], ServerOptions { limits, ..options() });
    host.fill("a", [1.0, 2.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    session.whole(id).await;
    assert_eq!(held(&host), (0, 2));
    session.lose();
    until(|| held(&host) == (2, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_leaves_on_purpose_gives_back_at_once_what_it_did_not_acknowledge() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let mut session = host.session(1).await;
    let (first, second) = (session.ask(sample("a", 1), None), session.ask(sample("a", 1), None));
    session.whole(first).await;
    session.whole(second).await;
    let _waits = session.ask(sample("a", 5), None);
    until(|| held(&host) == (0, 3)).await;
    let received = Some(proto::Received { below: 0, ids: numbers::encode(&[first]), ..Default::default() });
    let body = Some(ClientBody::Leave(proto::Leave {}));
    session.send.send(ClientMessage { received, body, ..Default::default() }).unwrap();
    until(|| held(&host) == (2, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_without_a_session_has_no_way_to_acknowledge_and_takes_what_it_draws() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0]);
    let mut client = host.client().await;
    let request = proto::Request { id: 1, timeout: None, body: Some(sample("a", 1)) };
    let message = ClientMessage { body: Some(ClientBody::Request(request)), ..Default::default() };
    let mut answers = client.call(message).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    assert_eq!(held(&host), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_withdrawn_insert_is_answered_whether_it_is_in_or_never_came() {
    let host = Host::new(vec![table("a")]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0]);
    let keys = session.inserted(first, 1).await;
    for (id, keys) in [(first, keys), (first + 100, Vec::new())] {
        cancel(&session, id, true);
        let Kind::Deadline(deadline) = session.refusal(id).await else { panic!("not a deadline") };
        assert_eq!(deadline.keys, keys);
    }
    // There is nothing to report on a request that is not an insert.
    cancel(&session, first + 7, false);
    let info = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    assert!(matches!(session.reply(info).await, reply::Body::Info(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_acknowledgement_that_was_lost_with_its_connection_is_made_up_for_by_the_next() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0]);
    let mut session = host.session(1).await;
    let (first, second) = (session.ask(sample("a", 1), None), session.ask(sample("a", 1), None));
    session.whole(first).await;
    session.whole(second).await;
    let session = reconnected(&host, session).await;
    let received = Some(proto::Received { before: second + 1, open: numbers::encode(&[first]), ..Default::default() });
    session.send.send(ClientMessage { received, ..Default::default() }).unwrap();
    until(|| held(&host) == (0, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_returns_more_requests_than_one_may_ends_its_connection() {
    let host = Host::new(vec![queue("a", 10)]);
    let mut session = host.session(1).await;
    let received =
        |n| Some(proto::Received { returned: numbers::encode(&(1..=n).collect::<Vec<u64>>()), ..Default::default() });
    session.send.send(ClientMessage { received: received(4096), ..Default::default() }).unwrap();
    for id in 1..=4096 {
        is_done(&mut session, id).await;
    }
    session.send.send(ClientMessage { received: received(4097), ..Default::default() }).unwrap();
    assert!(matches!(session.next().await, Some(proto::server_message::Body::Goodbye(_))));
}
