//! What a table is told, and what it tells: data.
//!
//! In here: options, keys, priorities, requests, answers, figures. Not in here: decisions (they are in `policy`), a
//! lock, a queue or a clock (they are in `waiting`).

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
