//! **Table**: a bounded set of items with a *sampler* (which item next), a *remover* (which item leaves) and a
//! *rate limiter* (who may go on).

// From the ground up: a room uses none that is declared below it.
mod types;
mod policy;
mod waiting;

use policy::{forgotten, options, query, slots, table};
use types::info;
use waiting::{copies, insert_queue, lease, queues, sent, shared, spares, tables, ticket};

pub use policy::{limiter, selector, sum_tree};

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
