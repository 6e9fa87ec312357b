//! The file operations that checkpoints, journals and chunks on the disk need, and the machine's own file system.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod cancel;
mod file_lock;
#[cfg_attr(windows, path = "disk/windows.rs")]
#[cfg_attr(not(windows), path = "disk/unix.rs")]
mod system;

pub use cancel::{CancellableDisk, cancellable};
use file_lock::FileLock;

/// A file system.
///
/// Written bytes are on the disk once the file was synced, and a name (created, renamed, removed) once its folder was;
/// before that, a crash may leave any part of them.
pub trait Disk: Send + Sync {
    /// Creates a file; refuses a name that exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Opens a file to read.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>>;
    /// Renames a file, and replaces a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Truncates a longer file to its first `size` bytes.
    fn shorten(&self, path: &Path, size: u64) -> io::Result<()>;
    /// Waits until a file's bytes are on the disk, whichever process wrote them.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in no order; `NotFound` if there is no folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Creates a folder and its missing parents, for this user alone; does nothing if it exists.
    ///
    /// Waits until the names of all of them are on the disk.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Waits until the folder's names are on the disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Takes a lock with one holder on this machine, until it is dropped or its process ends; `None` if it is taken.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
    /// Takes a lock that several readers may have, and no holder of [`Disk::lock`] meanwhile; `None` if one has it.
    ///
    /// The file must be there. It is opened to read, so that its rights need not allow more.
    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.lock(path)
    }
    /// Waits, before something is tried again.
    fn wait(&self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }
}

/// A file that is written sequentially.
pub trait Output: Send {
    /// Appends all the bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until what was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Another handle of the same open file, so that one thread can sync it while another writes.
    fn duplicate(&self) -> io::Result<Box<dyn Output>>;
    /// False if the file was removed: what is written to it is lost.
    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// A lock of a [`Disk`], until it is dropped.
pub trait DiskLock: Send + Sync {
    /// Fails if the locked file is no longer at its path: another holder may have locked a new one.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is read at any offset.
pub trait Input: Send + Sync {
    /// The length of the file in bytes.
    fn size(&self) -> u64;
    /// Fills `into` from `offset` on; `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFileSystem;

struct ReadableFile {
    file: File,
    size: u64,
}

impl Disk for LocalFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        // Appends also after the file was shortened.
        Ok(Box::new(OpenOptions::new().append(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        check_regular(path)?;
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Box::new(ReadableFile { file, size }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.set_len(size)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|found| Ok(found?.file_name().into_string().ok()));
        // A name that is not valid text is not a checkpoint's file.
        names.filter_map(io::Result::transpose).collect()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        make_folders(folder, |above| self.sync_folder(above))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        system::open_to_sync(path)?.sync_all()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let here = Path::new(".");
        or_unknown(system::open_to_sync(if folder.as_os_str().is_empty() { here } else { folder })?.sync_all())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        match check_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            checked => checked?,
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let taken = file.try_lock();
        Ok(FileLock::taken(path, file, taken)?.map(|lock| Box::new(lock) as Box<dyn DiskLock>))
    }

    fn lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        check_regular(path)?;
        let file = File::open(path)?;
        let taken = file.try_lock_shared();
        Ok(FileLock::taken(path, file, taken)?.map(|lock| Box::new(lock) as Box<dyn DiskLock>))
    }
}

/// Fails for what is not a file with bytes: to open a pipe would wait for another process.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file; move it to another folder")),
    }
}

/// The outcome of syncing a folder: file systems that sync no folder, such as some over a network, refuse the call
/// (EINVAL) and keep names by their own rules.
fn or_unknown(synced: io::Result<()>) -> io::Result<()> {
    synced.or_else(|error| match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    })
}

/// Creates a folder and its missing parents, and calls `sync` for the parent of each of them.
///
/// On an error it removes all of them, so that the next attempt does not rely on a name that is not on the disk.
fn make_folders(folder: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.is_dir();
    let mut made: Vec<&Path> = folder.ancestors().take_while(missing).collect();
    made.reverse();
    let outcome = made.iter().try_for_each(|folder| {
        // Another thread may have created it.
        system::private_folders().create(folder)?;
        sync(folder.parent().unwrap_or(Path::new("")))
    });
    if outcome.is_err() {
        // A folder that is not empty is used by others by now.
        made.iter().rev().for_each(|folder| _ = fs::remove_dir(folder));
    }
    outcome
}

