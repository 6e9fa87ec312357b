//! The remainder of a caller's timeout after an outage, and how long a client waits for an answer beyond it.

use super::fake::FakeServer;
use super::support::{Rows, SECOND, assert_batch, connected, draws, next_inserts, send_batch};
use reverie_core::Error;
use reverie_core::append::Sink;
use reverie_net::proto::{self, error_detail, reply};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The reply of a server at a deadline: these keys were inserted.
fn at_the_deadline(keys: Vec<i64>) -> reply::Body {
    let deadline = proto::Deadline { why: "the table is full".to_owned(), keys, not_committed: false };
    reply::Body::Error(error_detail::Kind::Deadline(deadline).into())
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_again_carries_what_is_left_of_its_timeout() {
    let fake = FakeServer::start();
    let client = fake.client(60 * SECOND);
    let sample = client.draw(draws(4), Some(10 * SECOND));
    let mut session = fake.session().await;
    let first = session.request().await;
    let given = first.timeout.expect("the caller gave one");
    assert!((9.0..=10.0).contains(&given), "{given}");
    tokio::time::sleep(4 * SECOND).await;
    drop(session);
    let mut session = fake.session().await;
    let again = session.request().await;
    assert_eq!(again.id, first.id);
    // Time passes only where the test or the client sleeps: 4 s here, and far less than 1 s until it dials again.
    let left = again.timeout.expect("it has one still");
    assert!((given - 5.0..=given - 4.0).contains(&left), "{left} of {given}");
    send_batch(&session, again.id, 4, 1000, 0, true).await;
    assert_batch(&sample.await.unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn draws_that_a_server_answers_when_its_journal_has_them_are_waited_for_beyond_the_deadline() {
    for (commit_grace_ms, arrives) in [(100, true), (0, false)] {
        let fake = FakeServer::start();
        fake.inside.commit_grace_ms.store(commit_grace_ms, Ordering::SeqCst);
        let client = fake.client(60 * SECOND);
        let sample = client.draw(draws(4), Some(SECOND));
        let mut session = fake.session().await;
        let id = session.request().await.id;
        tokio::time::sleep(SECOND + Duration::from_millis(100)).await;
        session.reply(id, at_the_deadline(Vec::new())).await;
        let found = sample.await.unwrap();
        let Some(Error::Deadline(why)) = &found.error else { panic!("{:?}", found.error) };
        assert_eq!(why.contains("the table is full"), arrives, "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_withdrawn_insert_are_waited_for_as_long_as_the_server_waits_for_its_journal() {
    for (commit_grace_ms, arrives) in [(100, true), (0, false)] {
        let fake = FakeServer::start();
        fake.inside.commit_grace_ms.store(commit_grace_ms, Ordering::SeqCst);
        let client = fake.client(60 * SECOND);
        let mut session = connected(&fake, &client).await;
        let mut ticket = client.insert("replay", Rows::new(&client).inserts()).unwrap();
        let (number, _) = next_inserts(&mut session).await;
        ticket.withdraw();
        tokio::time::sleep(Duration::from_millis(100)).await;
        session.reply(number, at_the_deadline(vec![5])).await;
        let outcome = ticket.await;
        match arrives {
            true => assert_eq!(outcome.unwrap().len(), 1),
            false => assert_eq!(outcome, Err(Error::UnknownOutcome { number })),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_patience_or_grace_beyond_the_range_of_the_clock_is_no_deadline() {
    for far in [Duration::from_secs(i64::MAX as u64), Duration::MAX] {
        let fake = FakeServer::start();
        let client = fake.client_with(far, far);
        let (endless, short) = (client.draw(draws(4), Some(far)), client.draw(draws(4), Some(SECOND)));
        let mut session = fake.session().await;
        let ids = [session.request().await.id, session.request().await.id];
        send_batch(&session, ids[0], 4, 1000, 0, true).await;
        assert_batch(&endless.await.unwrap(), 4);
        // Without a connection, too.
        let endless = client.draw(draws(4), Some(far));
        session.request().await;
        fake.refuse();
        drop(session);
        let error = short.await.unwrap().error;
        assert!(matches!(error, Some(Error::Deadline(_))), "{error:?}");
        fake.listen();
        let mut session = fake.session().await;
        let again = session.request().await.id;
        send_batch(&session, again, 4, 1000, 0, true).await;
        assert_batch(&endless.await.unwrap(), 4);
    }
}
