//! The version of a file: its first bytes, which are the same in all versions, are its kind and its version.

use crate::disk::damaged;
use crate::error::{Error, Result};
use std::path::Path;

/// The version that is written, the same for all kinds of files. 2 has records of [`RecordKind::Start`] in segments.
///
/// [`RecordKind::Start`]: super::segment::RecordKind::Start
const VERSION: u8 = 2;

/// The oldest version that is read: what it has means the same in the later ones.
const OLDEST: u8 = 1;

/// A kind of files: seven bytes that each begins with; the version follows them.
pub(crate) struct Format {
    pub(crate) magic: [u8; 7],
    /// The name for users.
    pub(crate) name: &'static str,
}

impl Format {
    /// The first eight bytes.
    pub(crate) fn head(&self) -> [u8; 8] {
        let mut head = [VERSION; 8];
        head[..7].copy_from_slice(&self.magic);
        head
    }

    /// Checks the first bytes of a file; the four behind `head` are its CRC.
    ///
    /// `DamagedFile` for bytes that no version wrote, `Storage` for another version.
    pub(crate) fn check(&self, path: &Path, head: &[u8], crc: &[u8]) -> Result<()> {
        if head[..7] != self.magic || crc != crc32fast::hash(head).to_le_bytes() {
            return Err(damaged(path, format!("this is not the head of a {}", self.name), 0));
        }
        let theirs = head[7];
        let (reads, advice) = match theirs {
            OLDEST..=VERSION => return Ok(()),
            ..OLDEST => (format!("from version {OLDEST} on"), "an older"),
            _ => (format!("up to version {VERSION}"), "a newer"),
        };
        let reason = format!(
            "it has version {theirs} of the format of a {}, and this program reads {reads}; use {advice} Reverie",
            self.name
        );
        Err(Error::Storage { path: path.display().to_string(), action: "read".into(), reason })
    }
}
