//! The messages of the encoder, and how often it sends each.

use super::support::{Inline, Pipe, Writers, spec};
use prost::Message;
use reverie_core::Error;
use reverie_core::chunk::{ChunkWriter, Compression, Layout};
use reverie_core::item::{Body, Cells, Form, Item, Pattern, PatternColumn};
use reverie_core::spec::{DType, Structure};
use reverie_core::table::{Inserts, Priority};
use reverie_net::items::{Decoder, DecoderLimits, Encoder, ITEM_BYTES, MAX_ITEMS, PushOutcome, Row};
use reverie_net::proto;
use std::sync::Arc;

const ROOM: u64 = 1 << 20;

/// A message and its bulk bytes; panics where there is none.
fn take(encoder: &mut Encoder) -> (proto::Insert, Vec<u8>) {
    let mut bulk = Inline::default();
    (encoder.take(&mut bulk).expect("something to say"), bulk.0)
}

/// One byte per cell, and an item over its first cell.
fn bytes_chunk(compression: Compression, cells: usize) -> (ChunkWriter, Item) {
    let layout = Arc::new(Layout::columnar(&[(1, 1)], 1 << 12));
    let mut writer = ChunkWriter::new(layout, compression, &Arc::default());
    writer.push_cells(0, &vec![7; cells], cells);
    let column = PatternColumn {
        spec: spec("a", DType::UInt8, &[]),
        part: 0,
        column: 0,
        cells: Cells::one(0),
        squeeze: true,
        stack_axis: 0,
    };
    let form =
        Form::new(Pattern { columns: [column].into(), structure: Structure::Leaf, timestep: false, alike: false });
    let item = Item { body: Body::Chunk(Arc::clone(writer.chunk())), pattern: form, anchor: 0, episode: 0, stream: 0 };
    (writer, item)
}

fn one(item: &Item) -> Inserts {
    [(item.clone(), Priority::Value(1.0))].into_iter().collect()
}

#[test]
fn each_cell_is_sent_once_however_many_items_and_messages_refer_to_it() {
    let (mut writers, mut pipe) = (Writers::new(Compression::None), Pipe::new(ROOM));
    let row_bytes = 8 + 12 + 8;
    for row in 0..64 {
        let items = writers.rows(1, 1);
        pipe.push(0, &items).unwrap();
        pipe.push(1, &items).unwrap();
        if row % 5 == 0 {
            pipe.send().unwrap();
        }
    }
    pipe.send().unwrap();
    let bulk: usize = pipe.sent.iter().map(|(_, bulk)| bulk.len()).sum();
    assert_eq!((pipe.arrived.len(), bulk), (128, 64 * row_bytes));
}

#[test]
fn requests_of_one_message_on_one_chunk_are_one_entry_without_columns() {
    let (mut writers, mut encoder) = (Writers::new(Compression::None), Encoder::default());
    for id in 1..=10 {
        assert_eq!(encoder.push(id, 0, &writers.rows(1, 1), ROOM).unwrap(), PushOutcome::Whole);
    }
    let (message, _) = take(&mut encoder);
    assert_eq!((message.chunks.len(), message.patterns.len(), message.runs.len()), (1, 1, 1));
    let chunk = &message.chunks[0];
    assert_eq!((chunk.first, chunk.cells, chunk.columns.len(), chunk.lead.len()), (0, 10, 0, 0));
    assert_eq!(message.runs[0], proto::InsertRun { table: 0, requests: 10, items: 1, skipped: 0 });
}

#[test]
fn columns_that_are_ahead_of_the_others_but_grow_alike_need_no_list() {
    let (mut writers, mut encoder) = (Writers::new(Compression::None), Encoder::default());
    let (mut id, mut alike) = (1, 0);
    for _ in 0..40 {
        let items = writers.transitions(false);
        if items.is_empty() {
            continue;
        }
        encoder.push(id, 0, &items, ROOM).unwrap();
        id += 1;
        let (message, _) = take(&mut encoder);
        alike += message.chunks.iter().filter(|chunk| chunk.columns.is_empty() && !chunk.lead.is_empty()).count();
    }
    assert!(alike > 30, "{alike}");
}

