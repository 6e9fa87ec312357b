//! A file system whose calls fail in a thread that is to end its work.

use super::{Disk, DiskLock, Input, Output};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

thread_local! {
    static CANCEL: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs work in this thread. Once the flag is set, each call of a [`CancellableDisk`] by this thread fails: the work ends as
/// it does where the disk fails, and what it leaves is what a kill would leave.
pub fn cancellable<T>(cancel: Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    struct CancelFlagGuard(Option<Arc<AtomicBool>>);
    impl Drop for CancelFlagGuard {
        fn drop(&mut self) {
            CANCEL.set(self.0.take());
        }
    }
    let _reset = CancelFlagGuard(CANCEL.replace(Some(cancel)));
    work()
}

/// Fails if the work of this thread was cancelled.
fn check() -> io::Result<()> {
    match CANCEL.with_borrow(|cancel| cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed))) {
        true => Err(io::Error::other("the call was interrupted")),
        false => Ok(()),
    }
}

/// A file system of which [`cancellable`] work can be ended. Removing files and taking locks are short, and never fail for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct CancellableDisk<D>(pub D);

struct CancellableFile<F: ?Sized>(Box<F>);

impl<D: Disk> Disk for CancellableDisk<D> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        check()?;
        Ok(Box::new(CancellableFile(self.0.create(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        check()?;
        Ok(Box::new(CancellableFile(self.0.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check()?;
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        self.0.shorten(path, size)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        check()?;
        self.0.sync(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        check()?;
        self.0.make_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        check()?;
        self.0.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.0.lock(path)
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.0.lock_to_read(path)
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        check()?;
        self.0.wait(time)?;
        check()
    }
}

impl Output for CancellableFile<dyn Output> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        check()?;
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        check()?;
        self.0.sync()
    }

    fn duplicate(&self) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(Self(self.0.duplicate()?)))
    }

    fn has_name(&self) -> io::Result<bool> {
        self.0.has_name()
    }
}

impl Input for CancellableFile<dyn Input> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        check()?;
        self.0.read_at(offset, into)
    }
}
