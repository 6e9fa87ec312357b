//! Items on their way into tables: chunks by their cells, each cell sent once; forms and bodies by number.
//!
//! The state of both ends belongs to one connection: on a new one, everything is named anew.

mod decoder;
mod encoder;

use crate::proto;

pub use decoder::{Arrived, Decoder, Episodes, Limits};
pub use encoder::{Encoder, Pushed};

/// What an item counts for against the insert credit beside its cells.
pub const ITEM_BYTES: u64 = 64;

/// What a message counts for against the insert credit, `bulk_bytes` being those that came with it; both ends reckon
/// so. Each request counts for [`ITEM_BYTES`] per item, the first of a message for the bulk bytes, too, and for those of
/// the messages before it that had no request.
pub fn credit_bytes(message: &proto::Insert, bulk_bytes: u64) -> u64 {
    let items = message.items.as_ref().map_or(0, |items| items.pattern.len() as u64);
    bulk_bytes.saturating_add(items.saturating_mul(ITEM_BYTES))
}