#[test]
fn a_chunk_that_was_packed_before_it_was_sent_goes_packed_only() {
    let (writer, item) = bytes_chunk(Compression::Lz4, 4096);
    let packed = writer.seal(&mut reverie_core::chunk::Chooser::new(Compression::Lz4)).packed().expect("it packs");
    let mut pipe = Pipe::new(ROOM);
    pipe.push(0, &one(&item)).unwrap();
    pipe.send().unwrap();
    assert_eq!(pipe.sent[0].1[..], packed[..]);
    let arrived = pipe.arrived[0].items[0].0.chunks().next().unwrap().packed();
    assert_eq!(arrived, Some(packed));
}

#[test]
fn a_chunk_that_is_packed_when_all_has_arrived_is_packed_at_the_server_too() {
    let (writer, item) = bytes_chunk(Compression::Lz4, 100);
    let mut pipe = Pipe::new(ROOM);
    pipe.push(0, &one(&item)).unwrap();
    pipe.send().unwrap();
    let arrived = pipe.arrived.pop_front().unwrap().items.remove(0).0;
    assert!(arrived.chunks().next().unwrap().packed().is_none());
    drop(item);
    // Only the encoder still has the chunk.
    let mut writer = writer;
    writer.push_cells(0, &[9; 3000], 3000);
    writer.seal(&mut reverie_core::chunk::Chooser::new(Compression::Lz4));
    pipe.encoder.tidy(ROOM);
    pipe.send().unwrap();
    let chunk = arrived.chunks().next().unwrap();
    assert!(chunk.packed().is_some());
    assert_eq!((chunk.len(0), chunk.read().unwrap().cell(0, 3000)), (3100, Some(&[9_u8][..])));
}

#[test]
fn a_chunk_without_users_is_released_and_so_is_one_that_was_never_packed() {
    for compression in [Compression::None, Compression::Lz4] {
        let (writer, item) = bytes_chunk(compression, 1);
        let mut pipe = Pipe::new(ROOM);
        pipe.push(0, &one(&item)).unwrap();
        pipe.send().unwrap();
        pipe.arrived.clear();
        assert_eq!(pipe.meter.live_chunks(), 1, "a later item may stand on it");
        drop((writer, item));
        pipe.encoder.tidy(ROOM);
        pipe.send().unwrap();
        assert_eq!(pipe.meter.live_chunks(), 0);
        let mut bulk = Inline::default();
        assert!(pipe.encoder.take(&mut bulk).is_none(), "it is said once");
    }
}

#[test]
fn the_forms_that_were_used_longest_ago_are_released_where_there_are_too_many() {
    let (_writer, item) = bytes_chunk(Compression::None, 1);
    let form = |at: usize| {
        let mut pattern = (*item.pattern).clone();
        pattern.columns[0].spec.path = format!("path {at}");
        Form::new(pattern)
    };
    let mut pipe = Pipe::new(ROOM);
    let forms: Vec<Form> = (0..5000).map(form).collect();
    for form in &forms {
        pipe.push(0, &one(&Item { pattern: form.clone(), ..item.clone() })).unwrap();
    }
    pipe.send().unwrap();
    let before = pipe.sent.len();
    for at in [0, 4999, 0] {
        pipe.push(0, &one(&Item { pattern: forms[at].clone(), ..item.clone() })).unwrap();
        pipe.send().unwrap();
    }
    let messages = pipe.sent[before..].iter().map(|(bytes, _)| proto::Insert::decode(&bytes[..]).unwrap());
    let defined: Vec<(usize, bool)> =
        messages.map(|message| (message.patterns.len(), message.released_patterns.is_empty())).collect();
    assert_eq!(defined, [(1, false), (0, true), (0, true)], "the first was released, the last was not");
    assert_eq!(pipe.arrived.len(), 5003);
    assert_eq!(pipe.arrived[5002].items[0].0.pattern.columns[0].spec.path, "path 0");
}

