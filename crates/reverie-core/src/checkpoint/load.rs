//! Reads a checkpoint back: all of it is read and checked before any table gets an item.

use super::manifest::Manifest;
use super::names;
use super::rows::{SavedBody, SavedItem};
use super::segment::{RecordPlace, SegmentReader};
use super::summary::Summary;
use crate::append::{next_episode, next_stream};
use crate::chunk::{Chunk, Meter, Restorer};
use crate::disk::{Disk, folder_of, read_error};
use crate::error::{Error, Result};
use crate::item::{Body, Form, Item, Key, Part, Span};
use crate::table::{Row, Sender, TableContents};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

/// A checkpoint in memory, complete, and checked except for chunks that were left on the disk.
#[derive(Debug)]
pub struct Checkpoint {
    /// The summary of the checkpoint.
    pub summary: Summary,
    /// The content of each table; times are those of the clock that the checkpoint was taken with.
    pub(crate) tables: Vec<TableContents>,
    /// Senders whose inserts may be retried although the checkpoint no longer has which of them are done.
    pub(crate) forgotten: Vec<Sender>,
    /// Every chunk and its place on the disk.
    pub(crate) chunks: Vec<(Weak<Chunk>, RecordPlace)>,
}

/// The result of [`verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedCheckpoint {
    /// Items.
    pub items: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of manifest and chunks.
    pub bytes: u64,
}

/// Reads the checkpoint at `path`. Takes as much memory as the items.
///
/// Its chunks count in `meter` for as long as they live. `DamagedFile` names the part that is not as it was written.
pub fn load(disk: &dyn Disk, path: &Path, meter: &Arc<Meter>) -> Result<Checkpoint> {
    load_manifest(disk, Manifest::read(disk, path)?, meter, false)
}

