//! Several servers as one replay.

mod faults;
mod flow;
#[path = "../support/full_journal.rs"]
mod full_journal;
mod limits;
mod model;
mod restarts;
mod storm;
mod support;