#[test]
fn a_request_larger_than_a_message_goes_in_several_and_its_items_in_the_last() {
    let (_writer, item) = bytes_chunk(Compression::None, 4000);
    let mut encoder = Encoder::default();
    let mut sizes = Vec::new();
    while let PushOutcome::NoRoom { needed } = encoder.push(1, 0, &one(&item), 1500).unwrap() {
        assert_eq!(needed, 1);
        let (message, bulk) = take(&mut encoder);
        assert!(message.items.is_empty() && message.runs.is_empty());
        sizes.push(bulk.len());
    }
    let (message, bulk) = take(&mut encoder);
    sizes.push(bulk.len());
    assert_eq!((sizes, message.items.len()), (vec![1500, 1500, 1000], Row::BYTES));
}

#[test]
fn requests_count_for_as_much_as_their_messages() {
    let (mut writers, mut pipe) = (Writers::new(Compression::Zstd), Pipe::new(300));
    for rows in [1, 50, 3, 200] {
        pipe.push(0, &writers.rows(rows, 2)).unwrap();
    }
    pipe.send().unwrap();
    let messages = pipe.sent.iter().map(|(bytes, bulk)| {
        let items = proto::Insert::decode(&bytes[..]).unwrap().items.len() / Row::BYTES;
        bulk.len() as u64 + items as u64 * ITEM_BYTES
    });
    assert!(pipe.sent.len() > 4);
    assert_eq!(messages.sum::<u64>(), pipe.arrived.iter().map(|arrived| arrived.size_bytes).sum::<u64>());
}

#[test]
fn the_bytes_that_a_request_would_add_are_known_before() {
    let (mut writers, mut encoder) = (Writers::new(Compression::None), Encoder::default());
    let items = writers.rows(10, 1);
    assert_eq!(encoder.bulk_bytes(&items), 280);
    encoder.push(1, 0, &items, ROOM).unwrap();
    assert_eq!((encoder.planned_bytes(), encoder.bulk_bytes(&items)), (280, 0));
    assert_eq!(encoder.bulk_bytes(&writers.rows(2, 1)), 56);
}

#[test]
fn a_request_with_a_smaller_number_than_the_one_before_waits_for_the_next_message() {
    let (mut writers, mut encoder) = (Writers::new(Compression::None), Encoder::default());
    encoder.push(5, 0, &writers.rows(1, 1), ROOM).unwrap();
    let other = writers.rows(1, 1);
    for number in [3, 5] {
        assert_eq!(encoder.push(number, 0, &other, ROOM).unwrap(), PushOutcome::NoRoom { needed: 0 });
    }
    assert_eq!(take(&mut encoder).0.first_id, 5);
    assert_eq!(encoder.push(3, 0, &other, ROOM).unwrap(), PushOutcome::Whole);
    assert_eq!(take(&mut encoder).0.first_id, 3);
}

