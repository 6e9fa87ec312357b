//! Batches that a client asks for ahead of its program.

use super::fake::{FakeServer, FakeSession};
use super::support::{SECOND, acknowledged, draws, returned, send_batch, send_kind, until};
use reverie_core::Error;
use reverie_core::replay::Batches;
use reverie_core::sample::{DrawnBatch, Schedule};
use reverie_net::client::{Pipeline, SampleRequest};
use reverie_net::convert;
use reverie_net::proto::{reply, request};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Batches of four draws, two of them ahead.
fn schedule() -> Schedule {
    Schedule {
        mixture: None,
        parts: vec![("replay".to_owned(), 4)],
        without_replacement: false,
        windows: None,
        max_samples: None,
        ahead: 2,
        budget: None,
    }
}

fn pipeline(fake: &FakeServer, schedule: Schedule) -> Pipeline {
    let form = SampleRequest { parts: Vec::new(), leases: true, ..draws(0) };
    Pipeline::new(fake.client(10 * SECOND), schedule, form)
}

async fn next(pipeline: &mut Pipeline) -> DrawnBatch {
    until(|| pipeline.next(Duration::ZERO)).await.unwrap().unwrap()
}

/// A batch of a table that deletes sampled items.
async fn send_leased(session: &FakeSession, id: u64, new_head: bool) {
    send_kind(session, id, 4, (1000, 0), (new_head, true, true)).await;
}

/// A pipeline that has two batches and has taken none, their numbers, and the connection.
async fn two_ahead(fake: &FakeServer) -> (Pipeline, [u64; 2], FakeSession) {
    let pipeline = pipeline(fake, schedule());
    let mut session = fake.session().await;
    let numbers = [session.request().await.id, session.request().await.id];
    send_leased(&session, numbers[0], true).await;
    send_leased(&session, numbers[1], false).await;
    tokio::time::sleep(SECOND).await;
    (pipeline, numbers, session)
}

/// The next message's request, if one comes.
async fn next_request(session: &mut FakeSession) -> Option<u64> {
    tokio::time::timeout(SECOND, session.request()).await.ok().map(|request| request.id)
}

