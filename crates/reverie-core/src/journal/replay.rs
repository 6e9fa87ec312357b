//! Applies commits to the rows of a manifest.

use super::commit::{Commit, TableChange};
use crate::checkpoint::bytes::Decoded;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::rows::{SavedBody, SavedItem, SavedPart};
use crate::checkpoint::segment::RecordPlace;
use crate::checkpoint::summary::LogStart;
use crate::error::Result;
use crate::item::Pattern;
use crate::table::{Arrivals, LeasedSlot, Lessee, Sender, SenderChange};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The rows of a manifest with the commits that were applied to them.
///
/// Chunks, spans and patterns have numbers of their own here; those that no row refers to are left out at the end.
pub(super) struct ReplayedManifest {
    manifest: Manifest,
    /// The records of each chunk, in order.
    chunks: Vec<Vec<RecordPlace>>,
    /// The chunks by their numbers in the journal.
    by_number: HashMap<u64, u32>,
    patterns: HashMap<Pattern, u32>,
    /// Our numbers of the patterns that the commits since the last cut have.
    of_commits: Vec<u32>,
    spans: HashMap<Vec<u64>, u32>,
    episodes: BTreeMap<u32, Box<[u32]>>,
    tables: Vec<ReplayedRows>,
    /// The number of applied commits that change the tables' content.
    changes: u64,
}

/// Draws of a table that a request held when the journal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The table.
    pub table: String,
    /// The request.
    pub lessee: Lessee,
    /// The slot of each draw's item.
    pub slots: Vec<LeasedSlot>,
}

/// The rows of a table.
#[derive(Default)]
struct ReplayedRows {
    /// The items and their streams, by slot.
    rows: Vec<Option<(SavedItem, u32)>>,
    copies: BTreeMap<u32, i64>,
    sent: BTreeMap<Sender, Arrivals>,
    /// The requests that hold draws of items, by slot.
    leases: BTreeMap<u32, Vec<Lessee>>,
}

impl ReplayedRows {
    fn put(&mut self, item: SavedItem, stream: u32) {
        let slot = item.slot as usize;
        if slot >= self.rows.len() {
            self.rows.resize_with(slot + 1, || None);
        }
        self.rows[slot] = Some((item, stream));
    }
}

/// The identity of a span: its chunks and starts, and its further episodes.
fn content(parts: &[SavedPart], episodes: &[u32]) -> Vec<u64> {
    let mut content = vec![parts.len() as u64];
    for part in parts {
        content.push(part.chunks.len() as u64);
        content.extend(part.chunks.iter().map(|chunk| u64::from(*chunk)));
        content.extend(part.starts.iter().map(|start| *start as u64));
    }
    content.extend(episodes.iter().map(|episode| u64::from(*episode)));
    content
}

impl ReplayedManifest {
    pub(super) fn of(mut manifest: Manifest) -> Self {
        let chunks = std::mem::take(&mut manifest.chunks).into_iter().map(|place| vec![place]).collect();
        let by_number = std::mem::take(&mut manifest.numbers).into_iter().zip(0..).collect();
        let patterns = manifest.patterns.iter().cloned().zip(0..).collect();
        let episodes: BTreeMap<u32, Box<[u32]>> = std::mem::take(&mut manifest.episodes).into_iter().collect();
        let of = |number: u32| episodes.get(&number).map_or(&[][..], |episodes| episodes);
        let spans = manifest.spans.iter().zip(0..).map(|(span, number)| (content(span, of(number)), number)).collect();
        let mut tables = Vec::new();
        for number in 0..manifest.summary.tables.len() {
            let mut rows = ReplayedRows::default();
            let streams = std::mem::take(&mut manifest.streams[number]);
            for (at, item) in std::mem::take(&mut manifest.items[number]).into_iter().enumerate() {
                rows.put(item, streams.get(at).copied().unwrap_or(0));
            }
            rows.copies = std::mem::take(&mut manifest.copies[number]).into_iter().collect();
            rows.sent = std::mem::take(&mut manifest.sent[number]).into_iter().collect();
            tables.push(rows);
        }
        Self { manifest, chunks, by_number, patterns, of_commits: Vec::new(), spans, episodes, tables, changes: 0 }
    }

