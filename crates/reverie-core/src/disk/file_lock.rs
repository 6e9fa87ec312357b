//! Locks on files of the machine's file system.

use crate::inherited::ListedDescriptor;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A lock on a file, until it is dropped.
///
/// A forked child has a descriptor of the same open file until it closes it: to close ours does not end the lock. For
/// the same reason the child must not end it.
pub(super) struct FileLock {
    /// The listed descriptor of the file. It is declared before the file, which is closed after it.
    _listed: ListedDescriptor,
    file: File,
    path: PathBuf,
    process: u32,
}

impl FileLock {
    /// The lock of a file, of which an attempt to lock it had this outcome; `None` if another holder has it.
    pub(super) fn taken(
        path: &Path,
        file: File,
        outcome: std::result::Result<(), TryLockError>,
    ) -> io::Result<Option<Self>> {
        match outcome {
            Ok(()) => Ok(Some(Self::of(path, file, std::process::id()))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn of(path: &Path, file: File, process: u32) -> Self {
        Self { _listed: ListedDescriptor::of(&file), file, path: path.to_owned(), process }
    }

    /// Fails if the file is no longer at its path.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_same = match fs::metadata(&self.path) {
            Ok(found) => is_same(&found, &self.file.metadata()?),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_same { Ok(()) } else { Err(io::Error::new(ErrorKind::NotFound, "the file was removed or replaced")) }
    }
}

/// True if both are of the same file.
#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// True if both may be of the same file, which has no number that the standard library reads here.
#[cfg(not(unix))]
fn is_same(_one: &Metadata, _other: &Metadata) -> bool {
    true
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // On an error, closing the file may still end it.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::temporary;
    use crate::disk::{Disk, LocalFileSystem};
    use std::fs::OpenOptions;

    #[test]
    fn a_lock_ends_with_its_holder_though_a_forked_process_has_the_file_open() {
        let root = temporary("lock");
        let path = root.join("lock");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        // As a forked child has it.
        let duplicate = file.try_clone().unwrap();
        let taken = file.try_lock();
        let held = FileLock::taken(&path, file, taken).unwrap().expect("no other holder");
        let of_child = FileLock::of(&path, duplicate.try_clone().unwrap(), std::process::id() + 1);
        drop(of_child);
        assert!(LocalFileSystem.lock(&path).unwrap().is_none(), "the child does not end it");
        drop(held);
        assert!(LocalFileSystem.lock(&path).unwrap().is_some());
        drop(duplicate);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn readers_share_a_lock_that_keeps_writers_out_and_create_no_file() {
        let root = temporary("shared");
        let path = root.join("lock");
        assert_eq!(LocalFileSystem.lock_to_read(&path).err().map(|error| error.kind()), Some(ErrorKind::NotFound));
        let writer = LocalFileSystem.lock(&path).unwrap();
        assert!(LocalFileSystem.lock_to_read(&path).unwrap().is_none());
        drop(writer);
        let readers = [(); 2].map(|()| LocalFileSystem.lock_to_read(&path).unwrap().expect("no writer"));
        assert!(LocalFileSystem.lock(&path).unwrap().is_none());
        drop(readers);
        assert!(LocalFileSystem.lock(&path).unwrap().is_some());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_lock_whose_file_was_removed_replaced_or_moved_with_its_folder_reports_that() {
        let root = temporary("lost");
        let path = root.join("lock");
        let held = LocalFileSystem.lock(&path).unwrap().expect("no other holder");
        assert!(held.check().is_ok());
        fs::remove_file(&path).unwrap();
        assert!(held.check().is_err(), "removed");
        let other = LocalFileSystem.lock(&path).unwrap().expect("it is another file");
        assert!(held.check().is_err(), "replaced");
        assert!(other.check().is_ok());
        let moved = root.with_extension("moved");
        fs::rename(&root, &moved).unwrap();
        assert!(other.check().is_err(), "moved");
        fs::remove_dir_all(moved).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_was_removed_while_it_is_written_has_no_name() {
        let root = temporary("unnamed");
        let path = root.join("0000000001.segment");
        let output = LocalFileSystem.create(&path).unwrap();
        assert!(output.has_name().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!output.has_name().unwrap());
        fs::remove_dir_all(root).unwrap();
    }
}
