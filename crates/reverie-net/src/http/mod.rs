//! A server's view for the outside, over HTTP on a port of its own: metrics, health, JSON, and a page.
//!
//! ```text
//! connections -> routes -> metrics, formats -> figures -> tables
//!                      +-> run (published by a training run)
//!                      +-> searches -> items -> columns -> tables
//!                      +-> events -> figures
//! ```
//!
//! It has a thread of its own, so that it answers while the server's threads are busy. All requests only read.

mod run;
mod watched_server;
mod figures;
mod formats;
mod metrics;
mod columns;
mod items;
mod events;
mod routes;
mod write_timeout_stream;
mod searches;
mod connections;
mod server;
#[cfg(test)]
mod tests;

pub use server::{HttpOptions, HttpServer};
