//! The memory that a session may hold on the server in addition to the tables.

use crate::resume::{again, until};
use crate::support::*;
use reverie_net::convert::numbers;
use reverie_net::items::Row;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, request};
use reverie_net::server::Limits;

/// A server whose queue "a" is full, and that has a table "b".
fn full(total_session_bytes: u64) -> Host {
    // A session that is ended for its message, and not for all that it holds, is kept for a while.
    let linger = std::time::Duration::from_secs(2);
    let limits = Limits { total_session_bytes, linger, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), table("b")], limited(limits));
    host.fill("a", [0.0]);
    host
}

/// Ends the test where the connection is not ended for what it holds.
async fn exhausted(session: &mut Session) {
    let reason = session.goodbye().await.reason.unwrap().kind.unwrap();
    assert!(matches!(reason, Kind::ResourceExhausted(_)), "{reason:?}");
}

/// A chunk that no item names.
fn send_cells(session: &Session, chunk: u64, cells: usize) {
    let mut cells = insert(1, 0, &vec![1.0; cells], chunk);
    (cells.runs, cells.items, cells.first_id) = (Vec::new(), Default::default(), 0);
    session.send_insert(cells);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cells_that_no_item_names_are_counted_over_all_sessions() {
    let limits = Limits { total_session_bytes: 4 << 20, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    let (mut first, mut second, mut third) = (host.session(1).await, host.session(2).await, host.session(3).await);
    send_cells(&first, 1, 400_000);
    first.settle().await;
    send_cells(&second, 1, 400_000);
    exhausted(&mut second).await;
    assert!(host.tables.bytes().0.live_bytes() < 4_000_000, "no memory is set aside for what is refused");
    let inserted = third.insert(0, &[1.0]);
    third.inserted(inserted, 1).await;
    first.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cells_that_came_into_a_table_count_no_longer() {
    let limits = Limits { total_session_bytes: 4 << 20, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    let mut session = host.session(1).await;
    for _ in 0..20 {
        let first = session.insert(0, &vec![1.0; 50_000]);
        let mut confirmed = 0;
        while confirmed < 50_000 {
            match session.next().await.unwrap() {
                Body::Inserted(inserted) => confirmed += inserted.requests,
                other => panic!("{other:?}"),
            }
        }
        session.received(first + 50_000, &[]);
    }
    assert_eq!(host.size("a"), 1_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cells_that_came_into_a_table_refuse_no_draws() {
    let options = limited(Limits { total_session_bytes: 1 << 20, ..Limits::default() });
    let host = Host::with(vec![queue("a", 1), table("b")], options);
    host.fill("a", [7.0]);
    // One item of a chunk of so many cells.
    let send = |session: &Session, table: u32, cells: usize| {
        let mut large = insert(1, table, &vec![1.0; cells], 1);
        large.items.truncate(reverie_net::items::Row::BYTES);
        large.runs[0].requests = 1;
        session.send_insert(large);
    };
    let (mut session, mut other) = (host.session(1).await, host.session(2).await);
    session.take_id(1);
    send(&session, 1, 75_000);
    session.inserted(1, 1).await;
    other.take_id(1); // Which holds almost half of the total.
    send(&other, 0, 30_000);
    other.settle().await;
    let id = session.ask(sample("a", 1), None);
    assert_eq!(session.whole(id).await.values(), [7.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_are_never_received_are_weighed_with_the_chunks_that_they_keep() {
    let limits = Limits { total_session_bytes: 1 << 20, ..Limits::default() };
    let host = Host::with(vec![queue("a", 100)], limited(limits));
    host.fill_large(100_000, 40);
    let mut session = host.session(1).await;
    // The first 64 KiB do not count.
    for _ in 0..12 {
        let id = session.ask(sample("a", 1), None);
        session.whole(id).await;
    }
    let refused = session.ask(sample("a", 1), None);
    let Kind::ResourceExhausted(why) = session.refusal(refused).await else { panic!("not refused for what it holds") };
    assert_eq!(why.budget, 1 << 20, "{why:?}");
    assert_eq!(host.size("a"), 28, "what is refused is not drawn");
    session.received(refused + 1, &[]);
    let id = session.ask(sample("a", 1), None);
    session.whole(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_that_wait_count_for_what_they_cost_and_not_only_for_their_credit() {
    let limits = Limits { total_session_bytes: 1 << 20, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), table("b")], limited(limits));
    host.fill("a", [0.0]);
    let mut session = host.session(1).await;
    // 1.3 MB for cells, and then 100 items for each of which the credit counts 72 bytes.
    let mut cells = insert(1, 0, &[1.0], 1);
    (cells.runs, cells.items, cells.first_id) = (Vec::new(), Default::default(), 0);
    cells.chunks[0].layout.as_mut().unwrap().capacity = 160_000;
    session.send_insert(cells);
    session.settle().await;
    (0..2).for_each(|chunk| session.send_insert(insert(1 + 50 * chunk, 0, &[1.0; 50], 2 + chunk)));
    exhausted(&mut session).await;
    host.nothing_waits("a").await;
    let mut other = host.session(2).await;
    let inserted = other.insert(1, &[1.0]);
    other.inserted(inserted, 1).await;
}

/// One item that waits for the table "a". `edit` changes its message, whose chunk has the number of the item.
fn wait(session: &mut Session, edit: impl FnOnce(u64, &mut proto::Insert)) {
    let id = session.take_id(1);
    let mut message = insert(id, 0, &[1.0], id);
    edit(id, &mut message);
    session.send_insert(message);
}

/// Sends inserts that wait until the connection is ended; fails if that takes more than `most`.
async fn is_ended_within(session: &mut Session, most: usize, mut edit: impl FnMut(u64, &mut proto::Insert)) {
    for _ in 0..most {
        wait(session, &mut edit);
    }
    exhausted(session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_exceeds_the_total_is_ended_also_where_its_chunks_do_not_grow() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    // 1.3 MB of cells, of which the items that follow have the first.
    wait(&mut session, |_, message| message.chunks[0].layout.as_mut().unwrap().capacity = 160_000);
    session.settle().await;
    is_ended_within(&mut session, 70, |_, message| {
        message.chunks.clear();
        message.patterns.clear();
        message.bulk = None;
        message.items = rows(&[Row { pattern: 1, anchor: 0, body: 1, priority: 1.0, episode: 0, stream: 0 }]);
    })
    .await;
    host.nothing_waits("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn chunks_that_were_released_count_while_items_that_wait_have_them() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    // Each chunk has 80 kB, of which one cell is sent.
    let large = |id: u64, message: &mut proto::Insert| {
        message.chunks[0].layout.as_mut().unwrap().capacity = 10_000;
        message.released = numbers::encode(&[id]);
    };
    is_ended_within(&mut session, 20, large).await;
    host.nothing_waits("a").await;
    until(|| host.tables.bytes().0.live_bytes() < 1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn chunks_that_a_table_deletes_count_while_items_that_wait_have_them() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    for _ in 0..20 {
        let id = session.take_id(1);
        let mut message = insert(id, 1, &[1.0], id);
        message.chunks[0].layout.as_mut().unwrap().capacity = 10_000;
        session.send_insert(message);
        session.inserted(id, 1).await;
        wait(&mut session, |_, message| {
            let row = Row { pattern: id as u32, anchor: 0, body: id, priority: 1.0, episode: 0, stream: 0 };
            (message.items, message.bulk) = (rows(&[row]), None);
            message.chunks.clear();
            message.patterns.clear();
            message.released = numbers::encode(&[id]);
        });
    }
    session.settle().await;
    host.tables.get("b").unwrap().reset().unwrap();
    is_ended_within(&mut session, 100, |_, _| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn chunks_of_a_lost_connection_count_while_items_that_wait_have_them() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    let large = |_, message: &mut proto::Insert| message.chunks[0].layout.as_mut().unwrap().capacity = 10_000;
    (0..12).for_each(|_| wait(&mut session, large));
    session.settle().await;
    session.lose();
    let (mut session, resumed) = again(&host, 1).await;
    assert!(resumed);
    session.take_id(12);
    is_ended_within(&mut session, 8, large).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bodies_that_were_released_count_while_items_that_wait_have_them() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    // 32 kB each.
    is_ended_within(&mut session, 60, |id, message| {
        let starts: Vec<i64> = (0..=2000).collect();
        let part = proto::BodyPart { chunks: numbers::encode(&[id; 2000]), starts: numbers::encode(&starts) };
        let body = (1 << 40) + id;
        message.bodies = vec![proto::BodyDef { body, parts: vec![part], ..Default::default() }];
        message.items = rows(&[Row { pattern: id as u32, anchor: 0, body, priority: 1.0, episode: 0, stream: 0 }]);
        message.released = numbers::encode(&[body]);
    })
    .await;
    host.nothing_waits("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_numbers_of_episodes_and_streams_count_in_the_sessions_memory() {
    let host = full(1 << 20);
    // 1,000 items with episodes from this number on.
    let send = |session: &mut Session, first: u32, step: u32| {
        let id = session.take_id(1000);
        let mut message = insert(id, 1, &[1.0; 1000], id);
        let row = |anchor| {
            let number = first + anchor * step;
            Row { pattern: id as u32, anchor, body: id, priority: 1.0, episode: number, stream: number }
        };
        message.items = rows(&(0..1000).map(row).collect::<Vec<_>>());
        message.released = numbers::encode(&[id]);
        session.send_insert(message);
        session.received(id + 1000, &[]);
    };
    let (mut few, mut many) = (host.session(1).await, host.session(2).await);
    for n in 0..40 {
        send(&mut few, 1 + n, 0);
        few.settle().await;
    }
    (0..40).for_each(|n| send(&mut many, 1 + 1000 * n, 1));
    exhausted(&mut many).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_cannot_be_sent_twice_on_one_connection_to_count_for_less() {
    let host = full(1 << 20);
    let mut session = host.session(1).await;
    wait(&mut session, |_, message| message.chunks[0].layout.as_mut().unwrap().capacity = 150);
    session.settle().await;
    let twice = insert(1, 0, &[1.0], 7);
    session.send_insert(twice);
    assert!(session.violation().await.contains("the insert 1 was sent twice"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_gets_no_more_credit_than_it_may_use_memory_for() {
    let host = full(16 << 20);
    let mut session = host.session(1).await;
    // Requests credit, by the bytes that it reports in flight.
    let asks = async |session: &mut Session| {
        let id = session.take_id(1);
        session.send_insert(proto::Insert { in_flight_bytes: 1 << 30, ..insert(id, 1, &[1.0], id) });
        session.inserted(id, 1).await;
        let sync = session.ask(request::Body::Info(proto::InfoRequest {}), None);
        match session.next().await.unwrap() {
            Body::Credit(_) => {
                session.reply(sync).await;
                true
            }
            Body::Reply(reply) if reply.id == sync => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(asks(&mut session).await);
    wait(&mut session, |_, message| message.chunks[0].layout.as_mut().unwrap().capacity = 2_400_000);
    assert!(!asks(&mut session).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_insert_of_a_call_that_its_client_gave_up_is_withdrawn() {
    let host = full(1 << 20);
    let mut client = host.client().await;
    let request = tonic::Request::new(message(ClientBody::Insert(insert(1, 0, &[1.0], 1))));
    let call = client.call(request).await.unwrap();
    until(|| host.pending_inserts("a") == 1).await;
    drop(call);
    host.nothing_waits("a").await;
}
