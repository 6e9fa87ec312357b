//! A gRPC stream as a session's way.

use super::body::Outgoing;
use crate::bulk::BulkIn;
use crate::proto::bulk::Place;
use crate::proto::server_message::Body;
use crate::proto::{self, Bulk, ClientMessage, ServerMessage};
use crate::server::Way;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use prost::Message;
use reverie_core::{Error, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tonic::{Code, Status};

/// What a message costs beside its bytes.
const OVERHEAD: u64 = 64;

type Inbound = Pin<Box<dyn Stream<Item = Result<ClientMessage, Status>> + Send>>;

/// The session's end.
pub(super) struct GrpcWay {
    inbound: Inbound,
    outbox: mpsc::UnboundedSender<ServerMessage>,
    queue: Arc<Queue>,
    peer: String,
}

/// What stands between the session and the connection.
#[derive(Default)]
pub(super) struct Queue {
    bytes: AtomicU64,
    closed: AtomicBool,
    session: AtomicWaker,
}

impl Queue {
    /// A message was taken off.
    pub(super) fn taken(&self, message: &ServerMessage) {
        self.bytes.fetch_sub(size(message), Ordering::Release);
        self.session.wake();
    }

    /// No more will be taken off.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.session.wake();
    }
}

/// Both ends of a way whose messages come from `inbound`.
pub(super) fn way(inbound: Inbound, peer: String) -> (GrpcWay, Outgoing) {
    let (outbox, messages) = mpsc::unbounded_channel();
    let queue = Arc::<Queue>::default();
    (GrpcWay { inbound, outbox, queue: Arc::clone(&queue), peer }, Outgoing::new(messages, queue))
}

/// A way that brings one message, and lasts until its client is gone.
pub(super) fn call(message: ClientMessage, peer: String) -> (GrpcWay, Outgoing) {
    let (mut way, outgoing) = way(Box::pin(futures_util::stream::empty()), peer);
    let outbox = way.outbox.clone();
    let mut message = Some(message);
    let mut gone = Box::pin(async move { outbox.closed().await });
    way.inbound = Box::pin(futures_util::stream::poll_fn(move |context| match message.take() {
        Some(message) => Poll::Ready(Some(Ok(message))),
        None => gone.as_mut().poll(context).map(|()| None),
    }));
    (way, outgoing)
}

fn size(message: &ServerMessage) -> u64 {
    let bytes = match &message.body {
        Some(Body::Part(part)) => part.data.len(),
        _ => message.encoded_len(),
    };
    bytes as u64 + OVERHEAD
}

impl Way for GrpcWay {
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
            Err(status) => match status.code() {
                // What cannot be decoded, or is too long.
                Code::Internal | Code::OutOfRange | Code::InvalidArgument | Code::Unimplemented => {
                    Some(Err(Error::Protocol(status.message().to_owned())))
                }
                _ => None,
            },
        })
    }

    fn send(&mut self, message: ServerMessage) {
        self.queue.bytes.fetch_add(size(&message), Ordering::Relaxed);
        // Where the connection is gone, `closed` says so.
        let _ = self.outbox.send(message);
    }

    fn queued_bytes(&self) -> u64 {
        self.queue.bytes.load(Ordering::Acquire)
    }

    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        let ready = || self.queued_bytes() < below || self.queue.closed.load(Ordering::Acquire);
        if ready() {
            return Poll::Ready(());
        }
        self.queue.session.register(context.waker());
        if ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn close(self: Box<Self>) {
        // The connection's end sends what is queued, and then ends the stream.
    }

    fn freed(&mut self, slots: &[u32]) -> Result<()> {
        Err(Error::Protocol(format!("{} freed slots over gRPC, where none are lent", slots.len())))
    }

    fn slot_wanted(&mut self, _size_bytes: u64) -> Result<()> {
        Err(Error::Protocol("a slot was asked for over gRPC, where there are none".to_owned()))
    }

    fn bulk<'a>(&'a mut self, bulk: &'a Bulk) -> Result<Box<dyn BulkIn + 'a>> {
        match &bulk.place {
            None => Ok(Box::new(Bytes::new())),
            Some(Place::Inline(bytes)) => Ok(Box::new(bytes.clone())),
            Some(Place::Range(proto::SlotRange { slot, .. })) => {
                Err(Error::Protocol(format!("bytes in slot {slot} over gRPC, where there are none")))
            }
        }
    }
}
