//! The state of a server's folder of checkpoints, and the lock that keeps other servers out of it.

use super::names;
use super::retention::{FolderContents, scan};
use crate::disk::{Disk, DiskLock, storage};
use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A server's claim on its folder.
pub(super) struct FolderClaim {
    /// Two servers in one folder would remove each other's files.
    lock: Option<Arc<dyn DiskLock>>,
    /// The number of the newest checkpoint that this server has seen: the one that it found, restored or took last.
    /// `None` for a folder that had none. A newer one is another server's.
    pub(super) newest: Option<u64>,
    /// Is given the reason of a wait that begins.
    pub(super) report: Option<Report>,
}

/// Takes a line of text.
pub(super) type Report = Box<dyn Fn(&str) + Send>;

/// The time for which a server waits for commands that read its folder. A supervisor that starts it again after that
/// does so for as long as they need.
const READERS: Duration = Duration::from_secs(30);

/// The interval at which the server checks whether these commands have ended.
const RETRY: Duration = Duration::from_millis(100);

/// The commands that keep servers out of a folder.
const COMMANDS: &str = "reverie checkpoint verify, reverie checkpoint repair or reverie data export";

impl FolderClaim {
    /// Looks for the newest checkpoint, without the lock.
    pub(super) fn look(disk: &dyn Disk, root: &Path) -> Result<Self> {
        Ok(Self { lock: None, newest: newest(&scan(disk, root)?), report: None })
    }

    /// The newest checkpoint that this server has seen.
    pub(super) fn found(&self, root: &Path) -> Option<PathBuf> {
        self.newest.map(|number| names::manifest(root, number))
    }

    /// Locks the folder for a server that will start with what it has then: what was found before the lock is stale.
    ///
    /// Does nothing if it is locked already.
    pub(super) fn begin(&mut self, disk: &dyn Disk, root: &Path) -> Result<()> {
        if self.lock.is_none() {
            self.take(disk, root, "start in", "wait until it has ended, or give each server a folder of its own")?;
            let found = scan(disk, root).inspect_err(|_| self.lock = None)?;
            self.newest = newest(&found);
        }
        Ok(())
    }

    /// Locks the folder, which is created if it is missing; returns its content.
    ///
    /// `Storage` if another server has it, or has taken a checkpoint there that this one does not know.
    pub(super) fn save(&mut self, disk: &dyn Disk, root: &Path) -> Result<FolderContents> {
        // If the file was removed, another server may have come and gone: what that left is found below.
        self.lock.take_if(|lock| lock.check().is_err_and(|error| error.kind() == ErrorKind::NotFound));
        self.take(disk, root, SAVE, "give each server a folder of its own")?;
        let found = scan(disk, root)?;
        if newest(&found) > self.newest {
            // It never saves here again: the server that goes on from that checkpoint may.
            self.lock = None;
            let reason = "another server took a checkpoint there that this one did not start with, and this one does not \
                          save there any more; start it again with a folder of its own";
            return Err(refusal(root, SAVE, reason));
        }
        Ok(found)
    }

    /// Takes the lock. Waits for commands that read the folder, for [`READERS`] at most, and for no server, of which
    /// the error gives the `advice`.
    fn take(&mut self, disk: &dyn Disk, root: &Path, action: &'static str, advice: &str) -> Result<()> {
        disk.make_folder(root).map_err(storage("make the folder", root))?;
        let path = names::lock(root);
        let mut waited = Duration::ZERO;
        loop {
            if self.lock.is_none() {
                self.lock = disk.lock(&path).map_err(storage("lock", &path))?.map(Arc::from);
            }
            if self.lock.is_some() {
                return Ok(());
            }
            // The lock of a reader is shared: another shared one is granted next to it, and dropped at once. That of a
            // server is exclusive.
            if disk.lock_to_read(&path).map_err(storage("lock", &path))?.is_none() {
                return Err(refusal(root, action, &format!("another server saves there; {advice}")));
            }
            let most = READERS.as_secs();
            if waited >= READERS {
                let reason = format!("a command ({COMMANDS}) reads it, and has not ended in {most} seconds");
                return Err(refusal(root, action, &format!("{reason}; try again when it has")));
            }
            if let (true, Some(report)) = (waited.is_zero(), &self.report) {
                let folder = root.display();
                report(&format!(
                    "{folder} is read by a command ({COMMANDS}): waiting for its end, {most} seconds at most"
                ));
            }
            disk.wait(RETRY).map_err(storage("wait for", &path))?;
            waited += RETRY;
        }
    }

    /// The lock, for a check that it is still held at its path; `None` if the folder is not locked.
    pub(super) fn watched(&self) -> Option<Weak<dyn DiskLock>> {
        self.lock.as_ref().map(Arc::downgrade)
    }

    /// Leaves the folder to other servers.
    pub(super) fn release(&mut self) {
        self.lock = None;
    }
}

/// Keeps servers out of a folder that is read, until it is dropped; changes nothing there.
///
/// `None` if no server has ever used it. `Storage` if a server uses it, with what the caller can do `instead`, or where
/// this process may not read the lock's file.
pub(crate) fn lock_for_reading(disk: &dyn Disk, root: &Path, instead: &str) -> Result<Option<Box<dyn DiskLock>>> {
    let path = names::lock(root);
    match disk.lock_to_read(&path) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(refusal(root, "read", &format!("a server writes there; {instead}"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(storage("lock", &path)(error)),
    }
}

fn newest(found: &FolderContents) -> Option<u64> {
    found.manifests.last().copied()
}

/// The action of a server that takes a checkpoint, in errors.
const SAVE: &str = "save to";

fn refusal(root: &Path, action: &'static str, reason: &str) -> Error {
    Error::Storage { path: root.display().to_string(), action: action.into(), reason: reason.to_owned() }
}
