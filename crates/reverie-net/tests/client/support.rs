//! The calls of a client, and the messages of a server.

use crate::fake::{FakeServer, FakeSession};
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::BatchLayout;
use reverie_core::batch::{OutputArray, Ragged, Role};
use reverie_core::chunk::Compression;
use reverie_core::sample::SampleOutcome;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::{Inserts, Priority};
use reverie_net::client::{Remote, SampleRequest};
use reverie_net::convert;
use reverie_net::proto;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::server_message::Body;
use std::sync::Arc;
use std::time::Duration;

pub const SECOND: Duration = Duration::from_secs(1);

pub fn draws(n: usize) -> SampleRequest {
    SampleRequest {
        parts: vec![("replay".to_owned(), n)],
        columns: None,
        ragged: Ragged::Refuse,
        without_replacement: false,
        windows: None,
        at_once: false,
        only_now: false,
        leases: false,
    }
}

/// Batches of `n` cells of 100 bytes each, in parts of `part` bytes: the byte at `i` is `i + shift`.
pub async fn send_batch(session: &FakeSession, id: u64, n: usize, part: usize, shift: u8, new_head: bool) {
    send_kind(session, id, n, (part, shift), (new_head, true, false)).await;
}

/// Like `send_batch`; the batch is the last of its answer or not, and leased or not.
pub async fn send_kind(
    session: &FakeSession,
    id: u64,
    n: usize,
    (part, shift): (usize, u8),
    (new_head, last, leased): (bool, bool, bool),
) {
    let output =
        OutputArray { path: "x".to_owned(), dtype: DType::UInt8, itemsize: 1, shape: vec![n, 100], role: Role::Column };
    let layout = BatchLayout::new(n, std::slice::from_ref(&output)).unwrap();
    let head = convert::batch::encode_head(std::slice::from_ref(&output), &Structure::Leaf, 1, false);
    session
        .send(Body::Batch(proto::Batch {
            id,
            head: 5,
            new_head: new_head.then_some(head),
            num_draws: n as u32,
            smallest_probability: Some(0.25),
            bulk_bytes: layout.size_bytes as u64,
            slot: None,
            tally: None,
            leased,
            last,
        }))
        .await;
    let bytes: Vec<u8> = (0..layout.size_bytes).map(|i| (i as u8).wrapping_add(shift)).collect();
    for (index, piece) in bytes.chunks(part).enumerate() {
        let data = piece.to_vec().into();
        session.send(Body::Part(proto::Part { id, offset: (index * part) as u64, data })).await;
    }
}

/// Checks a batch by its description; the binding would read the block through its pointer.
pub fn assert_batch(sampled: &SampleOutcome, n: usize) {
    assert_eq!(sampled.error, None);
    let [batch] = &sampled.batches[..] else { panic!("{} batches", sampled.batches.len()) };
    let batch = batch.arrays().expect("arrays that arrived");
    assert_eq!((batch.num_draws, batch.smallest_probability), (n, Some(0.25)));
    assert_eq!((batch.head.num_columns, &batch.head.structure), (1, &Structure::Leaf));
    assert_eq!(batch.layout, BatchLayout::new(n, &batch.head.outputs).unwrap());
    assert_eq!(batch.block.len(), batch.layout.size_bytes);
}

/// Writes rows of 1,000 bytes.
pub struct Rows {
    writer: RowWriter,
    schema: Arc<Schema>,
}

impl Rows {
    pub fn new(client: &Arc<Remote>) -> Self {
        let sink: Arc<dyn Sink> = client.clone();
        let column = ColumnSpec { path: String::new(), dtype: DType::UInt8, shape: vec![1000] };
        let schema = Arc::new(Schema { columns: vec![column], structure: Structure::Leaf });
        Self { writer: RowWriter::new(sink, Compression::None, false), schema }
    }

    pub fn inserts(&mut self) -> Inserts {
        let cells = ColumnCells { itemsize: 1, bytes: &[7; 1000] };
        let item = self.writer.append(&self.schema, &[cells], 1).unwrap().remove(0);
        Inserts::from_iter([(item, Priority::Value(1.0))])
    }
}

/// Connects, as writers do before they write.
pub async fn connected(fake: &FakeServer, client: &Arc<Remote>) -> FakeSession {
    let (described, session) = tokio::join!(client.describe(), fake.session());
    described.unwrap();
    session
}

/// The next inserts, whose numbers follow each other: the first number, and how many.
pub async fn next_inserts(session: &mut FakeSession) -> (u64, u64) {
    let numbers: Vec<u64> = next_numbers(session).await.into_iter().map(|(_, number)| number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    (numbers[0], numbers.len() as u64)
}

/// The inserts of the next message: their tables and numbers.
pub async fn next_numbers(session: &mut FakeSession) -> Vec<(u32, u64)> {
    loop {
        match session.receive().await {
            Some(ClientBody::Insert(insert)) if insert.runs.is_empty() => {}
            Some(ClientBody::Insert(insert)) => {
                let (mut next, mut numbers) = (insert.first_id, Vec::new());
                for run in insert.runs {
                    next += u64::from(run.skipped);
                    numbers.extend((next..).take(run.requests as usize).map(|number| (run.table, number)));
                    next += u64::from(run.requests);
                }
                return numbers;
            }
            other => panic!("{other:?}"),
        }
    }
}

pub async fn send_inserted(session: &FakeSession, first_id: u64, keys: std::ops::Range<i64>) {
    let requests = keys.clone().count() as u32;
    session.send(Body::Inserted(proto::Inserted { first_id, requests, keys: keys.collect() })).await;
}

/// Asks again as time passes, until there is something.
pub async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = ask() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Numbers of requests from a list.
pub fn ids(list: &[u8]) -> Vec<u64> {
    convert::numbers::decode(list, "numbers").unwrap()
}

/// The numbers that the server was asked to take back.
pub fn returned(session: &FakeSession) -> Vec<u64> {
    session.received.iter().flat_map(|received| ids(&received.returned)).collect()
}

/// True if it was reported to the server that the draws of the request have arrived.
pub fn acknowledged(session: &FakeSession, id: u64) -> bool {
    session.received.iter().any(|received| ids(&received.ids).contains(&id) || received.below > id)
}
