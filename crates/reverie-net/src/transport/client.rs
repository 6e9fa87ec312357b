//! The client's end of a connection, for any transport.
//!
//! One task owns both halves and polls them in turn, so that a peer that does not read cannot keep us from reading.

use crate::block::Block;
use crate::bulk::BulkSink;
use crate::proto::{ClientMessage, ServerMessage};
use reverie_core::Result;
use std::future::Future;

/// The sending half.
pub trait Outlet: Send + 'static {
    /// "grpc" or "shared-memory", for display.
    const TRANSPORT: &'static str;

    /// Bulk bytes of a message with inserts, unless a single request needs more.
    /// The server confirms a message when it has read all of it: over a network, the first items are confirmed while
    /// later messages are in flight.
    const MESSAGE_BYTES: u64;

    /// Waits until a message with about `bulk_bytes` can be taken, and continues to send earlier ones.
    /// A message may have more bytes than announced. Cancel safe. `Unavailable` if the connection is lost.
    fn ready(&mut self, bulk_bytes: u64) -> impl Future<Output = Result<()>> + Send;

    /// The buffer for the bulk bytes of the next message; empty after each [`Outlet::send`].
    fn bulk(&mut self) -> &mut dyn BulkSink;

    /// Takes a message; never blocks. The bulk bytes are sent with it: `insert.bulk` is set here.
    fn send(&mut self, message: ClientMessage) -> Result<()>;

    /// True if the client should wait for [`Outlet::ready`] although it has nothing to send.
    /// Bytes of earlier messages, or slots to return, may wait. Code outside of the task that makes it true must wake
    /// the task.
    fn is_pressed(&self) -> bool {
        false
    }
}

/// The receiving half.
pub trait Inlet: Send + 'static {
    /// The next message; `None` if the server has ended the connection. Cancel safe.
    fn receive(&mut self) -> impl Future<Output = Result<Option<ArrivedMessage>>> + Send;
}

/// A message, and the memory that came with it.
pub struct ArrivedMessage {
    /// The message. The inlet has already handled its fields about slots.
    pub message: ServerMessage,
    /// The memory of a batch in a slot, at least as long as the batch.
    pub block: Option<Block>,
}

impl From<ServerMessage> for ArrivedMessage {
    fn from(message: ServerMessage) -> Self {
        Self { message, block: None }
    }
}
