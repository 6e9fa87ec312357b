//! Inserts: what is sent together, sent again, and waited for.

use super::fake::{ADDRESS, FakeServer};
use super::support::{Rows, SECOND, connected, next_inserts, next_numbers, send_inserted, until};
use reverie_core::Error;
use reverie_core::append::Sink;
use reverie_core::item::Key;
use reverie_core::replay::Replay;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, reply};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tonic::Status;

#[tokio::test(start_paused = true)]
async fn inserts_in_quick_succession_travel_together_and_each_gets_its_own_key() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> = (0..100).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    let (first, requests) = next_inserts(&mut session).await;
    assert_eq!(requests, 100, "one message for all");
    send_inserted(&session, first, 1000..1100).await;
    for (index, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.await.unwrap()[..], [Key::from(1000 + index as i64)]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_inserts_are_sent_than_the_server_has_credit_for() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> = (0..3000).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    // The fake gives 1 MiB, of which one table may have half; a message may pass it, another must not.
    let (mut sent, mut from, mut confirmed) = (0, None, 0);
    while sent < 3000 {
        // Not even cells that belong to no insert, for which a server would end the connection.
        while let Ok((first, requests)) = tokio::time::timeout(10 * SECOND, next_inserts(&mut session)).await {
            assert!(requests < 150, "{requests} of 1,000 bytes in one message");
            from.get_or_insert(first);
            sent += requests;
        }
        let unconfirmed = sent - confirmed;
        assert!((1..700).contains(&unconfirmed), "{unconfirmed} of 1,000 bytes with half of 1 MiB");
        let first = from.unwrap() + confirmed;
        send_inserted(&session, first, first as i64..(first + unconfirmed) as i64).await;
        confirmed = sent;
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_confirms_nothing_has_half_of_the_credit_and_what_is_left_is_for_others() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let mut insert = |table| client.insert(table, rows.inserts()).unwrap();
    // 3 MB in turns, where the fake gives 1 MiB.
    let tickets: Vec<_> = (0..1500).map(|_| [insert("replay"), insert("other")]).collect();
    let (mut full, mut open) = (Vec::new(), Vec::new());
    while open.len() < 1500 {
        let message = next_numbers(&mut session).await;
        for (table, number) in message {
            if table == 0 {
                full.push(number);
                continue;
            }
            open.push(number);
            send_inserted(&session, number, number as i64..number as i64 + 1).await;
        }
        assert!(full.len() < 600, "{} inserts of a thousand bytes", full.len());
    }
    assert!(full.len() > 100, "{} inserts", full.len());
    let quiet = tokio::time::timeout(10 * SECOND, session.receive()).await;
    assert!(quiet.is_err(), "sent without credit: {quiet:?}");
    // Each goes on in its own order.
    let mut confirmed = 0;
    while confirmed < 1500 {
        for number in &full[confirmed..] {
            send_inserted(&session, *number, *number as i64..*number as i64 + 1).await;
        }
        confirmed = full.len();
        if confirmed < 1500 {
            full.extend(next_numbers(&mut session).await.into_iter().map(|(table, number)| {
                assert_eq!(table, 0);
                number
            }));
        }
    }
    for numbers in [&full, &open] {
        assert!(numbers.is_sorted_by(|left, right| left < right));
    }
    for ticket in tickets.into_iter().flatten() {
        ticket.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_reports_how_much_it_has_in_flight_and_the_shortest_round_trip() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    assert!(client.round_trip().unwrap().is_zero());
    let mut session = connected(&fake, &client).await;
    let connecting = client.round_trip().unwrap();
    let (mut rows, mut before) = (Rows::new(&client), 0);
    // The clock stands still but where the test sleeps.
    for (round, (slept, expected)) in
        [(50, connecting), (0, Duration::ZERO), (20, Duration::ZERO)].into_iter().enumerate()
    {
        let ticket = client.insert("replay", rows.inserts()).unwrap();
        let Some(ClientBody::Insert(insert)) = session.receive().await else { panic!("not an insert") };
        assert!(insert.in_flight_bytes > 1000, "{}", insert.in_flight_bytes);
        assert!(round != 1 || insert.in_flight_bytes == before, "the first was confirmed");
        before = insert.in_flight_bytes;
        tokio::time::sleep(Duration::from_millis(slept)).await;
        send_inserted(&session, insert.first_id, 7..8).await;
        ticket.await.unwrap();
        assert!(client.round_trip().unwrap() <= expected.max(Duration::from_millis(1)), "{:?}", client.round_trip());
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_lags_where_neither_a_table_nor_a_lost_connection_is_what_inserts_wait_for() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    assert!(!client.server_lags(), "there is no connection");
    let session = connected(&fake, &client).await;
    assert!(client.server_lags());
    for held in [true, false, true] {
        session.send(Body::Held(proto::Held { held })).await;
        until(|| (client.server_lags() != held).then_some(())).await;
    }
    // The next connection begins without.
    drop(session);
    let described = client.info();
    let _session = fake.session().await;
    until(|| client.server_lags().then_some(())).await;
    drop(described);
}

#[tokio::test(start_paused = true)]
async fn inserts_that_were_not_confirmed_are_sent_again_and_those_that_were_are_not() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> = (0..10).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    let (first, requests) = next_inserts(&mut session).await;
    assert_eq!(requests, 10);
    // Ten inserts: the first four are in, the seventh is refused, the tenth was in before.
    send_inserted(&session, first, 0..4).await;
    let refusal = Error::InvalidArgument("no".to_owned());
    session.reply(first + 6, reply::Body::Error(convert::error::encode(&refusal))).await;
    send_inserted(&session, first + 9, 9..10).await;
    let mut tickets: Vec<_> = tickets.into_iter().map(Some).collect();
    for index in [0, 1, 2, 3, 9] {
        assert_eq!(tickets[index].take().unwrap().await.unwrap()[..], [Key::from(index as i64)]);
    }
    assert_eq!(tickets[6].take().unwrap().await, Err(refusal));
    drop(session);
    // Longer than any request would be kept for.
    fake.refuse();
    tokio::time::sleep(100 * SECOND).await;
    let why = Sink::wait_reason(&*client, "replay").await.unwrap();
    assert!(why.contains(ADDRESS) && why.contains("kept"), "{why}");
    fake.listen();
    let mut session = fake.session().await;
    assert_eq!(next_numbers(&mut session).await, [4, 5, 7, 8].map(|at| (0, first + at)));
    send_inserted(&session, first + 4, 4..6).await;
    send_inserted(&session, first + 7, 7..9).await;
    for index in [4, 5, 7, 8] {
        assert_eq!(tickets[index].take().unwrap().await.unwrap()[..], [Key::from(index as i64)]);
    }
}

#[tokio::test(start_paused = true)]
async fn confirmed_inserts_that_may_not_be_on_the_disk_are_sent_again_to_a_restarted_server_until_they_are_there() {
    let fake = FakeServer::start();
    fake.inside.durable_later.store(true, Ordering::SeqCst);
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let tickets: Vec<_> = (0..3).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    let (first, requests) = next_inserts(&mut session).await;
    assert_eq!(requests, 3);
    send_inserted(&session, first, 0..3).await;
    for (index, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.await.unwrap()[..], [Key::from(index as i64)], "the caller does not wait for the disk");
    }
    let durable_later = |body| matches!(body, Some(proto::request::Body::Durable(proto::Durable { later: true })));
    // The server ends before it answers whether they are on its disk.
    let question = session.request().await;
    assert!(durable_later(question.body));
    assert!(session.received.iter().all(|received| received.below <= first), "{:?}", session.received);
    drop(session);
    fake.inside.incarnation.store(8, Ordering::SeqCst);
    session = fake.session().await;
    // The question that was not answered is asked again, too; its answer counts for nothing.
    let unanswered = session.request().await;
    assert!(durable_later(unanswered.body));
    assert_eq!(unanswered.id, question.id);
    assert_eq!(next_numbers(&mut session).await, [0, 1, 2].map(|at| (0, first + at)), "in their order, once");
    send_inserted(&session, first, 0..3).await;
    let question = session.request().await;
    assert!(durable_later(question.body));
    session.reply(question.id, reply::Body::Done(proto::Done {})).await;
    // They are on the disk: a third server gets only what comes after them.
    let next = client.insert("replay", rows.inserts()).unwrap();
    loop {
        match session.receive().await {
            // That of an earlier server may be asked again.
            Some(ClientBody::Request(question)) => {
                assert!(durable_later(question.body));
                session.reply(question.id, reply::Body::Done(proto::Done {})).await;
            }
            Some(ClientBody::Insert(insert)) if insert.runs.is_empty() => {}
            Some(ClientBody::Insert(insert)) => break assert!(insert.first_id >= first + 3, "{}", insert.first_id),
            other => panic!("{other:?}"),
        }
    }
    drop(session);
    fake.inside.incarnation.store(10, Ordering::SeqCst);
    let mut session = fake.session().await;
    assert!(durable_later(session.request().await.body), "it was not answered");
    let (after, requests) = next_inserts(&mut session).await;
    assert!(after >= first + 3 && requests == 1, "{after} {requests}");
    send_inserted(&session, after, 3..4).await;
    assert_eq!(next.await.unwrap()[..], [Key::from(3)]);
}

#[tokio::test(start_paused = true)]
async fn confirmed_inserts_that_cannot_be_sent_again_are_reported_to_the_next_request_and_none_is_held_back() {
    let fake = FakeServer::start();
    fake.inside.durable_later.store(true, Ordering::SeqCst);
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let ticket = client.insert("replay", Rows::new(&client).inserts()).unwrap();
    let (first, _) = next_inserts(&mut session).await;
    send_inserted(&session, first, 0..1).await;
    ticket.await.unwrap();
    // Whether it is on the disk is not answered.
    session.request().await;
    drop(session);
    fake.inside.incarnation.store(8, Ordering::SeqCst);
    session = fake.session().await;
    session.request().await;
    assert_eq!(next_numbers(&mut session).await, [(0, first)]);
    // It is not confirmed, and no other connection can be made.
    *fake.inside.refusal.lock().unwrap() = Some(Status::unauthenticated("another token"));
    drop(session);
    tokio::time::sleep(SECOND).await;
    let lost = client.durable().await.unwrap_err();
    assert!(matches!(lost, Error::Unauthenticated(_)), "{lost}");
    *fake.inside.refusal.lock().unwrap() = None;
    let durable = client.durable();
    let mut session = fake.session().await;
    loop {
        let request = session.request().await;
        let is_for_later = matches!(request.body, Some(proto::request::Body::Durable(proto::Durable { later: true })));
        session.reply(request.id, reply::Body::Done(proto::Done {})).await;
        if !is_for_later {
            break;
        }
    }
    durable.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn inserts_sent_to_a_server_that_forgot_the_session_are_not_sent_twice_and_are_an_error() {
    forgotten_by(|_| ()).await;
}

#[tokio::test(start_paused = true)]
async fn and_so_it_is_where_another_server_goes_on_from_a_checkpoint_of_that_one() {
    forgotten_by(|fake| fake.inside.incarnation.store(2, Ordering::SeqCst)).await;
}

async fn forgotten_by(meanwhile: impl FnOnce(&FakeServer)) {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let sent: Vec<_> = (0..3).map(|_| client.insert("replay", rows.inserts()).unwrap()).collect();
    let (first, requests) = next_inserts(&mut session).await;
    assert_eq!(requests, 3);
    send_inserted(&session, first, 0..1).await;
    drop(session);
    fake.refuse();
    tokio::time::sleep(100 * SECOND).await;
    let later = client.insert("replay", rows.inserts()).unwrap();
    meanwhile(&fake);
    fake.listen();
    let mut session = fake.session_with(false, true).await;
    assert_eq!(next_inserts(&mut session).await, (first + 3, 1), "only what was never sent");
    send_inserted(&session, first + 3, 7..8).await;
    assert_eq!(later.await.unwrap()[..], [Key::from(7)]);
    let mut sent = sent.into_iter();
    assert!(sent.next().unwrap().await.is_ok());
    for ticket in sent {
        let Err(Error::Unavailable(text)) = ticket.await else { panic!("its outcome is not known") };
        assert!(text.contains(ADDRESS) && text.contains("is unknown"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_server_is_sent_all_that_was_not_confirmed() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let mut session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    let ticket = client.insert("replay", rows.inserts()).unwrap();
    let sent = next_inserts(&mut session).await;
    drop(session);
    fake.inside.incarnation.store(2, Ordering::SeqCst);
    let mut session = fake.session_with(false, false).await;
    assert_eq!(next_inserts(&mut session).await, sent);
    send_inserted(&session, sent.0, 0..1).await;
    assert!(ticket.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_confirms_what_it_was_not_sent_breaks_the_rules() {
    for (requests, keys) in [(1, 2), (2, 1), (3, 3)] {
        let fake = FakeServer::start();
        let client = fake.client(SECOND);
        let mut session = connected(&fake, &client).await;
        let mut rows = Rows::new(&client);
        let tickets = [(); 2].map(|()| client.insert("replay", rows.inserts()).unwrap());
        let (first_id, _) = next_inserts(&mut session).await;
        session.send(Body::Inserted(proto::Inserted { first_id, requests, keys: vec![5; keys] })).await;
        let [_, second] = tickets;
        assert!(matches!(second.await, Err(Error::Protocol(_)) | Ok(_)));
        assert!(session.receive().await.is_none(), "the connection has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_into_a_table_that_the_restarted_server_does_not_have_is_refused() {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let session = connected(&fake, &client).await;
    let mut rows = Rows::new(&client);
    fake.inside.num_tables.store(1, Ordering::SeqCst);
    fake.inside.incarnation.store(8, Ordering::SeqCst);
    drop(session);
    let kept = client.insert("replay", rows.inserts()).unwrap();
    let mut session = fake.session().await;
    let (first, _) = next_inserts(&mut session).await;
    // The client has connected, and has the server's new list of tables.
    let ticket = client.insert("other", rows.inserts()).unwrap();
    let outcome = tokio::time::timeout(100 * SECOND, ticket).await.expect("an answer");
    assert!(matches!(&outcome, Err(Error::UnknownTable { name, known }) if name == "other" && known == &["replay"]));
    send_inserted(&session, first, 5..6).await;
    assert_eq!(kept.await.unwrap()[..], [Key::from(5)]);
    // A server that has it again takes the next one.
    fake.inside.num_tables.store(2, Ordering::SeqCst);
    fake.inside.incarnation.store(9, Ordering::SeqCst);
    drop(session);
    let kept = client.insert("replay", rows.inserts()).unwrap();
    let mut session = fake.session().await;
    let (first, _) = next_inserts(&mut session).await;
    send_inserted(&session, first, 6..7).await;
    assert_eq!(kept.await.unwrap()[..], [Key::from(6)]);
    let again = client.insert("other", rows.inserts()).unwrap();
    let (first, _) = next_inserts(&mut session).await;
    send_inserted(&session, first, 7..8).await;
    assert_eq!(again.await.unwrap()[..], [Key::from(7)]);
}
