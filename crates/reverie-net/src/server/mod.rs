//! The server: sessions of connections, and their operations on the tables.
//!
//! ```text
//! connection: admission -> handshake -> session -> inserts  -> table
//!                                       |        requests -> samples -> batches -> pool or slot
//!                                       +-- outcomes, until the client acknowledges them
//! ```

mod outcome_future;
mod latencies;
pub mod spans;
mod waits;
mod clients;
mod options;
mod read_options;
mod shared;
mod handshake;

mod charges;
mod checkpoints;
mod inserts;
mod outcomes;
mod session;

mod batches;
mod delivery;
mod gathering;
mod pool;
mod samples;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;

pub(crate) use charges::Charge;
pub(crate) use clients::ClientView;
pub(crate) use latencies::{FINITE, Histogram, Latencies, RequestKind, RequestTransport};
pub use options::{Limits, ServerOptions, ServerTls};
pub(crate) use shared::ServerState;
