//! Takes checkpoints.

use super::disk::{Disk, folder_of, storage};
use super::load::Checkpoint;
use super::manifest;
use super::names;
use super::plan::Plan;
use super::retain::{Found, Keep, Newest, clean_up, retain, scan};
use super::section::SectionWriter;
use super::segment::{Place, SegmentWriter};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::table::{Cuts, Tables};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The size in bytes after which a new segment begins.
const SEGMENT_BYTES: u64 = 256 << 20;
/// A segment of which less than this fraction (1 / `SPARSE`) is in use is abandoned.
///
/// The used part is written again, so that the disk holds at most about this many times the live bytes, and not a
/// segment for each remaining chunk.
const SPARSE: u64 = 4;

/// The outcome of taking a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The checkpoint: its manifest.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// Items of all tables.
    pub items: u64,
    /// Chunks of all items.
    pub chunks: u64,
    /// Chunks that were not on the disk yet.
    pub new_chunks: u64,
    /// Bytes written, manifest included.
    pub written: u64,
    /// How long the tables were locked.
    pub pause: Duration,
    /// Bytes of memory set aside for changes during the checkpoint, see [`Tables::spare`].
    pub spare: u64,
    /// Bytes of it that were used.
    pub spare_used: u64,
    /// The error that left unneeded checkpoints or segments behind; `None` if they are gone.
    pub left_behind: Option<Error>,
}

/// A folder of checkpoints that one server writes.
pub struct Store {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    keep: Keep,
    segment_bytes: u64,
    /// Guards the record of what this store wrote to the disk.
    ///
    /// It is held while a checkpoint is taken, so that there is one at a time. No table waits for it.
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// Held from the first checkpoint on: two servers in one folder would remove each other's files.
    lock: Option<Box<dyn Send>>,
    /// The number of the latest checkpoint.
    newest: Option<u64>,
    segment: Option<SegmentWriter>,
    /// The places of the newest checkpoint's chunks, by their addresses, ascending.
    ///
    /// The weak references prevent the reuse of the addresses.
    chunks: Vec<OnDisk>,
}

#[derive(Clone)]
struct OnDisk {
    chunk: Weak<Chunk>,
    /// The number of saved cells, see [`Chunk::published`].
    cells: u64,
    place: Place,
}

impl OnDisk {
    fn address(&self) -> usize {
        self.chunk.as_ptr() as usize
    }
}

impl Store {
    /// A store in `root`, which need not exist: the first checkpoint creates it.
    pub fn new(disk: Arc<dyn Disk>, root: PathBuf, keep: Keep) -> Result<Self> {
        if keep.count == 0 {
            return Err(Error::InvalidArgument("keep must be at least 1: the newest checkpoint stays".to_owned()));
        }
        Ok(Self { disk, root, keep, segment_bytes: SEGMENT_BYTES, written: Mutex::default() })
    }

    /// The same with smaller segments, for tests.
    pub fn with_segment_bytes(self, segment_bytes: u64) -> Self {
        Self { segment_bytes, ..self }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Continues from a checkpoint of this folder that was just loaded and will be restored.
    ///
    /// Its chunks on the disk are not written again. Does nothing for a checkpoint of another folder.
    pub fn adopt(&self, checkpoint: &Checkpoint) {
        if folder_of(&checkpoint.summary.path) != self.root {
            return;
        }
        let on_disk = |(chunk, place): &(Weak<Chunk>, Place)| {
            let cells = chunk.upgrade()?.published();
            Some(OnDisk { chunk: chunk.clone(), cells, place: *place })
        };
        let mut chunks: Vec<OnDisk> = checkpoint.chunks.iter().filter_map(on_disk).collect();
        chunks.sort_unstable_by_key(OnDisk::address);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written = Written { newest: Some(checkpoint.summary.number), chunks, ..Written::default() };
    }

    /// Takes a checkpoint of all tables. Blocks until it is on the disk, and while another is being taken.
    ///
    /// The tables are locked only while references to them are taken. `now` is the time since the Unix epoch.
    ///
    /// On an error the earlier checkpoints are intact, and what was written is removed as far as the disk allows, so
    /// that it is no fuller than before. `Closed` for tables that are closed, `Storage` if another server saves in the
    /// folder.
    pub fn save(&self, tables: &Tables, now: Duration) -> Result<Saved> {
        self.take(tables, now, false)
    }

    /// As [`save`](Self::save), for closed tables, before the folder is released.
    ///
    /// This checkpoint contains everything that was ever acknowledged.
    pub fn save_last(&self, tables: &Tables, now: Duration) -> Result<Saved> {
        self.take(tables, now, true)
    }

    fn take(&self, tables: &Tables, now: Duration, last: bool) -> Result<Saved> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !last {
            // Check before the folder is locked: a closed server has released it.
            tables.check_open()?;
        }
        self.disk.make_folder(&self.root).map_err(storage("make the folder", &self.root))?;
        self.lock(&mut written)?;
        let before = scan(&*self.disk, &self.root)?;
        if written.newest.is_some() && before.manifests.last().copied() > written.newest {
            return Err(self.refusal("another server took a checkpoint there since this one's last"));
        }
        // Another process may have deleted files.
        written.segment.take_if(|segment| !before.segments.contains(&segment.number));
        // Nothing changes a closed table.
        let spared = (!last).then(|| tables.spare());
        let cuts = if last { tables.last_cut() } else { tables.cut() }?;
        let kept = written.segment.as_ref().map(|segment| (segment.number, segment.end));
        let saved = self.write(&mut written, &before, &cuts, now);
        drop(cuts);
        let spare = spared.map_or((0, 0), |spared| (spared.size_bytes(), spared.take_back()));
        if saved.is_err() {
            // The content after its last sync is unknown: the next checkpoint begins another segment.
            written.segment = None;
            clean_up(&*self.disk, &self.root, &before, kept);
        }
        let (mut saved, newest) = saved?;
        (saved.spare, saved.spare_used) = spare;
        saved.left_behind = retain(&*self.disk, &self.root, &self.keep, &before, newest, now).err();
        Ok(saved)
    }

