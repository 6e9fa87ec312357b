//! The engine of Reverie: pure Rust, synchronous and deterministic.
//!
//! Experience flows in one direction, and the modules are named after its stations:
//!
//! ```text
//! append  ->  chunk  ->  item  ->  table  ->  sample  ->  batch
//! (steps)    (bytes)    (refs)    (policy)   (draws)    (arrays)
//! ```
//!
//! Clock and random source are arguments: nothing in here reads the time or global randomness by itself.

// From the ground up: a room uses none that is declared below it. Those of the flow are one storey, whose files use each
// other without a circle.

// Ground floor: what every station speaks of.
pub mod clock;
mod key;
pub mod error;
pub mod spec;
mod prefetch;
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

// The verbs of all of it.
pub mod replay;

// What outlives the process.
pub mod checkpoint;

pub use error::{Error, Result};
