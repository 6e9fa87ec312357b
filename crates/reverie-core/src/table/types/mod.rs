//! The data of a table: options, keys, priorities, requests, responses, figures.
//!
//! Contains plain data, its checks and its `Display`. Contains no decisions (see `policy`), and no lock, queue or clock
//! (see `waiting`). Files here use neither of those modules.

pub(super) mod blocked_times;
pub(super) mod blocks;
pub(super) mod changes;
pub(super) mod copies;
pub(super) mod delta;
pub(super) mod info;
pub(super) mod inserts;
pub(super) mod journal;
pub(super) mod lessee;
pub(super) mod limiter;
pub(super) mod options;
pub(super) mod query;
pub(super) mod table_contents;
pub(super) mod selector;
pub(super) mod senders;
pub(super) mod tally;
pub(super) mod wait_report;
