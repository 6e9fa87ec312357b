//! A gRPC stream as the transport of a session.

use super::body::Outgoing;
use super::frames::Failure;
use crate::bulk::BulkIn;
use crate::pieces::Pieces;
use crate::proto::bulk::Place;
use crate::proto::{self, Bulk, ClientMessage, ServerMessage};
use crate::way::server::Way;
use bytes::{Buf, Bytes};
use futures_util::Stream;
use prost::Message;
use reverie_core::{Error, Result};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The cost of a message in addition to its bytes.
const OVERHEAD: u64 = 64;
/// How long a closing connection may take to send what is queued.
const LAST_WORDS: Duration = Duration::from_secs(5);

type Inbound = Pin<Box<dyn Stream<Item = Result<ClientMessage, Failure>> + Send>>;

/// The session's end.
pub(super) struct GrpcWay {
    inbound: Inbound,
    /// Received bytes of an incomplete message.
    unfinished: Arc<AtomicU64>,
    queue: Arc<Queue>,
    peer: String,
}

/// Messages between the session and the connection.
#[derive(Default)]
pub(super) struct Queue {
    /// Guards the messages and the wakers; nothing is encoded, freed or woken under the lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Queued>,
    bytes: u64,
    /// The session sends no more.
    ended: bool,
    /// The remaining messages are not sent.
    abandoned: bool,
    /// The connection sends no more.
    gone: bool,
    /// The session's waker, and the queued bytes below which it is woken.
    session: Option<(Waker, u64)>,
    connection: Option<Waker>,
}

/// A message to be sent.
#[allow(clippy::large_enum_variant)]
pub(super) enum Queued {
    Message(ServerMessage),
    /// A part of a batch, whose bytes are sent from where they are in memory.
    Part {
        id: u64,
        offset: u64,
        data: Pieces,
    },
}

impl State {
    fn wait(&mut self, context: &Context<'_>, below: u64) -> Poll<()> {
        let before = self.session.take().map_or(0, |(_, below)| below);
        self.session = Some((context.waker().clone(), before.max(below)));
        Poll::Pending
    }
}

/// The connection's next message. It is moved on at once, so its size costs nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum Next {
    Message(Queued),
    End,
    Abandoned,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the other end.
    fn change(&self, change: impl FnOnce(&mut State) -> Option<Waker>) {
        let waker = change(&mut self.state());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next message.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.state();
        if state.abandoned {
            return Poll::Ready(Next::Abandoned);
        }
        let Some(message) = state.messages.pop_front() else {
            if state.ended {
                return Poll::Ready(Next::End);
            }
            state.connection = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.bytes -= size(&message);
        let bytes = state.bytes;
        let session = state.session.take_if(|(_, below)| bytes < *below);
        drop(state);
        if let Some((session, _)) = session {
            session.wake();
        }
        Poll::Ready(Next::Message(message))
    }

    /// Ends the queue: the connection sends no more.
    pub(super) fn close(&self) {
        let mut left = VecDeque::new();
        self.change(|state| {
            state.gone = true;
            left = std::mem::take(&mut state.messages);
            state.bytes = 0;
            state.session.take().map(|(session, _)| session)
        });
    }

    fn send(&self, message: Queued) {
        self.change(|state| {
            if !state.gone {
                state.bytes += size(&message);
                state.messages.push_back(message);
            }
            state.connection.take()
        });
    }

    fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Ready when fewer bytes are queued, or the connection sends no more.
    fn poll_below(&self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        let mut state = self.state();
        if state.bytes < below || state.gone { Poll::Ready(()) } else { state.wait(context, below) }
    }

    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.gone { Poll::Ready(()) } else { state.wait(context, 0) }
    }

    /// Notes that the session sends no more; true if messages remain.
    fn end(&self) -> bool {
        let mut left = false;
        self.change(|state| {
            state.ended = true;
            left = !state.messages.is_empty();
            state.connection.take()
        });
        left
    }

    /// Drops the remaining messages.
    fn abandon(&self) {
        let mut left = VecDeque::new();
        self.change(|state| {
            state.abandoned = true;
            left = std::mem::take(&mut state.messages);
            state.bytes = 0;
            state.connection.take()
        });
    }
}

impl Drop for GrpcWay {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// Both ends of a transport whose messages come from `inbound`.
pub(super) fn way(inbound: Inbound, unfinished: Arc<AtomicU64>, peer: String) -> (GrpcWay, Outgoing) {
    let queue = Arc::<Queue>::default();
    (GrpcWay { inbound, unfinished, queue: Arc::clone(&queue), peer }, Outgoing::new(queue))
}

/// A transport that delivers one message, and lasts until its client is gone.
pub(super) fn call(message: ClientMessage, peer: String) -> (GrpcWay, Outgoing) {
    let (mut way, outgoing) = way(Box::pin(futures_util::stream::empty()), Arc::default(), peer);
    let queue = Arc::clone(&way.queue);
    let mut message = Some(message);
    way.inbound = Box::pin(futures_util::stream::poll_fn(move |context| match message.take() {
        Some(message) => Poll::Ready(Some(Ok(message))),
        None => queue.poll_gone(context).map(|()| None),
    }));
    (way, outgoing)
}

fn size(queued: &Queued) -> u64 {
    let bytes = match queued {
        Queued::Part { data, .. } => data.remaining(),
        Queued::Message(message) => message.encoded_len(),
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
            Err(Failure::Broken(why)) => Some(Err(Error::Protocol(why))),
            Err(Failure::Lost) => None,
        })
    }

    fn unfinished_bytes(&self) -> u64 {
        self.unfinished.load(Ordering::Relaxed)
    }

    fn send(&mut self, message: ServerMessage) {
        self.queue.send(Queued::Message(message));
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn send_part(&mut self, id: u64, offset: u64, data: Pieces) {
        self.queue.send(Queued::Part { id, offset, data });
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
                tokio::time::sleep(LAST_WORDS).await;
                queue.abandon();
            });
        }
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
