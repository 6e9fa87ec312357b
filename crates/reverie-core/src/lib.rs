//! The engine of Reverie: pure Rust, synchronous and deterministic.
//!
//! Experience flows in one direction. Each stage is a module:
//!
//! ```text
//! append  ->  chunk  ->  item  ->  table  ->  sample  ->  batch
//! (steps)    (bytes)    (refs)    (policy)   (draws)    (arrays)
//! ```
//!
//! The caller passes in the clock and the random seed; the crate reads neither the system time nor global randomness.

// Layers: a module uses only modules that are declared above it. The modules of the flow are one layer; their files use
// each other without a cycle.

// Base layer: used by every stage.
pub mod clock;
mod key;
pub mod error;
#[allow(unsafe_code)]
pub mod inherited;
mod disk;
pub mod spec;
mod prefetch;
mod stores;
mod sync;
mod wide;
mod power;

// The flow.
pub mod append;
pub mod chunk;
pub mod item;
pub mod table;
pub mod sample;
pub mod batch;

// The operations on all tables.
pub mod replay;

// Data that outlives the process.
pub mod checkpoint;
pub mod journal;

pub use error::{Error, Result};
