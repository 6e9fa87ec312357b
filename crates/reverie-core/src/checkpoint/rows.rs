//! Items, and the runs of chunks that they share, as bytes with numbers in place of references.

use super::bytes::{Bytes, Decoded, Reader};
use crate::item::{Item, Part};
use crate::table::{Age, Slot};

/// Items of a section.
pub(crate) const ITEMS_AT_ONCE: usize = 4096;

/// One item, with its references as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedItem {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) priority: f64,
    pub(crate) version: u32,
    pub(crate) times_sampled: u32,
    pub(crate) inserted_at: u64,
    pub(crate) inserted: u64,
    pub(crate) updated: u64,
    pub(crate) episode: u32,
    pub(crate) anchor: u32,
    pub(crate) pattern: u32,
    pub(crate) body: SavedBody,
}

/// The body of a saved item, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedBody {
    Chunk(u32),
    Span(u32),
}

/// One part of a span.
#[derive(Debug)]
pub(crate) struct SavedPart {
    pub(crate) chunks: Vec<u32>,
    pub(crate) starts: Vec<i64>,
}

/// The item in an occupied slot; the numbers are those of its pattern and body.
pub(crate) fn saved(index: u32, slot: &Slot, age: &Age, item: &Item, (pattern, body): (u32, SavedBody)) -> SavedItem {
    SavedItem {
        slot: index,
        generation: slot.generation,
        priority: slot.priority(),
        version: slot.version(),
        times_sampled: slot.times_sampled(),
        inserted_at: slot.inserted_at,
        inserted: age.inserted,
        updated: age.updated(),
        episode: item.episode,
        anchor: item.anchor,
        pattern,
        body,
    }
}

pub(crate) fn put_saved(out: &mut Bytes, item: &SavedItem) {
    out.u32(item.slot);
    out.u32(item.generation);
    out.f64(item.priority);
    out.u32(item.version);
    out.u32(item.times_sampled);
    out.u64(item.inserted_at);
    out.u64(item.inserted);
    out.u64(item.updated);
    out.u32(item.episode);
    out.u32(item.anchor);
    out.u32(item.pattern);
    let (kind, number) = match item.body {
        SavedBody::Chunk(number) => (0, number),
        SavedBody::Span(number) => (1, number),
    };
    out.u8(kind);
    out.u32(number);
}

pub(crate) fn item(from: &mut Reader<'_>) -> Decoded<SavedItem> {
    Ok(SavedItem {
        slot: from.u32()?,
        generation: from.u32()?,
        priority: from.f64()?,
        version: from.u32()?,
        times_sampled: from.u32()?,
        inserted_at: from.u64()?,
        inserted: from.u64()?,
        updated: from.u64()?,
        episode: from.u32()?,
        anchor: from.u32()?,
        pattern: from.u32()?,
        body: match (from.u8()?, from.u32()?) {
            (0, number) => SavedBody::Chunk(number),
            (1, number) => SavedBody::Span(number),
            (other, _) => return Err(format!("an item with a body of kind {other}")),
        },
    })
}

/// Writes a span; `number` returns the number of a chunk.
pub(crate) fn put_span(out: &mut Bytes, parts: &[Part], number: impl Fn(&std::sync::Arc<crate::chunk::Chunk>) -> u32) {
    out.all(parts, |out, part| {
        out.all(&part.chunks, |out, chunk| out.u32(number(chunk)));
        out.all(&part.starts, |out, start| out.u64(*start as u64));
    });
}

/// Writes the number of a span, and the further episodes of its items.
pub(crate) fn put_episodes(out: &mut Bytes, (span, episodes): &(u32, Box<[u32]>)) {
    out.u32(*span);
    out.all(episodes, |out, episode| out.u32(*episode));
}

pub(crate) fn episodes(from: &mut Reader<'_>) -> Decoded<(u32, Box<[u32]>)> {
    let (span, episodes) = (from.u32()?, from.all(Reader::u32)?);
    match episodes.contains(&0) {
        true => Err(format!("the run {span} of an episode that there is not")),
        false => Ok((span, episodes.into())),
    }
}

pub(crate) fn span(from: &mut Reader<'_>) -> Decoded<Vec<SavedPart>> {
    from.all(|from| {
        let chunks = from.all(Reader::u32)?;
        let starts = from.all(|from| Ok(from.u64()? as i64))?;
        if starts.len() != chunks.len() + 1 || starts.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("a run of chunks that do not follow one another".to_owned());
        }
        Ok(SavedPart { chunks, starts })
    })
}
