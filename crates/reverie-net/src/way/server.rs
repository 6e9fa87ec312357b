//! How a session and its client talk, whichever way the bytes travel.

use crate::admission::Newcomer;
use crate::bulk::BulkIn;
use crate::pieces::Pieces;
use crate::proto::server_message::Body;
use crate::proto::{Bulk, ClientMessage, Part, ServerMessage, Slot};
use bytes::Buf;
use reverie_core::Result;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The server's end of one connection. One session task owns it; no method blocks.
pub trait Way: Send {
    /// "grpc" or "shared-memory".
    fn transport(&self) -> &'static str;

    /// The peer, for the log.
    fn peer(&self) -> String;

    /// True where the token was checked on the way; otherwise the client must prove that it knows it.
    fn authenticated(&self) -> bool;

    /// The connection, where it is still to be admitted.
    fn newcomer(&self) -> Option<Arc<Newcomer>> {
        None
    }

    /// It is admitted: its messages may be longer than a greeting.
    fn admitted(&mut self) {}

    /// The next message. `None`: the connection is closed or lost. `Protocol`: the peer broke a rule; it is told so,
    /// and the connection is ended.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ClientMessage>>>;

    /// Bytes that are held of a message of which a part has come.
    fn unfinished_bytes(&self) -> u64 {
        0
    }

    /// Queues a message behind the others. Where it names a slot as fresh, the slot's descriptor goes with it. Of no
    /// effect on a lost connection.
    fn send(&mut self, message: ServerMessage);

    /// True where the bytes of a part may lie in several places: [`Way::send_part`] takes them.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// As [`Way::send`], a part of the batch `id` with these bytes, from `offset` on.
    fn send_part(&mut self, id: u64, offset: u64, mut data: Pieces) {
        let data = data.copy_to_bytes(data.remaining());
        self.send(ServerMessage { body: Some(Body::Part(Part { id, offset, data })) });
    }

    /// Bytes that are queued: large ones count, a message without them counts for about its size.
    fn queued_bytes(&self) -> u64;

    /// Ready when fewer than `below` bytes are queued, or the connection is lost. Called at every turn of the session
    /// that is not known to be ready, so that an implementation may do its writing in here.
    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()>;

    /// Sends what is queued in the background, for a few seconds at most, and closes the connection.
    fn close(self: Box<Self>);

    /// Memory to gather a batch into that the client reads in place. `None` where the way has none, or none is free:
    /// the batch then goes as parts.
    fn lend(&mut self, _size_bytes: usize) -> Option<Box<dyn Lent>> {
        None
    }

    /// The client let go of batch slots. `Protocol` where one was not lent.
    fn freed(&mut self, slots: &[u32]) -> Result<()>;

    /// The client wants room for the bulk bytes of inserts: queues the slot.
    fn slot_wanted(&mut self, size_bytes: u64) -> Result<()>;

    /// The bulk bytes of an insert. `Protocol` where they are not where they are said to be.
    fn bulk<'a>(&'a mut self, bulk: &'a Bulk) -> Result<Box<dyn BulkIn + 'a>>;

    /// These bulk bytes were copied: their place may be used again.
    fn consumed(&mut self, _bulk: &Bulk) {}
}

/// A slot that is about to be lent. Dropped instead of given, it is free again.
pub trait Lent: Send {
    /// The memory: exactly as much as was asked for.
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>];

    /// Lends it to the client, who frees it by its number.
    fn give(self: Box<Self>) -> Slot;
}
