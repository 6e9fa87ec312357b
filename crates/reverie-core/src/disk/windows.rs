//! The file system's operations that differ on Windows.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Windows opens a folder only with this flag (FILE_FLAG_BACKUP_SEMANTICS).
const FOLDERS_TOO: u32 = 0x0200_0000;

/// Creates a folder and its missing parents. Access rights are inherited: in a user's own folder,
/// they are the user's.
pub(super) fn private_folders() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    builder
}

/// Opens a file or a folder such that it can be synced, for which Windows wants the right to write.
pub(super) fn open_to_sync(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(FOLDERS_TOO).open(path)
}

/// Fills `into` from `offset` on; `UnexpectedEof` if the file ends before.
pub(super) fn read_exact_at(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match file.seek_read(into, offset) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                into = &mut into[bytes..];
                offset += bytes as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// True if the process may have no more open files; here there is no limit to raise.
pub(super) fn is_open_file_limit(_error: &io::Error) -> bool {
    false
}

/// False if the file was removed while it is open, which is not known here.
pub(super) fn has_name(_of: &Metadata) -> bool {
    true
}
