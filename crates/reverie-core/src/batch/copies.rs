//! Copies of a gather that are known before any is made, so that their memory can be prefetched.

use crate::chunk::Chunk;
use crate::chunk::slab::fill_with;
use crate::item::{Body, Item, Span};
use crate::prefetch::{prefetch, prefetch_address, prefetch_whole};
use crate::stores::Stores;
use std::borrow::Borrow;
use std::mem::MaybeUninit;

const LINE: usize = 64;
/// The number of lines of the next copy that are prefetched: the processor prefetches the later ones.
const LINES_AHEAD: usize = 16;

/// A copy of `from` to the output `column`, `at` bytes after its start.
pub(super) struct CellCopy<'a> {
    pub(super) from: &'a [u8],
    pub(super) column: usize,
    pub(super) at: usize,
}

/// Prefetches the memory of each item that is read first.
pub(super) fn ask_for_bodies<T: Borrow<Item>>(items: &[T]) {
    for item in items {
        match &item.borrow().body {
            Body::Chunk(chunk) => prefetch::<Chunk>(chunk),
            Body::Span(span) => prefetch::<Span>(span),
        }
    }
}

/// Prefetches the memory that leads to the cells of items that span chunks, one step for all items at a time.
///
/// The misses of one step overlap, those of two steps of one item cannot.
pub(super) fn ask_for_chunks<T: Borrow<Item>>(items: &[T], numbers: &[usize]) {
    let parts = || {
        numbers.iter().flat_map(|number| match &items[*number].borrow().body {
            Body::Span(parts) => &parts[..],
            Body::Chunk(_) => &[],
        })
    };
    for number in numbers {
        if let Body::Span(parts) = &items[*number].borrow().body {
            prefetch(&parts[..]);
        }
    }
    for part in parts() {
        prefetch(&part.chunks[..]);
        prefetch(&part.starts[..]);
    }
    parts().flat_map(|part| &part.chunks[..]).for_each(|chunk| prefetch_whole(&**chunk));
}

/// Makes the copies, in order, and prefetches the beginning of each during the one before.
pub(super) fn run(copies: &[CellCopy<'_>], out: &mut [&mut [MaybeUninit<u8>]], stores: Stores) {
    for (index, CellCopy { from, column, at }) in copies.iter().enumerate() {
        if let Some(next) = copies.get(index + 1) {
            let lines = next.from.len().div_ceil(LINE).min(LINES_AHEAD);
            (0..lines).for_each(|line| prefetch_address(next.from.as_ptr().wrapping_add(line * LINE)));
        }
        fill_with(&mut out[*column][*at..*at + from.len()], from, stores);
    }
}
