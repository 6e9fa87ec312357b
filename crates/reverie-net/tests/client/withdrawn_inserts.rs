//! Withdrawn inserts: which are asked for, and what is known of their outcome.

use super::fake::{FakeServer, FakeSession};
use super::support::{Rows, SECOND, connected, next_inserts, send_inserted, until};
use reverie_core::Error;
use reverie_core::append::Sink;
use reverie_core::item::Key;
use reverie_core::replay::Replay;
use reverie_core::table::{Keys, Ticket};
use reverie_net::client::Remote;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, reply};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A client with an insert that was sent and not confirmed, and the insert's number.
async fn unconfirmed_insert(fake: &FakeServer) -> (Arc<Remote>, Rows, Ticket<Keys>, u64) {
    let client = fake.client(SECOND);
    let mut session = connected(fake, &client).await;
    let mut rows = Rows::new(&client);
    let ticket = client.insert("replay", rows.inserts()).unwrap();
    let (number, _) = next_inserts(&mut session).await;
    drop(session);
    fake.refuse();
    until(|| client.outage().map(drop)).await;
    (client, rows, ticket, number)
}

async fn cancelled(session: &mut FakeSession) -> proto::Cancel {
    match session.receive().await {
        Some(ClientBody::Cancel(cancel)) => cancel,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_withdrawn_during_an_outage_is_of_unknown_outcome_and_is_asked_for_and_not_sent_again() {
    for keys in [vec![], vec![5]] {
        let fake = FakeServer::start();
        let (client, _rows, mut ticket, number) = unconfirmed_insert(&fake).await;
        ticket.withdraw();
        assert_eq!(ticket.await, Err(Error::UnknownOutcome { number }));
        let mut early = client.insert_outcome(number);
        early.withdraw();
        assert_eq!(early.await, Err(Error::UnknownOutcome { number }), "still");
        let outcome = client.insert_outcome(number);
        fake.listen();
        let mut session = fake.session().await;
        assert_eq!(cancelled(&mut session).await, proto::Cancel { id: number, insert: true });
        let deadline = proto::Deadline { keys: keys.clone(), ..Default::default() };
        let detail = proto::error_detail::Kind::Deadline(deadline).into();
        session.reply(number, reply::Body::Error(detail)).await;
        let expected: Keys = keys.into_iter().map(Key::from).collect();
        assert_eq!(outcome.await.as_ref(), Ok(&expected));
        assert_eq!(client.insert_outcome(number).await, Ok(expected), "as often as it is asked");
        assert!(matches!(client.insert_outcome(number + 1).await, Err(Error::InvalidArgument(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_withdrawn_while_its_confirmation_is_lost_is_asked_for_on_every_new_connection() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let mut ticket = client.insert("replay", rows.inserts()).unwrap();
    let (number, _) = next_inserts(&mut session).await;
    ticket.withdraw();
    assert_eq!(cancelled(&mut session).await.id, number);
    for _ in 0..2 {
        drop(session);
        session = fake.session().await;
        assert_eq!(cancelled(&mut session).await, proto::Cancel { id: number, insert: true });
    }
    send_inserted(&session, number, 9..10).await;
    match ticket.await {
        Ok(keys) => assert_eq!(keys[..], [Key::from(9)], "it was in"),
        Err(error) => {
            assert_eq!(error, Error::UnknownOutcome { number });
            assert_eq!(client.insert_outcome(number).await.unwrap()[..], [Key::from(9)]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_that_the_servers_journal_has_not_committed_is_an_error_with_its_keys() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let why = "the journal waits for room on the disk".to_owned();
    let not_committed = |keys: Vec<i64>| {
        let deadline = proto::Deadline { why: why.clone(), keys, not_committed: true };
        reply::Body::Error(proto::error_detail::Kind::Deadline(deadline).into())
    };
    let mut insert = client.insert("replay", rows.inserts()).unwrap();
    let (number, _) = next_inserts(&mut session).await;
    insert.withdraw();
    assert_eq!(cancelled(&mut session).await, proto::Cancel { id: number, insert: true });
    session.reply(number, not_committed(vec![9])).await;
    let keys: Keys = [Key::from(9)].into_iter().collect();
    assert_eq!(insert.await, Err(Error::NotCommitted { keys, why: why.clone() }));
    let mut reset = client.reset("replay");
    let id = loop {
        match session.receive().await {
            Some(ClientBody::Request(request)) => break request.id,
            Some(_) => {}
            None => panic!("the connection ended"),
        }
    };
    reset.withdraw();
    assert_eq!(cancelled(&mut session).await, proto::Cancel { id, insert: false });
    session.reply(id, not_committed(Vec::new())).await;
    assert_eq!(reset.await, Err(Error::NotCommitted { keys: Keys::new(), why }));
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_waits_to_be_sent_again_is_asked_for_when_it_is_withdrawn() {
    // Also where another server, which may go on from a checkpoint, has taken the place of that one.
    for incarnation in [7, 8] {
        let fake = FakeServer::start();
        let client = fake.client(SECOND);
        let mut session = connected(&fake, &client).await;
        session.send(Body::Credit(proto::Credit { insert_credit_bytes: 8 << 20 })).await;
        let mut rows = Rows::new(&client);
        let mut tickets: Vec<_> = (0..2000).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
        let (mut first, mut sent) = (None, 0);
        while sent < 2000 {
            let (number, requests) = next_inserts(&mut session).await;
            first.get_or_insert(number);
            sent += requests;
        }
        let last = first.unwrap() + 1999;
        // The next connection begins with credit for some of them.
        drop(session);
        fake.inside.incarnation.store(incarnation, Ordering::SeqCst);
        let mut session = fake.session().await;
        assert!(next_inserts(&mut session).await.1 < 1000);
        tickets.last_mut().unwrap().withdraw();
        // After those that it had credit for.
        let mut again = 0;
        let cancel = loop {
            match session.receive().await {
                Some(ClientBody::Insert(insert)) => again += insert.runs.iter().map(|run| run.requests).sum::<u32>(),
                Some(ClientBody::Cancel(cancel)) => break cancel,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(cancel, proto::Cancel { id: last, insert: true });
        assert!(again < 1000, "{again} of 2,000 were sent again with half of 1 MiB");
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_was_never_sent_is_withdrawn_without_a_request() {
    let fake = FakeServer::start();
    let (client, mut rows, first, _) = unconfirmed_insert(&fake).await;
    let mut second = client.insert("replay", rows.inserts()).unwrap();
    second.withdraw();
    assert_eq!(second.await, Ok(Keys::new()));
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_insert_whose_server_forgot_the_client_stays_of_unknown_outcome() {
    let fake = FakeServer::start();
    let (client, _rows, mut ticket, number) = unconfirmed_insert(&fake).await;
    ticket.withdraw();
    assert_eq!(ticket.await, Err(Error::UnknownOutcome { number }));
    let outcome = client.insert_outcome(number);
    fake.listen();
    let _session = fake.session_with(false, true).await;
    assert!(matches!(outcome.await, Err(Error::Unavailable(text)) if text.contains("is unknown")));
}
