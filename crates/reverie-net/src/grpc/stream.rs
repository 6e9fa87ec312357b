//! A gRPC stream as the transport of a session.

use super::body::SessionBody;
use super::frames::FramesFailure;
use super::queue::{MessageQueue, QueuedMessage};
use crate::bulk::BulkSource;
use crate::pieces::Pieces;
use crate::proto::bulk::Place;
use crate::proto::{self, Bulk, ClientMessage, ServerMessage};
use crate::transport::server::ServerConnection;
use bytes::Bytes;
use futures_util::Stream;
use reverie_core::{Error, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// The time that a closing connection may take to send the queued messages.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type Inbound = Pin<Box<dyn Stream<Item = Result<ClientMessage, FramesFailure>> + Send>>;

/// The session's end.
pub(super) struct GrpcServerConnection {
    inbound: Inbound,
    /// Received bytes of an incomplete message.
    unfinished: Arc<AtomicU64>,
    queue: Arc<MessageQueue>,
    peer: String,
}

impl Drop for GrpcServerConnection {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// Both ends of a transport whose messages come from `inbound`.
pub(super) fn connection(
    inbound: Inbound,
    unfinished: Arc<AtomicU64>,
    peer: String,
) -> (GrpcServerConnection, SessionBody) {
    let queue = Arc::<MessageQueue>::default();
    (GrpcServerConnection { inbound, unfinished, queue: Arc::clone(&queue), peer }, SessionBody::new(queue))
}

/// A transport that delivers one message, and lasts until its client is gone.
pub(super) fn call(message: ClientMessage, peer: String) -> (GrpcServerConnection, SessionBody) {
    let (mut connection, outgoing) = connection(Box::pin(futures_util::stream::empty()), Arc::default(), peer);
    let queue = Arc::clone(&connection.queue);
    let mut message = Some(message);
    connection.inbound = Box::pin(futures_util::stream::poll_fn(move |context| match message.take() {
        Some(message) => Poll::Ready(Some(Ok(message))),
        None => queue.poll_closed(context).map(|()| None),
    }));
    (connection, outgoing)
}

impl ServerConnection for GrpcServerConnection {
    fn transport(&self) -> &'static str {
        "grpc"
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn authenticated(&self) -> bool {
        true
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ClientMessage>>> {
        self.inbound.as_mut().poll_next(context).map(|next| match next? {
            Ok(message) => Some(Ok(message)),
            Err(FramesFailure::Broken(why)) => Some(Err(Error::Protocol(why))),
            Err(FramesFailure::Lost) => None,
        })
    }

    fn unfinished_bytes(&self) -> u64 {
        self.unfinished.load(Ordering::Relaxed)
    }

    fn send(&mut self, message: ServerMessage) {
        self.queue.send(QueuedMessage::Message(message));
    }

    fn send_ahead(&mut self, message: ServerMessage) {
        self.queue.send_ahead(message);
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn send_part(&mut self, id: u64, offset: u64, data: Pieces) {
        self.queue.send(QueuedMessage::Part { id, offset, data });
    }

    fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        self.queue.poll_below(context, below)
    }

    fn close(self: Box<Self>) {
        if self.queue.end() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(async move {
                // A client that does not read gets no more, and must not keep memory.
                tokio::time::sleep(CLOSE_TIMEOUT).await;
                queue.abandon();
            });
        }
    }

    fn freed(&mut self, slots: &[u32]) -> Result<()> {
        Err(Error::Protocol(format!("{} slots were freed, and gRPC has no slots", slots.len())))
    }

    fn slot_wanted(&mut self, _size_bytes: u64) -> Result<()> {
        Err(Error::Protocol("a slot was requested, and gRPC has no slots".to_owned()))
    }

    fn bulk<'a>(&'a mut self, bulk: &'a Bulk) -> Result<Box<dyn BulkSource + 'a>> {
        match &bulk.place {
            None => Ok(Box::new(Bytes::new())),
            Some(Place::Inline(bytes)) => Ok(Box::new(bytes.clone())),
            Some(Place::Range(proto::SlotRange { slot, .. })) => {
                Err(Error::Protocol(format!("bytes are in slot {slot}, and gRPC has no slots")))
            }
        }
    }
}
