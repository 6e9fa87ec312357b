//! The work and the memory that one client can cause at the server.

use crate::support::*;
use reverie_core::table::Priority;
use reverie_net::convert::numbers;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, reply, request};
use reverie_net::server::{Limits, ServerOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Keys as in a message.
fn encoded(keys: &[reverie_core::item::Key]) -> bytes::Bytes {
    numbers::encode(&keys.iter().map(|key| key.get()).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_for_more_draws_than_an_answer_may_hold_is_refused_before_any_is_made() {
    let host = Host::with(vec![table("a")], limited(Limits { session_batch_bytes: 1 << 20, ..Limits::default() }));
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let part = proto::SamplePart { table: "a".to_owned(), num_samples: 5000 };
    let parts = vec![part.clone(), part.clone()];
    let id = session.ask(request::Body::Sample(proto::Sample { parts, ..Default::default() }), None);
    let Kind::ResourceExhausted(refused) = session.refusal(id).await else { panic!("not refused for its size") };
    assert!(refused.what.contains("10000 draws") && refused.budget == 1 << 20, "{refused:?}");
    assert_eq!(host.tables.get("a").unwrap().info().counters.samples, 0);
    let id = session.ask(request::Body::Sample(proto::Sample { parts: vec![part], ..Default::default() }), None);
    assert_eq!(session.whole(id).await.message.num_draws, 5000, "a part alone is not too many");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_beyond_the_bound_of_a_table_that_keeps_its_items_is_refused_before_its_first_byte() {
    let host = Host::with(vec![table("a")], limited(Limits { session_batch_bytes: 10_000, ..Limits::default() }));
    host.fill_large(4000, 4);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 3), None);
    assert!(matches!(session.refusal(id).await, Kind::ResourceExhausted(refused) if refused.budget == 10_000));
    let id = session.ask(sample("a", 2), None);
    assert_eq!(session.whole(id).await.message.num_draws, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_of_a_table_that_keeps_its_items_and_cannot_be_one_batch_are_not_split() {
    let host = Host::new(vec![table("a")]);
    let mut rows = Rows::new(&host.tables);
    for values in [&[1.0][..], &[2.0, 3.0]] {
        let items = [(rows.item(values), Priority::Value(1.0))].into_iter().collect();
        assert!(host.tables.get("a").unwrap().insert(items).unwrap().is_done());
    }
    let keys = encoded(&host.tables.get("a").unwrap().query(&Default::default()).unwrap().keys);
    let get = proto::Get { table: "a".to_owned(), keys, reading: None };
    let mut session = host.session(1).await;
    let id = session.ask(request::Body::Get(get), None);
    assert!(matches!(session.refusal(id).await, Kind::Signature(_)));
}

/// A gate that checkpoints wait at.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    taken: AtomicUsize,
}

impl Gate {
    fn pass(&self) -> usize {
        let number = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        number
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_that_are_asked_for_while_one_is_taken_are_one() {
    let gate = Arc::new(Gate::default());
    let theirs = Arc::clone(&gate);
    let checkpoint: Arc<dyn Fn() -> reverie_core::Result<String> + Send + Sync> =
        Arc::new(move || Ok(theirs.pass().to_string()));
    let host = Host::with(vec![table("a")], ServerOptions { checkpoint: Some(checkpoint), ..options() });
    let mut sessions = [host.session(1).await, host.session(2).await];
    let ask = || request::Body::Checkpoint(proto::CheckpointRequest {});
    let first = sessions[0].ask(ask(), None);
    let begun = async {
        while gate.taken.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(200), begun).await.expect("no checkpoint is taken");
    for session in &mut sessions {
        for _ in 0..50 {
            session.ask(ask(), None);
        }
        session.settle().await;
    }
    assert_eq!(gate.taken.load(Ordering::SeqCst), 1, "one at a time");
    *gate.open.lock().unwrap() = true;
    gate.opened.notify_all();
    let mut paths = Vec::new();
    for (session, answers) in sessions.iter_mut().zip([51, 50]) {
        for _ in 0..answers {
            match session.next().await {
                Some(proto::server_message::Body::Reply(proto::Reply {
                    id,
                    body: Some(reply::Body::Checkpoint(path)),
                })) => {
                    paths.push((answers == 51 && id == first, path));
                }
                other => panic!("not a checkpoint: {other:?}"),
            }
        }
    }
    // Those that came later hold what was inserted since: the first one's cut was made before.
    assert!(paths.iter().all(|(first, path)| path == if *first { "1" } else { "2" }), "{paths:?}");
    assert_eq!(gate.taken.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn coming_back_gives_no_more_insert_credit() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1)], limited(limits));
    let mut next = 2;
    host.fill("a", [0.0]);
    for _ in 0..20 {
        let mut session = host.session(1).await;
        session.take_id(next - 1);
        session.insert(0, &[1.0; 20]);
        session.settle().await;
        next += 20;
        session.lose();
    }
    let _session = host.session(1).await;
    let waiting = host.pending_inserts("a");
    assert!(waiting <= 40, "{waiting} inserts wait, of which 14 fill the credit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_that_a_client_sends_again_count_once_and_it_may_send_more_while_its_credit_lasts() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), table("b")], limited(limits));
    host.fill("a", [0.0]);
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0; 12]);
    session.settle().await;
    for _ in 0..5 {
        session.lose();
        session = host.session(1).await;
        session.take_id(first + 11);
        session.insert_again(first, 0, &[1.0; 12]);
        session.settle().await;
        assert_eq!(host.pending_inserts("a"), 12);
    }
    session.take_id(100);
    let more = session.insert(1, &[2.0]);
    session.inserted(more, 1).await;
    assert_eq!(host.pending_inserts("a"), 12, "what was sent again is still wanted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn inserts_not_sent_again_on_two_connections_of_a_client_count_as_new_when_they_come() {
    let limits = Limits { session_insert_bytes: 1000, ..Limits::default() };
    let host = Host::with(vec![queue("a", 1), queue("b", 1)], limited(limits));
    ["a", "b"].into_iter().for_each(|name| host.fill(name, [0.0]));
    let mut session = host.session(1).await;
    let first = session.insert(0, &[1.0, 2.0, 3.0]);
    session.settle().await;
    let mut last = first + 2;
    for round in 0..3 {
        session.lose();
        session = host.session(1).await;
        session.take_id(last);
        // Only the first of the three inserts into the first table is sent again.
        session.insert_again(first, 0, &[1.0]);
        last = session.insert(1, &[4.0; 10]) + 9;
        session.settle().await;
        assert_eq!(host.pending_inserts("a"), if round == 0 { 3 } else { 1 });
    }
    session.insert_again(first + 1, 0, &[2.0, 3.0]);
    session.settle().await;
    assert_eq!(host.pending_inserts("a"), 3);
    // Nothing was said of them meanwhile, and each goes in once.
    for number in [None, Some(first), Some(first + 1), Some(first + 2)] {
        let id = session.ask(sample("a", 1), None);
        let (mut inserted, mut value) = (None, None);
        while value.is_none() || (number < Some(first + 2) && inserted.is_none()) {
            match session.next().await.unwrap() {
                proto::server_message::Body::Inserted(one) => inserted = Some(one.first_id),
                proto::server_message::Body::Part(part) => {
                    value = Some(f64::from_le_bytes(part.data[64..72].try_into().unwrap()));
                    session.received(0, &[id]);
                }
                proto::server_message::Body::Batch(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let drawn = number.map_or(0.0, |number| (number - first + 1) as f64);
        let next = number.map_or(first, |number| number + 1);
        assert_eq!((value, inserted), (Some(drawn), (next < first + 3).then_some(next)));
    }
}

/// Puts one-cell items, each of a packed chunk of its own with so many float64 cells, into the table "a".
fn fill_packed(host: &Host, chunks: usize, cells: usize) {
    for chunk in 0..chunks {
        let item = packed(host, chunk as f64, cells);
        let inserts = [(item, Priority::Value(1.0))].into_iter().collect();
        assert!(host.tables.get("a").unwrap().insert(inserts).unwrap().is_done());
    }
}

/// The first cell of a packed chunk.
fn packed(host: &Host, value: f64, cells: usize) -> reverie_core::item::Item {
    use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout};
    let layout = Arc::new(Layout::columnar(&[(8, 8)], cells));
    let mut writer = ChunkWriter::new(layout, Compression::Zstd, host.tables.bytes().0);
    let bytes = value.to_ne_bytes().repeat(cells);
    writer.push_cells(0, &bytes, cells);
    let chunk = writer.seal(&mut Chooser::new(Compression::Zstd));
    assert!(chunk.packed_bytes().is_some(), "it must be packed");
    let item = Rows::new(&host.tables).item(&[value]);
    reverie_core::item::Item { body: reverie_core::item::Body::Chunk(chunk), anchor: 0, ..item }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_whose_packed_chunks_come_to_more_than_the_bound_is_refused_before_one_is_unpacked() {
    let limits = Limits { batch_unpacked_bytes: 2_000_000, ..Limits::default() };
    let host = Host::with(vec![table("a")], limited(limits));
    fill_packed(&host, 2, 200_000);
    let keys = host.tables.get("a").unwrap().query(&Default::default()).unwrap().keys;
    let get = |keys| request::Body::Get(proto::Get { table: "a".to_owned(), keys: encoded(keys), reading: None });
    let mut session = host.session(1).await;
    let id = session.ask(get(&keys), None);
    let Kind::ResourceExhausted(refused) = session.refusal(id).await else { panic!("not refused for its size") };
    assert_eq!((refused.needed, refused.budget), (3_200_000, 2_000_000));
    let id = session.ask(get(&[keys[1], keys[1]]), None);
    assert_eq!(session.whole(id).await.values(), [1.0, 1.0], "a chunk counts once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_that_is_unpacked_by_a_thread_of_its_own_has_what_its_chunks_hold() {
    let host = Host::new(vec![table("a")]);
    fill_packed(&host, 8, 100_000);
    let keys = encoded(&host.tables.get("a").unwrap().query(&Default::default()).unwrap().keys);
    let (mut session, table) = (host.session(1).await, "a".to_owned());
    let id = session.ask(request::Body::Get(proto::Get { table, keys, reading: None }), None);
    assert_eq!(session.whole(id).await.values(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_are_under_way_are_bounded_over_the_requests_of_a_client() {
    let host = Host::with(vec![table("a")], limited(Limits { session_batch_bytes: 1 << 20, ..Limits::default() }));
    let mut session = host.session(1).await;
    let waits = session.ask(sample("a", 5000), None);
    let id = session.ask(sample("a", 5000), None);
    assert!(matches!(session.refusal(id).await, Kind::ResourceExhausted(refused) if refused.budget == 1 << 20));
    host.fill("a", [1.0]);
    session.whole(waits).await;
    let id = session.ask(sample("a", 5000), None);
    session.whole(id).await;
    let key = host.tables.get("a").unwrap().query(&Default::default()).unwrap().keys[0].get();
    let get = |count| proto::Get { table: "a".to_owned(), keys: numbers::encode(&vec![key; count]), reading: None };
    let id = session.ask(request::Body::Get(get(10_000)), None);
    assert!(matches!(session.refusal(id).await, Kind::ResourceExhausted(refused) if refused.needed == 1_280_000));
    let id = session.ask(request::Body::Get(get(5_000)), None);
    session.whole(id).await;
}
