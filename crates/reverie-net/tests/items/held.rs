//! The bytes that a connection's decoder may hold in addition to the tables, and how they are counted.

use super::decoder::{LIMITS, decoder, exhausted, valid_insert};
use bytes::Bytes;
use reverie_core::chunk::Meter;
use reverie_net::convert::numbers::encode;
use reverie_net::items::{Decoder, DecoderLimits};
use reverie_net::proto;
use std::sync::Arc;

/// A chunk of that number, of 64 kB but for a step.
fn large(chunk: u64) -> proto::ChunkCells {
    let layout = proto::ChunkLayout { widths: vec![1 << 10], itemsizes: vec![1], capacity: 64, ..Default::default() };
    proto::ChunkCells { chunk, layout: Some(Box::new(layout)), ..Default::default() }
}

#[test]
fn a_connection_holds_a_bounded_number_of_bytes_in_addition_to_the_tables() {
    let (mut decoder, meter) = decoder();
    let mut take = |chunks: std::ops::Range<u64>, released: Vec<u64>| {
        let chunks = chunks.map(large).collect();
        let released = encode(&released);
        decoder.insert(proto::Insert { chunks, released, ..Default::default() }, &Bytes::new())
    };
    take(0..40, (0..40).collect()).unwrap();
    assert_eq!(meter.live_chunks(), 0, "released are gone");
    // Released chunks are not held, but the count is corrected only when it is computed again.
    take(40..80, vec![]).unwrap();
    exhausted(take(80..120, vec![]), "no table holds");
    assert!(meter.live_bytes() <= LIMITS.max_held_bytes + (64 << 10));
}

#[test]
fn chunks_that_a_connection_held_before_do_not_count_for_its_bound() {
    let (mut decoder, _meter) = decoder();
    let mut take = |chunk: u64, released: &[u64]| {
        let (chunks, released) = (vec![large(chunk)], encode(released));
        decoder.insert(proto::Insert { chunks, released, ..Default::default() }, &Bytes::new())
    };
    // More than three quarters of the bound, and then one at a time in addition.
    (0..50).for_each(|chunk| _ = take(chunk, &[]).unwrap());
    (50..150).for_each(|chunk| _ = take(chunk, &[chunk]).unwrap());
    (150..163).for_each(|chunk| _ = take(chunk, &[]).unwrap());
    exhausted(take(163, &[]), "no table holds");
}

#[test]
fn a_connection_may_name_a_bounded_number_of_objects_at_a_time() {
    let (mut decoder, _meter) = decoder();
    let mut take = |number: u64| {
        let chunks = vec![proto::ChunkCells {
            layout: valid_insert().chunks[0].layout.clone(),
            chunk: number,
            ..Default::default()
        }];
        decoder.insert(proto::Insert { chunks, ..Default::default() }, &Bytes::new())
    };
    (0..64).for_each(|number| drop(take(number).unwrap()));
    exhausted(take(64), "more than 64 chunks");
    let mut pattern = valid_insert().patterns.remove(0);
    let mut define = |number: u32| {
        pattern.pattern = number;
        decoder.insert(proto::Insert { patterns: vec![pattern.clone()], ..Default::default() }, &Bytes::new())
    };
    (0..64).for_each(|number| drop(define(number).unwrap()));
    exhausted(define(64), "more than 64 forms");
}

/// A chunk with one cell of 1 KiB and a layout of this many columns.
fn wide(chunk: u64, columns: usize) -> proto::ChunkCells {
    let mut widths = vec![0; columns];
    widths[0] = 1 << 10;
    let layout = proto::ChunkLayout { widths, itemsizes: vec![1; columns], capacity: 1, ..Default::default() };
    proto::ChunkCells { chunk, layout: Some(Box::new(layout)), ..Default::default() }
}

#[test]
fn a_layout_of_many_columns_counts_as_held() {
    let (mut decoder, _meter) = decoder();
    let mut held = |chunk: u64, columns: usize| {
        let message = proto::Insert { chunks: vec![wide(chunk, columns)], ..Default::default() };
        let before = decoder.recount();
        decoder.insert(message, &Bytes::new()).unwrap();
        decoder.recount() - before
    };
    let (narrow, wide) = (held(1, 1), held(2, 1001));
    assert!(wide >= narrow + 32 * 1000, "{narrow} and {wide} bytes");
}

#[test]
fn bodies_without_parts_are_bounded_in_bytes() {
    let limits = DecoderLimits { max_named: 1 << 20, max_held_bytes: 64 << 10, ..LIMITS };
    let mut decoder = Decoder::new(Arc::default(), limits, Arc::default());
    let mut define = |number: u64, released: &[u64]| {
        let bodies = vec![proto::BodyDef { body: number, ..Default::default() }];
        decoder.insert(proto::Insert { bodies, released: encode(released), ..Default::default() }, &Bytes::new())
    };
    (0..2_000).for_each(|number| drop(define(number, &[number]).unwrap()));
    let refused = (2_000..3_000).find_map(|number| define(number, &[]).err());
    exhausted(refused.map_or(Ok(vec![]), Err), "no table holds");
}

/// A decoder with this many named chunks, half of which are released in the same message.
fn half_released(chunks: u64) -> (Decoder, Arc<Meter>) {
    let (meter, limits) =
        (Arc::new(Meter::new()), DecoderLimits { max_named: 1 << 20, max_held_bytes: 1 << 30, ..LIMITS });
    let mut decoder = Decoder::new(Arc::clone(&meter), limits, Arc::default());
    let message = proto::Insert {
        chunks: (0..chunks).map(|chunk| wide(chunk, 1)).collect(),
        released: encode(&(0..chunks / 2).collect::<Vec<u64>>()),
        ..Default::default()
    };
    decoder.insert(message, &Bytes::new()).unwrap();
    (decoder, meter)
}

#[test]
fn few_named_chunks_are_all_looked_at_for_each_question_and_many_now_and_then() {
    let mut few = half_released(1_000).0;
    let before = few.held_bytes();
    assert!(few.recount_paced() < before, "the released ones are not counted any more");

    let (mut many, _meter) = half_released(10_000);
    let before = many.held_bytes();
    let questions = (1..10_000).find(|_| many.recount_paced() < before);
    // One question pays for a part of the looks at 5,000 that are still named.
    let questions = questions.expect("the released ones are counted for ever");
    assert!((5_000 / 16..=5_000 / 16 + 1).contains(&questions), "after {questions} questions");
    assert_eq!(many.recount_paced(), many.recount());
}

#[test]
fn long_forms_count_as_held_until_they_are_released() {
    let (mut decoder, _meter) = decoder();
    let mut define = |number: u32, released_patterns: Vec<u32>| {
        let mut pattern = valid_insert().patterns.remove(0);
        let list = proto::CellList { cells: encode(&vec![0; 1 << 18]) };
        (pattern.pattern, pattern.columns[0].cells) = (number, Some(proto::pattern_column::Cells::List(list)));
        decoder
            .insert(proto::Insert { patterns: vec![pattern], released_patterns, ..Default::default() }, &Bytes::new())
    };
    (0..9).for_each(|number| drop(define(number, vec![number]).unwrap()));
    (9..12).for_each(|number| drop(define(number, vec![]).unwrap()));
    exhausted(define(12, vec![]), "no table holds");
}
