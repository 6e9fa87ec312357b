//! The segments that are written: the one that the next records go to, and those before it that may not be on the disk.

use super::names;
use super::segment::{PredecessorState, Records, SegmentWriter};
use crate::disk::{Disk, DiskLock, Output, storage};
use crate::error::{Error, Result};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The segments of a folder that this process writes.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// The size in bytes after which a new segment begins.
    segment_bytes: u64,
    open: Option<SegmentWriter>,
    /// Full ones that may not be on the disk, in order.
    full: Vec<SegmentWriter>,
    /// A write failed: the open segment's end must be cut before anything else is written.
    torn: bool,
    /// The names of the segments below this number are on the disk.
    named: u64,
    next: u64,
    /// Set if a sync of a journal failed. The next one may report as written what this one lost, so there is none.
    unsynced: Option<Error>,
    /// The last write failed because there is no room.
    no_room: bool,
    journaled: bool,
    /// The lock of a journal's folder.
    lock: Option<Weak<dyn DiskLock>>,
    /// The checkpoint that a starting server takes, until that or its first segment is there.
    starts: Option<u64>,
    /// Bytes written since the last [`Segments::take_bytes`].
    bytes: u64,
}

/// The files that a sync waits for, without a lock.
pub(crate) struct UnsyncedFiles {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    files: Vec<(PathBuf, Box<dyn Output>)>,
    /// Names of files may not be on the disk.
    names: bool,
    lock: Option<Weak<dyn DiskLock>>,
    /// The segment and the offset up to which everything is on the disk then.
    pub(crate) end: (u64, u64),
}

/// The error of a journal whose folder another program has changed, or which cannot find out whether one has.
fn not_kept(path: &Path, error: &io::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::NotFound => format!(
            "{error} while the server ran; another server may have started in the folder, and what this one wrote \
             since may be lost. Let no other program change the folder, and start the server again"
        ),
        _ => format!("{error}; so that the folder may have been given to another server. Start the server again"),
    };
    Error::Storage { path: path.display().to_string(), action: "keep".into(), reason }
}

impl UnsyncedFiles {
    /// Waits until all of it is on the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        for (path, output) in &mut self.files {
            output.sync().map_err(storage("sync", path))?;
        }
        if self.names {
            self.disk.sync_folder(&self.root).map_err(storage("sync", &self.root))?;
        }
        self.check_kept()
    }

    /// Fails if the lock of a journal's folder, or one of the files, was removed or replaced. After the sync: a server
    /// that starts once this has returned reads what it wrote.
    fn check_kept(&self) -> Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let released = || io::Error::new(ErrorKind::NotFound, "the folder was released");
        let kept = lock.upgrade().map_or_else(|| Err(released()), |lock| lock.check());
        kept.map_err(|error| not_kept(&names::lock(&self.root), &error))?;
        self.files.iter().try_for_each(|(path, output)| match output.has_name() {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_kept(path, &io::Error::new(ErrorKind::NotFound, "the file was removed"))),
            Err(error) => Err(not_kept(path, &error)),
        })
    }
}

impl Segments {
    pub(crate) fn new(disk: Arc<dyn Disk>, root: PathBuf, segment_bytes: u64) -> Self {
        Self {
            disk,
            root,
            segment_bytes,
            open: None,
            full: Vec::new(),
            torn: false,
            named: 1,
            next: 1,
            unsynced: None,
            no_room: false,
            journaled: false,
            lock: None,
            starts: None,
            bytes: 0,
        }
    }

    pub(crate) fn set_segment_bytes(&mut self, segment_bytes: u64) {
        self.segment_bytes = segment_bytes;
    }

    /// Segments that are begun later have at least this number.
    pub(crate) fn begin_after(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Makes a sync that fails from now on the last one.
    pub(crate) fn set_journaled(&mut self) {
        self.journaled = true;
    }

    /// The syncs from now on check this lock of the folder.
    pub(crate) fn watch(&mut self, lock: Option<Weak<dyn DiskLock>>) {
        self.lock = lock;
    }

    /// The next segment is the first one of a server that starts with this checkpoint; `None` once the checkpoint is
    /// there.
    pub(crate) fn start_with(&mut self, checkpoint: Option<u64>) {
        self.starts = checkpoint;
    }

    pub(crate) fn is_journaled(&self) -> bool {
        self.journaled
    }

    /// Forgets the segments.
    pub(crate) fn clear(&mut self) {
        (self.open, self.torn, self.no_room) = (None, false, false);
        self.full.clear();
    }

    /// Forgets the open segment unless `keeps` returns true for its number.
    pub(crate) fn keep_if(&mut self, keeps: impl FnOnce(u64) -> bool) {
        self.open.take_if(|segment| !keeps(segment.number));
    }

    /// True once a segment was begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.next > 1
    }

    /// The number and the end of the open segment.
    pub(crate) fn open(&self) -> Option<(u64, u64)> {
        self.open.as_ref().map(|segment| (segment.number, segment.end))
    }