/// The checkpoint of a manifest whose chunks are in the segments of its folder.
///
/// Those of one record are not read if they may be `left` on the disk, and `meter` has a disk tier: damage in one is
/// found by the first read of it. No other process may change the segments then.
pub(crate) fn load_manifest(
    disk: &dyn Disk,
    mut manifest: Manifest,
    meter: &Arc<Meter>,
    left: bool,
) -> Result<Checkpoint> {
    let root = folder_of(&manifest.summary.path);
    let mut chunks: Vec<Option<Arc<Chunk>>> = vec![None; manifest.chunks.len()];
    let mut restorer = Restorer::new(meter);
    let mut parts: HashMap<usize, Vec<Vec<u8>>> = HashMap::new();
    each_chunk(disk, &root, &manifest.chunks, |number, place, segment| {
        if manifest.parts.contains_key(&(number as u32)) {
            parts.insert(number, vec![segment.read(place)?.to_vec()]);
        } else if left && restorer.leaves(place.length) {
            chunks[number] = Some(leave(disk, &root, &mut restorer, place, segment)?);
        } else {
            chunks[number] = Some(restorer.chunk(segment.read(place)?)?);
        }
        Ok(())
    })?;
    let later: Vec<(usize, RecordPlace)> =
        manifest.parts.iter().flat_map(|(number, of)| of.iter().map(|place| (*number as usize, *place))).collect();
    let places: Vec<RecordPlace> = later.iter().map(|(_, place)| *place).collect();
    // A later part of a chunk has a later place.
    each_chunk(disk, &root, &places, |at, place, segment| {
        let bytes = segment.read(place)?;
        parts.get_mut(&later[at].0).expect("the first part was read").push(bytes.to_vec());
        Ok(())
    })?;
    for (number, parts) in parts {
        let joined =
            restorer.joined(&parts).map_err(|error| manifest.damaged(format!("a chunk of several parts: {error}")))?;
        chunks[number] = Some(joined);
    }
    let chunk = |number: u32| Arc::clone(chunks[number as usize].as_ref().expect("every chunk was read"));
    let (mut episodes, mut streams) = (HashMap::new(), HashMap::new());
    let mut further = std::mem::take(&mut manifest.episodes).into_iter().peekable();
    let spans: Vec<Arc<Span>> = std::mem::take(&mut manifest.spans)
        .into_iter()
        .enumerate()
        .map(|(number, span)| {
            let part = |part: super::rows::SavedPart| Part {
                chunks: part.chunks.into_iter().map(chunk).collect(),
                starts: part.starts.into(),
            };
            let theirs = further.next_if(|(of, _)| *of as usize == number).map_or(Box::default(), |(_, theirs)| theirs);
            let episodes = theirs.iter().map(|episode| ours(&mut episodes, *episode)).collect();
            Arc::new(Span { parts: span.into_iter().map(part).collect(), episodes })
        })
        .collect();
    let forms: Vec<Form> = std::mem::take(&mut manifest.patterns).into_iter().map(Form::new).collect();
    let mut tables = Vec::with_capacity(manifest.items.len());
    for (number, saved) in std::mem::take(&mut manifest.items).into_iter().enumerate() {
        let theirs = std::mem::take(&mut manifest.streams[number]);
        let mut stream = |index: usize| match theirs.get(index) {
            None | Some(0) => 0,
            Some(stream) => *streams.entry(*stream).or_insert_with(next_stream),
        };
        let item = |saved: &SavedItem, stream| Item {
            body: match saved.body {
                SavedBody::Chunk(number) => Body::Chunk(chunk(number)),
                SavedBody::Span(number) => Body::Span(Arc::clone(&spans[number as usize])),
            },
            pattern: forms[saved.pattern as usize].clone(),
            anchor: saved.anchor,
            episode: 0,
            stream,
        };
        let copies: HashMap<u32, i64> = std::mem::take(&mut manifest.copies[number]).into_iter().collect();
        let rows = saved.iter().enumerate().map(|(index, saved)| {
            let row = row(saved, item(saved, stream(index)), &mut episodes, &manifest)?;
            Ok(Row { copy_of: copies.get(&saved.slot).map(|key| Key::from(*key)), ..row })
        });
        tables.push(restoring(&manifest, number, rows.collect::<Result<_>>()?));
    }
    // A chunk of several parts is written again as a whole.
    let whole = |number: usize| !manifest.parts.contains_key(&(number as u32));
    let chunks = chunks.iter().flatten().map(Arc::downgrade).zip(manifest.chunks.iter().copied()).enumerate();
    let chunks = chunks.filter(|(number, _)| whole(*number)).map(|(_, chunk)| chunk).collect();
    Ok(Checkpoint { summary: manifest.summary, tables, forgotten: manifest.forgotten, chunks })
}

/// Checks every byte of the checkpoint at `path`, with one chunk in memory at a time.
pub fn verify(disk: &dyn Disk, path: &Path) -> Result<VerifiedCheckpoint> {
    let manifest = Manifest::read(disk, path)?;
    let mut restorer = Restorer::new(&Arc::new(Meter::new()));
    each_chunk(disk, &folder_of(path), &manifest.chunks, |_, place, segment| {
        restorer.chunk(segment.read(place)?)?.read().map(|_| ())
    })?;
    let Summary { manifest_bytes, chunk_bytes, num_chunks, .. } = manifest.summary;
    let items = manifest.items.iter().map(|items| items.len() as u64).sum();
    Ok(VerifiedCheckpoint { items, chunks: num_chunks, bytes: manifest_bytes + chunk_bytes })
}

