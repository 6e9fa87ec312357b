//! A file system that stops where a test chooses, and what may be left of it then.

use reverie_core::checkpoint::{Disk, DiskLock, Input, Output};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Is called with the time that was waited.
type WaitCallback = Box<dyn FnMut(Duration) + Send>;

#[derive(Clone, Debug, Default)]
struct Data {
    bytes: Vec<u8>,
    /// The number of bytes that are on the disk whatever happens.
    synced: usize,
    /// The bytes that a failed sync lost: later syncs do not write them, and a loss of power leaves zeros.
    lost: Vec<Range<usize>>,
}

type Shared = Arc<Mutex<Data>>;

#[derive(Default)]
struct State {
    names: BTreeMap<PathBuf, Shared>,
    /// The names as they were when their folder was synced last.
    synced: BTreeMap<PathBuf, Shared>,
    locked: HashSet<PathBuf>,
    /// The number of times that the file of a lock was removed.
    removals: BTreeMap<PathBuf, u64>,
    /// The number of readers that share the lock of a file.
    read_locks: BTreeMap<PathBuf, u64>,
    /// The time for which callers have waited, in all.
    waited: Duration,
    /// Called at the end of each wait, with that.
    waits: Option<WaitCallback>,
    operations: u64,
    stop_at: Option<u64>,
    /// Bytes of all files at most.
    capacity: Option<usize>,
    /// The sync after this many more fails.
    sync_fails: Option<(u64, Pages)>,
    /// Bytes that were read.
    read: u64,
    /// Syncs of files wait.
    holds_syncs: bool,
    /// Syncs that wait.
    held_syncs: u64,
    /// Renames fail, though they were made where it is true.
    renames_fail: Option<bool>,
    /// Reads fail.
    reads_fail: bool,
}

/// Clones are the same disk.
#[derive(Clone, Default)]
pub struct FakeDisk(Arc<Mutex<State>>);

/// The state of the pages that a failed sync should have written. It reports the failure once in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The pages are dirty, and a later sync writes them.
    Kept,
    /// The pages count as written, and are not.
    Lost,
}

/// The names that a crash leaves.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    Synced,
    /// The names that were synced, and of the others only the checkpoints: a disk keeps no order between names.
    SyncedAndCheckpoints,
    All,
    /// All, and the checkpoints that were removed and are back.
    AllAndOldCheckpoints,
}

/// The part of the written and not synced bytes that a crash leaves.
#[derive(Clone, Copy, Debug)]
pub enum Tail {
    None,
    Half,
    /// The second half, behind zeros: a disk writes what was not synced in any order.
    SecondHalf,
    All,
}

pub const CRASHES: [(Names, Tail); 8] = [
    (Names::AllAndOldCheckpoints, Tail::All),
    (Names::SyncedAndCheckpoints, Tail::All),
    (Names::Synced, Tail::None),
    (Names::Synced, Tail::Half),
    (Names::Synced, Tail::All),
    (Names::All, Tail::None),
    (Names::All, Tail::Half),
    (Names::All, Tail::All),
];

