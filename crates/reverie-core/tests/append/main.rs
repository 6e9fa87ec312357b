//! Writers: what items see of the steps that were appended.

#[path = "../support/mod.rs"]
mod support;
mod in_flight;
mod inserts;
mod structured;
mod trajectories;
mod transitions;
