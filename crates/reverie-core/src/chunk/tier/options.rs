//! The settings of a disk tier, and its figures.

use std::path::PathBuf;

/// The settings of a disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// The folder of the files; created if it does not exist. No other process may use it.
    pub folder: PathBuf,
    /// Bytes of memory for chunks.
    pub memory_bytes: u64,
    /// Bytes of all files at most; `None`: what the disk has.
    pub disk_bytes: Option<u64>,
    /// Bytes of compacted chunks in a second at most; 0: as fast as the disk is.
    pub compaction_bytes_per_second: u64,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            folder: PathBuf::new(),
            memory_bytes: u64::MAX,
            disk_bytes: None,
            compaction_bytes_per_second: 128 << 20,
        }
    }
}

/// The figures of a disk tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierInfo {
    /// The folder of the files.
    pub folder: String,
    /// Bytes of memory that chunks use.
    pub memory: u64,
    /// Bytes of memory that they may use.
    pub memory_bytes: u64,
    /// Bytes of the chunks on the disk.
    pub stored: u64,
    /// The part of these bytes in segments of checkpoints and of the journal.
    pub shared: u64,
    /// Chunks on the disk.
    pub chunks: u64,
    /// Bytes of the tier's own files: also those of chunks that are gone.
    pub used: u64,
    /// Bytes that the files may have.
    pub disk_bytes: Option<u64>,
    /// Chunks that were moved to the disk since the start, also those whose bytes were there.
    pub moved: u64,
    /// Bytes that compaction wrote since the start.
    pub compacted: u64,
    /// The reason why no chunk can be moved now; `None` if one can, or none has to.
    pub error: Option<String>,
}
