//! The files of chunks that were moved to the disk.
//!
//! But for segments, they belong to one process: nothing reads them after its end, so that they are never synced, have
//! no head, and are removed when a server starts with the folder.

use super::ledger::{Ledger, UnusedFile, lock_unpoisoned};
use crate::disk::{Disk, DiskLock, Input, Output, damaged, read_error, storage};
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The files' names end so.
const SUFFIX: &str = ".chunks";
/// The number of the next file of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The process that holds it uses the folder.
const LOCK: &str = "LOCK";

/// One file.
pub(super) struct File {
    pub(super) number: u64,
    path: PathBuf,
    /// `None` once it was dropped.
    input: Option<Box<dyn Input>>,
    /// Bytes that chunks refer to.
    live: AtomicU64,
    /// Bytes that were written.
    length: AtomicU64,
    /// The file was compacted before, and some chunk could not be read.
    not_compacted: AtomicBool,
    /// The file is a segment of checkpoints or of a journal, which remove it.
    is_segment: bool,
    ledger: Arc<Ledger>,
}

/// Bytes of a file that a chunk refers to.
#[derive(Debug)]
pub(in crate::chunk) struct Place {
    file: Arc<File>,
    offset: u64,
    pub(super) length: u64,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File {
    /// A segment of that number.
    pub(super) fn segment(number: u64, path: PathBuf, input: Box<dyn Input>, ledger: Arc<Ledger>) -> Self {
        let (live, length, not_compacted) = (0.into(), 0.into(), false.into());
        Self { number, path, input: Some(input), live, length, not_compacted, is_segment: true, ledger }
    }
}

impl Place {
    /// The place of bytes in a file, for a chunk.
    pub(super) fn new(file: &Arc<File>, offset: u64, length: u64) -> Self {
        file.live.fetch_add(length, Relaxed);
        file.ledger.enter(length, file.is_segment);
        Self { file: Arc::clone(file), offset, length }
    }

    /// Reads from `before` bytes before the place on.
    pub(super) fn read_before(&self, before: u64, into: &mut [u8]) -> Result<()> {
        let offset = self.offset.saturating_sub(before);
        let input = self.file.input.as_ref().expect("a file has its input until it is dropped");
        input.read_at(offset, into).map_err(read_error(&self.file.path, offset))
    }

    /// Reads from `offset` of the place on.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let input = self.file.input.as_ref().expect("a file has its input until it is dropped");
        input.read_at(self.offset + offset, into).map_err(read_error(&self.file.path, self.offset + offset))
    }

    /// The error for bytes that are not what was written.
    pub(super) fn damaged(&self, offset: u64) -> Error {
        damaged(&self.file.path, "a chunk is not what was written", self.offset + offset)
    }

    /// The file and the offset, to read places in the order in which they lie.
    pub(super) fn order(&self) -> (u64, u64) {
        (u64::from(self.file.is_segment) << 63 | self.file.number, self.offset)
    }

    pub(super) fn is_in(&self, file: &Arc<File>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    pub(super) fn is_at(&self, segment: u64, offset: u64) -> bool {
        self.file.is_segment && (self.file.number, self.offset) == (segment, offset)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.file.live.fetch_sub(self.length, Relaxed);
        self.file.ledger.leave(self.length, self.file.is_segment);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            // The last handle of a segment that was removed frees its bytes: not in the thread that drops a chunk.
            let path = (!self.is_segment).then(|| std::mem::take(&mut self.path));
            lock_unpoisoned(&self.ledger.unused).push(UnusedFile { path, length: self.length.load(Relaxed), input });
            self.ledger.wake();
        }
    }
}

/// The reason why bytes were not written.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// `disk_bytes` has no room for them.
    Full,
    /// The disk refused them, or the files are closed.
    Fails(Error),
}

impl From<Error> for WriteFailure {
    fn from(error: Error) -> Self {
        Self::Fails(error)
    }
}

/// The files of a folder, and the one that is written.
pub(super) struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    open: Option<(Box<dyn Output>, Arc<File>)>,
    /// Full files.
    full: Vec<Weak<File>>,
    /// Files that no chunk refers to and that could not be removed, and their bytes.
    left: Vec<(PathBuf, u64)>,
    ledger: Arc<Ledger>,
    /// `None` once they are closed.
    lock: Option<Box<dyn DiskLock>>,
}

/// True for a name that a server gives its files: `PROCESS-NUMBER.chunks`, of which the number has 8 digits or more.
fn is_of_a_server(name: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_suffix(SUFFIX).and_then(|stem| stem.split_once('-'));
    parts.is_some_and(|(process, number)| is_number(process) && is_number(number) && number.len() >= 8)
}