    /// The number of the manifest, and the place at which the journal continues after it.
    pub(super) fn start(&self) -> (u64, Option<LogStart>) {
        (self.manifest.summary.number, self.manifest.summary.journal)
    }

    /// The first number that no chunk of the journal has.
    pub(super) fn next_chunk(&self) -> u64 {
        self.by_number.keys().max().map_or(1, |number| number + 1)
    }

    /// Adds a record of a chunk: its number, 1 if it continues the chunk, the bytes.
    pub(super) fn part(&mut self, payload: &[u8], place: RecordPlace) -> Decoded<()> {
        let (head, _) = payload.split_at_checked(9).ok_or("a chunk has no number")?;
        let number = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        match (head[8], self.by_number.get(&number)) {
            (0, Some(known)) => self.chunks[*known as usize] = vec![place],
            (0, None) => {
                self.by_number.insert(number, self.chunks.len() as u32);
                self.chunks.push(vec![place]);
            }
            (1, Some(known)) => self.chunks[*known as usize].push(place),
            (1, None) => return Err(format!("a later part of chunk {number} has no first part")),
            (other, _) => return Err(format!("a part of a chunk is of the unknown kind {other}")),
        }
        Ok(())
    }

    /// The number of commits so far without which the tables would have other items, priorities or limits.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn apply(&mut self, commit: Commit) -> Decoded<()> {
        self.changes += u64::from(commit.tables.iter().any(TableChange::has_content));
        let Commit { clock, wall, known, patterns, chunks, spans, episodes, tables, forgotten, .. } = commit;
        let number = |number: &u64| {
            let known = self.by_number.get(number).copied();
            known.ok_or_else(|| format!("an item refers to chunk {number}, which does not exist"))
        };
        let chunks: Vec<u32> = chunks.iter().map(number).collect::<Decoded<_>>()?;
        if known as usize > self.of_commits.len() {
            return Err(format!("a commit expects {known} earlier patterns, and there are {}", self.of_commits.len()));
        }
        self.of_commits.truncate(known as usize);
        for pattern in patterns {
            let number = self.pattern(pattern);
            self.of_commits.push(number);
        }
        let of_commits = std::mem::take(&mut self.of_commits);
        let mut further = episodes.into_iter().peekable();
        let mut numbers = Vec::with_capacity(spans.len());
        for (at, mut span) in spans.into_iter().enumerate() {
            let of = further.next_if(|(of, _)| *of as usize == at).map_or(Box::default(), |(_, of)| of);
            for chunk in span.iter_mut().flat_map(|part| &mut part.chunks) {
                *chunk = chunks[*chunk as usize];
            }
            numbers.push(self.span(span, of));
        }
        for change in tables {
            let at = self.manifest.summary.tables.iter().position(|table| table.options.name == change.name);
            let at = at.ok_or_else(|| format!("a commit changes table '{}', which does not exist", change.name))?;
            self.change(at, change, |item| SavedItem {
                pattern: of_commits[item.pattern as usize],
                body: match item.body {
                    SavedBody::Chunk(number) => SavedBody::Chunk(chunks[number as usize]),
                    SavedBody::Span(number) => SavedBody::Span(numbers[number as usize]),
                },
                ..item
            });
        }
        self.of_commits = of_commits;
        if let Some(forgotten) = forgotten {
            self.manifest.forgotten = forgotten;
        }
        (self.manifest.summary.clock, self.manifest.summary.created) = (clock, wall);
        Ok(())
    }

    fn pattern(&mut self, pattern: Pattern) -> u32 {
        let next = self.manifest.patterns.len() as u32;
        let number = *self.patterns.entry(pattern.clone()).or_insert(next);
        if number == next {
            self.manifest.patterns.push(pattern);
        }
        number
    }

    fn span(&mut self, span: Vec<SavedPart>, episodes: Box<[u32]>) -> u32 {
        let next = self.manifest.spans.len() as u32;
        let number = *self.spans.entry(content(&span, &episodes)).or_insert(next);
        if number == next {
            self.manifest.spans.push(span);
            if !episodes.is_empty() {
                self.episodes.insert(number, episodes);
            }
        }
        number
    }

    fn change(&mut self, at: usize, change: TableChange, ours: impl Fn(SavedItem) -> SavedItem) {
        let (table, summary) = (&mut self.tables[at], &mut self.manifest.summary.tables[at]);
        if change.cleared {
            table.rows.clear();
            table.copies.clear();
            table.leases.clear();
        }
        for slot in change.removed {
            if let Some(row) = table.rows.get_mut(slot as usize) {
                *row = None;
            }
            table.copies.remove(&slot);
            table.leases.remove(&slot);
        }
        for (item, stream) in change.items {
            table.copies.remove(&item.slot);
            table.leases.remove(&item.slot);
            table.put(ours(item), stream);
        }
        table.copies.extend(change.copies);
        for counts in change.counts {
            let Some(Some((item, _))) = table.rows.get_mut(counts.slot as usize) else { continue };
            if item.generation == counts.generation {
                (item.priority, item.version) = (counts.priority, counts.version);
                (item.times_sampled, item.updated) = (counts.times_sampled, counts.updated);
            }
        }
        for (slot, lessees) in change.leases {
            match lessees.is_empty() {
                true => _ = table.leases.remove(&slot),
                false => _ = table.leases.insert(slot, lessees),
            }
        }
        for change in change.senders {
            match change {
                SenderChange::Arrived(sender, number, keys) => {
                    let arrivals = table.sent.entry(sender).or_default();
                    match arrivals.binary_search_by_key(&number, |(number, _)| *number) {
                        Ok(at) => arrivals[at].1 = keys,
                        Err(at) => arrivals.insert(at, (number, keys)),
                    }
                }
                SenderChange::Received(sender, below, numbers) => {
                    if let Some(arrivals) = table.sent.get_mut(&sender) {
                        arrivals.retain(|(number, _)| *number >= below && !numbers.contains(number));
                    }
                }
                SenderChange::Forgotten(sender) => _ = table.sent.remove(&sender),
            }
        }
        (summary.counters, summary.order, summary.allocated) = (change.counters, change.order, change.allocated);
        if let Some(stats) = change.stats {
            summary.stats = stats;
        }
        if let Some(options) = change.options {
            summary.options = options;
        }
    }

    /// The chunks that rows refer to, each with its records.
    pub(super) fn chunks_in_use(&self) -> Vec<(u32, &[RecordPlace])> {
        let rows = self.tables.iter().flat_map(|table| table.rows.iter().flatten());
        let used: BTreeSet<u32> = rows.flat_map(|(item, _)| self.chunks_of(item)).collect();
        used.into_iter().map(|chunk| (chunk, &*self.chunks[chunk as usize])).collect()
    }

    fn chunks_of(&self, item: &SavedItem) -> Vec<u32> {
        match item.body {
            SavedBody::Chunk(chunk) => vec![chunk],
            SavedBody::Span(span) => {
                self.manifest.spans[span as usize].iter().flat_map(|part| part.chunks.iter().copied()).collect()
            }
        }
    }

    /// Deletes the items of these chunks; returns the number of each table.
    pub(super) fn leave_out(&mut self, chunks: &BTreeSet<u32>) -> Vec<(String, u64)> {
        let mut left_out = Vec::new();
        for at in 0..self.tables.len() {
            let rows = self.tables[at].rows.iter().flatten();
            let lost = rows.filter(|(item, _)| self.chunks_of(item).iter().any(|chunk| chunks.contains(chunk)));
            let slots: Vec<u32> = lost.map(|(item, _)| item.slot).collect();
            for slot in &slots {
                self.tables[at].rows[*slot as usize] = None;
                self.tables[at].copies.remove(slot);
                self.tables[at].leases.remove(slot);
            }
            let table = &mut self.manifest.summary.tables[at];
            table.counters.deletes += slots.len() as u64;
            if !slots.is_empty() {
                left_out.push((table.options.name.clone(), slots.len() as u64));
            }
        }
        left_out
    }

    /// The leases of each table, by the request that holds them.
    pub(super) fn leases(&self) -> Vec<HeldLease> {
        let mut held = Vec::new();
        for (table, summary) in self.tables.iter().zip(&self.manifest.summary.tables) {
            let mut by_lessee: BTreeMap<Lessee, Vec<LeasedSlot>> = BTreeMap::new();
            for (slot, lessees) in &table.leases {
                let Some(Some((item, _))) = table.rows.get(*slot as usize) else { continue };
                let leased = LeasedSlot { slot: *slot, generation: item.generation };
                lessees.iter().for_each(|lessee| by_lessee.entry(*lessee).or_default().push(leased));
            }
            let of_table = by_lessee.into_iter();
            held.extend(of_table.map(|(lessee, slots)| HeldLease {
                table: summary.options.name.clone(),
                lessee,
                slots,
            }));
        }
        held
    }

    /// The manifest of the rows as they are now.
    pub(super) fn into_manifest(self) -> Result<Manifest> {
        let Self { mut manifest, chunks, episodes, tables, .. } = self;
        let mut used = Renumbering {
            spans: vec![None; manifest.spans.len()],
            chunks: vec![None; chunks.len()],
            ..Renumbering::default()
        };
        let mut old_spans: Vec<Option<Vec<SavedPart>>> =
            std::mem::take(&mut manifest.spans).into_iter().map(Some).collect();
        for (at, table) in tables.into_iter().enumerate() {
            for (item, stream) in table.rows.into_iter().flatten() {
                let body = match item.body {
                    SavedBody::Chunk(chunk) => SavedBody::Chunk(used.chunk(chunk)),
                    SavedBody::Span(span) => SavedBody::Span(used.span(span, &mut old_spans, &mut manifest, &episodes)),
                };
                manifest.items[at].push(SavedItem { body, ..item });
                manifest.streams[at].push(stream);
            }
            manifest.copies[at] = table.copies.into_iter().collect();
            manifest.sent[at] = table.sent.into_iter().filter(|(_, arrivals)| !arrivals.is_empty()).collect();
            manifest.summary.tables[at].size = manifest.items[at].len() as u64;
        }
        for (number, old) in used.order.iter().enumerate() {
            let parts = &chunks[*old as usize];
            manifest.chunks.push(parts[0]);
            if parts.len() > 1 {
                manifest.parts.insert(number as u32, parts[1..].to_vec());
            }
        }
        let summary = &mut manifest.summary;
        (summary.num_chunks, summary.journal) = (manifest.chunks.len() as u64, None);
        summary.chunk_bytes =
            manifest.chunks.iter().chain(manifest.parts.values().flatten()).map(RecordPlace::size).sum();
        manifest.check().map_err(|what| manifest.damaged(format!("with the commits after it, {what}")))?;
        Ok(manifest)
    }
}