impl FakeDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Counts an operation; from the chosen one on, none works.
    fn operation(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.operations += 1;
        match state.stop_at {
            Some(stop) if state.operations > stop => Err(io::Error::other("the machine stopped")),
            _ => Ok(state),
        }
    }

    /// Stops the disk after so many more operations: later ones fail.
    pub fn stop_after(&self, operations: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.operations + operations);
    }

    /// The disk is full at so many bytes.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    /// Lets the sync after so many syncs of files or folders fail with an error of the disk, while reads and writes
    /// work.
    pub fn fail_sync(&self, after: u64, pages: Pages) {
        self.state().sync_fails = Some((after, pages));
    }

    /// The bytes that were read since the last call.
    pub fn take_read(&self) -> u64 {
        std::mem::take(&mut self.state().read)
    }

    /// Syncs of files wait from now on, or do not any more.
    pub fn hold_syncs(&self, holds: bool) {
        self.state().holds_syncs = holds;
    }

    /// The number of syncs that wait.
    pub fn held_syncs(&self) -> u64 {
        self.state().held_syncs
    }

    fn wait_if_held(&self) {
        self.state().held_syncs += 1;
        while self.state().holds_syncs {
            std::thread::yield_now();
        }
        self.state().held_syncs -= 1;
    }

    /// True if the sync that was to fail has failed.
    pub fn has_failed_sync(&self) -> bool {
        self.state().sync_fails.is_none()
    }

    fn sync_outcome(&self) -> io::Result<Option<Pages>> {
        let mut state = self.operation()?;
        match &mut state.sync_fails {
            Some((0, pages)) => {
                let pages = *pages;
                state.sync_fails = None;
                Ok(Some(pages))
            }
            Some((after, _)) => {
                *after -= 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Reads fail with an error of the disk from now on, or do not any more.
    pub fn fail_reads(&self, fail: bool) {
        self.state().reads_fail = fail;
    }

    /// Renames fail from now on, though they are made where it is true.
    pub fn fail_renames(&self, made: Option<bool>) {
        self.state().renames_fail = made;
    }

    pub fn size(&self) -> usize {
        self.state().names.values().map(|data| data.lock().unwrap().bytes.len()).sum()
    }

    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The time for which callers have waited, in all.
    pub fn waited(&self) -> Duration {
        self.state().waited
    }

    /// Calls this at the end of each wait, with how long callers have waited, in all.
    pub fn on_wait(&self, call: impl FnMut(Duration) + Send + 'static) {
        self.state().waits = Some(Box::new(call));
    }

    /// A state of the disk that a crash now may leave.
    pub fn after_crash(&self, names: Names, tail: Tail) -> Self {
        let state = self.state();
        let (mut left, more) = match names {
            Names::Synced => (state.synced.clone(), None),
            Names::SyncedAndCheckpoints => (state.synced.clone(), Some(&state.names)),
            Names::All => (state.names.clone(), None),
            Names::AllAndOldCheckpoints => (state.names.clone(), Some(&state.synced)),
        };
        let is_checkpoint = |path: &Path| path.extension().is_some_and(|it| it == "checkpoint");
        let more = more.into_iter().flatten().filter(|(path, _)| is_checkpoint(path));
        left.extend(more.map(|(path, data)| (path.clone(), data.clone())));
        let cut = |data: &Shared| {
            let Data { bytes, synced, lost } = data.lock().unwrap().clone();
            let half = synced + (bytes.len() - synced) / 2;
            let kept = match tail {
                Tail::None => synced,
                Tail::Half => half,
                Tail::SecondHalf | Tail::All => bytes.len(),
            };
            let mut bytes = bytes[..kept].to_vec();
            if let Tail::SecondHalf = tail {
                bytes[synced..half].fill(0);
            }
            // The end of a process leaves the pages in memory.
            if !matches!(tail, Tail::All) {
                for range in lost {
                    bytes[range.start.min(kept)..range.end.min(kept)].fill(0);
                }
            }
            // After the end of a process the machine may stop, too.
            let synced = if matches!((names, tail), (Names::All, Tail::All)) { synced } else { kept };
            Arc::new(Mutex::new(Data { bytes, synced, lost: Vec::new() }))
        };
        let names: BTreeMap<_, _> = left.iter().map(|(path, data)| (path.clone(), cut(data))).collect();
        Self(Arc::new(Mutex::new(State { synced: names.clone(), names, ..State::default() })))
    }

    /// A disk with the same files, all of them synced.
    pub fn copy(&self) -> Self {
        let copy = self.after_crash(Names::All, Tail::All);
        copy.state().names.values().for_each(|data| {
            let mut data = data.lock().unwrap();
            data.synced = data.bytes.len();
        });
        copy
    }

    /// A file has only its first `size` bytes, all of them synced.
    pub fn keep(&self, path: &Path, size: usize) {
        let data = Arc::clone(&self.state().names[path]);
        let mut data = data.lock().unwrap();
        data.bytes.truncate(size);
        data.synced = size;
    }

    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.state().names.iter().map(|(path, data)| (path.clone(), data.lock().unwrap().bytes.clone())).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    /// Changes a file's bytes.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        edit(&mut self.state().names[path].lock().unwrap().bytes);
    }

    /// Another program removes the file of a lock: the next one to lock it has another file.
    pub fn remove_lock(&self, path: &Path) {
        let mut state = self.state();
        state.locked.remove(path);
        *state.removals.entry(path.to_owned()).or_default() += 1;
    }

    pub fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.synced.remove(path);
    }

    pub fn restore(&self, path: &Path, bytes: Vec<u8>) {
        let data = Arc::new(Mutex::new(Data { synced: bytes.len(), bytes, lost: Vec::new() }));
        self.state().names.insert(path.to_owned(), data);
    }

    fn file(&self, path: &Path) -> io::Result<(MutexGuard<'_, State>, Shared)> {
        let state = self.operation()?;
        let data = state.names.get(path).cloned().ok_or(ErrorKind::NotFound)?;
        Ok((state, data))
    }
}

/// The error of a disk that could not write what it should.
fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

struct Lock {
    disk: FakeDisk,
    path: PathBuf,
    /// True if readers share the lock.
    reads: bool,
    /// The number of times that the file was removed before.
    removals: u64,
}

impl DiskLock for Lock {
    fn check(&self) -> io::Result<()> {
        match self.is_there(&self.disk.state()) {
            true => Ok(()),
            false => Err(ErrorKind::NotFound.into()),
        }
    }
}

