//! **Table**: a bounded set of items with a *sampler*, a *remover* and a *rate limiter*.
//!
//! The sampler chooses the next item to sample, the remover the next item to evict. The rate limiter decides which
//! requests wait.

// Layers: a module uses only modules that are declared above it.
mod types;
mod policy;
mod waiting;

pub use policy::discarded_items::{DiscardedItems, RemovedItems};
pub use policy::forgotten_senders::ForgottenSenders;
pub use policy::options::check_pattern;
pub use policy::slots::page::Cut;
pub use policy::slots::slot::{Age, Slot};
pub use policy::table::Table;
pub use policy::table::restore::TableCut;
pub use policy::{limiter, selector, sum_tree};
pub use types::blocked_times::{BlockReason, BlockedTimes};
pub use types::changes::{ChangeCounts, Neighbours, Updates};
pub use types::copies::{CopyStats, InsertOnSample, MOST_WAITING};
pub use types::delta::{Counts, SenderChange, TableDelta};
pub use types::info::{AGE_BUCKETS, Stats, TIMES_BUCKETS, TableInfo, Times};
pub use types::inserts::{Inserts, Keys, Priority};
pub use types::journal::JournalInfo;
pub use types::lessee::Lessee;
pub use types::options::{Change, TableOptions};
pub use types::query::{Comparison, Condition, Field, MAX_CONDITIONS, Query};
pub use types::senders::{Arrivals, Sender, SentInsert};
pub use types::table_contents::{LeasedSlot, Row, TableContents};
pub use types::tally::{SeenTally, Tally};
pub use types::wait_report::{InsertReason, MOST_REPORTED, SampleReason, UnmovableBytes, WaitEntry, WaitReport};
pub use waiting::driven::Withdrawal;
pub use waiting::durable::{COMMIT_GRACE, Outcome, TableJournal, why_not_committed};
pub use waiting::promise::Promise;
pub use waiting::shared::SharedTable;
pub use waiting::spares::SparePagesGuard;
pub use waiting::tables::{Checkpointer, ServerCut, Tables};
pub use waiting::ticket::{RequestHolder, Ticket};

pub use crate::sample::Lease;
