//! The messages that the decoder refuses, and the numbers that it decodes.

use super::support::{content, spec};
use bytes::Bytes;
use reverie_core::Error;
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter};
use reverie_core::item::{Cells, Pattern, PatternColumn};
use reverie_core::spec::{DType, Structure};
use reverie_net::convert::item::{MAX_CELLS, encode_pattern};
use reverie_net::convert::numbers::encode;
use reverie_net::items::{ArrivedInsert, Decoder, DecoderLimits, Episodes, MAX_ITEMS, Row};
use reverie_net::proto;
use std::sync::Arc;

pub(super) const LIMITS: DecoderLimits =
    DecoderLimits { max_chunk_bytes: 1 << 20, max_named: 64, max_held_bytes: 4 << 20 };

pub(super) fn decoder() -> (Decoder, Arc<Meter>) {
    let meter = Arc::new(Meter::new());
    (Decoder::new(Arc::clone(&meter), LIMITS, Arc::default()), meter)
}

/// Four steps of two columns, `a` float32 [2] and `b` bool; one item over both, the last three steps.
pub(super) fn valid_insert() -> proto::Insert {
    let column = |path: &str, dtype, shape: &[usize], column| PatternColumn {
        spec: spec(path, dtype, shape),
        part: 0,
        column,
        cells: Cells::range(0, 3),
        squeeze: false,
        stack_axis: 0,
    };
    let columns = [column("a", DType::Float32, &[2], 0), column("b", DType::Bool, &[], 1)].into();
    let structure = Structure::List(vec![Structure::Leaf; 2]);
    proto::Insert {
        first_id: 7,
        runs: vec![proto::InsertRun { table: 1, requests: 1, items: 1, skipped: 0 }],
        patterns: vec![encode_pattern(3, &Pattern { columns, structure, timestep: false, alike: false })],
        chunks: vec![proto::ChunkCells {
            chunk: 5,
            layout: Some(Box::new(proto::ChunkLayout {
                widths: vec![8, 1],
                itemsizes: vec![4, 1],
                capacity: 6,
                interleaved: true,
                packable: false,
            })),
            first: 0,
            cells: 4,
            offset: 2,
            ..Default::default()
        }],
        items: rows(&[Row { pattern: 3, anchor: 1, body: 5, priority: 2.5, episode: 4, stream: 0 }]),
        ..Default::default()
    }
}

fn bulk() -> Bytes {
    (0..38).collect::<Vec<u8>>().into()
}

type Edit = fn(&mut proto::Insert);

fn outcome(edit: Edit) -> reverie_core::Result<Vec<ArrivedInsert>> {
    let mut message = valid_insert();
    edit(&mut message);
    decoder().0.insert(message, &bulk())
}

#[track_caller]
fn broken(edit: Edit, words: &str) {
    match outcome(edit).map(|arrived| arrived.len()) {
        Err(Error::Protocol(reason)) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?} is no refusal that says '{words}'"),
    }
}

#[track_caller]
pub(super) fn exhausted(outcome: reverie_core::Result<Vec<ArrivedInsert>>, words: &str) {
    match outcome.map(|arrived| arrived.len()) {
        Err(Error::ResourceExhausted { what, .. }) => assert!(what.contains(words), "{what}"),
        other => panic!("{other:?} is no refusal that says '{words}'"),
    }
}

fn chunk(message: &mut proto::Insert) -> &mut proto::ChunkCells {
    &mut message.chunks[0]
}

fn layout(message: &mut proto::Insert) -> &mut proto::ChunkLayout {
    chunk(message).layout.as_mut().unwrap()
}

/// Changes the item.
fn item(message: &mut proto::Insert, edit: impl FnOnce(&mut Row)) {
    let mut row = Row::read(&Row::all(&message.items).unwrap()[0]);
    edit(&mut row);
    message.items = rows(&[row]);
}

fn rows(rows: &[Row]) -> Bytes {
    let mut bytes = Vec::new();
    rows.iter().for_each(|row| row.put(&mut bytes));
    bytes.into()
}

fn column(message: &mut proto::Insert) -> &mut proto::PatternColumn {
    &mut message.patterns[0].columns[0]
}

fn cells_of(column: u32, first: u32, cells: u32, holes: &[u8]) -> proto::ColumnCells {
    proto::ColumnCells { column, first, cells, offset: 0, holes: holes.to_vec() }
}

#[test]
fn a_sound_message_is_taken() {
    let arrived = outcome(|_| ()).unwrap();
    assert_eq!((arrived.len(), arrived[0].id, arrived[0].table, arrived[0].size_bytes), (1, 7, 1, 38 + 64));
    let cells = content(&arrived[0].items[0].0);
    assert_eq!(cells[0], [10, 18, 26].map(|at| (at..at + 8).collect::<Vec<u8>>()));
    assert_eq!(cells[1], [[35], [36], [37]]);
}

