//! The transfer of items into tables: chunks by their cells, each cell sent once; forms and bodies by number.
//!
//! The state of both ends belongs to one connection: on a new one, everything is named again.

mod decoder;
mod encoder;
mod row;

use crate::head::MAX_HEAD_BYTES;
use reverie_core::item::{Cells, Pattern};

pub use decoder::{ArrivedInsert, Decoder, DecoderLimits, Episodes, ReleasedChunks};
pub use encoder::{Encoder, PushOutcome};
pub use row::Row;

/// The bytes that an item counts for against the insert credit; both ends compute it so.
/// The first request of each table in a message also counts for the bulk bytes of the message, and for those of the
/// messages before it that had no request: items of several tables may use the same cells, which each of the tables can
/// hold.
pub const ITEM_BYTES: u64 = 64;

/// The memory that a request takes on the server while it waits for its table, without its items: its task, its place in
/// the table's queue, and its tickets.
pub const WAITING_BYTES: u64 = 1024;

/// Like [`WAITING_BYTES`], for each item, without its form, its body and its chunks.
pub const WAITING_ITEM_BYTES: u64 = 320;

/// Items of one message at most.
pub const MAX_ITEMS: usize = 1 << 19;

/// The largest cost of checking that the cells of a message's items are there, see [`checks`].
const MAX_CHECKS: u64 = 1 << 24;

/// Bytes of one form, or of what is said of one chunk, in the head of a message at most.
const MAX_ENTRY_BYTES: usize = MAX_HEAD_BYTES / 2;

/// Bytes of a message's head from which on no request is added to it.
const FULL_HEAD_BYTES: usize = MAX_HEAD_BYTES / 4;

/// True if more may be sent into a table with `table` bytes in flight, where all tables together have `all`.
///
/// A table has less in flight than what is left of the credit: one that takes no inserts reaches half of the credit, a
/// second one a quarter, and something is left for a table that takes them. A table with nothing in flight may always
/// have a message.
pub fn has_share(table: u64, all: u64, credit: u64) -> bool {
    table == 0 || table < credit.saturating_sub(all)
}

/// The largest cost of checking that the cells of an item of this form are there: about one for each look.
fn checks(pattern: &Pattern) -> u64 {
    let cost = |cells: &Cells| match cells {
        Cells::Range { step: 1, len, .. } => 1 + u64::from(*len) / 8,
        cells => cells.len() as u64,
    };
    pattern.columns.iter().map(|column| cost(&column.cells)).sum()
}
