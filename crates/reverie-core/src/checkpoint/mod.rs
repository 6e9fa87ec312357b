//! **Checkpoint**: the tables of a server as files that outlive it.
//!
//! A folder holds *segments*, append-only files of chunks, each chunk written once, and *manifests*, one per
//! checkpoint: the tables' options, counters and items, and the places of the chunks in the segments. A manifest is
//! renamed into place after everything that it names is on the disk, so that a crash at any byte leaves the earlier
//! checkpoints intact. `docs/guides/checkpoints.md` describes the files.
//!
//! All access goes through [`Disk`]; wall time is an argument.

pub(crate) mod bytes;
pub(crate) mod chunk_log;
#[cfg(test)]
mod fuzz;
pub(crate) mod folder_claim;
pub(crate) mod load;
pub(crate) mod manifest;
pub(crate) mod names;
mod periodic;
pub(crate) mod plan;
pub(crate) mod records;
mod restore;
pub(crate) mod retention;
pub(crate) mod rows;
mod section;
pub(crate) mod segment;
mod segments;
pub(crate) mod sent;
pub(crate) mod store;
pub(crate) mod summary;
mod version;

pub use crate::disk::{CancellableDisk, Disk, DiskLock, Input, LocalFileSystem, Output, cancellable};
pub use load::{Checkpoint, VerifiedCheckpoint, load, verify};
pub use periodic::PeriodicThread;
pub use restore::{Difference, RestoreOutcome};
pub use retention::RetentionPolicy;
pub use store::{SaveOutcome, Store};
pub use summary::{Summary, TableSummary, describe, latest, list};
