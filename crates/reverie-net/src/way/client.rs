//! What a client needs of its connection.
//!
//! One task owns both halves and polls them in turn, so that a peer that does not read cannot keep us from reading.

use crate::block::Block;
use crate::bulk::BulkOut;
use crate::proto::{ClientMessage, ServerMessage};
use reverie_core::Result;
use std::future::Future;

/// The sending half.
pub trait Outlet: Send + 'static {
    /// "grpc" or "shared-memory", for people.
    const TRANSPORT: &'static str;

    /// Bulk bytes of a message with inserts, unless a single request needs more. The server confirms a message when it
    /// has read all of it: over a network, the first items are confirmed while later messages are on their way.
    const MESSAGE_BYTES: u64;

    /// Waits until a message can be taken, with about so many bulk bytes, and carries on with what was taken before.
    /// More bytes may come than were announced. Cancel safe. `Unavailable` where the connection is gone.
    fn ready(&mut self, bulk_bytes: u64) -> impl Future<Output = Result<()>> + Send;

    /// Where the bulk bytes of the next message go; empty after each [`Outlet::send`].
    fn bulk(&mut self) -> &mut dyn BulkOut;

    /// Takes a message; never blocks. What was put into the bulk goes with it: `insert.bulk` is set here.
    fn send(&mut self, message: ClientMessage) -> Result<()>;

    /// True where [`Outlet::ready`] should be waited for although the client has nothing to say: bytes of earlier
    /// messages, or slots to give back. Whoever makes it true outside of the task rings the bell.
    fn is_pressed(&self) -> bool {
        false
    }
}

/// The receiving half.
pub trait Inlet: Send + 'static {
    /// The next message; `None` where the server has ended the connection. Cancel safe.
    fn receive(&mut self) -> impl Future<Output = Result<Option<Arrived>>> + Send;
}

/// A message, and the memory that came with it.
pub struct Arrived {
    /// The message. What is said in it of slots was dealt with by the inlet.
    pub message: ServerMessage,
    /// Of a batch in a slot: its memory, at least as many bytes as the batch says.
    pub block: Option<Block>,
}

impl From<ServerMessage> for Arrived {
    fn from(message: ServerMessage) -> Self {
        Self { message, block: None }
    }
}
