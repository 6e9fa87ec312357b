//! Draws that the server keeps until the client, or its program, has acknowledged them.

use super::fake::{FakeServer, FakeSession};
use super::support::{SECOND, acknowledged, draws, returned, send_batch, send_kind};
use reverie_core::Error;
use reverie_core::replay::Replay;
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::{self, reply, request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::Status;

/// The number of a request whose draws the client has got, of a table that deletes sampled items or not, and the
/// connection.
async fn drawn(fake: &FakeServer, client: &Arc<Remote>, leased: bool) -> (u64, FakeSession) {
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    send_kind(&session, id, 4, (1000, 0), (true, true, leased)).await;
    sample.await.unwrap();
    (id, session)
}

#[tokio::test(start_paused = true)]
async fn draws_without_a_caller_after_an_outage_are_returned_until_the_server_confirms_it() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    drop(session);
    fake.refuse();
    let sampled = sample.await.unwrap();
    assert!(matches!(sampled.error, Some(Error::Unavailable(_))), "{:?}", sampled.error);
    // The connection on which the client reports it is lost, too.
    for _ in 0..2 {
        fake.listen();
        let mut session = fake.session().await;
        let info = client.info();
        session.request().await;
        assert_eq!((returned(&session), acknowledged(&session, id)), (vec![id], false));
        drop((session, info));
    }
    let mut session = fake.session().await;
    let info = client.info();
    session.request().await;
    assert_eq!(returned(&session), [id]);
    session.reply(id, reply::Body::Done(proto::Done {})).await;
    // The client has read that when it answers this.
    let can = client.can_sample("replay", 1);
    loop {
        let request = session.request().await;
        if let Some(request::Body::Can(_)) = request.body {
            session.reply(request.id, reply::Body::Can(true)).await;
            break;
        }
    }
    can.await.unwrap();
    drop((session, info));
    let info = client.info();
    let mut session = fake.session().await;
    session.request().await;
    assert_eq!(returned(&session), [0; 0], "the server has them");
    drop(info);
}

#[tokio::test(start_paused = true)]
async fn draws_whose_ticket_was_dropped_are_returned_and_those_that_were_taken_are_acknowledged() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (taken, dropped) = (client.draw(draws(4), None), client.draw(draws(4), None));
    let mut session = fake.session().await;
    let (first, second) = (session.request().await.id, session.request().await.id);
    drop(dropped);
    send_batch(&session, first, 4, 100, 0, true).await;
    send_batch(&session, second, 4, 100, 0, true).await;
    assert!(taken.await.unwrap().error.is_none());
    let info = client.info();
    while !matches!(session.receive().await, Some(ClientBody::Request(_))) {}
    tokio::time::sleep(SECOND).await;
    let other = client.info();
    session.request().await;
    assert_eq!(
        (returned(&session), acknowledged(&session, first), acknowledged(&session, second)),
        (vec![second], true, false)
    );
    drop((info, other));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ends_reports_what_it_has_and_leaves() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    send_batch(&session, id, 4, 100, 0, true).await;
    sample.await.unwrap();
    client.close();
    assert!(matches!(session.receive().await, Some(ClientBody::Leave(_))));
    assert!(acknowledged(&session, id));
}

#[tokio::test(start_paused = true)]
async fn on_a_new_connection_the_server_gets_all_that_is_open() {
    let fake = FakeServer::start();
    let client = fake.client(100 * SECOND);
    let (open, taken) = (client.draw(draws(4), None), client.draw(draws(4), None));
    let mut session = fake.session().await;
    let (first, second) = (session.request().await.id, session.request().await.id);
    send_batch(&session, second, 4, 100, 0, true).await;
    assert!(taken.await.unwrap().error.is_none());
    // The acknowledgement is lost with the connection.
    drop(session);
    let mut session = fake.session().await;
    assert_eq!(session.request().await.id, first);
    let received = &session.received[0];
    assert!(received.before > second && received.open == convert::numbers::encode(&[first]), "{received:?}");
    let info = client.info();
    session.request().await;
    assert!(session.received[1..].iter().all(|received| received.before == 0), "once");
    drop((open, info));
}

#[tokio::test(start_paused = true)]
async fn draws_that_the_server_is_asked_to_take_back_are_not_given_to_the_caller_too() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(8), Some(SECOND));
    let mut session = fake.session().await;
    let id = session.request().await.id;
    send_kind(&session, id, 4, (1000, 0), (true, false, true)).await;
    // The rest does not come.
    let sampled = sample.await.unwrap();
    assert!(matches!(sampled.error, Some(Error::Deadline(_))), "{:?}", sampled.error);
    assert_eq!(sampled.batches.len(), 0);
    let info = client.info();
    session.request().await;
    assert_eq!((returned(&session), acknowledged(&session, id)), (vec![id], false));
    drop(info);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_got_draws_connects_again_to_report_it_without_a_further_call() {
    for leased in [true, false] {
        let fake = FakeServer::start();
        let client = fake.client(SECOND);
        let (id, session) = drawn(&fake, &client, leased).await;
        // Its report on the draws is lost with the connection.
        drop(session);
        let again = tokio::time::timeout(5 * SECOND, fake.session()).await;
        assert_eq!(again.is_ok(), leased, "draws of a table that keeps its items are no reason to connect");
        let Ok(mut session) = again else { continue };
        let _ = tokio::time::timeout(SECOND, session.receive()).await;
        assert!(session.received[0].before > id && session.received[0].open.is_empty(), "{:?}", session.received);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_got_draws_does_not_look_for_its_server_for_ever() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (_, session) = drawn(&fake, &client, true).await;
    fake.refuse();
    drop(session);
    tokio::time::sleep(70 * SECOND).await;
    let attempts = fake.inside.attempts.load(Ordering::SeqCst);
    assert!(attempts > 10, "{attempts}");
    tokio::time::sleep(70 * SECOND).await;
    assert_eq!(fake.inside.attempts.load(Ordering::SeqCst), attempts);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_lost_with_the_next_connection_is_made_on_the_one_after() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let (id, session) = drawn(&fake, &client, true).await;
    drop(session);
    for _ in 0..3 {
        let again = tokio::time::timeout(5 * SECOND, fake.session()).await;
        let mut session = again.expect("it connects again to say that it has the draws");
        let _ = tokio::time::timeout(SECOND, session.receive()).await;
        assert!(session.received[0].before > id && session.received[0].open.is_empty(), "{:?}", session.received);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_holds_draws_dials_no_faster_where_no_new_connection_helps() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let leased = SampleRequest { leases: true, ..draws(4) };
    let sample = client.draw(leased, None);
    let mut session = fake.session().await;
    let id = session.request().await.id;
    send_kind(&session, id, 4, (1000, 0), (true, true, true)).await;
    let held = sample.await.unwrap();
    *fake.inside.refusal.lock().unwrap() = Some(Status::unauthenticated("another token"));
    drop(session);
    tokio::time::sleep(20 * SECOND).await;
    let attempts = fake.inside.attempts.load(Ordering::SeqCst);
    assert!((3..60).contains(&attempts), "{attempts} in twenty seconds");
    drop(held);
}
