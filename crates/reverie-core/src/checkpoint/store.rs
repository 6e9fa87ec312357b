//! Takes checkpoints.

use super::chunk_log::ChunkLog;
use super::folder_claim::FolderClaim;
use super::load::Checkpoint;
use super::manifest;
use super::names;
use super::plan::SharedObjects;
use super::retention::{FolderContents, NewestCheckpoint, RetentionPolicy, clean_up, retain};
use super::section::SectionWriter;
use super::segment::RecordPlace;
use super::summary::LogStart;
use crate::chunk::{Follower, SavedChunk, SegmentStore};
use crate::disk::{Disk, Input, folder_of, read_error, storage};
use crate::error::{Error, Result};
use crate::table::{ServerCut, Tables};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// The size in bytes after which a new segment begins.
const SEGMENT_BYTES: u64 = 256 << 20;
/// A segment of which less than this fraction (1 / `SPARSE`) is in use is abandoned.
///
/// The used part is written again, so that the disk holds at most about this many times the live bytes, and not a
/// segment for each remaining chunk.
const SPARSE: u64 = 4;

/// Chunks that are written or looked up under one hold of the log's lock.
const CHUNKS_AT_ONCE: usize = 256;

/// The outcome of taking a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct SaveOutcome {
    /// The checkpoint: its manifest.
    pub path: PathBuf,
    /// The number of the checkpoint.
    pub number: u64,
    /// Items of all tables.
    pub items: u64,
    /// Chunks of all items.
    pub chunks: u64,
    /// Chunks that were not on the disk yet.
    pub new_chunks: u64,
    /// Bytes written, manifest included.
    pub written: u64,
    /// The time for which the tables were locked.
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
    keep: RetentionPolicy,
    /// Guards the state of this store's checkpoints.
    ///
    /// It is held while a checkpoint is taken, so that there is one at a time. No table waits for it.
    claim: Mutex<FolderClaim>,
    /// The chunks on the disk. Held while bytes are written; a journal's commits take turns with a checkpoint's chunks.
    log: Mutex<ChunkLog>,
    /// Held while the disk is waited for, before the log. A sync that fails reports that once: another one at the same
    /// time could succeed without the bytes, before the failure was noted.
    syncs: Mutex<()>,
}

impl Store {
    /// A store in `root`, which need not exist: the first checkpoint creates it.
    ///
    /// Looks for the newest checkpoint there, see [`Store::found`].
    pub fn new(disk: Arc<dyn Disk>, root: PathBuf, keep: RetentionPolicy) -> Result<Self> {
        if keep.count == 0 {
            return Err(Error::InvalidArgument("keep must be at least 1: the newest checkpoint stays".to_owned()));
        }
        let claim = Mutex::new(FolderClaim::look(&*disk, &root)?);
        let log = Mutex::new(ChunkLog::new(Arc::clone(&disk), root.clone(), SEGMENT_BYTES));
        Ok(Self { disk, root, keep, claim, log, syncs: Mutex::default() })
    }

