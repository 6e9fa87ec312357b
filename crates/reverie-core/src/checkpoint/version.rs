//! The version of a file: its first bytes, which are the same in all versions, say its kind and its version.

use crate::disk::damaged;
use crate::error::{Error, Result};
use std::path::Path;

/// A kind of files: seven bytes that each begins with, and the version that is written, which follows them.
pub(crate) struct Format {
    pub(crate) magic: [u8; 7],
    pub(crate) version: u8,
    /// The name for users.
    pub(crate) name: &'static str,
}

impl Format {
    /// The first eight bytes.
    pub(crate) fn head(&self) -> [u8; 8] {
        let mut head = [self.version; 8];
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
        let (theirs, ours) = (head[7], self.version);
        if theirs == ours {
            return Ok(());
        }
        let advice = if theirs > ours { "a newer" } else { "an older" };
        let reason = format!(
            "it has version {theirs} of the format of a {}, and this program reads version {ours}; use {advice} Reverie",
            self.name
        );
        Err(Error::Storage { path: path.display().to_string(), action: "read".into(), reason })
    }
}
