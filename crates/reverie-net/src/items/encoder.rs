//! The client's end.

use crate::bulk::BulkOut;
use crate::proto;
use reverie_core::Result;
use reverie_core::table::Inserts;

/// What became of a request that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the message.
    Whole,
    /// The message has no room for all of its cells; those that it has room for are in it, no item is. Send what
    /// [`Encoder::take`] gives and push the request again, until it is whole.
    NoRoom {
        /// Bulk bytes that the next piece needs at least: an empty message must have room for them.
        needed: u64,
    },
}

/// Turns items into messages: names what the server does not know yet, and sends only the cells that it does not have.
#[derive(Default)]
pub struct Encoder {
    // patterns by form, chunks by address with a weak reference and the cells sent, bodies by address
}

impl Encoder {
    /// The bytes that this request would add to the bulk, about: for grouping and credit.
    pub fn bulk_bytes(&self, _items: &Inserts) -> u64 {
        todo!()
    }

    /// The bytes that [`Encoder::take`] will put into the bulk.
    pub fn planned_bytes(&self) -> u64 {
        todo!()
    }

    /// Puts one request into the message that is being made, whose bulk may have `room` bytes in all. Requests of one
    /// message have consecutive numbers: otherwise take the message first. Cells are only noted, and copied by `take`.
    ///
    /// `ResourceExhausted`: a chunk that no server takes ([`proto::MAX_CHUNK_BYTES`]). `Damaged`, `Signature`: items
    /// that no table takes.
    pub fn push(&mut self, _id: u64, _table: u32, _items: &Inserts, _room: u64) -> Result<Pushed> {
        todo!()
    }

    /// The message, with its bulk bytes behind those in `bulk`, which must be empty; `insert.bulk` is left to the
    /// caller. `None` where there is nothing to say. Also to be called now and then when nothing is pushed: chunks that
    /// were packed meanwhile are sent so, and what nobody uses any more is released.
    pub fn take(&mut self, _bulk: &mut dyn BulkOut) -> Option<proto::Insert> {
        todo!()
    }
}