#[test]
fn layouts_that_cannot_be_or_want_memory_for_nothing_are_refused() {
    broken(|m| layout(m).capacity = 0, "cannot be laid out");
    broken(|m| (layout(m).widths, layout(m).itemsizes) = (vec![], vec![]), "cannot be laid out");
    broken(|m| layout(m).itemsizes[0] = 3, "cannot be laid out");
    broken(|m| layout(m).itemsizes[0] = 0, "cannot be laid out");
    broken(|m| layout(m).itemsizes.push(1), "lists of different lengths");
    broken(
        |m| (layout(m).widths, layout(m).itemsizes, layout(m).capacity) = (vec![0], vec![0], u32::MAX),
        "almost no bytes",
    );
    exhausted(outcome(|m| layout(m).capacity = 1 << 29), "a chunk of steps");
    exhausted(outcome(|m| layout(m).widths = vec![u32::MAX - 3, 1]), "a chunk of steps");
    broken(
        |m| (layout(m).widths, layout(m).itemsizes) = (vec![1 << 31; 99], vec![1; 98]),
        "lists of different lengths",
    );
}

#[test]
fn cells_that_leave_a_gap_do_not_fit_or_are_not_in_the_bulk_are_refused() {
    broken(|m| chunk(m).first = 1, "cells 1 to 5 of column 0, which has 0");
    broken(|m| chunk(m).cells = 7, "bytes from");
    broken(|m| (chunk(m).cells, layout(m).widths) = (7, vec![4, 1]), "cells 0 to 7");
    broken(|m| chunk(m).offset = 3, "bytes from");
    broken(|m| chunk(m).offset = u64::MAX, "bytes from");
    broken(|m| (chunk(m).cells, chunk(m).first) = (1, u32::MAX), "cells 4294967295");
    broken(|m| chunk(m).lead = vec![0], "'lead' has 1 entries for 2 columns");
    broken(|m| chunk(m).lead = vec![0, 1], "cells 1 to 5 of column 1");
    broken(|m| chunk(m).lead = vec![0, u32::MAX], "of column 1");
    broken(|m| chunk(m).columns = vec![cells_of(2, 0, 1, &[])], "column 2 does not exist, there are 2");
    broken(|m| chunk(m).columns = vec![cells_of(0, 0, 5, &[])], "bytes from");
    broken(|m| chunk(m).columns = vec![cells_of(1, 0, 7, &[])], "cells 0 to 7");
    broken(|m| chunk(m).columns = vec![cells_of(1, 1, 1, &[])], "cells 1 to 2");
    broken(|m| chunk(m).columns = vec![cells_of(1, 0, 4, &[0, 0])], "2 bytes of holes for 4 cells");
    broken(|m| m.chunks.insert(0, proto::ChunkCells { chunk: 9, ..Default::default() }), "9 is not defined");
    broken(
        |m| m.chunks.push(proto::ChunkCells { chunk: 5, layout: Some(Default::default()), ..Default::default() }),
        "laid out",
    );
    broken(
        |m| {
            let again = proto::ChunkLayout { capacity: 8, ..layout(m).clone() };
            m.chunks.push(proto::ChunkCells { chunk: 5, layout: Some(Box::new(again)), ..Default::default() });
        },
        "defined twice",
    );
}

#[test]
fn packed_forms_that_are_none_or_lack_cells_are_refused() {
    let range = |offset, size_bytes| Some(proto::PackedRange { offset, size_bytes });
    let packed = move |m: &mut proto::Insert, packable, packed| {
        layout(m).packable = packable;
        chunk(m).packed = packed;
    };
    let refused = |packable, range, words: &str| {
        let mut message = valid_insert();
        packed(&mut message, packable, range);
        match decoder().0.insert(message, &bulk()).map(|arrived| arrived.len()) {
            Err(Error::Protocol(reason)) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?} is no refusal that says '{words}'"),
        }
    };
    refused(true, range(0, 39), "bytes from");
    refused(true, range(u64::MAX, u64::MAX), "bytes from");
    refused(true, range(0, 38), "damaged");
    refused(false, range(0, 4), "packed, although its layout forbids that");

    // A chunk of one column: four cells are there, and the packed form has three.
    let layout = Arc::new(Layout::columnar(&[(64, 1)], 4));
    let mut writer = ChunkWriter::new(layout, Compression::Lz4, &Arc::default());
    writer.push_cells(0, &[1; 192], 3);
    let short = writer.seal(&mut Chooser::new(Compression::Lz4)).packed().expect("it packs");
    let shape =
        proto::ChunkLayout { widths: vec![64], itemsizes: vec![1], capacity: 4, interleaved: false, packable: true };
    let mut decoder = decoder().0;
    let chunk = proto::ChunkCells { chunk: 1, layout: Some(Box::new(shape)), cells: 4, ..Default::default() };
    decoder.insert(proto::Insert { chunks: vec![chunk], ..Default::default() }, &Bytes::from(vec![0; 256])).unwrap();
    let packed = Some(proto::PackedRange { offset: 0, size_bytes: short.len() as u64 });
    let chunk = proto::ChunkCells { chunk: 1, packed, ..Default::default() };
    let refusal = decoder.insert(proto::Insert { chunks: vec![chunk], ..Default::default() }, &Bytes::from(short));
    assert!(matches!(refusal, Err(Error::Protocol(reason)) if reason.contains("lacks cells")));
}

