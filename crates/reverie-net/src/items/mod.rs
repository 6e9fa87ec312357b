//! Items on their way into tables: chunks by their cells, each cell sent once; forms and bodies by number.
//!
//! The state of both ends belongs to one connection: on a new one, everything is named anew.

mod decoder;
mod encoder;

use crate::proto;
use reverie_core::item::{Cells, Pattern};

pub use decoder::{Arrived, Decoder, Episodes, Limits};
pub use encoder::{Encoder, Pushed};

/// What an item counts for against the insert credit beside its cells.
pub const ITEM_BYTES: u64 = 64;

/// Items of one message at most.
pub const MAX_ITEMS: usize = 1 << 19;

/// What it may cost to look whether the cells of a message's items are there, see [`looks`].
const MAX_LOOKS: u64 = 1 << 24;

/// Bytes of one form at most, as a message.
const MAX_FORM_BYTES: usize = 4 << 20;

/// What a message counts for against the insert credit, `bulk_bytes` being those that came with it; both ends reckon
/// so. Each request counts for [`ITEM_BYTES`] per item, the first of a message for the bulk bytes, too, and for those of
/// the messages before it that had no request.
pub fn credit_bytes(message: &proto::Insert, bulk_bytes: u64) -> u64 {
    let items = message.items.as_ref().map_or(0, |items| items.pattern.len() as u64);
    bulk_bytes.saturating_add(items.saturating_mul(ITEM_BYTES))
}

/// What it costs at most to look whether the cells of an item of this form are there: about one for each look.
fn looks(pattern: &Pattern) -> u64 {
    let cost = |cells: &Cells| match cells {
        Cells::Range { step: 1, len, .. } => 1 + u64::from(*len) / 8,
        cells => cells.len() as u64,
    };
    pattern.columns.iter().map(|column| cost(&column.cells)).sum()
}
