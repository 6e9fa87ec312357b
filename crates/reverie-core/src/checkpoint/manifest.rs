//! **Manifests**: the files of one checkpoint each.
//!
//! Sections in this order: `head`, then any number of `patt`, `chun`, `numb`, `span`, `epis`, `item`, `strm`, `copy`, `sent` and
//! `forg`, and `end.`. The first has what users ask for most.

use super::bytes::{Decoded, Reader};
use super::plan::SharedObjects;
use super::records;
use super::rows::{self, ITEMS_AT_ONCE, SavedItem, SavedPart};
use super::section::{SectionReader, SectionWriter, Tag};
use super::segment::RecordPlace;
use super::sent;
use super::summary::{self, LogStart, Summary, TableSummary};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::item::Pattern;
use crate::table::{Arrivals, Sender, ServerCut, TableCut};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Chunks and spans of a section.
const AT_ONCE: usize = 8192;
/// Senders of a section.
const SENDERS_AT_ONCE: usize = 64;

/// A whole manifest; its items refer to chunks by number, and these are not read yet.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) summary: Summary,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) chunks: Vec<RecordPlace>,
    /// The later parts of chunks that have several, by the chunks' numbers; never in a file.
    pub(crate) parts: HashMap<u32, Vec<RecordPlace>>,
    /// The number of each chunk in the journal; empty without a journal.
    pub(crate) numbers: Vec<u64>,
    pub(crate) spans: Vec<Vec<SavedPart>>,
    /// The further episodes of the items of spans, by the spans' numbers, ascending.
    pub(crate) episodes: Vec<(u32, Box<[u32]>)>,
    /// The items of each table.
    pub(crate) items: Vec<Vec<SavedItem>>,
    /// The streams of each table's items; empty if the checkpoint has none.
    pub(crate) streams: Vec<Vec<u32>>,
    /// The slots of each table's copies, ascending, with the keys of the originals.
    pub(crate) copies: Vec<Vec<(u32, i64)>>,
    /// The inserted part of each table's inserts that may be retried; empty in checkpoints of older versions.
    pub(crate) sent: Vec<Vec<(Sender, Arrivals)>>,
    /// Senders for which this part is no longer known.
    pub(crate) forgotten: Vec<Sender>,
}

/// The segments of the chunks, ascending.
pub(crate) fn segments(places: &[RecordPlace]) -> Vec<u64> {
    let mut segments: Vec<u64> = places.iter().map(|place| place.segment).collect();
    segments.sort_unstable();
    segments.dedup();
    segments
}

/// Writes the manifest of a cut, whose chunks are at `places`; returns its size in bytes.
pub(crate) fn write(
    mut out: SectionWriter,
    number: u64,
    created: Duration,
    cuts: &ServerCut,
    plan: &SharedObjects<'_>,
    places: &[RecordPlace],
    journal: Option<(LogStart, &[u64])>,
) -> Result<u64> {
    let segments = segments(places);
    let index = |segment: u64| segments.partition_point(|known| *known < segment) as u32;
    let summary = Summary {
        path: PathBuf::new(),
        number,
        created,
        clock: cuts.now,
        num_chunks: places.len() as u64,
        chunk_bytes: places.iter().map(RecordPlace::size).sum(),
        manifest_bytes: 0,
        segments: segments.clone(),
        journal: journal.map(|(start, _)| start),
        tables: cuts.tables.iter().map(TableSummary::of).collect(),
    };
    out.section(Tag::Head, |out| out.record(&summary))?;
    for patterns in plan.patterns.chunks(AT_ONCE) {
        out.section(Tag::Patterns, |out| out.record(&patterns))?;
    }
    for places in places.chunks(AT_ONCE) {
        out.section(Tag::Chunks, |out| {
            out.all(places, |out, place| {
                out.u32(index(place.segment));
                out.u64(place.offset);
                out.u64(place.length);
                out.u32(place.crc);
            });
        })?;
    }
    for numbers in journal.map_or(&[][..], |(_, numbers)| numbers).chunks(AT_ONCE) {
        out.section(Tag::Numbers, |out| out.all(numbers, |out, number| out.u64(*number)))?;
    }
    for spans in plan.spans.chunks(AT_ONCE) {
        out.section(Tag::Spans, |out| {
            out.all(spans, |out, span| rows::put_span(out, span, |chunk| plan.chunk(chunk)));
        })?;
    }
    let of_several = plan.spans.iter().enumerate().filter(|(_, span)| !span.episodes.is_empty());
    let episodes: Vec<_> = of_several.map(|(number, span)| (number as u32, span.episodes.clone())).collect();
    for episodes in episodes.chunks(AT_ONCE) {
        out.section(Tag::Episodes, |out| out.all(episodes, rows::put_episodes))?;
    }
    for (number, table) in cuts.tables.iter().enumerate() {
        put_items(&mut out, number as u32, table, plan)?;
    }
    for (number, table) in cuts.tables.iter().enumerate() {
        for senders in table.sent.chunks(SENDERS_AT_ONCE) {
            out.section(Tag::Sent, |out| {
                out.u32(number as u32);
                out.all(senders, sent::put_sender);
            })?;
        }
    }
    for senders in cuts.forgotten.chunks(AT_ONCE) {
        out.section(Tag::Forgotten, |out| out.all(senders, |out, sender| out.0.extend_from_slice(sender)))?;
    }
    out.section(Tag::End, |_| ())?;
    out.finish()
}