impl Files {
    /// Takes the folder, creates it if necessary, and removes the files of an earlier process.
    ///
    /// `Storage` if another server has it, or where the disk fails.
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path, ledger: Arc<Ledger>) -> Result<Self> {
        disk.make_folder(folder).map_err(storage("create", folder))?;
        let lock = disk.lock(&folder.join(LOCK)).map_err(storage("lock", folder))?;
        let Some(lock) = lock else {
            let path = folder.display().to_string();
            let reason = "another server uses it; give each server a folder of its own".to_owned();
            return Err(Error::Storage { path, action: "use".into(), reason });
        };
        for name in disk.list(folder).map_err(storage("list", folder))? {
            if is_of_a_server(&name) {
                let path = folder.join(name);
                disk.remove(&path).map_err(storage("remove", &path))?;
            }
        }
        let (folder, open, full, left) = (folder.to_owned(), None, Vec::new(), Vec::new());
        Ok(Self { disk, folder, open, full, left, ledger, lock: Some(lock) })
    }

    /// Writes bytes to the end of a file, if `disk_bytes` leaves `spare` bytes free after that; returns the file and
    /// their offset in it.
    ///
    /// Nothing else writes to the files. After a failure nothing refers to what was written of the bytes, and the next
    /// write begins another file.
    pub(super) fn write(&mut self, bytes: &[u8], spare: u64) -> Result<(Arc<File>, u64), WriteFailure> {
        if self.lock.is_none() {
            return Err(Error::InvalidArgument("the server is closed".to_owned()).into());
        }
        if (bytes.len() as u64).saturating_add(spare) > self.ledger.room() {
            // Compaction takes only full files, and this one has room for others.
            let is_sparse = |file: &File| file.live.load(Relaxed) < file.length.load(Relaxed) / 2;
            if self.open.as_ref().is_some_and(|(_, file)| is_sparse(file)) {
                self.seal();
            }
            return Err(WriteFailure::Full);
        }
        // No file but one of a single write has more bytes than that.
        let after = |file: &File| file.length.load(Relaxed) + bytes.len() as u64;
        if self.open.as_ref().is_some_and(|(_, file)| after(file) > self.ledger.full_at()) {
            self.seal();
        }
        let (output, file) = match &mut self.open {
            Some(open) => open,
            None => {
                // No two files of a folder have the same name, also if a server follows another in this process.
                let number = NEXT.fetch_add(1, Relaxed);
                let path = self.folder.join(format!("{}-{number:08}{SUFFIX}", std::process::id()));
                let output = self.disk.create(&path).map_err(storage("create", &path))?;
                let input = self.disk.open(&path).map_err(storage("open", &path));
                if input.is_err() {
                    let _ = self.disk.remove(&path);
                }
                let file = Arc::new(File {
                    number,
                    path,
                    input: Some(input?),
                    live: 0.into(),
                    length: 0.into(),
                    not_compacted: false.into(),
                    is_segment: false,
                    ledger: Arc::clone(&self.ledger),
                });
                self.open.insert((output, file))
            }
        };
        let (at, file) = (file.length.load(Relaxed), Arc::clone(file));
        if let Err(error) = output.write(bytes) {
            // An unknown part of them is in the file.
            self.ledger.used.fetch_add(bytes.len() as u64, Relaxed);
            file.length.fetch_add(bytes.len() as u64, Relaxed);
            self.seal();
            return Err(storage("write", &file.path)(error).into());
        }
        file.length.fetch_add(bytes.len() as u64, Relaxed);
        self.ledger.used.fetch_add(bytes.len() as u64, Relaxed);
        Ok((file, at))
    }

    /// Ends the file that is written.
    fn seal(&mut self) {
        if let Some((_, file)) = self.open.take() {
            self.full.push(Arc::downgrade(&file));
        }
    }

    /// Removes files that no chunk refers to; true if there was one.
    pub(super) fn remove_unused(&mut self) -> bool {
        // A file that is written is kept, but not for ever without a chunk.
        if self.open.as_ref().is_some_and(|(_, file)| {
            file.live.load(Relaxed) == 0 && file.length.load(Relaxed) >= self.ledger.file_bytes / 2
        }) {
            self.seal();
        }
        let unused = std::mem::take(&mut *lock_unpoisoned(&self.ledger.unused));
        let any = !unused.is_empty();
        for UnusedFile { path, length, input } in unused {
            // Without the lock the name may be another server's: one in another container has the same number of its
            // process.
            let path = path.filter(|_| self.lock.is_some());
            self.left.extend(path.map(|path| (path, length)));
            drop(input);
        }
        self.full.retain(|file| file.strong_count() > 0);
        // A file that cannot be removed counts until it can.
        let (disk, ledger) = (&self.disk, &self.ledger);
        self.left.retain(|(path, length)| match disk.remove(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => true,
            _ => {
                ledger.used.fetch_sub(*length, Relaxed);
                false
            }
        });
        any
    }

    /// True if some file that no chunk refers to could not be removed.
    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// The full file with the least live share, at most `most` of its bytes, of those whose live bytes may be written
    /// now.
    pub(super) fn emptiest(&self, most: f64) -> Option<Arc<File>> {
        let files = self.full.iter().filter_map(Weak::upgrade);
        let share = |file: &File| file.live.load(Relaxed) as f64 / file.length.load(Relaxed).max(1) as f64;
        let room = self.ledger.room();
        let files = files.filter(|file| !file.not_compacted.load(Relaxed) && file.live.load(Relaxed) <= room);
        let shares = files.map(|file| (share(&file), file));
        shares.filter(|(share, _)| *share <= most).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, file)| file)
    }

    /// True if there is a file of that number.
    pub(super) fn has(&self, number: u64) -> bool {
        let full = self.full.iter().filter_map(Weak::upgrade).any(|file| file.number == number);
        full || self.open.as_ref().is_some_and(|(_, file)| file.number == number)
    }

    /// Excludes a file from further compactions: some of its chunks could not be read.
    pub(super) fn exclude_from_compaction(file: &File) {
        file.not_compacted.store(true, Relaxed);
    }
}

impl Files {
    /// Removes all files and releases the folder. Chunks can still be read: their file is open.
    pub(super) fn close(&mut self) {
        self.seal();
        self.remove_unused();
        for file in self.full.drain(..).filter_map(|file| file.upgrade()) {
            // One that cannot be removed stays until the next start.
            let _ = self.disk.remove(&file.path);
        }
        // Those that cannot be removed stay, too: without the lock their names may be another server's.
        self.left.clear();
        self.lock = None;
        self.ledger.used.store(0, Relaxed);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Files of chunks that were read after the end.
        self.remove_unused();
    }
}
