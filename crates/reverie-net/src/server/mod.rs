//! The server: what the sessions of its connections do with the tables.
//!
//! ```text
//! connection: admission -> welcome -> session -> inserts  -> table
//!                                       |        requests -> samples -> batches -> pool or slot
//!                                       +-- memory: what was done, until the client says that it knows
//! ```

mod options;
mod shared;
mod welcome;

mod charges;
mod checkpoints;
mod inserts;
mod leases;
mod memory;
mod requests;
mod session;

mod batches;
mod delivery;
mod pool;
mod samples;
mod unpacking;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;

pub(crate) use charges::Charge;
pub use options::{Limits, Options, Tls};
pub(crate) use shared::Shared;
