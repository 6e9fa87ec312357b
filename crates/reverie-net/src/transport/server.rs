//! The server's end of a connection, for any transport.

use crate::admission::AdmissionGuard;
use crate::bulk::BulkSource;
use crate::pieces::Pieces;
use crate::proto::server_message::Body;
use crate::proto::{Bulk, ClientMessage, Part, ServerMessage, Slot};
use bytes::Buf;
use reverie_core::Result;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The server's end of one connection. One session task owns it; no method blocks.
pub trait ServerConnection: Send {
    /// "grpc" or "shared-memory".
    fn transport(&self) -> &'static str;

    /// The peer, for the log.
    fn peer(&self) -> String;

    /// True if the transport checked the token; otherwise the client must prove that it has it.
    fn authenticated(&self) -> bool;

    /// The guard, if the connection is not admitted yet.
    fn admission(&self) -> Option<Arc<AdmissionGuard>> {
        None
    }

    /// Called when the connection is admitted: its messages may be longer than a greeting.
    fn admitted(&mut self) {}

    /// The next message.
    /// `None`: the connection is closed or lost. `Protocol`: the peer broke a rule; it gets the error, and the
    /// connection ends.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ClientMessage>>>;

    /// Received bytes of an incomplete message.
    fn unfinished_bytes(&self) -> u64 {
        0
    }

    /// Queues a message.
    /// If it names a slot as fresh, the slot's descriptor is sent with it. Does nothing on a lost connection.
    fn send(&mut self, message: ServerMessage);

    /// Like [`ServerConnection::send`], for a message that may overtake queued batches and their parts, and belongs to
    /// none of them.
    fn send_ahead(&mut self, message: ServerMessage) {
        self.send(message);
    }

    /// True if the bytes of a part may be in several places: [`ServerConnection::send_part`] takes them.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// Like [`ServerConnection::send`], for a part of the batch `id` with these bytes, starting at `offset`.
    fn send_part(&mut self, id: u64, offset: u64, mut data: Pieces) {
        let data = data.copy_to_bytes(data.remaining());
        self.send(ServerMessage { body: Some(Body::Part(Part { id, offset, data })) });
    }

    /// Queued bytes: large bytes count, and a message without them counts for about its size.
    fn queued_bytes(&self) -> u64;

    /// Ready when fewer than `below` bytes are queued, or the connection is lost.
    /// Called at every turn of the session that is not known to be ready, so that an implementation may write in here.
    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()>;

    /// Sends what is queued in the background, for a few seconds at most, and closes the connection.
    fn close(self: Box<Self>);

    /// Memory to gather a batch into, which the client reads in place.
    /// `None` if the transport has none or none is free: the batch is then sent as parts.
    fn lend(&mut self, _size_bytes: usize) -> Option<Box<dyn WritableSlot>> {
        None
    }

    /// Bytes of the memory that the client has not released yet.
    fn lent_bytes(&self) -> u64 {
        0
    }

    /// Takes back the batch slots that the client released. `Protocol` if one was not lent.
    fn freed(&mut self, slots: &[u32]) -> Result<()>;

    /// Queues a slot for the bulk bytes of inserts, which the client requested.
    fn slot_wanted(&mut self, size_bytes: u64) -> Result<()>;

    /// The bulk bytes of an insert. `Protocol` if they are not at the place that the message names.
    fn bulk<'a>(&'a mut self, bulk: &'a Bulk) -> Result<Box<dyn BulkSource + 'a>>;

    /// Notes that these bulk bytes were copied: their place may be reused.
    fn consumed(&mut self, _bulk: &Bulk) {}
}

/// A slot that is being written. If it is dropped and not given, it is free again.
pub trait WritableSlot: Send {
    /// The memory, of exactly the requested size.
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>];

    /// Lends the slot to the client, which frees it by its number.
    fn give(self: Box<Self>) -> Slot;
}
