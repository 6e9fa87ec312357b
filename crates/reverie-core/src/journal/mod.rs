//! **Journal**: what is done at the tables, on the disk before it is acknowledged.
//!
//! A *commit* has what changed at all tables since the commit before: the present rows of slots that changed, counters,
//! and the inserts that may be retried. It is a record of the segments that checkpoints use, behind the records of the
//! chunks that it refers to. So bytes are written once, and a checkpoint is a manifest and the number of the commit that
//! follows it. A server that starts applies the commits after the newest manifest to the rows of that manifest.
//!
//! A commit has states, not operations: it can be applied twice, an item that came and left between two commits is not
//! written, and no random state is needed.

mod commit;
mod encode;
mod group;
mod headless;
mod log;
mod options;
mod progress;
mod recover;
mod repair;
mod replay;
mod saver;
mod syncs;

pub use crate::table::JournalInfo;
pub use group::Journal;
pub use headless::refuse_headless;
pub use log::Log;
pub use options::{JournalOptions, SyncPolicy};
pub use recover::{JournalEnd, RecoveredJournal, recover};
pub use repair::{Loss, RepairOutcome, VerifiedJournal, repair, verify};
pub use replay::HeldLease;
pub use saver::{FolderKeeper, Recovery, Saver};
