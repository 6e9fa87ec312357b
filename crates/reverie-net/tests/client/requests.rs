//! Requests, responses, and the connections for them.

use super::fake::{ADDRESS, FakeServer, FakeSession};
use super::support::{Rows, SECOND, assert_batch, connected, draws, ids, send_batch};
use reverie_core::Error;
use reverie_core::append::Sink;
use reverie_core::replay::Replay;
use reverie_core::spec::Structure;
use reverie_core::table::{ChangeCounts, Ticket, Updates};
use reverie_net::client::Remote;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, reply, request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

#[tokio::test(start_paused = true)]
async fn a_client_connects_at_the_first_call_and_reports_what_the_server_is() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    assert_eq!((client.link().transport, client.link().connected), (None, false));
    tokio::time::sleep(SECOND).await;
    assert_eq!(fake.inside.attempts.load(Ordering::SeqCst), 0, "no caller has asked for anything");
    let (described, _session) = tokio::join!(client.describe(), fake.session());
    let described = described.unwrap().unwrap();
    assert_eq!((described.version.as_str(), described.tables[0].name.as_str()), ("1.2.3", "replay"));
    let link = client.link();
    assert_eq!((link.transport, link.connected, link.reconnects), (Some("grpc".into()), true, 0));
    assert!(link.reason.contains("no Unix socket"), "{}", link.reason);
    assert!(link.bytes_sent > 100 && link.bytes_received > 100);
}

