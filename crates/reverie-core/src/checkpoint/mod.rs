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
pub(crate) mod hold;
pub(crate) mod load;
pub(crate) mod manifest;
pub(crate) mod names;
mod periodic;
pub(crate) mod plan;
pub(crate) mod records;
mod restore;
pub(crate) mod retain;
pub(crate) mod rows;
mod section;
pub(crate) mod segment;
mod segments;
pub(crate) mod sent;
pub(crate) mod store;
pub(crate) mod summary;
mod version;

pub use crate::disk::{Cancellable, Disk, Folder, Input, Output, cancellable};
pub use load::{Checkpoint, Verified, load, verify};
pub use periodic::Periodic;
pub use restore::{Difference, Restored};
pub use retain::Keep;
pub use store::{Saved, Store};
pub use summary::{Summary, TableSummary, describe, latest, list};
