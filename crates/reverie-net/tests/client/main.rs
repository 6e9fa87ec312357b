//! The remote client against a server that follows the test. Time is the runtime's own and passes at once.

#[path = "../fake/mod.rs"]
mod fake;
mod support;

mod arriving;
mod deadlines;
mod failed;
mod inserts;
mod leases;
mod pipeline;
mod requests;
mod withdrawn_inserts;