#[test]
fn items_are_refused_whose_cells_are_not_there_or_do_not_match_the_form() {
    use proto::pattern_column::Cells as Wire;
    broken(|m| item(m, |row| row.anchor = 2), "never written");
    broken(|m| item(m, |row| row.anchor = u32::MAX), "never written");
    broken(|m| column(m).cells = Some(Wire::List(proto::CellList { cells: encode(&[0, -2]) })), "never written");
    broken(
        |m| column(m).cells = Some(Wire::Range(proto::CellRange { start: i32::MIN, step: 1, len: 1 << 24 })),
        "never",
    );
    broken(
        |m| column(m).cells = Some(Wire::Range(proto::CellRange { start: i32::MAX, step: i32::MAX, len: 1 << 23 })),
        "never",
    );
    broken(|m| column(m).column = 2, "never written");
    broken(|m| column(m).column = u32::MAX, "never written");
    broken(|m| column(m).part = 1, "never written");
    broken(|m| column(m).spec.as_mut().unwrap().shape = vec![3], "cells of 8 bytes");
    broken(|m| column(m).spec.as_mut().unwrap().dtype = "float64".to_owned(), "cells of 8 bytes");
    broken(|m| column(m).spec.as_mut().unwrap().shape = vec![1 << 30, 1 << 30], "cells of 8 bytes");
    broken(|m| m.patterns[0].columns[1].spec.as_mut().unwrap().dtype = "str".to_owned(), "cells of 1 bytes");
    broken(|m| chunk(m).columns = vec![cells_of(0, 0, 4, &[0b0100]), cells_of(1, 0, 4, &[])], "never written");
    broken(|m| item(m, |row| row.pattern = 4), "form 4 is not defined");
    broken(|m| item(m, |row| row.body = 4), "body 4 is not defined");
    broken(|m| m.patterns.push(m.patterns[0].clone()), "defined twice");
}

#[test]
fn requests_that_do_not_add_up_are_refused() {
    broken(|m| m.items = Bytes::from(vec![0; 33]), "33 bytes of items");
    broken(|m| m.runs[0].items = 2, "do not cover its 1 items");
    broken(|m| m.runs.clear(), "do not cover its 1 items");
    broken(|m| m.runs.push(proto::InsertRun { table: 0, requests: u32::MAX, items: 0, skipped: 0 }), "do not cover");
    broken(
        |m| m.runs.extend([proto::InsertRun { table: 0, requests: u32::MAX, items: u32::MAX, skipped: 0 }; 3]),
        "do not cover",
    );
    broken(|m| m.first_id = u64::MAX, "cannot begin at number");
    broken(|m| m.first_id = 0, "cannot begin at number");
    broken(|m| (m.first_id, m.runs[0].skipped) = (u64::MAX - (1 << 31), u32::MAX), "cannot begin at number");
    broken(|m| m.items = Bytes::new(), "do not cover its 0 items");
}

/// Makes the item one on the body.
fn on(message: &mut proto::Insert, bodies: Vec<proto::BodyDef>) {
    message.bodies = bodies;
    item(message, |row| row.body = 6);
}

fn body(chunks: &[u64], starts: &[i64]) -> proto::BodyDef {
    let part = proto::BodyPart { chunks: encode(chunks), starts: encode(starts) };
    proto::BodyDef { body: 6, parts: vec![part], episodes: Bytes::new() }
}

