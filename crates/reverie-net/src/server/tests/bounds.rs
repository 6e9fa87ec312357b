//! Bounds on the work and memory that one client can cause.

use super::*;
use reverie_core::chunk::{Chooser, ChunkWriter, Layout};
use reverie_core::item::Body as ItemBody;

/// Inserts an item of a packed chunk into the table; returns its key.
fn insert_packed(shared: &ServerState, item_bytes: usize, cells: usize) -> i64 {
    let layout = Arc::new(Layout::columnar(&[(item_bytes, 1)], cells));
    let mut writer = ChunkWriter::new(layout, Compression::Zstd, shared.tables.bytes().0);
    writer.push_cells(0, &vec![1; item_bytes * cells], cells);
    let chunk = writer.seal(&mut Chooser::new(Compression::Zstd));
    let mut items = row(&shared.tables, item_bytes);
    (items[0].0.body, items[0].0.anchor) = (ItemBody::Chunk(chunk), 0);
    shared.tables.get("a").unwrap().insert(items).unwrap().poll().unwrap().unwrap()[0].get()
}

async fn until(mut what: impl FnMut() -> bool) {
    let waited = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(200), waited).await.expect("it never comes about");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_unpacked_holds_up_no_other_and_ends_when_it_is_withdrawn() {
    let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
    let key = insert_packed(&shared, 10, 400_000);
    connection.hello();
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    let held = shared.turns.hold();
    (1..=2).for_each(|id| connection.send(get(id, &[key])));
    until(|| shared.turns.num_threads() == 1).await;
    connection.ask(3, 1);
    let batch = |id| {
        let of = |message: &ServerMessage| matches!(&message.body, Some(Body::Batch(batch)) if batch.id == id);
        connection.script().queued.iter().any(of)
    };
    until(|| batch(3)).await;
    connection.send(ClientBody::Cancel(proto::Cancel { id: 1, insert: false }));
    let refused = |message: &ServerMessage| matches!(&message.body, Some(Body::Reply(reply)) if reply.id == 1);
    until(|| connection.script().queued.iter().any(refused)).await;
    assert!(!batch(1) && !batch(2));
    drop(held);
    until(|| batch(2) && shared.turns.num_threads() == 0).await;
    assert!(!batch(1), "no request wants it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_for_its_turn_ends_when_it_is_withdrawn_and_not_when_its_turn_comes() {
    let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
    let key = insert_packed(&shared, 10, 400_000);
    connection.hello();
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    let _held = shared.turns.hold();
    connection.send(get(1, &[key]));
    until(|| shared.turns.num_threads() == 1).await;
    connection.send(ClientBody::Cancel(proto::Cancel { id: 1, insert: false }));
    until(|| shared.turns.num_threads() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_that_is_copied_holds_up_no_other_request() {
    const ITEM_BYTES: usize = 5 << 20;
    let (shared, connection) = (shared(ITEM_BYTES, Limits::default(), None), ScriptedConnection::default());
    connection.hello();
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    let _unpacking = shared.turns.hold_threads(true);
    let held = shared.turns.hold_threads(false);
    connection.ask(1, 1);
    connection.send(ClientBody::Request(proto::Request {
        id: 2,
        timeout: None,
        body: Some(request::Body::Why("a".to_owned())),
    }));
    let part_bytes = || connection.script().queued.iter().map(size).filter(|size| *size > 1).sum::<u64>();
    let replied = |message: &ServerMessage| matches!(&message.body, Some(Body::Reply(reply)) if reply.id == 2);
    until(|| connection.script().queued.iter().any(replied)).await;
    assert_eq!(part_bytes(), 0, "no thread gathers the batch yet");
    drop(held);
    until(|| part_bytes() >= ITEM_BYTES as u64).await;
}

fn get(id: u64, keys: &[i64]) -> ClientBody {
    let get = proto::Get { table: "a".to_owned(), keys: crate::convert::numbers::encode(keys), reading: None };
    ClientBody::Request(proto::Request { id, timeout: None, body: Some(request::Body::Get(get)) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_of_a_small_packed_chunk_waits_for_no_turn_of_those_that_are_unpacked() {
    let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
    let key = insert_packed(&shared, 1 << 20, 1);
    connection.hello();
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    let _turns = shared.turns.hold();
    connection.send(get(1, &[key; 8]));
    until(|| connection.script().queued.iter().map(size).sum::<u64>() >= 8 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_a_thread_gathers_counts_among_the_unsent_ones() {
    let limits = Limits { session_batch_bytes: 6 << 20, ..Limits::default() };
    let (shared, connection) = (shared(5 << 20, limits, None), ScriptedConnection::default());
    let small = shared.tables.get("a").unwrap().insert(row(&shared.tables, 2 << 20)).unwrap().poll().unwrap().unwrap();
    connection.hello();
    Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
    let held = shared.turns.hold_threads(false);
    connection.ask(1, 1);
    connection.send(get(2, &[small[0].get()]));
    connection.send(ClientBody::Request(proto::Request {
        id: 3,
        timeout: None,
        body: Some(request::Body::Why("a".to_owned())),
    }));
    let replied = |message: &ServerMessage| matches!(&message.body, Some(Body::Reply(reply)) if reply.id == 3);
    until(|| connection.script().queued.iter().any(replied)).await;
    assert!(connection.script().most < 1 << 20, "both would be more than the bound");
    drop(held);
    until(|| connection.script().bytes >= 5 << 20).await;
    assert!(connection.script().most < 6 << 20);
    let mut bytes = 0;
    until(|| {
        bytes += connection.read().as_ref().map_or(0, size);
        bytes >= 7 << 20
    })
    .await;
}

#[tokio::test]
async fn the_refusal_of_a_request_overtakes_the_batches_of_others() {
    let limits = Limits { session_batch_bytes: 10_000, ..Limits::default() };
    let (shared, connection) = (shared(3000, limits, None), ScriptedConnection::default());
    connect(&shared, &connection).await;
    connection.read();
    connection.ask(1, 1);
    settle().await;
    connection.ask(2, 0);
    settle().await;
    let first = connection.read().unwrap();
    assert!(matches!(first.body, Some(Body::Reply(reply)) if reply.id == 2));
    assert!(matches!(connection.read().unwrap().body, Some(Body::Batch(batch)) if batch.id == 1));
}

#[tokio::test]
async fn messages_that_a_session_sends_ahead_of_batches_follow_its_hello() {
    let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
    connect(&shared, &connection).await;
    connection.send(ClientBody::Request(proto::Request {
        id: 1,
        timeout: None,
        body: Some(request::Body::Why("a".to_owned())),
    }));
    settle().await;
    assert!(matches!(connection.read().unwrap().body, Some(Body::Hello(_))));
    assert!(matches!(connection.read().unwrap().body, Some(Body::Reply(_))));
}

/// A runtime with time.
fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

#[test]
fn a_stop_ends_a_batch_that_is_unpacked_before_its_next_chunk() {
    let (serving, waiting) = (runtime(2), runtime(1));
    let (shared, held) = serving.block_on(async {
        let (shared, connection) = (shared(10, Limits::default(), None), ScriptedConnection::default());
        let keys = [(); 2].map(|()| insert_packed(&shared, 10, 400_000));
        connection.hello();
        Arc::clone(&shared).handshake(Box::new(connection.clone())).await;
        let held = shared.turns.hold();
        connection.send(get(1, &keys));
        until(|| shared.turns.num_threads() == 1).await;
        shared.stop(Duration::ZERO).await;
        (shared, held)
    });
    let all = held.num_permits();
    serving.shutdown_timeout(Duration::from_millis(1));
    drop(held);
    // Behind the first chunk's turn, and before the second's.
    let _held = waiting.block_on(shared.turns.hold_next(all));
    waiting.block_on(until(|| shared.turns.num_threads() == 0));
}

#[tokio::test]
async fn messages_that_are_never_whole_are_counted_over_all_connections() {
    let limits = Limits { total_session_bytes: 1 << 20, ..Limits::default() };
    let shared = shared(10, limits, None);
    let mut all = Vec::new();
    for name in 1..=3 {
        all.push(connect_as(&shared, name).await.0);
    }
    let sends = |connection: &ScriptedConnection, bytes| {
        let mut script = connection.script();
        script.unfinished = bytes;
        script.waker.take().into_iter().for_each(Waker::wake);
    };
    for (at, ends) in [(0, false), (1, true)] {
        sends(&all[at], 800 << 10);
        settle().await;
        assert_eq!(all[at].script().closed, ends, "{at}");
    }
    sends(&all[2], 10 << 10);
    all[2].ask(1, 1);
    settle().await;
    assert!(!all[2].script().closed && all[2].script().queued.len() == 2, "a batch and its part");
    sends(&all[0], 0);
    settle().await;
    assert_eq!(shared.charges.used(), 10 << 10);
}