impl DiskLock for FileLock {
    fn check(&self) -> io::Result<()> {
        FileLock::check(self)
    }
}

impl Output for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn duplicate(&self) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(system::has_name(&self.metadata()?))
    }
}

impl Input for ReadableFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        system::read_exact_at(&self.file, offset, into)
    }
}

/// Converts an error of the file system.
pub(crate) fn storage<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |error| Error::Storage { path: path.display().to_string(), action: action.into(), reason: reason(&error) }
}

/// The message of the file system, and the setting to change where that is not the disk's.
fn reason(error: &io::Error) -> String {
    match system::is_open_file_limit(error) {
        true => format!("{error}; raise the limit of open files of this process (ulimit -n, hard and soft)"),
        false => error.to_string(),
    }
}

/// Like [`storage`], for reads: a file that is missing or too short is damaged.
pub(crate) fn read_error<'a>(path: &'a Path, offset: u64) -> impl FnOnce(io::Error) -> Error + 'a {
    move |error| match error.kind() {
        ErrorKind::NotFound => damaged(path, "the file is missing", 0),
        ErrorKind::UnexpectedEof => damaged(path, "the file ends too early", offset),
        _ => storage("read", path)(error),
    }
}

/// The error for a file whose content is not what was written.
pub(crate) fn damaged(path: &Path, what: impl Into<String>, offset: u64) -> Error {
    Error::DamagedFile { path: path.display().to_string(), what: what.into(), offset }
}

/// The names in a folder; empty if there is no folder.
pub(crate) fn names(disk: &dyn Disk, folder: &Path) -> Result<Vec<String>> {
    match disk.list(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(storage("list", folder)),
    }
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    pub(super) fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("reverie-disk-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_system_that_syncs_no_folder_is_used_and_a_failed_sync_is_reported() {
        let sync = |kind: ErrorKind| or_unknown(Err(kind.into()));
        assert!(sync(ErrorKind::InvalidInput).is_ok() && sync(ErrorKind::Unsupported).is_ok());
        assert!(sync(ErrorKind::Other).is_err() && sync(ErrorKind::StorageFull).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn an_error_of_too_many_open_files_names_the_limit_to_raise() {
        let text = |code| storage("open", Path::new("a.segment"))(io::Error::from_raw_os_error(code)).to_string();
        assert!(text(rustix::io::Errno::MFILE.raw_os_error()).contains("; raise the limit of open files"));
        assert!(!text(rustix::io::Errno::NOSPC.raw_os_error()).contains("raise"));
    }

    #[test]
    fn the_name_of_every_new_folder_is_synced_up_to_the_first_that_was_there() {
        let root = temporary("nested");
        let folder = root.join("a/b/c");
        let synced = RefCell::new(Vec::new());
        let note = |above: &Path| {
            synced.borrow_mut().push(above.to_owned());
            Ok(())
        };
        make_folders(&folder, note).unwrap();
        assert!(folder.is_dir());
        assert_eq!(synced.take(), [root.clone(), root.join("a"), root.join("a/b")]);
        make_folders(&folder, note).unwrap();
        assert_eq!(synced.take(), Vec::<PathBuf>::new());
        LocalFileSystem.make_folder(&root.join("d/e")).unwrap();
        assert!(root.join("d/e").is_dir());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_pipe_in_the_place_of_a_file_or_a_lock_is_an_error_and_no_wait() {
        let root = temporary("pipe");
        let path = root.join("0000000001.segment");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = [
            LocalFileSystem.open(&path).err(),
            LocalFileSystem.lock(&path).err(),
            LocalFileSystem.lock_to_read(&path).err(),
        ];
        for error in refused {
            assert!(error.expect("it is refused").to_string().contains("not a regular file"));
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn new_folders_whose_names_cannot_be_synced_do_not_stay() {
        let root = temporary("unsynced");
        let fails = |above: &Path| if above == root.join("a") { Err(io::Error::other("no")) } else { Ok(()) };
        assert!(make_folders(&root.join("a/b"), fails).is_err());
        assert!(!root.join("a").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
