//! The packed form of a chunk: whatever the bytes, they are refused or are a chunk, whose every cell can be asked for.

use super::layouts;
use reverie_core::chunk::{Chunk, Decoder, Meter};
use reverie_core::error::Error;
use std::sync::Arc;

/// Panics if it does not hold for this input. True if the chunk can be read whole.
pub fn check(input: &[u8]) -> bool {
    let Some((choice, bytes)) = input.split_first() else { return false };
    let layouts = layouts();
    let layout = &layouts[usize::from(*choice) % layouts.len()];
    let meter = Arc::new(Meter::new());
    let chunk = match Chunk::from_packed(Arc::clone(layout), bytes, &meter) {
        Ok(chunk) => chunk,
        Err(Error::Damaged(_)) => {
            assert_eq!(meter.live_bytes(), 0);
            return false;
        }
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
        match chunk.read_with(&mut decoder, &|wanted| (wanted == column).then_some(0..usize::MAX)) {
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
    // Some cells of a column, as of an item that begins within a chunk: one damaged block is not among those of others.
    for column in 0..layout.num_columns() {
        let from = usize::from(*choice) % (chunk.len(column) + 1);
        let wanted = from..(from + 2).min(chunk.len(column));
        let read = chunk.read_with(&mut decoder, &|index| (index == column).then(|| wanted.clone()));
        match (&read, &whole) {
            (Ok(view), Ok(whole)) => {
                assert!(wanted.into_iter().all(|cell| view.cell(column, cell) == whole.cell(column, cell)));
            }
            (Err(error), Ok(_)) => panic!("some cells cannot be read of a chunk that can: {error}"),
            (_, Err(_)) => {}
        }
    }
    whole.is_ok()
}