fn put_items(out: &mut SectionWriter, number: u32, table: &TableCut, plan: &SharedObjects<'_>) -> Result<()> {
    let mut items = table.items.iter();
    let mut left = table.size as usize;
    let mut streams = Vec::with_capacity(ITEMS_AT_ONCE.min(left));
    while left > 0 {
        let count = left.min(ITEMS_AT_ONCE);
        out.section(Tag::Items, |out| {
            out.u32(number);
            out.u32(count as u32);
            for (index, slot, age) in items.by_ref().take(count) {
                let item = slot.item.as_ref().expect("a cut gives slots that are occupied");
                rows::put_saved(out, &rows::saved(index, slot, age, item, plan.item(item)));
                streams.push(item.stream);
            }
        })?;
        out.section(Tag::Streams, |out| {
            out.u32(number);
            out.all(&streams, |out, stream| out.u32(*stream));
        })?;
        streams.clear();
        left -= count;
    }
    let copies: Vec<(u32, i64)> = table.items.copies().map(|(slot, key)| (slot, key.get())).collect();
    for copies in copies.chunks(ITEMS_AT_ONCE) {
        out.section(Tag::Copies, |out| {
            out.u32(number);
            out.all(copies, |out, (slot, key)| {
                out.u32(*slot);
                out.u64(*key as u64);
            });
        })?;
    }
    Ok(())
}

/// The part of a manifest that a section adds.
enum ManifestPart {
    Patterns(Vec<Pattern>),
    Chunks(Vec<RecordPlace>),
    Numbers(Vec<u64>),
    Spans(Vec<Vec<SavedPart>>),
    Episodes(Vec<(u32, Box<[u32]>)>),
    Items(usize, Vec<SavedItem>),
    Streams(usize, Vec<u32>),
    Copies(usize, Vec<(u32, i64)>),
    Sent(usize, Vec<(Sender, Arrivals)>),
    Forgotten(Vec<Sender>),
    End,
}

/// Reads the number of a table.
fn number(from: &mut Reader<'_>, summary: &Summary) -> Decoded<usize> {
    let table = from.u32()? as usize;
    match table < summary.tables.len() {
        true => Ok(table),
        false => Err(format!("items refer to table number {table}, and there are {}", summary.tables.len())),
    }
}

fn part(tag: Tag, from: &mut Reader<'_>, summary: &Summary) -> Decoded<ManifestPart> {
    Ok(match tag {
        Tag::Patterns => ManifestPart::Patterns(records::patterns(from)?),
        Tag::Chunks => ManifestPart::Chunks(from.all(|from| {
            let segment =
                *summary.segments.get(from.u32()? as usize).ok_or("a chunk refers to a segment that does not exist")?;
            Ok(RecordPlace { segment, offset: from.u64()?, length: from.u64()?, crc: from.u32()? })
        })?),
        Tag::Numbers => ManifestPart::Numbers(from.all(Reader::u64)?),
        Tag::Spans => ManifestPart::Spans(from.all(rows::span)?),
        Tag::Episodes => ManifestPart::Episodes(from.all(rows::episodes)?),
        Tag::Items => ManifestPart::Items(number(from, summary)?, from.all(rows::item)?),
        Tag::Streams => ManifestPart::Streams(number(from, summary)?, from.all(Reader::u32)?),
        Tag::Copies => {
            ManifestPart::Copies(number(from, summary)?, from.all(|from| Ok((from.u32()?, from.u64()? as i64)))?)
        }
        Tag::Sent => ManifestPart::Sent(number(from, summary)?, from.all(sent::sender)?),
        Tag::Forgotten => ManifestPart::Forgotten(from.all(sent::name)?),
        Tag::End => ManifestPart::End,
        Tag::Head => return Err(format!("section {tag:?} is there twice")),
    })
}

