//! A commit as bytes.
//!
//! Little-endian: `"REVCOMIT" | number u64 | segment u64 and offset u64 up to which everything was on the disk | clock
//! u64 | wall clock u64 | known u32 | patterns | chunks | spans | episodes | tables | forgotten senders`. Chunks and
//! spans are numbered within the commit; a chunk has the number that its records have. Patterns are numbered since the
//! last cut: those of the commit follow the `known` ones of the commits before, which are none after a cut. The tables
//! are identified by name.

use crate::checkpoint::bytes::{Bytes, Decoded, Reader};
use crate::checkpoint::records;
use crate::checkpoint::rows::{self, SavedItem, SavedPart};
use crate::checkpoint::segment::{RecordKind, SegmentReader};
use crate::checkpoint::sent;
use crate::disk::Disk;
use crate::error::Result;
use crate::item::{Key, Pattern};
use crate::table::limiter::Counters;
use crate::table::{Counts, Lessee, Sender, SenderChange, Stats, TableOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The first bytes of a commit, so that one can be found among damaged records.
pub(super) const MAGIC: [u8; 8] = *b"REVCOMIT";

/// A commit that was read.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) number: u64,
    /// The reading of the tables' clock.
    pub(super) clock: Duration,
    /// Time since the Unix epoch.
    pub(super) wall: Duration,
    /// The number of patterns of the commits before.
    pub(super) known: u32,
    /// The patterns that this commit adds.
    pub(super) patterns: Vec<Pattern>,
    /// The numbers of the chunks in the journal.
    pub(super) chunks: Vec<u64>,
    pub(super) spans: Vec<Vec<SavedPart>>,
    pub(super) episodes: Vec<(u32, Box<[u32]>)>,
    pub(super) tables: Vec<TableChange>,
    /// All forgotten senders, if they changed.
    pub(super) forgotten: Option<Vec<Sender>>,
}

/// The changes of one table, as read.
#[derive(Debug)]
pub(super) struct TableChange {
    pub(super) name: String,
    pub(super) options: Option<TableOptions>,
    pub(super) cleared: bool,
    pub(super) counters: Counters,
    pub(super) stats: Option<Stats>,
    pub(super) order: u64,
    pub(super) allocated: u32,
    pub(super) removed: Vec<u32>,
    /// Items with their streams.
    pub(super) items: Vec<(SavedItem, u32)>,
    pub(super) copies: Vec<(u32, i64)>,
    pub(super) counts: Vec<Counts>,
    /// The requests that hold draws of items, by slot.
    pub(super) leases: Vec<(u32, Vec<Lessee>)>,
    pub(super) senders: Vec<SenderChange>,
}

impl TableChange {
    /// True if the table has other items, priorities or limits after it, and not only leases or marks of senders.
    pub(super) fn has_content(&self) -> bool {
        // Draws that are leased are undone in the counts of their items.
        let leased: BTreeSet<u32> =
            self.leases.iter().filter(|(_, by)| !by.is_empty()).map(|(slot, _)| *slot).collect();
        let changes_counts = self.counts.iter().any(|counts| !leased.contains(&counts.slot));
        self.cleared || self.options.is_some() || changes_counts || !self.removed.is_empty() || !self.items.is_empty()
    }
}

/// Appends a value as a MessagePack record with its length.
pub(super) fn put_record<T: Serialize>(out: &mut Bytes, value: &T) {
    let mut record = Bytes::default();
    record.record(value);
    out.u32(record.0.len() as u32);
    out.0.extend_from_slice(&record.0);
}

fn record<T: Serialize + DeserializeOwned>(from: &mut Reader<'_>) -> Decoded<T> {
    let length = from.u32()? as usize;
    Reader::new(from.take(length)?).record()
}

pub(super) fn put_optional<T>(out: &mut Bytes, value: Option<&T>, put: impl FnOnce(&mut Bytes, &T)) {
    out.u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn flag(from: &mut Reader<'_>) -> Decoded<bool> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("a flag of {other}; it must be 0 or 1")),
    }
}

fn optional<T>(from: &mut Reader<'_>, read: impl FnOnce(&mut Reader<'_>) -> Decoded<T>) -> Decoded<Option<T>> {
    match flag(from)? {
        true => read(from).map(Some),
        false => Ok(None),
    }
}

pub(super) fn put_counts(out: &mut Bytes, counts: &Counts) {
    out.u32(counts.slot);
    out.u32(counts.generation);
    out.f64(counts.priority);
    out.u32(counts.version);
    out.u32(counts.times_sampled);
    out.u64(counts.updated);
}

fn counts(from: &mut Reader<'_>) -> Decoded<Counts> {
    Ok(Counts {
        slot: from.u32()?,
        generation: from.u32()?,
        priority: from.f64()?,
        version: from.u32()?,
        times_sampled: from.u32()?,
        updated: from.u64()?,
    })
}

pub(super) fn put_lessee(out: &mut Bytes, lessee: &Lessee) {
    out.0.extend_from_slice(&lessee.sender);
    out.u64(lessee.request);
}

fn lessee(from: &mut Reader<'_>) -> Decoded<Lessee> {
    Ok(Lessee { sender: sent::name(from)?, request: from.u64()? })
}