    /// This store with smaller segments, for tests.
    pub fn with_segment_bytes(self, segment_bytes: u64) -> Self {
        self.log().segments.set_segment_bytes(segment_bytes);
        self
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The newest checkpoint of the folder that this store has seen; `None` if there was none.
    ///
    /// A server starts with this one. If it looked for one itself, another server might take one in between, and this
    /// one would then remove it.
    pub fn found(&self) -> Option<PathBuf> {
        self.locked_claim().found(&self.root)
    }

    /// Calls `report` with the reason whenever this store begins to wait for commands that read the folder.
    pub fn report_waits(&self, report: impl Fn(&str) + Send + 'static) {
        self.locked_claim().report = Some(Box::new(report));
    }

    /// Creates the folder, locks it until [`Store::release`], and looks again for the newest checkpoint.
    ///
    /// Files that are read after that do not change any more, unlike those that were read before. Does nothing if the
    /// folder is locked already. Waits a while for commands that read the folder, as a checkpoint does. `Storage` if
    /// another server has it, or they have not ended by then.
    pub fn hold(&self) -> Result<()> {
        self.locked_claim().begin(&*self.disk, &self.root)
    }

    fn locked_claim(&self) -> MutexGuard<'_, FolderClaim> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues from a checkpoint of this folder that was just loaded and will be restored.
    ///
    /// Its chunks on the disk are not written again. Does nothing for a checkpoint of another folder.
    pub fn adopt(&self, checkpoint: &Checkpoint) {
        if folder_of(&checkpoint.summary.path) != self.root {
            return;
        }
        self.locked_claim().newest = Some(checkpoint.summary.number);
        let mut log = self.log();
        log.clear();
        checkpoint.chunks.iter().for_each(|(chunk, place)| log.adopt(chunk, *place));
    }

    /// The chunks on the disk.
    pub(crate) fn log(&self) -> MutexGuard<'_, ChunkLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Store::log`], if no thread has it.
    pub(crate) fn try_log(&self) -> Option<MutexGuard<'_, ChunkLog>> {
        match self.log.try_lock() {
            Ok(log) => Some(log),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until what was written is on the disk; others may write meanwhile. Returns the end of that.
    pub(crate) fn sync_written(&self) -> Result<(u64, u64)> {
        let _turn = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        self.log().segments.check_synced()?;
        let mut unsynced = self.log().write_to_sync()?;
        let outcome = unsynced.sync();
        self.log().segments.synced(unsynced.end, outcome)?;
        Ok(unsynced.end)
    }

    /// Like [`Store::sync_written`], but no thread writes meanwhile, and the next record begins a new segment, whose
    /// number is returned.
    pub(crate) fn rotate(&self) -> Result<u64> {
        let _turn = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        self.log().rotate()
    }

    /// Waits until the segments of adopted chunks are on the disk: a process that was killed may not have waited.
    pub(crate) fn sync_adopted(&self) -> Result<()> {
        let used = self.log().used_segments();
        used.into_iter().try_for_each(|segment| {
            let path = names::segment(&self.root, segment);
            self.disk.sync(&path).map_err(storage("sync", &path))
        })
    }

    /// Makes every sync from now on fail if the folder's lock, which this store holds, was removed or replaced.
    pub(crate) fn watch_lock(&self) {
        let lock = self.locked_claim().watched();
        self.log().segments.watch(lock);
    }

    /// Takes a checkpoint of all tables. Blocks until it is on the disk, and while another is being taken.
    ///
    /// The tables are locked only while references to them are taken. `now` is the time since the Unix epoch.
    ///
    /// On an error the earlier checkpoints are intact, and what was written is removed as far as the disk allows, so
    /// that it is no fuller than before. `Closed` for tables that are closed, `Storage` if another server saves in the
    /// folder.
    pub fn save(&self, tables: &Tables, now: Duration) -> Result<SaveOutcome> {
        self.take(tables, now, false, |_| Ok((tables.cut()?, None)))
    }

    /// Like [`save`](Self::save), for closed tables, before the folder is released.
    ///
    /// This checkpoint contains everything that was ever acknowledged.
    pub fn save_last(&self, tables: &Tables, now: Duration) -> Result<SaveOutcome> {
        self.take(tables, now, true, |_| Ok((tables.last_cut()?, None)))
    }

    /// Takes a checkpoint of the tables as `cut` returns them, with the place where the journal continues after it.
    ///
    /// `cut` is given the number of the checkpoint.
    pub(crate) fn take(
        &self,
        tables: &Tables,
        now: Duration,
        last: bool,
        cut: impl FnOnce(u64) -> Result<(ServerCut, Option<LogStart>)>,
    ) -> Result<SaveOutcome> {
        let mut claim = self.locked_claim();
        if !last {
            // Check before the folder is locked: a closed server has released it.
            tables.check_open()?;
        }
        let before = claim.save(&*self.disk, &self.root)?;
        // Another process may have deleted files.
        let journaled = {
            let mut log = self.log();
            log.segments.begin_after(before.next_segment());
            // A journal may have begun one since.
            if !log.segments.is_journaled() {
                log.segments.keep_if(|segment| before.segments.contains(&segment));
            }
            log.segments.is_journaled()
        };
        // Nothing changes a closed table.
        let spared = (!last).then(|| tables.spare());
        let kept = self.log().segments.open();
        let saved = cut(before.next_manifest()).and_then(|(cuts, start)| {
            let saved = self.write(&mut claim, &before, &cuts, start, now)?;
            tables.note_saved(cuts.now);
            Ok(saved)
        });
        let spare = spared.map_or((0, 0), |spared| (spared.size_bytes(), spared.take_back()));
        if saved.is_err() && !journaled {
            // The content after its last sync is unknown: the next checkpoint begins another segment.
            self.log().undo();
            clean_up(&*self.disk, &self.root, &before, kept);
        }
        let (mut saved, newest) = saved?;
        (saved.spare, saved.spare_used) = spare;
        saved.left_behind = retain(&*self.disk, &self.root, &self.keep, &before, newest, now).err();
        Ok(saved)
    }

    /// Removes what no checkpoint of the folder needs: the segments that `unneeded` names, and manifests that were not
    /// finished. Locks the folder as [`Store::save`] does. Does nothing once this store has written to it.
    ///
    /// A checkpoint does that as well, once it is there. On a full disk there would be no room for it. It also reports
    /// files that cannot be read or removed, see [`SaveOutcome::left_behind`]: they are not an error here.
    pub(crate) fn make_room(
        &self,
        unneeded: impl FnOnce(&dyn Disk, &Path, &FolderContents) -> Result<Vec<u64>>,
    ) -> Result<()> {
        let mut claim = self.locked_claim();
        let found = claim.save(&*self.disk, &self.root)?;
        if self.log().segments.has_begun() {
            return Ok(());
        }
        let segments = unneeded(&*self.disk, &self.root, &found).unwrap_or_default();
        let unfinished = found.unfinished.iter().map(|of| names::unfinished(&self.root, *of));
        let unneeded: Vec<_> =
            segments.into_iter().map(|of| names::segment(&self.root, of)).chain(unfinished).collect();
        if unneeded.is_empty() {
            return Ok(());
        }
        // A checkpoint that was removed must not come back without its segments.
        self.disk.sync_folder(&self.root).map_err(storage("sync", &self.root))?;
        unneeded.iter().for_each(|path| _ = self.disk.remove(path));
        Ok(())
    }

    /// Lets the disk tier of these tables read chunks in the segments instead of writing them.
    pub fn share(self: &Arc<Self>, tables: &Tables) {
        let segments: Weak<dyn SegmentStore> = Arc::downgrade(self) as _;
        tables.bytes().0.share(segments);
    }

    /// Releases the folder to other servers. Blocks while a checkpoint is being taken.
    ///
    /// The next checkpoint, if any, locks the folder again.
    pub fn release(&self) {
        self.locked_claim().release();
    }

    fn write(
        &self,
        claim: &mut FolderClaim,
        before: &FolderContents,
        cuts: &ServerCut,
        start: Option<LogStart>,
        now: Duration,
    ) -> Result<(SaveOutcome, NewestCheckpoint)> {
        let plan = SharedObjects::of(&cuts.tables);
        let number = before.next_manifest();
        let path = names::manifest(&self.root, number);
        for unfinished in &before.unfinished {
            let path = names::unfinished(&self.root, *unfinished);
            self.disk.remove(&path).map_err(storage("remove", &path))?;
        }
        let mut saved = SaveOutcome {
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
        let sparse = self.sparse(before, &plan);
        let is_there =
            |place: &RecordPlace| before.segments.contains(&place.segment) && !sparse.contains(&place.segment);
        for chunks in plan.chunks.chunks(CHUNKS_AT_ONCE) {
            let mut log = self.log();
            for chunk in chunks {
                if !log
                    .find(chunk)
                    .is_some_and(|place| start.is_some_and(|start| place.segment >= start.segment) || is_there(&place))
                {
                    match log.append(chunk) {
                        Ok(bytes) => {
                            saved.written += bytes;
                            saved.new_chunks += 1;
                        }
                        // Damage in a chunk that was never read: its segment stays, for its sake alone.
                        Err(Error::DamagedFile { .. })
                            if log.find(chunk).is_some_and(|place| before.segments.contains(&place.segment)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        // The long wait is without the lock.
        self.sync_written()?;
        {
            let _turn = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
            self.log().sync()?;
        }
        let sync_folder = || self.disk.sync_folder(&self.root).map_err(storage("sync", &self.root));
        sync_folder()?;
        let mut chunks = Vec::with_capacity(plan.chunks.len());
        for some in plan.chunks.chunks(CHUNKS_AT_ONCE) {
            let log = self.log();
            chunks.extend(some.iter().map(|chunk| log.first_part(chunk)));
        }
        // Commits may have written some of these chunks once more since that wait.
        while start.is_some() {
            self.sync_written()?;
            let log = self.log();
            let waiting = plan.chunks.iter().zip(&mut chunks).filter(|(_, (_, place))| place.is_waiting());
            let replaced = waiting.map(|(chunk, known)| *known = log.first_part(chunk)).count();
            if replaced == 0 {
                break;
            }
        }
        let (numbers, places): (Vec<u64>, Vec<RecordPlace>) = chunks.into_iter().unzip();
        let unfinished = names::unfinished(&self.root, number);
        let out = SectionWriter::create(&*self.disk, unfinished.clone())?;
        saved.written +=
            manifest::write(out, number, now, cuts, &plan, &places, start.map(|start| (start, &numbers[..])))?;
        // Counts as this store's from here on, also if it is unknown whether the disk has it.
        claim.newest = Some(number);
        self.disk.rename(&unfinished, &path).map_err(storage("rename", &unfinished))?;
        sync_folder()?;
        let segments = manifest::segments(&places);
        let open = {
            let mut log = self.log();
            log.settle();
            log.segments.open().map(|(segment, _)| segment)
        };
        // So that segments that are abandoned now are read by none, and what the disk tier had written itself is
        // removed.
        let mut follower = Follower::default();
        for some in plan.chunks.chunks(CHUNKS_AT_ONCE) {
            let found: Vec<_> = {
                let log = self.log();
                some.iter().map(|chunk| log.find_saved(Arc::as_ptr(chunk) as usize, chunk.published())).collect()
            };
            some.iter().zip(found).filter_map(|(chunk, saved)| Some((chunk, saved?))).for_each(|(chunk, saved)| {
                follower.follow(chunk, saved);
            });
        }
        Ok((saved, NewestCheckpoint { number, segments, open }))
    }

    /// The segments that are abandoned, see [`SPARSE`].
    fn sparse(&self, before: &FolderContents, plan: &SharedObjects<'_>) -> HashSet<u64> {
        let log = self.log();
        let known = plan.chunks.iter().filter_map(|chunk| log.find(chunk));
        let bytes = log.live_bytes(known.filter(|place| before.segments.contains(&place.segment)));
        let open = log.segments.open().map(|(segment, _)| segment);
        let is_sparse = |(segment, (live, end)): &(u64, (u64, u64))| Some(*segment) != open && *live * SPARSE < *end;
        bytes.into_iter().filter(is_sparse).map(|(segment, _)| segment).collect()
    }
}

impl SegmentStore for Store {
    fn find(&self, address: usize, published: u64) -> Option<SavedChunk> {
        self.log().find_saved(address, published)
    }

    fn open(&self, segment: u64) -> Result<(PathBuf, Box<dyn Input>)> {
        let path = names::segment(&self.root, segment);
        let input = self.disk.open(&path).map_err(read_error(&path, 0))?;
        Ok((path, input))
    }
}
