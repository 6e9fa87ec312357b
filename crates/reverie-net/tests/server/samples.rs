use crate::support::*;
use reverie_core::table::{Priority, TableOptions};
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::{self, request};

fn parts(parts: &[(&str, u32)]) -> Vec<proto::SamplePart> {
    parts
        .iter()
        .map(|(table, num_samples)| proto::SamplePart { table: (*table).to_owned(), num_samples: *num_samples })
        .collect()
}

fn some(table: &str, at_most: u32) -> request::Body {
    let parts = parts(&[(table, at_most)]);
    request::Body::Sample(proto::Sample { parts, at_once: true, ..Default::default() })
}

fn insert(host: &Host, table: &str, values: &[f64]) {
    let items = [(Rows::new(&host.tables).item(values), Priority::Value(1.0))].into_iter().collect();
    assert!(host.tables.get(table).unwrap().insert(items).unwrap().is_done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_batch_describes_its_draws_and_has_the_arrays() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0, 2.0, 3.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 3), None);
    let batch = session.whole(id).await;
    assert_eq!(batch.values(), [1.0, 1.0, 1.0], "fifo draws the oldest again and again");
    assert_eq!(batch.outputs[0].0, "x");
    let sampled: Vec<u8> = (1..4u64).flat_map(u64::to_le_bytes).collect();
    assert_eq!((&batch.info[4], &batch.info[3]), (&sampled, &3u64.to_le_bytes().repeat(3)));
    let again = session.ask(sample("a", 3), None);
    let again = session.whole(again).await;
    assert_eq!((again.message.head, again.message.new_head), (batch.message.head, None), "a head is sent once");
    let other = session.ask(sample("a", 2), None);
    assert_ne!(session.whole(other).await.message.head, batch.message.head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_batch_comes_in_parts_that_join() {
    let host = Host::new(vec![TableOptions { max_times_sampled: 1, ..table("a") }]);
    let rows = 3 * proto::PART_BYTES / 8 / 1000;
    for row in 0..rows {
        let values: Vec<f64> = (0..1000).map(|cell| (row * 1000 + cell) as f64).collect();
        insert(&host, "a", &values);
    }
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", rows as u32), None);
    let batch = session.whole(id).await;
    assert!(batch.message.bulk_bytes > 2 * proto::PART_BYTES as u64);
    assert!(batch.values().iter().enumerate().all(|(at, value)| *value == at as f64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_mixture_is_one_batch_of_its_tables_in_order() {
    let host = Host::new(vec![table("a"), table("b")]);
    host.fill("a", [1.0]);
    host.fill("b", [2.0]);
    let mut session = host.session(1).await;
    let body = proto::Sample { parts: parts(&[("a", 2), ("b", 1)]), ..Default::default() };
    let id = session.ask(request::Body::Sample(body), None);
    let batch = session.whole(id).await;
    assert_eq!((batch.values(), batch.message.smallest_probability), (vec![1.0, 1.0, 2.0], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sample_waits_for_its_items_and_others_go_on_meanwhile() {
    let host = Host::new(vec![queue("a", 10), table("b")]);
    host.fill("b", [7.0]);
    let mut session = host.session(1).await;
    let slow = session.ask(sample("a", 2), None);
    let quick = session.ask(sample("b", 1), None);
    assert_eq!(session.whole(quick).await.values(), [7.0]);
    host.fill("a", [1.0, 2.0]);
    assert_eq!(session.whole(slow).await.values(), [1.0, 2.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_deadline_come_the_draws_that_were_made_and_the_reason() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0, 2.0]);
    let mut session = host.session(1).await;
    for (timeout, values) in [(0.02, vec![1.0, 2.0]), (0.0, vec![])] {
        let id = session.ask(sample("a", 3), Some(timeout));
        if !values.is_empty() {
            let batch = session.batch(id).await;
            assert_eq!((batch.values(), batch.message.last), (values, false));
        }
        let Kind::Deadline(deadline) = session.refusal(id).await else { panic!("not a deadline") };
        assert!(deadline.why.contains("table 'a'"), "{}", deadline.why);
    }
    host.fill("a", [3.0]);
    let id = session.ask(sample("a", 1), Some(0.0));
    assert_eq!(session.whole(id).await.values(), [3.0], "no request is in the queue any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_is_withdrawn_gives_the_draws_that_were_made() {
    let host = Host::new(vec![queue("a", 10)]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 2), None);
    session.settle().await;
    for _ in 0..2 {
        session.send.send(message(ClientBody::Cancel(proto::Cancel { id, insert: false }))).unwrap();
    }
    assert_eq!(session.batch(id).await.values(), [1.0]);
    assert!(matches!(session.refusal(id).await, Kind::Deadline(_)));
    host.fill("a", [2.0]);
    let id = session.ask(sample("a", 1), Some(0.0));
    assert_eq!(session.whole(id).await.values(), [2.0], "no request is in the queue any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_once_gives_what_there_is_as_a_batch_for_each_run_of_a_form() {
    let host = Host::new(vec![queue("a", 10)]);
    let mut session = host.session(1).await;
    for values in [&[1.0][..], &[2.0], &[3.0, 4.0], &[5.0]] {
        insert(&host, "a", values);
    }
    let id = session.ask(some("a", 100), None);
    let runs = [vec![1.0, 2.0], vec![3.0, 4.0], vec![5.0]];
    for (at, run) in runs.iter().enumerate() {
        let batch = session.batch(id).await;
        assert_eq!((&batch.values(), batch.message.last), (run, at == 2));
    }
    let id = session.ask(some("a", 100), None);
    session.settle().await;
    host.fill("a", [6.0, 7.0]);
    assert_eq!(session.whole(id).await.values(), [6.0], "where there is nothing, it waits for the first");
    let id = session.ask(some("a", 100), Some(0.0));
    assert_eq!(session.whole(id).await.values(), [7.0]);
    let id = session.ask(some("a", 100), Some(0.0));
    assert!(matches!(session.refusal(id).await, Kind::Deadline(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn draws_that_cannot_be_one_batch_come_one_by_one_before_the_error() {
    let host = Host::new(vec![queue("a", 10)]);
    insert(&host, "a", &[1.0]);
    insert(&host, "a", &[2.0, 3.0]);
    insert(&host, "a", &[4.0]);
    let mut session = host.session(1).await;
    let id = session.ask(sample("a", 3), None);
    for values in [vec![1.0], vec![2.0, 3.0], vec![4.0]] {
        let batch = session.batch(id).await;
        assert_eq!((batch.values(), batch.message.last), (values, false));
    }
    assert!(matches!(session.refusal(id).await, Kind::Signature(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn columns_that_there_are_not_are_named() {
    let host = Host::new(vec![table("a")]);
    host.fill("a", [1.0]);
    let mut session = host.session(1).await;
    let reading = Some(proto::Reading { columns: vec!["y".to_owned()], ragged: 0 });
    let body = proto::Sample { parts: parts(&[("a", 1)]), reading, ..Default::default() };
    let id = session.ask(request::Body::Sample(body), None);
    assert!(matches!(session.refusal(id).await, Kind::InvalidArgument(reason) if reason.contains("'y'")));
}