/// Waits until the client has reported what it had to.
async fn reported(session: &mut FakeSession) {
    while tokio::time::timeout(SECOND, session.receive()).await.is_ok_and(|asked| asked.is_some()) {}
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_keeps_so_many_requests_in_flight_and_gives_back_what_was_not_taken() {
    let fake = FakeServer::start();
    let mut pipeline = pipeline(&fake, Schedule { max_samples: Some(14), ..schedule() });
    let mut session = fake.session().await;
    let (first, second) = (session.request().await.id, session.request().await.id);
    assert!(pipeline.next(Duration::ZERO).is_none(), "nothing came yet");
    send_batch(&session, first, 4, 1000, 0, true).await;
    send_batch(&session, second, 4, 1000, 0, false).await;
    // The third request is made when the first batch is taken, the fourth for the two draws that are left.
    let batch = until(|| pipeline.next(Duration::ZERO)).await.unwrap().unwrap();
    assert_eq!(batch.len(), 4);
    let third = session.request().await.id;
    assert!(until(|| pipeline.next(Duration::ZERO)).await.unwrap().is_some());
    let fourth = session.request().await;
    let Some(request::Body::Sample(sample)) = &fourth.body else { panic!("{fourth:?}") };
    assert_eq!(sample.parts[0].num_samples, 2);
    send_batch(&session, third, 4, 1000, 0, false).await;
    send_batch(&session, fourth.id, 2, 1000, 0, true).await;
    tokio::time::sleep(SECOND).await;
    let left: Vec<usize> = pipeline.close().iter().map(|batch| batch.len()).collect();
    assert_eq!(left, [4, 2]);
    assert!(matches!(pipeline.next(Duration::ZERO), Some(Ok(None))), "a closed one has ended");
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_over_a_long_way_asks_for_more_than_the_least_within_its_bytes() {
    let fake = FakeServer::start();
    fake.inside.delay_ms.store(4_000, Ordering::SeqCst);
    // A batch of these has 656 bytes.
    let mut pipeline = pipeline(&fake, Schedule { budget: Some(5 * 700), ..schedule() });
    let mut session = fake.session().await;
    let mut asked = VecDeque::new();
    for round in 0..12 {
        while let Ok(request) = tokio::time::timeout(SECOND, session.request()).await {
            asked.push_back(request.id);
        }
        let wanted = [2, 3, 3, 3, 3, 5][round.min(5)];
        assert_eq!(asked.len(), wanted, "in round {round}");
        assert!(pipeline.next(Duration::ZERO).is_none(), "the reader waits");
        let id = asked.pop_front().unwrap();
        send_batch(&session, id, 4, 1000, 0, round == 0).await;
        assert!(until(|| pipeline.next(Duration::ZERO)).await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_acknowledged_when_the_program_has_it_and_returned_where_it_never_does() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], mut session) = two_ahead(&fake).await;
    let mut batch = next(&mut pipeline).await;
    let third = next_request(&mut session).await.unwrap();
    reported(&mut session).await;
    assert!(!acknowledged(&session, first), "the program may not have it yet");
    assert!(batch.take_lease().try_acknowledge());
    reported(&mut session).await;
    assert!(acknowledged(&session, first) && !acknowledged(&session, second));
    drop(pipeline);
    reported(&mut session).await;
    let mut back = returned(&session);
    back.sort_unstable();
    back.dedup();
    assert_eq!(back, [second, third]);
    assert!(!acknowledged(&session, second) && !acknowledged(&session, third));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_the_program_drops_unread_is_returned() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, _], mut session) = two_ahead(&fake).await;
    drop(next(&mut pipeline).await);
    reported(&mut session).await;
    assert_eq!(returned(&session), [first]);
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_a_batch_waits_and_is_given_if_the_next_resumes_the_client() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], session) = two_ahead(&fake).await;
    fake.refuse();
    drop(session);
    tokio::time::sleep(SECOND).await;
    assert!(pipeline.next(Duration::ZERO).is_none(), "the server may have given it to others");
    fake.listen();
    let mut session = fake.session().await;
    let question = session.request().await;
    assert!(matches!(question.body, Some(request::Body::Can(_))), "none is asked for twice: {question:?}");
    let open = &session.received[0].open;
    assert_eq!(*open, convert::numbers::encode(&[first, second, question.id]));
    session.reply(question.id, reply::Body::Can(false)).await;
    assert!(next(&mut pipeline).await.take_lease().try_acknowledge());
    reported(&mut session).await;
    assert!(acknowledged(&session, first) && !acknowledged(&session, second));
    assert_eq!(returned(&session), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn batches_that_a_new_server_does_not_know_are_returned_and_asked_for_again() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], session) = two_ahead(&fake).await;
    drop(session);
    fake.inside.incarnation.store(9, Ordering::SeqCst);
    let mut session = fake.session_with(false, false).await;
    tokio::time::sleep(SECOND).await;
    assert!(pipeline.next(Duration::ZERO).is_none() && pipeline.next(Duration::ZERO).is_none());
    let again = [session.request().await.id, session.request().await.id];
    assert!(again[0] > second, "{again:?}");
    assert_eq!(returned(&session), [first, second]);
    send_leased(&session, again[0], true).await;
    assert!(next(&mut pipeline).await.take_lease().try_acknowledge());
    reported(&mut session).await;
    assert!(acknowledged(&session, again[0]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_went_back_while_it_was_made_is_not_handed_over_and_is_asked_for_again() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], mut session) = two_ahead(&fake).await;
    let mut batch = next(&mut pipeline).await;
    let third = next_request(&mut session).await.unwrap();
    drop(session);
    fake.inside.incarnation.store(9, Ordering::SeqCst);
    let mut session = fake.session_with(false, false).await;
    assert_eq!(next_request(&mut session).await, Some(third), "it was not answered");
    assert_eq!(returned(&session), [first, second]);
    assert!(!batch.take_lease().try_acknowledge(), "the server gives it to others");
    pipeline.again();
    let fourth = next_request(&mut session).await.unwrap();
    assert!(fourth > third);
    reported(&mut session).await;
    assert!(!acknowledged(&session, first));
    send_leased(&session, third, true).await;
    tokio::time::sleep(SECOND).await;
    // The second went back, too, and another is asked for in its place.
    assert!(next(&mut pipeline).await.take_lease().try_acknowledge());
    reported(&mut session).await;
    assert!(acknowledged(&session, third));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_handed_over_without_a_connection_is_the_programs_own_on_the_next() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], session) = two_ahead(&fake).await;
    let mut batch = next(&mut pipeline).await;
    fake.refuse();
    drop(session);
    tokio::time::sleep(SECOND).await;
    assert!(batch.take_lease().try_acknowledge());
    fake.inside.incarnation.store(9, Ordering::SeqCst);
    fake.listen();
    let mut session = fake.session_with(false, false).await;
    reported(&mut session).await;
    assert_eq!(returned(&session), [second]);
    assert!(acknowledged(&session, first), "it is not among those that are open");
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_for_long_the_batches_end_with_that_error_and_what_was_not_taken_goes_back() {
    let fake = FakeServer::start();
    let (mut pipeline, [first, second], session) = two_ahead(&fake).await;
    fake.refuse();
    drop(session);
    tokio::time::sleep(SECOND).await;
    let error = until(|| pipeline.next(Duration::ZERO)).await.err();
    assert!(matches!(error, Some(Error::Unavailable(_))), "{error:?}");
    assert_eq!(pipeline.close().len(), 0);
    fake.listen();
    let mut session = fake.session().await;
    reported(&mut session).await;
    assert_eq!(returned(&session), [first, second]);
}

#[tokio::test(start_paused = true)]
async fn batches_of_a_table_that_keeps_its_items_are_acknowledged_when_they_arrive_and_given_without_a_connection() {
    let fake = FakeServer::start();
    let mut pipeline = pipeline(&fake, schedule());
    let mut session = fake.session().await;
    let (first, second) = (session.request().await.id, session.request().await.id);
    send_batch(&session, first, 4, 1000, 0, true).await;
    send_batch(&session, second, 4, 1000, 0, false).await;
    reported(&mut session).await;
    assert!(acknowledged(&session, first) && acknowledged(&session, second));
    fake.refuse();
    drop(session);
    tokio::time::sleep(SECOND).await;
    assert_eq!((next(&mut pipeline).await.len(), next(&mut pipeline).await.len()), (4, 4));
}
