//! The file system's operations that differ on Unix.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;

/// Creates a folder and its missing parents, for this user alone.
pub(super) fn private_folders() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Opens a file or a folder such that it can be synced.
pub(super) fn open_to_sync(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Fills `into` from `offset` on; `UnexpectedEof` if the file ends before.
pub(super) fn read_exact_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(into, offset)
}

/// True if the process may have no more open files.
pub(super) fn is_open_file_limit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error())
}

/// False if the file was removed while it is open.
pub(super) fn has_name(of: &Metadata) -> bool {
    of.nlink() > 0
}
