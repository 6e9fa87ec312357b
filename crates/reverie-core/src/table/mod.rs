//! **Table**: a bounded set of items with a *sampler* (which item next), a *remover* (which item leaves) and a
//! *rate limiter* (who may go on).

mod copies;
mod forgotten;
mod info;
mod insert_queue;
mod largest;
mod lease;
mod lineage;
pub mod limiter;
mod options;
mod pages;
mod query;
mod queues;
mod saving;
pub mod selector;
mod sent;
mod shared;
mod slots;
mod spares;
mod spread;
pub mod sum_tree;
#[allow(clippy::module_inception)]
mod table;
mod tables;
mod ticket;

pub use copies::{Copied, InsertOnSample, MOST_WAITING};
pub use forgotten::Forgotten;
pub use info::{AGE_BUCKETS, InsertReason, MOST_REPORTED, SampleReason, Stats, TableInfo, Times, Waiting, Why};
pub use lease::Lease;
pub use options::{Change, TableOptions, check_pattern};
pub use query::{Comparison, Condition, Field, MAX_CONDITIONS, Query};
pub use sent::{Arrivals, Sender, Sent};
pub use shared::{Inserts, Priority, SharedTable};
pub use slots::{Age, Cut, Slot};
pub use spares::Spared;
pub use table::{Dropped, Emptied, Neighbours, Restoring, Row, Seen, Table, TableCut, Tally, Updated, Updates};
pub use tables::{Cuts, Tables};
pub use ticket::{Desk, Keys, Promise, Ticket};
