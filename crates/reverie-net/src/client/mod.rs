//! The remote client: the operations of a server's tables over a network, with the same tickets as in-process.
//!
//! No call here blocks: tickets wait (`Ticket::wait`), outside, in the caller's gate. One background runtime moves the
//! bytes of all clients of the process.

mod answer;
mod answer_time;
mod arriving_batch;
mod connection;
mod server_description;
mod dial;
mod engine;
mod incoming;
mod insert_queue;
mod inserts;
mod keeping;
mod kept_inserts;
mod known_tables;
mod outbox;
mod outgoing;
mod pipeline;
mod read_ahead;
mod remote;
mod replay;
mod request;
mod requests;
mod round_trip;
pub(crate) mod runtime;
mod task;
mod work;

pub use pipeline::Pipeline;
pub use read_ahead::ReadAhead;
pub use remote::{Remote, SampleRequest};
pub use server_description::ServerDescription;
