//! Long values that a client may send: they fit in messages whose heads a server accepts.

use super::support::{Pipe, spec};
use prost::Message;
use reverie_core::Error;
use reverie_core::chunk::{Chunk, ChunkWriter, Compression, Layout};
use reverie_core::item::{Body, Cells, Form, Item, Part, Pattern, PatternColumn, Span};
use reverie_core::spec::{DType, Structure};
use reverie_core::table::{Inserts, Priority};
use reverie_net::convert::numbers::encode;
use reverie_net::head::{self, MAX_HEAD_BYTES};
use reverie_net::items::MAX_ITEMS;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::{self, ClientMessage, request};
use std::sync::Arc;

const ROOM: u64 = 1 << 20;

/// A chunk of one step of columns of one byte.
fn chunk(columns: usize) -> Arc<Chunk> {
    let layout = Arc::new(Layout::columnar(&vec![(1, 1); columns], 1));
    let mut writer = ChunkWriter::new(layout, Compression::None, &Arc::default());
    (0..columns).for_each(|column| writer.push_cells(column, &[7], 1));
    Arc::clone(writer.chunk())
}

/// A form of one cell of each column.
fn form(columns: usize, path: &str) -> Form {
    let column = |at: usize| PatternColumn {
        spec: spec(&format!("{path}{at}"), DType::UInt8, &[]),
        part: 0,
        column: at as u32,
        cells: Cells::one(0),
        squeeze: true,
        stack_axis: 0,
    };
    let structure = Structure::List(vec![Structure::Leaf; columns]);
    Form::new(Pattern { columns: (0..columns).map(column).collect(), structure, timestep: false, alike: false })
}

fn item(form: &Form, body: Body) -> Item {
    Item { body, pattern: form.clone(), anchor: 0, episode: 0, stream: 0 }
}

fn inserts(items: impl IntoIterator<Item = Item>) -> Inserts {
    items.into_iter().map(|item| (item, Priority::Value(1.0))).collect()
}

#[test]
fn a_request_of_the_most_items_is_one_message() {
    let (one, mut pipe) = (item(&form(1, "a"), Body::Chunk(chunk(1))), Pipe::new(ROOM));
    pipe.push(0, &inserts(std::iter::repeat_n(one, MAX_ITEMS))).unwrap();
    pipe.send().unwrap();
    assert_eq!((pipe.sent.len(), pipe.arrived[0].items.len()), (1, MAX_ITEMS));
    assert!(pipe.sent[0].0.len() > 16 * MAX_HEAD_BYTES);
}

#[test]
fn an_item_over_very_many_chunks_is_sent() {
    let count = 30_000;
    let chunks = (0..count).map(|_| chunk(1)).collect();
    let span = Span { parts: vec![Part { chunks, starts: (0..=count).collect() }], episodes: [].into() };
    let mut pipe = Pipe::new(ROOM);
    pipe.push(0, &inserts([item(&form(1, "a"), Body::Span(Arc::new(span)))])).unwrap();
    pipe.send().unwrap();
    assert_eq!(pipe.arrived.len(), 1);
}

#[test]
fn chunks_and_bodies_of_one_request_are_described_in_several_messages_if_they_are_many() {
    let form = form(10, "a");
    let body = |_| {
        let part = Part { chunks: [chunk(10)].into(), starts: [0, 1].into() };
        Body::Span(Arc::new(Span { parts: vec![part], episodes: [].into() }))
    };
    let items = inserts((0..10_000).map(body).map(|body| item(&form, body)));
    let mut pipe = Pipe::new(ROOM);
    pipe.push(0, &items).unwrap();
    pipe.send().unwrap();
    assert_eq!((pipe.arrived.len(), pipe.arrived[0].items.len()), (1, 10_000));
    let bytes = pipe.sent.iter().map(|(message, _)| message.len()).sum::<usize>();
    assert!(bytes > MAX_HEAD_BYTES && pipe.sent.len() < 100, "{bytes} bytes in {} messages", pipe.sent.len());
}

#[test]
fn a_request_whose_items_are_all_of_another_form_is_sent() {
    let (chunk, mut pipe) = (chunk(1), Pipe::new(ROOM));
    let items = (0..10_000).map(|at| item(&form(1, &format!("{at}/")), Body::Chunk(Arc::clone(&chunk))));
    let items = inserts(items);
    for _ in 0..2 {
        pipe.push(0, &items).unwrap();
        pipe.send().unwrap();
    }
    assert_eq!(pipe.arrived.len(), 2);
}

#[test]
fn forms_and_chunks_of_a_few_thousand_columns_are_sent_and_of_more_are_refused_as_arguments() {
    let push = |columns: usize, path: &str, chunk: Arc<Chunk>| {
        let mut pipe = Pipe::new(ROOM);
        let pushed = pipe.push(0, &inserts([item(&form(columns, path), Body::Chunk(chunk))]));
        pushed.and_then(|_| pipe.send()).map(|()| assert_eq!(pipe.arrived.len(), 1))
    };
    let path = "observations/of/one/of/many/sensors/";
    push(3_000, path, chunk(3_000)).unwrap();
    for (columns, path, chunk) in [(6_000, path, chunk(1)), (1, path, chunk(60_000))] {
        let refused = push(columns, path, chunk).unwrap_err();
        assert!(matches!(&refused, Error::InvalidArgument(reason) if reason.contains("fewer columns")), "{refused:?}");
    }
}

#[test]
fn lists_of_keys_versions_and_numbers_of_requests_may_be_as_long_as_a_message() {
    let (count, table) = (1 << 20, String::new);
    let (keys, numbers) = (encode(&vec![-1_i64; count]), encode(&vec![u64::MAX; count]));
    let received = proto::Received { ids: numbers.clone(), open: numbers, ..Default::default() };
    let bodies = [
        request::Body::Get(proto::Get { table: table(), keys: keys.clone(), reading: None }),
        request::Body::Delete(proto::Delete { keys: Some(proto::Keys { keys: keys.clone() }), ..Default::default() }),
        request::Body::Mutate(proto::Mutate {
            if_version: encode(&vec![u32::MAX; count]),
            priorities: encode(&vec![1.0; count]),
            deletes: keys.clone(),
            keys,
            ..Default::default()
        }),
    ];
    for body in bodies {
        let request = proto::Request { body: Some(body), ..Default::default() };
        let body = Some(ClientBody::Request(request));
        let message = ClientMessage { received: Some(received.clone()), body, ..Default::default() };
        assert_eq!(head::decode(&message.encode_to_vec()[..]), Ok(message));
    }
}
