//! The data of a table: options, keys, priorities, requests, responses, figures.
//!
//! Here: plain data, its checks and its `Display`. Not here: decisions (see `policy`), a lock, a queue or a clock (see
//! `waiting`). A file here uses neither of the two.

pub(super) mod blocks;
pub(super) mod changes;
pub(super) mod copies;
pub(super) mod info;
pub(super) mod inserts;
pub(super) mod limiter;
pub(super) mod options;
pub(super) mod query;
pub(super) mod restoring;
pub(super) mod selector;
pub(super) mod senders;
pub(super) mod tally;
pub(super) mod why;
