//! Writes a commit: the changes of the tables, with numbers in place of references.

use super::commit::{MAGIC, put_counters, put_counts, put_lessee, put_optional, put_record, put_sender_change};
use crate::checkpoint::bytes::Bytes;
use crate::checkpoint::chunk_log::ChunkLog;
use crate::checkpoint::plan::ObjectNumbers;
use crate::checkpoint::rows::{self, SavedBody, SavedItem};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::item::{Body, Item, Pattern, Span};
use crate::table::{Row, Sender, TableDelta};
use std::sync::Arc;
use std::time::Duration;

/// The parts of a commit in addition to the changes of the tables.
pub(super) struct CommitHead {
    pub(super) number: u64,
    pub(super) synced: (u64, u64),
    pub(super) clock: Duration,
    pub(super) wall: Duration,
    /// All forgotten senders, if they changed.
    pub(super) forgotten: Option<Vec<Sender>>,
}

/// State from one commit to the next: the patterns that the commits since the last cut have, and buffers.
#[derive(Default)]
pub(super) struct Encoder {
    /// The numbers of the patterns that live as long as the process, by their addresses.
    kept: ObjectNumbers,
    /// The number of patterns that the commits since the last cut have.
    patterns: u32,
    commit: Bytes,
    changes: Bytes,
}

/// More than that is not kept for the next commit.
const BUFFER: usize = 1 << 20;

impl Encoder {
    /// The next commit is the first after a cut, which recovery may begin with: it has all patterns of its items.
    pub(super) fn begin(&mut self) {
        self.kept.clear();
        self.patterns = 0;
    }
}

/// The objects that the items of a commit share, each once. Addresses are of objects that the items keep alive.
struct CommitObjects<'a> {
    chunks: Vec<u64>,
    /// The first chunk that could not be read from the disk.
    failed: Option<Error>,
    spans: Vec<&'a Arc<Span>>,
    /// The patterns that no commit since the last cut has.
    patterns: Vec<&'a Pattern>,
    chunk_numbers: ObjectNumbers,
    span_numbers: ObjectNumbers,
    pattern_numbers: ObjectNumbers,
    kept: &'a mut ObjectNumbers,
    /// The number of patterns of the commits before.
    known: u32,
}

impl<'a> CommitObjects<'a> {
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
        let next = self.known + self.patterns.len() as u32;
        let numbers = if item.pattern.kept().is_some() { &mut *self.kept } else { &mut self.pattern_numbers };
        let number = *numbers.entry(std::ptr::from_ref(pattern) as usize).or_insert(next);
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

impl Encoder {
    /// Appends a commit to `log`, after the records of its chunks.
    ///
    /// `Storage` or `DamagedFile` for a chunk on the disk that cannot be read; there is no commit then.
    pub(super) fn put(&mut self, log: &mut ChunkLog, head: &CommitHead, tables: &[(&str, TableDelta)]) -> Result<()> {
        let Self { kept, patterns: known, commit: out, changes } = self;
        for buffer in [&mut *out, &mut *changes] {
            buffer.0.clear();
            buffer.0.shrink_to(BUFFER);
        }
        let mut shared = CommitObjects {
            chunks: Vec::new(),
            failed: None,
            spans: Vec::new(),
            patterns: Vec::new(),
            chunk_numbers: ObjectNumbers::default(),
            span_numbers: ObjectNumbers::default(),
            pattern_numbers: ObjectNumbers::default(),
            kept,
            known: *known,
        };
        changes.u32(tables.len() as u32);
        tables.iter().for_each(|(name, delta)| put_change(changes, log, &mut shared, name, delta));
        let CommitObjects { chunks, failed, spans, patterns, chunk_numbers, .. } = shared;
        if let Some(error) = failed {
            // The next commit has all patterns of its items.
            kept.clear();
            *known = 0;
            return Err(error);
        }
        out.0.extend_from_slice(&MAGIC);
        out.u64(head.number);
        out.u64(head.synced.0);
        out.u64(head.synced.1);
        out.u64(head.clock.as_nanos() as u64);
        out.u64(head.wall.as_nanos() as u64);
        out.u32(*known);
        put_optional(out, (!patterns.is_empty()).then_some(&patterns), put_record);
        *known += patterns.len() as u32;
        out.all(&chunks, |out, number| out.u64(*number));
        let number_of = |chunk: &Arc<Chunk>| chunk_numbers[&(Arc::as_ptr(chunk) as usize)];
        out.all(&spans, |out, span| rows::put_span(out, span, number_of));
        let of_several = spans.iter().enumerate().filter(|(_, span)| !span.episodes.is_empty());
        let episodes: Vec<_> = of_several.map(|(number, span)| (number as u32, span.episodes.clone())).collect();
        out.all(&episodes, rows::put_episodes);
        out.0.extend_from_slice(&changes.0);
        put_optional(out, head.forgotten.as_ref(), |out, senders| {
            out.all(senders, |out, sender| out.0.extend_from_slice(sender));
        });
        log.commit(&out.0);
        Ok(())
    }
}

fn put_change<'a>(
    out: &mut Bytes,
    log: &mut ChunkLog,
    shared: &mut CommitObjects<'a>,
    name: &str,
    delta: &'a TableDelta,
) {
    out.u32(name.len() as u32);
    out.0.extend_from_slice(name.as_bytes());
    put_optional(out, delta.options.as_ref(), put_record);
    out.u8(u8::from(delta.cleared));
    put_counters(out, &delta.counters);
    put_optional(out, delta.stats.as_ref(), put_record);
    out.u64(delta.order);
    out.u32(delta.allocated);
    out.all(&delta.removed, |out, slot| out.u32(*slot));
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
