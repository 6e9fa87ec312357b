//! **Table**: a bounded set of items with a *sampler*, a *remover* and a *rate limiter*.
//!
//! The sampler chooses the next item to sample, the remover the next item to evict. The rate limiter decides which
//! requests wait.

// Layers: a module uses only modules that are declared above it.
mod types;
mod policy;
mod waiting;

pub use policy::emptied::{Dropped, Emptied};
pub use policy::forgotten::Forgotten;
pub use policy::options::check_pattern;
pub use policy::slots::page::Cut;
pub use policy::slots::slot::{Age, Slot};
pub use policy::table::Table;
pub use policy::table::restore::TableCut;
pub use policy::{limiter, selector, sum_tree};
pub use types::blocked::{Blocked, Obstacle};
pub use types::changes::{Neighbours, Updated, Updates};
pub use types::copies::{Copied, InsertOnSample, MOST_WAITING};
pub use types::delta::{Counts, SenderChange, TableDelta};
pub use types::info::{AGE_BUCKETS, Stats, TIMES_BUCKETS, TableInfo, Times};
pub use types::inserts::{Inserts, Keys, Priority};
pub use types::journal::JournalInfo;
pub use types::lessee::Lessee;
pub use types::options::{Change, TableOptions};
pub use types::query::{Comparison, Condition, Field, MAX_CONDITIONS, Query};
pub use types::restoring::{Leased, Restoring, Row};
pub use types::senders::{Arrivals, Sender, Sent};
pub use types::tally::{Seen, Tally};
pub use types::why::{InsertReason, MOST_REPORTED, SampleReason, Unmovable, Waiting, Why};
pub use waiting::driven::Withdrawal;
pub use waiting::durable::{COMMIT_GRACE, Durable, Outcome, why_not_committed};
pub use waiting::promise::Promise;
pub use waiting::shared::SharedTable;
pub use waiting::spares::Spared;
pub use waiting::tables::{Checkpointer, Cuts, Tables};
pub use waiting::ticket::{RequestHolder, Ticket};

pub use crate::sample::Lease;
