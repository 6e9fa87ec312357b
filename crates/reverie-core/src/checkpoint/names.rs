//! The names of the files.

use std::path::{Path, PathBuf};

const MANIFEST: &str = "checkpoint";
const SEGMENT: &str = "segment";
const UNFINISHED: &str = "unfinished";
/// The digits of a number, so that names sort as numbers do.
const DIGITS: usize = 10;

/// The kind of a file in a checkpoint's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A checkpoint.
    Manifest(u64),
    /// Chunks.
    Segment(u64),
    /// A manifest that was not renamed into place.
    Unfinished(u64),
}

/// The kind of the file with this name; `None` for other files.
pub(crate) fn kind(name: &str) -> Option<FileKind> {
    let (number, suffix) = name.split_once('.')?;
    if number.len() < DIGITS || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = number.parse().ok()?;
    match suffix {
        MANIFEST => Some(FileKind::Manifest(number)),
        SEGMENT => Some(FileKind::Segment(number)),
        UNFINISHED => Some(FileKind::Unfinished(number)),
        _ => None,
    }
}

pub(crate) fn manifest(root: &Path, number: u64) -> PathBuf {
    path(root, number, MANIFEST)
}

pub(crate) fn segment(root: &Path, number: u64) -> PathBuf {
    path(root, number, SEGMENT)
}

pub(crate) fn unfinished(root: &Path, number: u64) -> PathBuf {
    path(root, number, UNFINISHED)
}

/// The file that the server that writes to the folder locks.
pub(crate) fn lock(root: &Path) -> PathBuf {
    root.join("lock")
}

fn path(root: &Path, number: u64, suffix: &str) -> PathBuf {
    root.join(format!("{number:0DIGITS$}.{suffix}"))
}
