//! **Table**: a bounded set of items with a *sampler* (which item next), a *remover* (which item leaves) and a
//! *rate limiter* (who may go on).

// From the ground up: a room uses none that is declared below it.
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
pub use types::changes::{Neighbours, Updated, Updates};
pub use types::copies::{Copied, InsertOnSample, MOST_WAITING};
pub use types::info::{AGE_BUCKETS, Stats, TableInfo, Times};
pub use types::inserts::{Inserts, Keys, Priority};
pub use types::options::{Change, TableOptions};
pub use types::query::{Comparison, Condition, Field, MAX_CONDITIONS, Query};
pub use types::restoring::{Restoring, Row};
pub use types::senders::{Arrivals, Sender, Sent};
pub use types::tally::{Seen, Tally};
pub use types::why::{InsertReason, MOST_REPORTED, SampleReason, Waiting, Why};
pub use waiting::shared::SharedTable;
pub use waiting::spares::Spared;
pub use waiting::tables::{Cuts, Tables};
pub use waiting::ticket::{Desk, Promise, Ticket};

pub use crate::sample::Lease;
