//! The packed form of a chunk: whatever the bytes, they are refused or are a chunk, whose every cell can be asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reverie_core::chunk::{Chunk, Decoder, Meter};
use reverie_core::error::Error;
use reverie_fuzz::layouts;
use std::sync::Arc;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let layouts = layouts();
    let layout = &layouts[usize::from(*choice) % layouts.len()];
    let meter = Arc::new(Meter::new());
    let chunk = match Chunk::from_packed(Arc::clone(layout), bytes, &meter) {
        Ok(chunk) => chunk,
        Err(Error::Damaged(_)) => return assert_eq!(meter.live_bytes(), 0),
        Err(other) => panic!("refused as {other:?}"),
    };
    assert_eq!(chunk.packed().as_deref(), Some(bytes), "it is what it was made of");
    for column in 0..layout.num_columns() {
        assert!(chunk.len(column) <= layout.capacity());
        assert!((0..=layout.capacity()).all(|cell| !chunk.has(column, cell) || cell < chunk.len(column)));
    }
    // Column by column in one decoder, as a gather does, and all at once in a fresh one.
    let (mut decoder, whole) = (Decoder::default(), chunk.read());
    let mut apart = Ok(());
    for column in 0..layout.num_columns() {
        match chunk.read_with(&mut decoder, &|wanted| wanted == column) {
            Ok(view) => {
                for cell in 0..=chunk.len(column) {
                    let found = view.cell(column, cell);
                    assert_eq!(found.map(<[u8]>::len), (cell < chunk.len(column)).then(|| layout.width(column)));
                    if let Ok(whole) = &whole {
                        assert_eq!(found, whole.cell(column, cell));
                    }
                }
            }
            Err(Error::Damaged(reason)) => apart = Err(reason),
            Err(other) => panic!("read as {other:?}"),
        }
    }
    assert_eq!(whole.is_err(), apart.is_err(), "a column is damaged in each way of reading");
});