    /// True if the open segment would be full with `more` bytes.
    pub(crate) fn is_full_with(&self, more: u64) -> bool {
        self.open().map_or(0, |(_, end)| end) + more >= self.segment_bytes
    }

    /// Writes records; returns the number of their segment and the offset of the first.
    ///
    /// After an error it is unknown what of them is in the file, which the next write cuts off.
    pub(crate) fn write(&mut self, records: &Records) -> Result<(u64, u64)> {
        self.check_synced()?;
        self.begin()?;
        let segment = self.open.as_mut().expect("it was just begun");
        let number = segment.number;
        match segment.write(records) {
            Ok(at) => {
                self.no_room = false;
                self.bytes += records.bytes.len() as u64;
                Ok((number, at))
            }
            Err(error) => {
                self.torn = true;
                Err(self.failed("write", number, error))
            }
        }
    }

    /// Notes whether an error means that the disk is full.
    fn failed(&mut self, action: &'static str, segment: u64, error: io::Error) -> Error {
        self.no_room = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        storage(action, &names::segment(&self.root, segment))(error)
    }

    /// Fails if a sync of a journal failed before.
    pub(crate) fn check_synced(&self) -> Result<()> {
        self.unsynced.clone().map_or(Ok(()), Err)
    }

    /// Notes the outcome of a sync. A journal never syncs again after one that failed.
    fn noted<T>(&mut self, synced: Result<T>) -> Result<T> {
        if let (true, Err(error)) = (self.journaled, &synced) {
            self.no_room = false;
            self.unsynced.get_or_insert(error.clone());
        }
        synced
    }

    /// Prepares the segment for the next records: cuts what a failed write left, and begins a new one after a full one.
    ///
    /// A full one goes to the disk with the next sync: no writer waits for it here.
    fn begin(&mut self) -> Result<()> {
        if let Some(segment) = self.open.as_mut().filter(|_| self.torn) {
            segment.cut(&*self.disk)?;
            let synced = segment.sync();
            self.noted(synced)?;
            self.torn = false;
        }
        self.full.extend(self.open.take_if(|segment| segment.end >= self.segment_bytes));
        if self.open.is_none() {
            let number = self.next;
            // A checkpoint without a journal has all segments on the disk before its manifest.
            let before = self.full.last().filter(|_| self.journaled);
            let after = before
                .map_or(PredecessorState::Nothing, |segment| PredecessorState::After((segment.number, segment.end)));
            let first = self.starts.map_or(after, PredecessorState::Start);
            let created = SegmentWriter::create(&*self.disk, &self.root, number, first);
            let segment = created.map_err(|error| {
                // A file that is left there is not written to.
                self.next += u64::from(error.kind() == ErrorKind::AlreadyExists);
                self.failed("create", number, error)
            })?;
            self.next += 1;
            self.starts = None;
            self.open = Some(segment);
        }
        Ok(())
    }

    /// The written records that may not be on the disk.
    pub(crate) fn unsynced(&self) -> Result<UnsyncedFiles> {
        let files = self.full.iter().chain(&self.open).map(SegmentWriter::duplicate).collect::<Result<_>>()?;
        let (disk, root) = (Arc::clone(&self.disk), self.root.clone());
        let end = self.open().unwrap_or((self.next, 0));
        let lock = self.lock.clone();
        Ok(UnsyncedFiles { disk, root, files, names: self.named < self.next, lock, end })
    }

    /// Notes the outcome of the sync of what was not on the disk up to this end.
    pub(crate) fn synced(&mut self, end: (u64, u64), outcome: Result<()>) -> Result<()> {
        self.noted(outcome)?;
        // The sync of a thread that wrote meanwhile may have been given the failure of these bytes.
        self.check_synced()?;
        self.full.retain(|segment| segment.number >= end.0);
        self.named = self.named.max(end.0 + u64::from(end.1 > 0));
        Ok(())
    }

    /// Waits until all that was written is on the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check_synced()?;
        if self.torn {
            self.begin()?;
        }
        let mut unsynced = self.unsynced()?;
        let outcome = unsynced.sync();
        self.synced(unsynced.end, outcome)
    }

    /// The next record begins a new segment; returns its number. Earlier records are on the disk.
    pub(crate) fn rotate(&mut self) -> Result<u64> {
        self.sync()?;
        self.open = None;
        Ok(self.next)
    }

    /// True if the end of the open segment must be cut.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn
    }

    /// True if the last write failed because the disk is full: there may be room later.
    pub(crate) fn has_no_room(&self) -> bool {
        self.no_room
    }

    /// Bytes written since the last call.
    pub(crate) fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lock_that_is_missing_is_reported_as_that_of_another_server() {
        let text = |kind: ErrorKind| not_kept(Path::new("lock"), &io::Error::from(kind)).to_string();
        assert!(text(ErrorKind::NotFound).contains("another server may have started in the folder"));
        assert!(!text(ErrorKind::PermissionDenied).contains("Let no other program change the folder"));
    }
}