#[tokio::test(start_paused = true)]
async fn a_batch_arrives_in_parts_and_its_head_is_known_afterwards() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let first = client.draw(draws(64), None);
    let mut session = fake.session().await;
    let request = session.request().await;
    let Some(request::Body::Sample(sample)) = &request.body else { panic!("{request:?}") };
    assert_eq!((sample.parts[0].table.as_str(), sample.parts[0].num_samples), ("replay", 64));
    assert_eq!(request.timeout, None);
    send_batch(&session, request.id, 64, 1000, 0, true).await;
    assert_batch(&first.await.unwrap(), 64);
    let second = client.draw(draws(64), None);
    let request = session.request().await;
    send_batch(&session, request.id, 64, 999, 1, false).await;
    assert_batch(&second.await.unwrap(), 64);
    // The server was notified that it need not keep the first.
    assert_eq!(session.received.last().map(|received| received.below), Some(request.id));
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_one_that_was_withdrawn_before_it_was_sent_is_sent() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    tokio::time::sleep(10 * SECOND).await;
    // The client's task is awake when it is taken back, and sends nothing about it.
    drop(client.draw(draws(4), None));
    tokio::time::sleep(10 * SECOND).await;
    let _info = client.info();
    let request = tokio::time::timeout(10 * SECOND, session.request()).await.expect("it is sent");
    assert!(matches!(request.body, Some(request::Body::Info(_))), "{request:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_while_the_server_takes_nothing() {
    let fake = FakeServer::start();
    let client = fake.client(100 * SECOND);
    let _session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    // More than the connection holds of what the peer does not read.
    let _inserts: Vec<_> = (0..3000).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    tokio::time::sleep(SECOND).await;
    // The client's task wakes for each of these, and in the end sleeps with one in its hands.
    let mut infos = Vec::new();
    for _ in 0..200 {
        infos.push(client.info());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    let sample = tokio::time::timeout(50 * SECOND, client.draw(draws(4), Some(2 * SECOND))).await;
    let error = sample.expect("it is answered").unwrap().error;
    assert!(matches!(error, Some(Error::Deadline(_))), "{error:?}");
    assert!(start.elapsed() < 3 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_is_named_soon_after_the_deadline() {
    let fake = FakeServer::start();
    let client = fake.client(10 * SECOND);
    let start = Instant::now();
    let sample = client.draw(draws(4), Some(2 * SECOND));
    let mut session = fake.session().await;
    let request = session.request().await;
    assert_eq!(request.timeout, Some(2.0));
    let sampled = sample.await.unwrap();
    let Some(Error::Deadline(text)) = sampled.error else { panic!("{:?}", sampled.error) };
    assert!(text.contains(ADDRESS) && text.contains("sampling from 'replay'") && text.contains("2.0 s"), "{text}");
    assert!((2 * SECOND..2 * SECOND + Duration::from_millis(100)).contains(&start.elapsed()), "{:?}", start.elapsed());
    // The server need not go on, and its messages do no harm now.
    let late = request.id;
    send_batch(&session, late, 4, 100, 0, true).await;
    let next = client.draw(draws(4), None);
    let request = session.request().await;
    assert!(
        session.received.iter().any(|received| received.returned == convert::numbers::encode(&[late])),
        "{:?}",
        session.received
    );
    assert!(!session.received.iter().any(|received| ids(&received.ids).contains(&late) || received.below > late));
    send_batch(&session, request.id, 4, 100, 0, false).await;
    assert_batch(&next.await.unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn draws_come_with_the_reason_why_there_are_not_more() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(8), Some(SECOND));
    let mut session = fake.session().await;
    let id = session.request().await.id;
    let deadline = Error::Deadline("too few items".to_owned());
    let head = convert::batch::encode_head(&[], &Structure::Tuple(vec![]), 0, false);
    let batch = proto::Batch { id, head: 1, new_head: Some(head), num_draws: 3, bulk_bytes: 168, ..Default::default() };
    session.send(Body::Batch(batch)).await;
    session.send(Body::Part(proto::Part { id, offset: 0, data: vec![1; 168].into() })).await;
    session.reply(id, reply::Body::Error(convert::error::encode(&deadline))).await;
    let sampled = sample.await.unwrap();
    assert_eq!((sampled.batches[0].len(), sampled.error), (3, Some(deadline)));
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_waiting_caller_are_sent_together_unless_one_waits_or_they_are_many() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let ask = |waits| {
        drop(client.mutate("replay", &Updates { keys: &[1], priorities: &[2.0], ..Updates::default() }, &[], waits));
    };
    let coalesce_time = Duration::from_micros(300);
    ask(false);
    let mut session = fake.session().await;
    session.request().await;
    // How many come that are not waited for, and then that are; and whether they are there before the coalesce time is
    // over.
    for (unawaited, waits, at_once) in [(1, 0, false), (63, 0, false), (1, 1, true), (64, 0, true)] {
        tokio::time::sleep(SECOND).await;
        ask(false);
        session.request().await;
        let start = Instant::now();
        (0..unawaited).for_each(|_| ask(false));
        (0..waits).for_each(|_| ask(true));
        for _ in 0..unawaited + waits {
            session.request().await;
        }
        assert_eq!(start.elapsed() < coalesce_time, at_once, "{unawaited} and {waits}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_is_sent_again_on_the_next_connection_under_its_number() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (sample, update) = (
        client.draw(draws(4), None),
        client.mutate("replay", &Updates { keys: &[1], priorities: &[2.0], ..Updates::default() }, &[], true),
    );
    let mut session = fake.session().await;
    assert!(!session.hello.resume);
    let (first, second) = (session.request().await, session.request().await);
    // Half a batch, and the connection is gone.
    send_batch(&session, first.id, 4, 100_000, 0, true).await;
    let answered = sample.await.unwrap();
    assert_batch(&answered, 4);
    let session_id = session.hello.session.clone();
    drop(session);
    let mut session = fake.session().await;
    assert!(session.hello.resume && session.hello.session == session_id);
    assert_eq!(session.request().await, second, "the first was answered, the second was not");
    assert_eq!(session.received[0].below, second.id);
    session.reply(second.id, reply::Body::Mutated(proto::Mutated { applied: 1, ..Default::default() })).await;
    assert_eq!(update.await.unwrap(), (ChangeCounts { applied: 1, stale: 0 }, ChangeCounts::default()));
    let link = client.link();
    assert_eq!((link.reconnects, link.server_restarts, link.connected), (1, 0, true));
}

#[tokio::test(start_paused = true)]
async fn a_batch_cut_off_by_a_lost_connection_arrives_whole_on_the_next() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(64), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    let head = convert::batch::encode_head(&[], &Structure::Tuple(vec![]), 0, false);
    let batch =
        proto::Batch { id, head: 5, new_head: Some(head), num_draws: 64, bulk_bytes: 64 * 56, ..Default::default() };
    session.send(Body::Batch(batch)).await;
    session.send(Body::Part(proto::Part { id, offset: 0, data: vec![9; 100].into() })).await;
    drop(session);
    let mut session = fake.session().await;
    assert_eq!(session.request().await.id, id);
    send_batch(&session, id, 64, 1000, 0, true).await;
    assert_batch(&sample.await.unwrap(), 64);
}

/// A reset whose answer was lost, and the client's next session, at a server with this incarnation that remembers the
/// earlier session if `resumed`.
async fn reset_of_a_lost_answer(incarnation: u64, resumed: bool) -> (Ticket<()>, FakeSession) {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (_, mut session) = tokio::join!(client.describe(), fake.session());
    let reset = client.reset("replay");
    assert!(matches!(session.request().await.body, Some(request::Body::Reset(_))));
    drop(session);
    fake.inside.incarnation.store(incarnation, Ordering::SeqCst);
    // It would come before this question.
    let _can = client.can_insert("replay", 1);
    let session = fake.session_with(resumed, false).await;
    std::mem::forget((fake, client));
    (reset, session)
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_may_be_done_is_sent_again_only_to_a_server_that_remembers_whether_it_was() {
    let (reset, mut session) = reset_of_a_lost_answer(7, true).await;
    let request = session.request().await;
    assert!(matches!(request.body, Some(request::Body::Reset(_))));
    session.reply(request.id, reply::Body::Done(proto::Done {})).await;
    reset.await.unwrap();
    for (incarnation, resumed) in [(8, false), (7, false)] {
        let (reset, mut session) = reset_of_a_lost_answer(incarnation, resumed).await;
        assert!(matches!(session.request().await.body, Some(request::Body::Can(_))));
        let Err(Error::Undecided(text)) = reset.await else { panic!("it cannot know") };
        assert!(text.contains("resetting 'replay'"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_incarnation_is_counted() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (_, session) = tokio::join!(client.describe(), fake.session());
    drop(session);
    fake.inside.incarnation.store(8, Ordering::SeqCst);
    tokio::time::sleep(SECOND / 10).await;
    let can = client.can_insert("replay", 1);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    session.reply(id, reply::Body::Can(true)).await;
    assert!(can.await.unwrap());
    assert_eq!((client.link().reconnects, client.link().server_restarts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_fail_when_patience_ends_and_succeed_when_the_server_is_there() {
    let fake = FakeServer::start();
    fake.refuse();
    let client = fake.client(3 * SECOND);
    let start = Instant::now();
    let Err(Error::Unavailable(text)) = client.info().await else { panic!("no server is there") };
    assert!((3 * SECOND..4 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(text.contains(ADDRESS) && text.contains("the server's figures") && text.contains("refused"), "{text}");
    assert!(fake.inside.attempts.load(Ordering::SeqCst) > 5, "it was tried again and again");
    // A deadline of the caller's own is kept also then.
    let start = Instant::now();
    assert!(matches!(client.draw(draws(1), Some(SECOND)).await.unwrap().error, Some(Error::Deadline(_))));
    assert!((SECOND..SECOND + Duration::from_millis(100)).contains(&start.elapsed()), "{:?}", start.elapsed());
    let can = client.can_sample("replay", 1);
    tokio::time::sleep(SECOND).await;
    fake.listen();
    let mut session = fake.session().await;
    let id = session.request().await.id;
    session.reply(id, reply::Body::Can(false)).await;
    assert!(!can.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_is_taken_back_at_the_server_and_its_draws_handed_out() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    let withdrawn = tokio::task::spawn_blocking(move || sample.cancel());
    assert!(matches!(session.receive().await, Some(ClientBody::Cancel(cancel)) if cancel.id == id));
    send_batch(&session, id, 4, 100_000, 0, true).await;
    assert_batch(&withdrawn.await.unwrap().unwrap(), 4);
}

// In real time: a thread that waits stops the other.
#[tokio::test]
async fn a_silent_server_does_not_hold_a_caller_that_withdraws() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    session.request().await;
    let withdrawn = tokio::task::spawn_blocking(move || sample.cancel());
    let sampled = withdrawn.await.unwrap().unwrap();
    assert!(sampled.batches.is_empty() && sampled.error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_sample_is_withdrawn_and_a_dropped_change_is_made() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    drop(client.mutate("replay", &Updates { keys: &[3], priorities: &[1.0], ..Updates::default() }, &[4], true));
    let Some(request::Body::Mutate(mutate)) = session.request().await.body else { panic!("a mutation was sent") };
    assert_eq!(mutate.deletes, convert::numbers::encode(&[4_i64]));
    drop(sample);
    assert!(matches!(session.receive().await, Some(ClientBody::Cancel(cancel)) if cancel.id == id));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_still_makes_the_changes_that_were_asked_for_and_leaves_then() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    drop(client.mutate("replay", &Updates { keys: &[3], priorities: &[1.0], ..Updates::default() }, &[], true));
    drop(client);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    session.reply(id, reply::Body::Mutated(proto::Mutated::default())).await;
    assert!(matches!(session.receive().await, Some(ClientBody::Leave(_))));
    assert!(session.receive().await.is_none(), "the connection has ended");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_what_waits_and_what_comes() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (sample, info) = (client.draw(draws(4), None), client.info());
    let mut session = fake.session().await;
    session.request().await;
    client.close();
    client.close();
    let closed = Error::ClientClosed { address: client.options().address.clone() };
    assert!(closed.to_string().contains("the client of") && closed.to_string().contains(&client.options().address));
    assert_eq!(sample.await.unwrap().error, Some(closed.clone()));
    assert_eq!(info.await.err(), Some(closed.clone()));
    assert_eq!(client.why("replay").await.err(), Some(closed));
    assert!(!client.link().connected);
    while session.receive().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn permanent_refusals_are_reported_at_once() {
    let fake = FakeServer::start();
    *fake.inside.refusal.lock().unwrap() = Some(Status::unauthenticated("a token is needed"));
    let client: Arc<Remote> = fake.client(60 * SECOND);
    let start = Instant::now();
    let Err(Error::Unauthenticated(text)) = client.describe().await else { panic!("there was no token") };
    assert!(text.contains("a token is needed"), "{text}");
    *fake.inside.refusal.lock().unwrap() = None;
    fake.inside.protocol.store(99, Ordering::SeqCst);
    let Err(Error::Protocol(text)) = client.describe().await else { panic!("versions differ") };
    assert!(text.contains("99") && text.contains("1.2.3"), "{text}");
    assert!(start.elapsed() < SECOND);
    assert_eq!(fake.inside.attempts.load(Ordering::SeqCst), 2, "once for each");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_the_rules_ends_what_waits() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (sample, other) = (client.draw(draws(4), None), client.info());
    let mut session = fake.session().await;
    let id = session.request().await.id;
    session.send(Body::Part(proto::Part { id, offset: 0, data: vec![0; 10].into() })).await;
    assert!(matches!(sample.await.unwrap().error, Some(Error::Protocol(_))));
    assert!(matches!(other.await, Err(Error::Protocol(_))));
    // And the client can go on.
    let info = client.info();
    let mut session = fake.session().await;
    let id = session.request().await.id;
    session.reply(id, reply::Body::Info(proto::ServerInfo { live_bytes: 5, ..Default::default() })).await;
    assert_eq!(info.await.unwrap().live_bytes, 5);
}

#[test]
fn addresses_and_certificates_that_cannot_be_right_are_refused_where_they_are_given() {
    use reverie_net::endpoint::{ClientTls, EndpointOptions, Transport};
    let options = EndpointOptions {
        address: String::new(),
        transport: Transport::Auto,
        token: None,
        tls: None,
        patience: SECOND,
        grace: SECOND,
        max_kept_bytes: 0,
    };
    for address in ["", "host", "host:", ":8000", "host:0", "host:65536", "host:http", "a b:80"] {
        let refused = Remote::new(EndpointOptions { address: address.to_owned(), ..options.clone() });
        let Err(Error::InvalidArgument(text)) = refused.map(drop) else { panic!("'{address}' was taken") };
        assert!(text.contains(&format!("'{address}'")), "{text}");
    }
    let options = EndpointOptions { address: "localhost:8000".to_owned(), ..options };
    let refused = |options: EndpointOptions| matches!(Remote::new(options), Err(Error::InvalidArgument(_)));
    let tls = Some(ClientTls { ca: Some(b"no certificate".to_vec()), ..ClientTls::default() });
    assert!(refused(EndpointOptions { tls, ..options.clone() }));
    assert!(refused(EndpointOptions { token: Some("\n".to_owned()), ..options.clone() }));
    assert!(refused(EndpointOptions { patience: Duration::ZERO, ..options.clone() }));
    assert!(!refused(options));
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_first_question_was_withdrawn_is_answered_at_its_second() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    // The task sleeps by then; one that had not looked yet would look again of its own accord.
    tokio::time::sleep(SECOND).await;
    // Before it wakes: it finds the question and its withdrawal at once, and has nothing to do.
    drop(client.draw(draws(1), None));
    tokio::time::sleep(SECOND).await;
    let sample = client.draw(draws(4), None);
    let session = tokio::time::timeout(10 * SECOND, fake.session());
    let mut session = session.await.expect("no server received the second question");
    let id = session.request().await.id;
    send_batch(&session, id, 4, 100_000, 0, true).await;
    assert_batch(&sample.await.unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_its_way_is_waited_for_as_long_as_the_measured_round_trip_asks() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    assert!(client.grace() < Duration::from_millis(100), "{:?}", client.grace());
    for _ in 0..20 {
        let can = client.can_sample("replay", 1);
        let id = session.request().await.id;
        tokio::time::sleep(Duration::from_millis(200)).await;
        session.reply(id, reply::Body::Can(true)).await;
        can.await.unwrap();
    }
    assert!(client.grace() > Duration::from_millis(190), "{:?}", client.grace());
    let sample = client.draw(draws(4), Some(Duration::ZERO));
    let id = session.request().await.id;
    tokio::time::sleep(Duration::from_millis(190)).await;
    send_batch(&session, id, 4, 100, 0, true).await;
    assert!(sample.await.unwrap().error.is_none());
}

#[tokio::test(start_paused = true)]
async fn draws_behind_a_batch_that_still_arrives_are_waited_for_beyond_their_deadline() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let (large, small) = (client.draw(draws(64), None), client.draw(draws(4), Some(Duration::ZERO)));
    let ids = [session.request().await.id, session.request().await.id];
    let head = convert::batch::encode_head(&[], &Structure::Tuple(vec![]), 0, false);
    let (id, bulk_bytes) = (ids[0], 64 * 56);
    let batch =
        proto::Batch { id, head: 6, new_head: Some(head), num_draws: 64, bulk_bytes, last: true, ..Default::default() };
    session.send(Body::Batch(batch)).await;
    session.send(Body::Part(proto::Part { id, offset: 0, data: vec![0; 100].into() })).await;
    tokio::time::sleep(2 * SECOND).await;
    assert!(client.grace() >= 5 * SECOND, "{:?}", client.grace());
    session.send(Body::Part(proto::Part { id, offset: 100, data: vec![0; 64 * 56 - 100].into() })).await;
    send_batch(&session, ids[1], 4, 1000, 0, true).await;
    assert!(small.await.unwrap().error.is_none());
    assert!(large.await.unwrap().error.is_none());
    assert!(client.grace() < SECOND, "{:?}", client.grace());
}