/// The chunks and spans that rows refer to, with their new numbers.
#[derive(Default)]
struct Renumbering {
    chunks: Vec<Option<u32>>,
    spans: Vec<Option<u32>>,
    /// The old numbers of the chunks, by the new ones.
    order: Vec<u32>,
}

impl Renumbering {
    fn chunk(&mut self, old: u32) -> u32 {
        *self.chunks[old as usize].get_or_insert_with(|| {
            self.order.push(old);
            self.order.len() as u32 - 1
        })
    }

    fn span(
        &mut self,
        old: u32,
        spans: &mut [Option<Vec<SavedPart>>],
        manifest: &mut Manifest,
        episodes: &BTreeMap<u32, Box<[u32]>>,
    ) -> u32 {
        if let Some(known) = self.spans[old as usize] {
            return known;
        }
        let mut span = spans[old as usize].take().expect("a span is moved once");
        for chunk in span.iter_mut().flat_map(|part| &mut part.chunks) {
            *chunk = self.chunk(*chunk);
        }
        let new = manifest.spans.len() as u32;
        manifest.spans.push(span);
        if let Some(episodes) = episodes.get(&old) {
            manifest.episodes.push((new, episodes.clone()));
        }
        self.spans[old as usize] = Some(new);
        new
    }
}
