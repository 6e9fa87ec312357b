use crate::support::*;
use reverie_net::convert;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, request};
use reverie_net::server::Limits;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_overrun_of_the_insert_credit_ends_the_connection_only() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), table("b")], limited(limits));
    let (session, hello) = Session::open(host.client().await, [1; 16]).await;
    let mut session = session;
    assert_eq!(hello.insert_credit_bytes, 1000);
    let first = session.insert(0, &[1.0]);
    session.inserted(first, 1).await;
    // More than the credit waits then; that is allowed where less was in flight.
    session.insert(0, &vec![2.0; 100]);
    session.insert(0, &[3.0]);
    let rule = session.violation().await;
    assert!(rule.contains("credit"), "{rule}");
    let mut other = host.session(2).await;
    let first = other.insert(1, &[1.0]);
    other.inserted(first, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_table_may_use_what_the_others_leave_of_the_credit_and_one_with_nothing_in_flight_always_goes_on() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), queue("b", 1), table("c")], limited(limits));
    ["a", "b"].into_iter().for_each(|name| host.fill(name, [0.0]));
    let mut session = host.session(1).await;
    let open = async |session: &mut Session| {
        let first = session.insert(2, &[1.0]);
        session.inserted(first, 1).await;
    };
    // 72 bytes each: up to half of the credit may go on.
    for _ in 0..7 {
        session.insert(0, &[1.0]);
        open(&mut session).await;
    }
    for _ in 0..3 {
        session.insert(1, &[1.0]);
        open(&mut session).await;
    }
    // Beyond the credit by a message, and still others have theirs.
    session.insert(1, &[1.0; 10]);
    open(&mut session).await;
    open(&mut session).await;
    session.insert(1, &[1.0]);
    let rule = session.violation().await;
    assert!(rule.contains("credit") && rule.contains("table number 1"), "{rule}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn credit_grows_with_its_use_up_to_the_sessions_bound_and_the_servers() {
    let limits = Limits { session_insert_bytes: 4 << 20, total_insert_bytes: 3 << 20, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1)], limited(limits));
    let (mut session, hello) = Session::open(host.client().await, [1; 16]).await;
    assert_eq!(hello.insert_credit_bytes, 1 << 20);
    let first = session.insert(0, &[0.0]);
    session.inserted(first, 1).await;
    session.insert(0, &vec![1.0; 10_000]);
    let Some(proto::server_message::Body::Credit(credit)) = session.next().await else { panic!("no credit") };
    assert_eq!(credit.insert_credit_bytes, 2 << 20);
    session.insert(0, &vec![1.0; 10_000]);
    let id = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    let next = session.next().await;
    assert!(matches!(next, Some(proto::server_message::Body::Reply(reply)) if reply.id == id), "no more is given");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn credit_grows_where_a_long_way_holds_much_of_it_although_no_insert_waits() {
    let limits = Limits { session_insert_bytes: 3 << 20, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    let (mut session, hello) = Session::open(host.client().await, [1; 16]).await;
    assert_eq!(hello.insert_credit_bytes, 1 << 20);
    for (in_flight_bytes, granted) in
        [(0, None), ((1 << 19) - 1, None), (1 << 19, Some(2 << 20)), (1 << 30, Some(3 << 20))]
    {
        let first = session.take_id(1);
        let insert = proto::Insert { in_flight_bytes, ..insert(first, 0, &[1.0], first) };
        session.send.send(message(ClientBody::Insert(insert))).unwrap();
        session.inserted(first, 1).await;
        if let Some(granted) = granted {
            let Some(proto::server_message::Body::Credit(credit)) = session.next().await else { panic!("no credit") };
            assert_eq!(credit.insert_credit_bytes, granted);
        }
    }
    let id = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    let next = session.next().await;
    assert!(matches!(next, Some(proto::server_message::Body::Reply(reply)) if reply.id == id), "no more is given");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn too_many_requests_that_wait_end_the_connection() {
    let limits = Limits { max_pending_requests: 3, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    let mut session = host.session(1).await;
    for _ in 0..4 {
        session.ask(sample("a", 1), None);
    }
    assert!(session.violation().await.contains("more than 3 requests"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_beyond_the_bound_is_refused_and_consumed_draws_come_one_by_one() {
    let limits = Limits { session_batch_bytes: 10_000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 10)], limited(limits));
    host.fill_large(4000, 4);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    assert_eq!(session.whole(id).await.values()[500], 1.0);
    host.fill_large(4000, 1);
    let id = session.ask(sample("a", 3), None);
    for first in [2.0, 3.0, 0.0] {
        assert_eq!(session.batch(id).await.values()[0], first);
    }
    assert!(matches!(session.refusal(id).await, Kind::ResourceExhausted(refused) if refused.budget == 10_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_does_not_read_stops_only_itself() {
    let limits = Limits { session_batch_bytes: 8 << 20, total_batch_bytes: 64 << 20, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    host.fill_large(1 << 20, 4);
    let mut slow = host.session(1).await;
    let asked: Vec<u64> = (0..200).map(|_| slow.ask(sample("a", 4), None)).collect();
    let mut other = host.session(2).await;
    for _ in 0..20 {
        let id = other.ask(sample("a", 4), None);
        other.whole(id).await;
    }
    // Each of its batches is there in the end.
    for id in asked {
        assert_eq!(slow.whole(id).await.message.num_draws, 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_hundred_sessions_are_served_at_a_time() {
    let host = Host::new(vec![table("a"), queue("b", 1000)]);
    host.fill("a", [1.0]);
    let mut sessions = Vec::new();
    for name in 0..200 {
        let client = host.client().await;
        sessions.push(tokio::spawn(async move {
            let (mut session, _) = Session::open(client, [name; 16]).await;
            let waits = session.ask(sample("b", 1), None);
            for _ in 0..5 {
                let id = session.ask(sample("a", 8), None);
                assert_eq!(session.whole(id).await.values(), [1.0; 8]);
            }
            (session, waits)
        }));
    }
    let mut waiting = Vec::new();
    for session in sessions {
        waiting.push(session.await.unwrap());
    }
    assert_eq!(host.tables.get("b").unwrap().info().pending_samples, 200);
    host.fill("b", (0..200).map(f64::from));
    let mut values = Vec::new();
    for (session, id) in &mut waiting {
        values.extend(session.whole(*id).await.values());
    }
    values.sort_by(f64::total_cmp);
    assert_eq!(values, (0..200).map(f64::from).collect::<Vec<_>>(), "each item went to one of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sessions_beyond_the_bound_are_refused_until_one_ends_with_the_setting_that_raises_it() {
    let limits = Limits { max_connections: 1, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    let first = host.session(1).await;
    let open = async || host.client().await.session(tokio_stream::iter([hello([2; 16])])).await.map(drop);
    let full = open().await.unwrap_err();
    let refusal = detail(&full);
    let Kind::Unavailable(why) = &refusal else { panic!("{refusal:?}") };
    assert!(why.contains("the server is full") && why.contains("max_connections=1"), "{why}");
    let call = host.client().await.call(hello([2; 16])).await.map(drop).unwrap_err();
    assert!(call.message().contains("the server is full"), "{call}");
    // A client's first request, for the description, takes no place.
    host.client().await.describe(proto::DescribeRequest { protocol: proto::PROTOCOL }).await.unwrap();
    first.lose();
    let again = async { while open().await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(200), again).await.expect("the place is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn outcomes_that_are_received_are_forgotten() {
    let host = Host::new(vec![queue("a", 1000)]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0]);
    session.inserted(first, 2).await;
    let received =
        Some(proto::Received { below: 0, ids: convert::numbers::encode(&[first, first + 1]), ..Default::default() });
    let id = session.take_id(1);
    let request = proto::Request { id, timeout: None, body: Some(sample("a", 2)) };
    session
        .send
        .send(proto::ClientMessage { received, body: Some(ClientBody::Request(request)), ..Default::default() })
        .unwrap();
    session.whole(id).await;
    assert!(host.tables.bytes().0.live_bytes() > 0, "the draws are kept for the case that they are lost");
    session.received(id + 1, &[]);
    let sync = session.ask(request::Body::Info(proto::InfoRequest {}), None);
    session.reply(sync).await;
    drop(session);
    let gone = async {
        while host.tables.bytes().0.live_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(200), gone).await.expect("chunks outlive the session");
}
