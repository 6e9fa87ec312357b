//! Tables: what they hold and give, which requests wait, and each of their parts against a simpler one.

#[path = "../support/mod.rs"]
mod support;
mod bytes;
mod changes;
mod copies;
mod drawn_once;
mod draws;
mod exchange;
mod holds;
mod layout;
mod leases;
mod leases_twin;
mod limiter;
mod model;
mod naive;
mod neighbours;
mod reasons;
mod selectors;
mod shards;
mod waiting;