#[test]
fn requests_of_one_message_may_leave_numbers_out() {
    let (mut writers, mut encoder) = (Writers::new(Compression::None), Encoder::default());
    let numbers = [(3, 0), (4, 0), (6, 0), (7, 1), (9, 0), (9 + (1 << 32), 0)];
    for (number, table) in numbers {
        assert_eq!(encoder.push(number, table, &writers.rows(1, 1), ROOM).unwrap(), PushOutcome::Whole);
    }
    let far = numbers[5].0 + (1 << 32) + 1;
    assert_eq!(encoder.push(far, 0, &writers.rows(1, 1), ROOM).unwrap(), PushOutcome::NoRoom { needed: 0 });
    let (message, bulk) = take(&mut encoder);
    assert_eq!(message.runs.iter().map(|run| run.requests).collect::<Vec<_>>(), [2, 1, 1, 1, 1]);
    let mut decoder = Decoder::new(Arc::default(), DecoderLimits::default(), Arc::default());
    let bulk = prost::bytes::Bytes::from(bulk);
    let arrived = decoder.insert(message, &bulk).unwrap();
    assert_eq!(arrived.iter().map(|one| (one.id, one.table)).collect::<Vec<_>>(), numbers);
    // The bulk counts for both tables: items of both may stand on the same cells.
    let counted: Vec<u64> = arrived.iter().map(|one| one.size_bytes).collect();
    let bulk = ITEM_BYTES + bulk.len() as u64;
    assert_eq!(counted, [bulk, ITEM_BYTES, ITEM_BYTES, bulk, ITEM_BYTES, ITEM_BYTES]);
}

#[test]
fn requests_that_no_server_would_take_are_refused_as_arguments() {
    let (_writer, item) = bytes_chunk(Compression::None, 1);
    let mut encoder = Encoder::default();
    let mut refused = |items: &Inserts, words: &str| match encoder.push(1, 0, items, ROOM) {
        Err(Error::InvalidArgument(reason)) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    };
    refused(&Inserts::new(), "0 items");
    refused(&(0..=MAX_ITEMS).map(|_| (item.clone(), Priority::Max)).collect(), "items in one request");
    refused(&[(item.clone(), Priority::Value(f64::NAN))].into_iter().collect(), "NaN");
    refused(&[(item.clone(), Priority::Value(f64::NEG_INFINITY))].into_iter().collect(), "-inf");
    let with = |edit: fn(&mut PatternColumn)| {
        let mut pattern = (*item.pattern).clone();
        edit(&mut pattern.columns[0]);
        one(&Item { pattern: Form::new(pattern), ..item.clone() })
    };
    refused(&with(|column| column.cells = Cells::List(vec![0; 5 << 20].into())), "refer to ranges");
    refused(&with(|column| (column.squeeze, column.stack_axis) = (false, 9)), "squeezed");
    let far = with(|column| (column.squeeze, column.cells) = (false, Cells::Range { start: 0, step: 2, len: 1 << 24 }));
    refused(&[far.clone(), far].into_iter().flatten().collect(), "too many cells");
}

#[test]
fn a_chunk_larger_than_servers_take_is_refused_before_anything_is_sent() {
    let layout = Arc::new(Layout::columnar(&[(1 << 20, 1)], 1 << 9));
    let writer = ChunkWriter::new(layout, Compression::None, &Arc::default());
    let (_other, item) = bytes_chunk(Compression::None, 1);
    let item = Item { body: Body::Chunk(Arc::clone(writer.chunk())), ..item };
    let mut encoder = Encoder::default();
    assert!(matches!(encoder.push(1, 0, &one(&item), ROOM), Err(Error::ResourceExhausted { .. })));
    assert!(encoder.take(&mut Inline::default()).is_none());
}

#[test]
fn nothing_is_sent_of_a_request_with_a_cell_larger_than_a_message() {
    let layout = Arc::new(Layout::columnar(&[(65 << 20, 1)], 1));
    let mut writer = ChunkWriter::new(layout, Compression::None, &Arc::default());
    let (_other, small) = bytes_chunk(Compression::None, 1);
    let large = Item { body: Body::Chunk(Arc::clone(writer.chunk())), ..small.clone() };
    let mut encoder = Encoder::default();
    writer.push_cells(0, &vec![7; 65 << 20], 1);
    let both = [small, large].map(|item| (item, Priority::Value(1.0))).into_iter().collect();
    assert!(matches!(encoder.push(1, 0, &both, 1 << 30), Err(Error::ResourceExhausted { .. })));
    assert!(encoder.take(&mut Inline::default()).is_none() && !encoder.names_any());
}