pub(super) fn put_sender_change(out: &mut Bytes, change: &SenderChange) {
    let mut head = |kind: u8, sender: &Sender| {
        out.u8(kind);
        out.0.extend_from_slice(sender);
    };
    match change {
        SenderChange::Arrived(sender, number, keys) => {
            head(0, sender);
            out.u64(*number);
            out.all(keys, |out, key| out.u64(key.get() as u64));
        }
        SenderChange::Received(sender, below, numbers) => {
            head(1, sender);
            out.u64(*below);
            out.all(numbers, |out, number| out.u64(*number));
        }
        SenderChange::Forgotten(sender) => head(2, sender),
    }
}

fn sender_change(from: &mut Reader<'_>) -> Decoded<SenderChange> {
    let (kind, sender) = (from.u8()?, sent::name(from)?);
    Ok(match kind {
        0 => {
            let number = from.u64()?;
            let keys = from.all(Reader::u64)?;
            if keys.iter().any(|key| i64::try_from(*key).is_err()) {
                return Err("a key has more than 63 bits".to_owned());
            }
            SenderChange::Arrived(sender, number, keys.into_iter().map(|key| Key::from(key as i64)).collect())
        }
        1 => SenderChange::Received(sender, from.u64()?, from.all(Reader::u64)?),
        2 => SenderChange::Forgotten(sender),
        other => return Err(format!("a sender's change of the unknown kind {other}")),
    })
}

pub(super) fn put_counters(out: &mut Bytes, counters: &Counters) {
    out.u64(counters.inserts);
    out.u64(counters.samples);
    out.u64(counters.deletes);
}

fn change(from: &mut Reader<'_>) -> Decoded<TableChange> {
    let length = from.u32()? as usize;
    let name = String::from_utf8(from.take(length)?.to_vec()).map_err(|error| error.to_string())?;
    Ok(TableChange {
        name,
        options: optional(from, record)?,
        cleared: flag(from)?,
        counters: Counters { inserts: from.u64()?, samples: from.u64()?, deletes: from.u64()? },
        stats: optional(from, record)?,
        order: from.u64()?,
        allocated: from.u32()?,
        removed: from.all(Reader::u32)?,
        items: from.all(|from| Ok((rows::item(from)?, from.u32()?)))?,
        copies: from.all(|from| Ok((from.u32()?, from.u64()? as i64)))?,
        counts: from.all(counts)?,
        leases: from.all(|from| Ok((from.u32()?, from.all(lessee)?)))?,
        senders: from.all(sender_change)?,
    })
}

impl Commit {
    /// Reads the head of a commit: its number, and the segment and offset up to which everything was on the disk.
    pub(super) fn head(from: &mut Reader<'_>) -> Decoded<(u64, (u64, u64))> {
        if from.take(MAGIC.len())? != MAGIC {
            return Err("this is not the head of a commit".to_owned());
        }
        Ok((from.u64()?, (from.u64()?, from.u64()?)))
    }

    /// Reads a commit, and checks the numbers that it refers to its own parts by.
    pub(super) fn read(payload: &[u8]) -> Decoded<Self> {
        let mut from = Reader::new(payload);
        let (number, _) = Self::head(&mut from)?;
        let (clock, wall) = (Duration::from_nanos(from.u64()?), Duration::from_nanos(from.u64()?));
        let known = from.u32()?;
        let patterns = optional(&mut from, |from| {
            let length = from.u32()? as usize;
            records::patterns(&mut Reader::new(from.take(length)?))
        })?
        .unwrap_or_default();
        let commit = Self {
            number,
            clock,
            wall,
            known,
            patterns,
            chunks: from.all(Reader::u64)?,
            spans: from.all(rows::span)?,
            episodes: from.all(rows::episodes)?,
            tables: from.all(change)?,
            forgotten: optional(&mut from, |from| from.all(sent::name))?,
        };
        from.end()?;
        commit.check()?;
        Ok(commit)
    }

    fn check(&self) -> Decoded<()> {
        let (chunks, spans, patterns) =
            (self.chunks.len(), self.spans.len(), self.known as usize + self.patterns.len());
        rows::check_spans(&self.spans, &self.episodes, chunks)?;
        for change in &self.tables {
            for (item, _) in &change.items {
                rows::check_item(item, &change.name, (chunks, spans, patterns))?;
            }
            let slots = change.items.iter().map(|(item, _)| &item.slot);
            let slots = slots.chain(&change.removed).chain(change.copies.iter().map(|(slot, _)| slot));
            let slots = slots.chain(change.leases.iter().map(|(slot, _)| slot));
            let mut slots = slots.chain(change.counts.iter().map(|counts| &counts.slot));
            slots.try_for_each(|slot| rows::check_slot(*slot, &change.name, change.allocated))?;
        }
        Ok(())
    }
}

/// Calls `is_it` with the number of each whole commit of a segment from this offset on, and the position that it records
/// as on the disk, until that returns true; returns whether it did.
///
/// The bytes before a commit may be damaged, including the head of the segment.
pub(super) fn commits_in(
    disk: &dyn Disk,
    root: &Path,
    number: u64,
    from: u64,
    mut is_it: impl FnMut(u64, (u64, u64)) -> bool,
) -> Result<bool> {
    let mut reader = SegmentReader::open_unchecked(disk, root, number)?;
    // The magic follows the head of its record.
    let rest = reader.rest(from)?;
    let found = rest.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| **bytes == MAGIC);
    let offsets: Vec<u64> = found.filter_map(|(at, _)| (from + at as u64).checked_sub(12)).collect();
    for offset in offsets {
        let Some((RecordKind::Commit, _, payload)) = reader.record(offset)? else { continue };
        if Commit::head(&mut Reader::new(payload)).is_ok_and(|(number, synced)| is_it(number, synced)) {
            return Ok(true);
        }
    }
    Ok(false)
}
