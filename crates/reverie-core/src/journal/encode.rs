//! Writes a commit: the changes of the tables, with numbers in place of references.

use super::commit::{MAGIC, put_counters, put_counts, put_lessee, put_optional, put_record, put_sender_change};
use crate::checkpoint::bytes::Bytes;
use crate::checkpoint::chunk_log::ChunkLog;
use crate::checkpoint::plan::Numbers;
use crate::checkpoint::rows::{self, SavedBody, SavedItem};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::item::{Body, Item, Pattern, Span};
use crate::table::{Row, Sender, TableDelta};
use std::sync::Arc;
use std::time::Duration;

/// What a commit says besides the changes of the tables.
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) synced: (u64, u64),
    pub(super) clock: Duration,
    pub(super) wall: Duration,
    /// All forgotten senders, if they changed.
    pub(super) forgotten: Option<Vec<Sender>>,
}

/// The objects that the items of a commit share, each once. Addresses are of objects that the items keep alive.
#[derive(Default)]
struct Shared<'a> {
    chunks: Vec<u64>,
    /// The first chunk that could not be read from the disk.
    failed: Option<Error>,
    spans: Vec<&'a Arc<Span>>,
    patterns: Vec<&'a Pattern>,
    chunk_numbers: Numbers,
    span_numbers: Numbers,
    pattern_numbers: Numbers,
}

impl<'a> Shared<'a> {
    fn chunk(&mut self, log: &mut ChunkLog, chunk: &Arc<Chunk>) -> u32 {
        let next = self.chunks.len() as u32;
        let number = *self.chunk_numbers.entry(Arc::as_ptr(chunk) as usize).or_insert(next);
        if number == next {
            let named = log.put(chunk);
            self.chunks.push(*named.as_ref().unwrap_or(&0));
            self.failed = self.failed.take().or(named.err());
        }
        number
    }

    fn body(&mut self, log: &mut ChunkLog, body: &'a Body) -> SavedBody {
        match body {
            Body::Chunk(chunk) => SavedBody::Chunk(self.chunk(log, chunk)),
            Body::Span(span) => {
                let next = self.spans.len() as u32;
                let number = *self.span_numbers.entry(Arc::as_ptr(span) as usize).or_insert(next);
                if number == next {
                    self.spans.push(span);
                    span.iter().flat_map(|part| &part.chunks).for_each(|chunk| _ = self.chunk(log, chunk));
                }
                SavedBody::Span(number)
            }
        }
    }

    fn pattern(&mut self, item: &'a Item) -> u32 {
        let pattern: &'a Pattern = &item.pattern;
        let next = self.patterns.len() as u32;
        let number = *self.pattern_numbers.entry(std::ptr::from_ref(pattern) as usize).or_insert(next);
        if number == next {
            self.patterns.push(pattern);
        }
        number
    }

    fn item(&mut self, log: &mut ChunkLog, row: &'a Row) -> SavedItem {
        SavedItem {
            slot: row.slot,
            generation: row.generation,
            priority: row.priority,
            version: row.version,
            times_sampled: row.times_sampled,
            inserted_at: row.inserted_at,
            inserted: row.inserted,
            updated: row.updated,
            episode: row.item.episode,
            anchor: row.item.anchor,
            pattern: self.pattern(&row.item),
            body: self.body(log, &row.item.body),
        }
    }
}

/// The bytes of a commit. The records of its chunks are appended to `log`, before them.
///
/// `Storage` or `DamagedFile` for a chunk on the disk that cannot be read.
pub(super) fn encode(log: &mut ChunkLog, head: &Head, tables: &[(&str, TableDelta)]) -> Result<Vec<u8>> {
    let mut shared = Shared::default();
    let mut changes = Bytes::default();
    changes.u32(tables.len() as u32);
    tables.iter().for_each(|(name, delta)| put_change(&mut changes, log, &mut shared, name, delta));
    if let Some(error) = shared.failed {
        return Err(error);
    }
    let mut out = Bytes::default();
    out.0.extend_from_slice(&MAGIC);
    out.u64(head.number);
    out.u64(head.synced.0);
    out.u64(head.synced.1);
    out.u64(head.clock.as_nanos() as u64);
    out.u64(head.wall.as_nanos() as u64);
    put_record(&mut out, &shared.patterns);
    out.all(&shared.chunks, |out, number| out.u64(*number));
    let numbers = &shared.chunk_numbers;
    out.all(&shared.spans, |out, span| rows::put_span(out, span, |chunk| numbers[&(Arc::as_ptr(chunk) as usize)]));
    let of_several = shared.spans.iter().enumerate().filter(|(_, span)| !span.episodes.is_empty());
    let episodes: Vec<_> = of_several.map(|(number, span)| (number as u32, span.episodes.clone())).collect();
    out.all(&episodes, rows::put_episodes);
    out.0.extend_from_slice(&changes.0);
    put_optional(&mut out, head.forgotten.as_ref(), |out, senders| {
        out.all(senders, |out, sender| out.0.extend_from_slice(sender));
    });
    Ok(out.0)
}

fn put_change<'a>(out: &mut Bytes, log: &mut ChunkLog, shared: &mut Shared<'a>, name: &str, delta: &'a TableDelta) {
    out.u32(name.len() as u32);
    out.0.extend_from_slice(name.as_bytes());
    put_optional(out, delta.options.as_ref(), put_record);
    out.u8(u8::from(delta.cleared));
    put_counters(out, &delta.counters);
    put_optional(out, delta.stats.as_ref(), put_record);
    out.u64(delta.order);
    out.u32(delta.allocated);
    out.all(&delta.gone, |out, slot| out.u32(*slot));
    // Not `all`: the rows are borrowed for as long as the commit is written.
    out.u32(delta.rows.len() as u32);
    for row in &delta.rows {
        rows::put_saved(out, &shared.item(log, row));
        out.u32(row.item.stream);
    }
    let copies: Vec<_> = delta.rows.iter().filter_map(|row| Some((row.slot, row.copy_of?))).collect();
    out.all(&copies, |out, (slot, key)| {
        out.u32(*slot);
        out.u64(key.get() as u64);
    });
    out.all(&delta.counts, put_counts);
    out.all(&delta.leases, |out, (slot, lessees)| {
        out.u32(*slot);
        out.all(lessees, put_lessee);
    });
    out.all(&delta.senders, put_sender_change);
}
