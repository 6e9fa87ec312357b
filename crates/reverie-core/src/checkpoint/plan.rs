//! The objects that a cut refers to: every chunk, run of chunks and pattern once, with a number.

use crate::chunk::Chunk;
use crate::item::{Body, Form, Item, Pattern, Span};
use crate::table::TableCut;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::rows::SavedBody;

/// A hash for addresses: they need no strong hash, and a million of them need a fast one.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        // Fibonacci hashing (Knuth 1998, section 6.4), folded so that the low bits differ too.
        let product = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type ObjectNumbers = HashMap<usize, u32, BuildHasherDefault<AddressHasher>>;

/// Numbers for the objects that items share.
#[derive(Default)]
pub(crate) struct SharedObjects<'a> {
    pub(crate) chunks: Vec<&'a Arc<Chunk>>,
    pub(crate) spans: Vec<&'a Arc<Span>>,
    pub(crate) patterns: Vec<&'a Pattern>,
    chunk_numbers: ObjectNumbers,
    span_numbers: ObjectNumbers,
    pattern_numbers: ObjectNumbers,
}

fn number<T>(numbers: &mut ObjectNumbers, all: &mut Vec<T>, address: usize, value: T) -> bool {
    let next = all.len() as u32;
    let new = *numbers.entry(address).or_insert(next) == next;
    if new {
        all.push(value);
    }
    new
}

impl<'a> SharedObjects<'a> {
    /// Visits every item of the cuts.
    pub(crate) fn of(tables: &'a [TableCut]) -> Self {
        let mut plan = Self::default();
        let (mut last_chunk, mut last_form): (_, Option<&'a Form>) = (std::ptr::null(), None);
        for (_, slot, _) in tables.iter().flat_map(|table| table.items.iter()) {
            let Some(item) = &slot.item else { continue };
            if !last_form.is_some_and(|form| form.same(&item.pattern)) {
                let pattern: &'a Pattern = &item.pattern;
                number(&mut plan.pattern_numbers, &mut plan.patterns, std::ptr::from_ref(pattern) as usize, pattern);
                last_form = Some(&item.pattern);
            }
            match &item.body {
                // Consecutive items often share their chunk.
                Body::Chunk(chunk) if Arc::as_ptr(chunk) == last_chunk => {}
                Body::Chunk(chunk) => {
                    plan.add_chunk(chunk);
                    last_chunk = Arc::as_ptr(chunk);
                }
                Body::Span(parts) => {
                    if number(&mut plan.span_numbers, &mut plan.spans, Arc::as_ptr(parts) as usize, parts) {
                        parts.iter().flat_map(|part| &part.chunks).for_each(|chunk| plan.add_chunk(chunk));
                    }
                }
            }
        }
        plan
    }

    fn add_chunk(&mut self, chunk: &'a Arc<Chunk>) {
        number(&mut self.chunk_numbers, &mut self.chunks, Arc::as_ptr(chunk) as usize, chunk);
    }

    /// The number of a chunk of the cuts.
    pub(crate) fn chunk(&self, chunk: &Arc<Chunk>) -> u32 {
        self.chunk_numbers[&(Arc::as_ptr(chunk) as usize)]
    }

    /// The numbers of an item's pattern and body.
    pub(crate) fn item(&self, item: &Item) -> (u32, SavedBody) {
        let pattern = self.pattern_numbers[&(std::ptr::from_ref::<Pattern>(&item.pattern) as usize)];
        let body = match &item.body {
            Body::Chunk(chunk) => SavedBody::Chunk(self.chunk(chunk)),
            Body::Span(parts) => SavedBody::Span(self.span_numbers[&(Arc::as_ptr(parts) as usize)]),
        };
        (pattern, body)
    }
}