/// The damage of each of these chunks, which are given by their records, and its number; reads them in the order on the
/// disk.
pub(crate) fn damage(disk: &dyn Disk, root: &Path, chunks: &[(u32, &[RecordPlace])]) -> Result<Vec<(u32, Error)>> {
    let mut restorer = Restorer::new(&Arc::new(Meter::new()));
    let mut places: Vec<(RecordPlace, usize)> = (chunks.iter().enumerate())
        .flat_map(|(at, (_, places))| places.iter().map(move |place| (*place, at)))
        .collect();
    places.sort_unstable_by_key(|(place, _)| (place.segment, place.offset));
    let mut damage: Vec<Option<Error>> = vec![None; chunks.len()];
    let mut parts: HashMap<usize, Vec<Vec<u8>>> = HashMap::new();
    let mut open: Option<(u64, Result<SegmentReader>)> = None;
    for (place, at) in places {
        let segment = match &mut open {
            Some((segment, reader)) if *segment == place.segment => reader,
            other => &mut other.insert((place.segment, SegmentReader::open(disk, root, place.segment))).1,
        };
        let segment = match segment {
            Ok(segment) => segment,
            Err(error) => {
                damage[at].get_or_insert(error.clone());
                continue;
            }
        };
        let found = segment.read(&place).and_then(|bytes| match chunks[at].1.len() {
            1 => restorer.chunk(bytes)?.read().map(|_| ()),
            _ => {
                parts.entry(at).or_default().push(bytes.to_vec());
                Ok(())
            }
        });
        if let Err(error) = found {
            damage[at].get_or_insert(segment.named(&place, error));
        }
    }
    for (at, parts) in parts {
        if damage[at].is_none() {
            damage[at] = restorer.joined(&parts).and_then(|chunk| chunk.read().map(|_| ())).err();
        }
    }
    Ok(chunks.iter().zip(damage).filter_map(|((number, _), error)| Some((*number, error?))).collect())
}

/// A chunk that stays on the disk.
fn leave(
    disk: &dyn Disk,
    root: &Path,
    restorer: &mut Restorer,
    place: &RecordPlace,
    segment: &SegmentReader,
) -> Result<Arc<Chunk>> {
    let record = segment.chunk_record(place)?;
    let from = record.at.offset;
    let path = names::segment(root, place.segment);
    let open = || Ok((path.clone(), disk.open(&path).map_err(read_error(&path, 0))?));
    restorer.leave(&record, |offset, into| segment.read_at(from + offset, into), open)
}

/// Passes every chunk to `each` with its number, its place and its segment, in the order on the disk.
fn each_chunk(
    disk: &dyn Disk,
    root: &Path,
    places: &[RecordPlace],
    mut each: impl FnMut(usize, &RecordPlace, &mut SegmentReader) -> Result<()>,
) -> Result<()> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_unstable_by_key(|number| (places[*number].segment, places[*number].offset));
    let mut open: Option<(u64, SegmentReader)> = None;
    for number in order {
        let place = &places[number];
        let segment = match &mut open {
            Some((segment, reader)) if *segment == place.segment => reader,
            other => &mut other.insert((place.segment, SegmentReader::open(disk, root, place.segment)?)).1,
        };
        let taken = each(number, place, segment);
        taken.map_err(|error| segment.named(place, error))?;
    }
    Ok(())
}

/// The number that a checkpoint's episode has in this process.
fn ours(episodes: &mut HashMap<u32, u32>, theirs: u32) -> u32 {
    *episodes.entry(theirs).or_insert_with(next_episode)
}

/// The item and its table row, in an episode that no writer of this process will begin.
fn row(saved: &SavedItem, mut item: Item, episodes: &mut HashMap<u32, u32>, manifest: &Manifest) -> Result<Row> {
    item.check().map_err(|error| manifest.damaged(format!("an item refers to cells that do not exist: {error}")))?;
    item.episode = match saved.episode {
        0 => 0,
        episode => ours(episodes, episode),
    };
    if !saved.priority.is_finite() {
        return Err(manifest.damaged(format!("an item has the invalid priority {}", saved.priority)));
    }
    Ok(Row {
        item,
        slot: saved.slot,
        generation: saved.generation,
        priority: saved.priority,
        version: saved.version,
        times_sampled: saved.times_sampled,
        inserted_at: saved.inserted_at,
        inserted: saved.inserted,
        updated: saved.updated,
        copy_of: None,
    })
}

fn restoring(manifest: &Manifest, number: usize, rows: Vec<Row>) -> TableContents {
    let table = &manifest.summary.tables[number];
    TableContents {
        counters: table.counters,
        stats: table.stats.clone(),
        order: table.order,
        shard: table.options.shard,
        rows,
        sent: manifest.sent[number].clone(),
    }
}

impl Checkpoint {
    /// Number of items of all tables.
    pub fn num_items(&self) -> u64 {
        self.tables.iter().map(|table| table.rows.len() as u64).sum()
    }
}
