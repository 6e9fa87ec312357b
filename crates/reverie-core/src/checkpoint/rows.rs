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
            (other, _) => return Err(format!("an item has a body of the unknown kind {other}")),
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
        true => Err(format!("the run {span} refers to an episode that does not exist")),
        false => Ok((span, episodes.into())),
    }
}

pub(crate) fn span(from: &mut Reader<'_>) -> Decoded<Vec<SavedPart>> {
    from.all(|from| {
        let chunks = from.all(Reader::u32)?;
        let starts = from.all(|from| Ok(from.u64()? as i64))?;
        if starts.len() != chunks.len() + 1 || starts.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("the chunks of a run do not follow one another".to_owned());
        }
        Ok(SavedPart { chunks, starts })
    })
}

/// Checks the chunks of spans, and the order of their further episodes.
pub(crate) fn check_spans(spans: &[Vec<SavedPart>], episodes: &[(u32, Box<[u32]>)], chunks: usize) -> Decoded<()> {
    let mut of_spans = spans.iter().flatten().flat_map(|part| &part.chunks);
    if let Some(chunk) = of_spans.find(|chunk| **chunk as usize >= chunks) {
        return Err(format!("a run refers to chunk {chunk}, which does not exist"));
    }
    let beyond = episodes.last().is_some_and(|(span, _)| *span as usize >= spans.len());
    if beyond || !episodes.is_sorted_by(|(one, _), (next, _)| one < next) {
        return Err("episodes are unsorted, or refer to a run that does not exist".to_owned());
    }
    Ok(())
}

/// Checks an item of a table against the numbers of chunks, spans and patterns.
pub(crate) fn check_item(
    item: &SavedItem,
    table: &str,
    (chunks, spans, patterns): (usize, usize, usize),
) -> Decoded<()> {
    let has_body = match item.body {
        SavedBody::Chunk(chunk) => (chunk as usize) < chunks,
        SavedBody::Span(span) => (span as usize) < spans,
    };
    match has_body && (item.pattern as usize) < patterns {
        true => Ok(()),
        false => Err(format!("an item of table '{table}' refers to a chunk, run or pattern that does not exist")),
    }
}

/// Checks a slot of a table.
pub(crate) fn check_slot(slot: u32, table: &str, allocated: u32) -> Decoded<()> {
    match slot < allocated {
        true => Ok(()),
        false => Err(format!("slot {slot} of table '{table}' is beyond its {allocated} slots")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_nothing_is_refused_with_its_number_and_the_name_of_its_table() {
        let spans = [vec![SavedPart { chunks: vec![0, 2], starts: vec![0, 1, 2] }]];
        assert_eq!(check_spans(&spans, &[(0, [7].into())], 3), Ok(()));
        let chunk = "a run refers to chunk 2, which does not exist";
        assert_eq!(check_spans(&spans, &[], 2), Err(chunk.to_owned()));
        let episodes = "episodes are unsorted, or refer to a run that does not exist";
        assert_eq!(check_spans(&spans, &[(1, [7].into())], 3), Err(episodes.to_owned()));
        assert_eq!(check_spans(&spans, &[(0, [7].into()), (0, [8].into())], 3), Err(episodes.to_owned()));

        let item = |body, pattern| SavedItem {
            slot: 4,
            generation: 0,
            priority: 1.0,
            version: 0,
            times_sampled: 0,
            inserted_at: 0,
            inserted: 0,
            updated: 0,
            episode: 1,
            anchor: 0,
            pattern,
            body,
        };
        let check = |body, pattern| check_item(&item(body, pattern), "t", (3, 2, 1));
        assert_eq!([check(SavedBody::Chunk(2), 0), check(SavedBody::Span(1), 0)], [Ok(()), Ok(())]);
        let nothing = "an item of table 't' refers to a chunk, run or pattern that does not exist";
        for (body, pattern) in [(SavedBody::Chunk(3), 0), (SavedBody::Span(2), 0), (SavedBody::Chunk(0), 1)] {
            assert_eq!(check(body, pattern), Err(nothing.to_owned()));
        }

        assert_eq!(check_slot(4, "t", 5), Ok(()));
        assert_eq!(check_slot(5, "t", 5), Err("slot 5 of table 't' is beyond its 5 slots".to_owned()));
    }
}
