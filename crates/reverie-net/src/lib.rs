//! The server of replay tables and its remote client.
//!
//! ```text
//! client: append -> chunk -> item -> encoder --+                    +-- decoder -> table: server
//!                                              |  grpc | local      |
//! client: batch  <- block <- parts or slot ----+                    +-- gather <- draws <- table: server
//! ```
//!
//! One protocol ([`proto`]), one server session ([`server`]) and one client ([`client`]) for both ways to travel ([`way`]):
//! [`grpc`] over TCP to any host, [`local`] over a Unix socket with shared memory on the same host.

// From the ground up: a room uses none that is declared below it.
pub mod proto;
mod weigh;

// Bytes, and the memory that they lie in.
pub mod bulk;
pub mod pieces;
pub mod block;
#[allow(unsafe_code)]
mod mapping;

// Messages, and items on their way in.
pub mod convert;
pub mod items;

// How a server is reached, and by whom.
pub mod reach;
mod token;
mod log_limit;
mod open_files;
pub mod admission;

// What a connection does at the server, whichever way it travels.
pub mod way;
pub mod server;

// The two ways to travel.
pub mod grpc;
pub mod local;

// The two ends where it all begins.
pub mod client;
pub mod listen;