    fn lock(&self, written: &mut Written) -> Result<()> {
        if written.lock.is_none() {
            let path = names::lock(&self.root);
            written.lock = self.disk.lock(&path).map_err(storage("lock", &path))?;
        }
        if written.lock.is_some() { Ok(()) } else { Err(self.refusal("another server saves there")) }
    }

    fn refusal(&self, what: &str) -> Error {
        let reason = format!("{what}; give each server a folder of its own");
        Error::Storage { path: self.root.display().to_string(), action: "save to".into(), reason }
    }

    /// Releases the folder to other servers. Blocks while a checkpoint is being taken.
    ///
    /// The next checkpoint, if any, locks the folder again.
    pub fn release(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).lock = None;
    }

    fn write(&self, written: &mut Written, before: &Found, cuts: &Cuts, now: Duration) -> Result<(Saved, Newest)> {
        let plan = Plan::of(&cuts.tables);
        let number = before.next_manifest();
        let path = names::manifest(&self.root, number);
        for unfinished in &before.unfinished {
            let path = names::unfinished(&self.root, *unfinished);
            self.disk.remove(&path).map_err(storage("remove", &path))?;
        }
        let mut saved = Saved {
            path: path.clone(),
            number,
            items: cuts.tables.iter().map(|table| table.size).sum(),
            chunks: plan.chunks.len() as u64,
            new_chunks: 0,
            written: 0,
            pause: cuts.pause,
            spare: 0,
            spare_used: 0,
            left_behind: None,
        };
        let mut chunks = Vec::with_capacity(plan.chunks.len());
        for (chunk, known) in plan.chunks.iter().zip(known(written, before, &plan)) {
            let (place, cells) = match known {
                Some(known) => known,
                None => {
                    let (place, cells) = self.append(&mut written.segment, before, chunk)?;
                    saved.new_chunks += 1;
                    saved.written += place.size();
                    (place, cells)
                }
            };
            chunks.push(OnDisk { chunk: Arc::downgrade(chunk), cells, place });
        }
        if let Some(segment) = &mut written.segment {
            segment.sync()?;
        }
        let sync_folder = || self.disk.sync_folder(&self.root).map_err(storage("sync", &self.root));
        sync_folder()?;
        let unfinished = names::unfinished(&self.root, number);
        let out = SectionWriter::create(&*self.disk, unfinished.clone())?;
        let places: Vec<Place> = chunks.iter().map(|chunk| chunk.place).collect();
        saved.written += manifest::write(out, number, now, cuts, &plan, &places)?;
        // Counts as this store's from here on, also if it is unknown whether the disk has it.
        written.newest = Some(number);
        self.disk.rename(&unfinished, &path).map_err(storage("rename", &unfinished))?;
        sync_folder()?;
        let segments = manifest::segments(&places);
        // From now on this is what is known to be on the disk; chunks that left the tables are forgotten.
        chunks.sort_unstable_by_key(OnDisk::address);
        written.chunks = chunks;
        let open = written.segment.as_ref().map(|segment| segment.number);
        Ok((saved, Newest { number, segments, open }))
    }

    /// Writes a chunk; returns its place, and the number of its published cells.
    fn append(&self, segment: &mut Option<SegmentWriter>, before: &Found, chunk: &Chunk) -> Result<(Place, u64)> {
        let next = match segment {
            Some(segment) if segment.end >= self.segment_bytes => {
                segment.sync()?;
                Some(segment.number + 1)
            }
            Some(_) => None,
            None => Some(before.next_segment()),
        };
        if let Some(number) = next {
            *segment = Some(SegmentWriter::create(&*self.disk, &self.root, number)?);
        }
        let segment = segment.as_mut().expect("a segment was begun");
        let mut cells = 0;
        let place = segment.append(|out| cells = chunk.save(out))?;
        Ok((place, cells))
    }
}

/// The place of every chunk of the plan, and the number of its saved cells; `None` if it must be written.
fn known(written: &Written, before: &Found, plan: &Plan<'_>) -> Vec<Option<(Place, u64)>> {
    let find = |chunk: &&Arc<Chunk>| {
        let address = Arc::as_ptr(chunk) as usize;
        let at = written.chunks.binary_search_by_key(&address, OnDisk::address).ok()?;
        let OnDisk { cells, place, .. } = written.chunks[at];
        (chunk.published() == cells && before.segments.contains(&place.segment)).then_some((place, cells))
    };
    let mut known: Vec<Option<(Place, u64)>> = plan.chunks.iter().map(find).collect();
    // For each segment: bytes still in use, and bytes in total.
    let mut bytes: HashMap<u64, (u64, u64)> = HashMap::new();
    for OnDisk { place, .. } in &written.chunks {
        let (_, end) = bytes.entry(place.segment).or_default();
        *end = (*end).max(place.offset + place.size());
    }
    for (place, _) in known.iter().flatten() {
        bytes.entry(place.segment).or_default().0 += place.size();
    }
    let open = written.segment.as_ref().map(|segment| segment.number);
    bytes.retain(|segment, (live, end)| Some(*segment) != open && *live * SPARSE < *end);
    known.iter_mut().for_each(|found| _ = found.take_if(|(place, _)| bytes.contains_key(&place.segment)));
    known
}
