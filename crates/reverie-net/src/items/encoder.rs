//! The client's end.

use crate::bulk::BulkOut;
use crate::proto;
use reverie_core::table::Inserts;

/// Turns items into messages: names what the server does not know yet, and sends only the cells that it does not have.
#[derive(Default)]
pub struct Encoder {
    // patterns by form, chunks by address with a weak reference and the cells sent, bodies by address
}

impl Encoder {
    /// The bytes that this request would add to the bulk, about: for grouping, credit and slots.
    pub fn bulk_bytes(&self, _items: &Inserts) -> u64 {
        todo!()
    }

    /// Puts one request into the message that is being made; requests of one message have consecutive numbers. The
    /// chunks' cells are copied into `bulk`, as many as are published now.
    pub fn push(&mut self, _id: u64, _table: u32, _items: &Inserts, _bulk: &mut dyn BulkOut) {
        todo!()
    }

    /// The message, without its bulk; `None` where nothing was put in. Chunks, bodies and patterns that nobody uses
    /// any more are released with it.
    pub fn take(&mut self) -> Option<proto::Insert> {
        todo!()
    }
}
