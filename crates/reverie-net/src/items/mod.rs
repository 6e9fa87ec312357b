//! Items on their way into tables: chunks by their cells, each cell sent once; forms and bodies by number.
//!
//! The state of both ends belongs to one connection: on a new one, everything is named anew.

mod decoder;
mod encoder;

pub use decoder::{Arrived, Decoder, Limits};
pub use encoder::Encoder;
