//! Batches that do not arrive as they were announced.

use super::fake::{FakeServer, FakeSession};
use super::support::{SECOND, draws};
use reverie_core::Error;
use reverie_core::sample::SampleOutcome;
use reverie_core::spec::Structure;
use reverie_net::convert;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, Part};

/// The size in bytes of a batch of four draws without columns: seven arrays of four 8-byte numbers.
const BYTES: u64 = 7 * 4 * 8;

/// A client's answer where the server announces four draws of so many bytes, and then sends these parts.
async fn sampled(bulk_bytes: u64, parts: &[(u64, usize)]) -> SampleOutcome {
    let fake = FakeServer::start();
    let client = fake.client(SECOND);
    let sample = client.draw(draws(4), None);
    let mut session: FakeSession = fake.session().await;
    let id = session.request().await.id;
    let head = convert::batch::encode_head(&[], &Structure::Tuple(vec![]), 0, false);
    let batch =
        proto::Batch { id, head: 1, new_head: Some(head), num_draws: 4, bulk_bytes, last: true, ..Default::default() };
    session.send(Body::Batch(batch)).await;
    for (offset, len) in parts {
        session.send(Body::Part(Part { id, offset: *offset, data: vec![1; *len].into() })).await;
    }
    sample.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_taken_whose_parts_come_in_order_and_are_its_bytes() {
    assert_eq!(sampled(BYTES, &[(0, 100), (100, 124)]).await.error, None);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_not_the_next_of_its_batch_is_a_defect_of_the_peer() {
    for parts in [[(100, 124), (0, 100)], [(0, 100), (99, 125)], [(0, 100), (100, 125)]] {
        let Some(Error::Protocol(text)) = sampled(BYTES, &parts).await.error else { panic!("{parts:?} were taken") };
        assert!(text.contains("is not the next one of its batch"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_more_or_fewer_bytes_than_its_arrays_is_a_defect_of_the_peer() {
    for bytes in [BYTES - 1, BYTES + 1] {
        let Some(Error::Protocol(text)) = sampled(bytes, &[]).await.error else { panic!("{bytes} bytes were taken") };
        assert!(text.contains(&format!("a batch has {bytes} bytes, and its arrays need {BYTES}")), "{text}");
    }
}