#[test]
fn bodies_are_taken_whose_positions_are_in_order_and_others_are_refused() {
    let on_body: Edit = |m| on(m, vec![body(&[5], &[-2, 4])]);
    // The chunk's first cell is at the position -2: the items' cells are 3 and on, of which there is one.
    broken(on_body, "never written");
    let on_body: Edit = |m| on(m, vec![body(&[5], &[0, 4])]);
    assert_eq!(content(&outcome(on_body).unwrap()[0].items[0].0)[1], [[35], [36], [37]]);
    broken(|m| m.bodies = vec![body(&[5], &[0, 0])], "a body of 1 chunks");
    broken(|m| m.bodies = vec![body(&[5], &[0])], "a body of 1 chunks");
    broken(|m| m.bodies = vec![body(&[], &[0])], "a body of 0 chunks");
    broken(|m| m.bodies = vec![body(&[5], &[i64::MIN, i64::MAX])], "a body of 1 chunks");
    broken(|m| m.bodies = vec![body(&[4], &[0, 6])], "chunk 4 of a body");
    broken(|m| m.bodies = vec![body(&[5], &[0, 6]); 2], "defined twice");
    broken(|m| on(m, vec![body(&[5], &[0, 2])]), "never written");
    broken(
        |m| {
            m.bodies = vec![body(&[5], &[0, 6])];
            m.chunks.push(proto::ChunkCells { chunk: 6, ..Default::default() });
        },
        "chunk 6 is not defined",
    );
}

#[test]
fn items_on_a_body_are_of_its_episodes_too_by_this_servers_numbers() {
    let on_body: Edit = |m| {
        m.bodies = vec![proto::BodyDef { episodes: encode(&[4, u32::MAX]), ..body(&[5], &[0, 6]) }];
        item(m, |row| row.body = 6);
    };
    let item = &outcome(on_body).unwrap()[0].items[0].0;
    let [same, other] = item.further_episodes() else { panic!("two were named") };
    assert_eq!(*same, item.episode, "the number that the item has for it");
    assert!(*other != item.episode && *other != u32::MAX);
    assert!(outcome(|_| ()).unwrap()[0].items[0].0.further_episodes().is_empty());
    let none: Edit = |m| m.bodies = vec![proto::BodyDef { episodes: encode(&[0_u32]), ..body(&[5], &[0, 6]) }];
    broken(none, "an episode without a number");
}

#[test]
fn a_body_is_no_chunk() {
    let (mut decoder, _meter) = decoder();
    let mut message = valid_insert();
    message.bodies = vec![body(&[5], &[0, 6])];
    decoder.insert(message, &bulk()).unwrap();
    let cells = proto::ChunkCells { chunk: 6, ..Default::default() };
    let refusal = decoder.insert(proto::Insert { chunks: vec![cells], ..Default::default() }, &bulk());
    assert!(matches!(refusal, Err(Error::Protocol(reason)) if reason.contains("is a body")));
}

#[test]
fn a_message_whose_items_ask_for_too_many_looks_is_refused_before_they_are_taken() {
    broken(
        |m| {
            let cells = proto::CellRange { start: 0, step: 2, len: MAX_CELLS };
            column(m).cells = Some(proto::pattern_column::Cells::Range(cells));
        },
        "more cells than are allowed",
    );
}

#[test]
fn the_cells_of_a_message_count_once_also_where_they_came_before_any_request() {
    let (mut decoder, _meter) = decoder();
    let cells = proto::Insert { chunks: valid_insert().chunks, ..Default::default() };
    assert!(decoder.insert(cells, &bulk()).unwrap().is_empty());
    let arrived = decoder.insert(proto::Insert { chunks: vec![], ..valid_insert() }, &Bytes::new()).unwrap();
    assert_eq!(arrived[0].size_bytes, 38 + 64);
}

#[test]
fn an_episode_keeps_its_number_over_the_connections_of_a_session_and_shares_it_with_no_other() {
    let (mine, other) = (Arc::new(Episodes::default()), Arc::new(Episodes::default()));
    let arrives = |episodes: &Arc<Episodes>, episode: u32| {
        let mut message = valid_insert();
        item(&mut message, |row| row.episode = episode);
        let mut decoder = Decoder::new(Arc::default(), LIMITS, Arc::clone(episodes));
        decoder.insert(message, &bulk()).unwrap()[0].items[0].0.episode
    };
    let first = arrives(&mine, 4);
    assert_eq!(arrives(&mine, 4), first);
    assert_ne!(arrives(&mine, 5), first);
    assert_ne!(arrives(&other, 4), first);
    assert_eq!((arrives(&mine, 0), arrives(&other, 0)), (0, 0));
}

#[test]
fn a_message_of_too_many_items_is_refused_before_one_is_made() {
    broken(
        |m| {
            m.items = m.items.repeat(MAX_ITEMS + 1).into();
            m.runs[0].requests = MAX_ITEMS as u32 + 1;
        },
        "items in one message",
    );
}
