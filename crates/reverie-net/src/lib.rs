//! The server of replay tables and its remote client.
//!
//! ```text
//! client: append -> chunk -> item -> encoder --+                    +-- decoder -> table: server
//!                                              |  grpc | local      |
//! client: batch  <- block <- parts or slot ----+                    +-- gather <- draws <- table: server
//! ```
//!
//! One protocol ([`proto`]), one server session ([`server`]) and one client ([`client`]) serve both transports
//! ([`transport`]): [`grpc`] over TCP to any host, [`local`] over a Unix socket with shared memory on the same host. [`mod@http`]
//! shows a server to people and to monitoring.

// From the bottom up: a module uses none that is declared below it.
pub mod proto;
pub mod head;

// Bytes and their memory.
pub mod bulk;
pub mod pieces;
pub mod block;
#[allow(unsafe_code)]
mod uninit;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod mapping;

// Streams of bytes.
mod write_through;
mod own_stream;

// Messages, and the transfer of items.
pub mod convert;
pub mod items;
pub mod trace;

// Access to a server.
pub mod endpoint;
mod token;
mod log_limit;
mod deadline;
pub mod open_files;
pub mod admission;

// The work of a connection at the server, for any transport.
pub mod transport;
pub mod server;

// The two transports.
pub mod grpc;
// The memory that two processes share is one that Linux seals: elsewhere every client goes over gRPC.
#[cfg_attr(not(target_os = "linux"), path = "local/absent.rs")]
pub mod local;
// Compiled for tests on Linux too, so that it keeps up with the module that it stands for.
#[cfg(test)]
#[path = "local/absent.rs"]
pub mod absent;

// The two ends.
pub mod client;
pub mod sharded;
pub mod listen;

// The view from outside.
pub mod http;