impl Manifest {
    /// Reads and checks a whole manifest.
    pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let mut from = SectionReader::open(disk, path)?;
        let summary = summary::read(&mut from, path)?;
        let (items, streams) = summary.tables.iter().map(|_| (Vec::new(), Vec::new())).unzip();
        let copies = vec![Vec::new(); summary.tables.len()];
        let sent = vec![Vec::new(); summary.tables.len()];
        let (patterns, chunks, parts, numbers, spans, episodes, forgotten) = Default::default();
        let mut all = Self {
            summary,
            patterns,
            chunks,
            parts,
            numbers,
            spans,
            episodes,
            items,
            streams,
            copies,
            sent,
            forgotten,
        };
        loop {
            match from.section(|tag, from| part(tag, from, &all.summary))? {
                ManifestPart::Patterns(patterns) => all.patterns.extend(patterns),
                ManifestPart::Chunks(chunks) => all.chunks.extend(chunks),
                ManifestPart::Numbers(numbers) => all.numbers.extend(numbers),
                ManifestPart::Spans(spans) => all.spans.extend(spans),
                ManifestPart::Episodes(episodes) => all.episodes.extend(episodes),
                ManifestPart::Items(table, items) => all.items[table].extend(items),
                ManifestPart::Streams(table, streams) => all.streams[table].extend(streams),
                ManifestPart::Copies(table, copies) => all.copies[table].extend(copies),
                ManifestPart::Sent(table, senders) => all.sent[table].extend(senders),
                ManifestPart::Forgotten(senders) => all.forgotten.extend(senders),
                ManifestPart::End => break,
            }
        }
        all.check().map_err(|what| from.damaged(&what))?;
        from.end()?;
        Ok(all)
    }

    /// Checks all numbers against the number of the things that they refer to.
    pub(crate) fn check(&self) -> Decoded<()> {
        let (chunks, spans, patterns) = (self.chunks.len(), self.spans.len(), self.patterns.len());
        if chunks as u64 != self.summary.num_chunks {
            return Err(format!("{chunks} chunks, where the head names {}", self.summary.num_chunks));
        }
        let numbers = self.numbers.len();
        if numbers != if self.summary.journal.is_some() { chunks } else { 0 } {
            return Err(format!("{numbers} journal numbers for {chunks} chunks"));
        }
        rows::check_spans(&self.spans, &self.episodes, chunks)?;
        for ((items, streams), table) in self.items.iter().zip(&self.streams).zip(&self.summary.tables) {
            let name = &table.options.name;
            if !streams.is_empty() && streams.len() != items.len() {
                return Err(format!("{} streams for the {} items of table '{name}'", streams.len(), items.len()));
            }
            if items.len() as u64 != table.size {
                return Err(format!("{} items of table '{name}', where the head names {}", items.len(), table.size));
            }
            let mut last = None;
            for item in items {
                rows::check_item(item, name, (chunks, spans, patterns))?;
                rows::check_slot(item.slot, name, table.allocated)?;
                // Slots are ascending, each once.
                if last.is_some_and(|last| last >= item.slot) {
                    return Err(format!("the items of table '{name}' are not in the order of their slots"));
                }
                last = Some(item.slot);
            }
        }
        for ((items, copies), table) in self.items.iter().zip(&self.copies).zip(&self.summary.tables) {
            let name = &table.options.name;
            let mut keys = std::collections::HashSet::with_capacity(copies.len());
            let mut last = None;
            for (slot, key) in copies {
                let known = items.binary_search_by_key(slot, |item| item.slot).is_ok();
                if !known || last.is_some_and(|last| last >= *slot) || *key < 0 || !keys.insert(*key) {
                    return Err(format!(
                        "the copy of key {key} in slot {slot} of table '{name}' is invalid: a copy needs an item and a key \
                         of its own, in the order of slots"
                    ));
                }
                last = Some(*slot);
            }
        }
        Ok(())
    }

    /// The error for an invalid item; `self` was read from the file that the error names.
    pub(crate) fn damaged(&self, what: String) -> Error {
        crate::disk::damaged(&self.summary.path, what, 0)
    }
}
