//! The server of replay tables and its remote client.
//!
//! ```text
//! client: append -> chunk -> item -> encoder --+                    +-- decoder -> table: server
//!                                              |  grpc | local      |
//! client: batch  <- block <- parts or slot ----+                    +-- gather <- draws <- table: server
//! ```
//!
//! One protocol ([`proto`]), one server session ([`server`]) and one client ([`client`]) for both ways to travel:
//! [`grpc`] over TCP to any host, [`local`] over a Unix socket with shared memory on the same host.

pub mod proto;
pub mod convert;
mod weigh;

// The flow's two bridges: items on their way in, batches on their way out.
pub mod items;
pub mod bulk;
pub mod pieces;

// The two ways to travel.
pub mod grpc;
pub mod local;

// The two ends.
pub mod client;
pub mod server;