impl Lock {
    fn is_there(&self, state: &State) -> bool {
        state.removals.get(&self.path).copied().unwrap_or(0) == self.removals
    }
}

struct Open {
    disk: FakeDisk,
    data: Shared,
}

impl Disk for FakeDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut state = self.operation()?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let data = Shared::default();
        state.names.insert(path.to_owned(), Arc::clone(&data));
        Ok(Box::new(Open { disk: self.clone(), data }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        let data = self.file(path)?.1;
        Ok(Box::new(Open { disk: self.clone(), data }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut state, data) = self.file(from)?;
        if state.renames_fail != Some(false) {
            state.names.remove(from);
            state.names.insert(to.to_owned(), data);
        }
        if state.renames_fail.is_some() {
            Err(io::Error::other("it is not known whether the name is there"))
        } else {
            Ok(())
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (mut state, _) = self.file(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        let data = self.file(path)?.1;
        let mut data = data.lock().unwrap();
        data.bytes.truncate(size as usize);
        data.synced = data.synced.min(size as usize);
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.operation()?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        self.operation().map(|_| ())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let lost = self.sync_outcome()?.is_some();
        let (state, data) = self.file(path)?;
        drop(state);
        if lost {
            return Err(eio());
        }
        let mut data = data.lock().unwrap();
        data.synced = data.bytes.len();
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if self.sync_outcome()?.is_some() {
            return Err(eio());
        }
        let mut state = self.state();
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        let State { names, synced, .. } = &mut *state;
        synced.retain(|path, _| !inside(path));
        synced.extend(names.iter().filter(|(path, _)| inside(path)).map(|(path, data)| (path.clone(), data.clone())));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.operation()?;
        let free = !state.read_locks.contains_key(path) && state.locked.insert(path.to_owned());
        let removals = state.removals.get(path).copied().unwrap_or(0);
        let lock = || -> Box<dyn DiskLock> {
            Box::new(Lock { disk: self.clone(), path: path.to_owned(), reads: false, removals })
        };
        Ok(free.then(lock))
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.operation()?;
        if state.locked.contains(path) {
            return Ok(None);
        }
        *state.read_locks.entry(path.to_owned()).or_default() += 1;
        let removals = state.removals.get(path).copied().unwrap_or(0);
        Ok(Some(Box::new(Lock { disk: self.clone(), path: path.to_owned(), reads: true, removals })))
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        let mut state = self.operation()?;
        state.waited += time;
        let (waited, waits) = (state.waited, state.waits.take());
        drop(state);
        if let Some(mut waits) = waits {
            waits(waited);
            self.state().waits = Some(waits);
        }
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if self.reads {
            let left = state.read_locks.get_mut(&self.path).expect("a reader has it");
            *left -= 1;
            if *left == 0 {
                state.read_locks.remove(&self.path);
            }
        } else if self.is_there(&state) {
            state.locked.remove(&self.path);
        }
    }
}

impl Output for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let capacity = self.disk.state().capacity;
        let free = capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(self.disk.size()));
        if free < bytes.len() {
            self.data.lock().unwrap().bytes.extend_from_slice(&bytes[..free]);
            return Err(ErrorKind::StorageFull.into());
        }
        let allowed = self.disk.operation().map(|_| ());
        // A machine that stops in a write has written a part of it.
        let written = if allowed.is_ok() { bytes.len() } else { bytes.len() / 2 };
        self.data.lock().unwrap().bytes.extend_from_slice(&bytes[..written]);
        allowed
    }

    fn sync(&mut self) -> io::Result<()> {
        let failed = self.disk.sync_outcome()?;
        self.disk.wait_if_held();
        let mut data = self.data.lock().unwrap();
        let (synced, end) = (data.synced, data.bytes.len());
        match failed {
            None => data.synced = end,
            Some(Pages::Kept) => {}
            Some(Pages::Lost) => data.lost.push(synced..end),
        }
        failed.map_or(Ok(()), |_| Err(eio()))
    }

    fn duplicate(&self) -> io::Result<Box<dyn Output>> {
        drop(self.disk.operation()?);
        Ok(Box::new(Open { disk: self.disk.clone(), data: self.data.clone() }))
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.disk.state().names.values().any(|data| Arc::ptr_eq(data, &self.data)))
    }
}

impl Input for Open {
    fn size(&self) -> u64 {
        self.data.lock().unwrap().bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.operation()?;
        if state.reads_fail {
            return Err(eio());
        }
        state.read += into.len() as u64;
        drop(state);
        let data = self.data.lock().unwrap();
        let from = data.bytes.get(offset as usize..).ok_or(ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(from.get(..into.len()).ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
