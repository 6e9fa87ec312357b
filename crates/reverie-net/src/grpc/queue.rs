//! Messages between a session of the server and its connection.

use crate::pieces::Pieces;
use crate::proto::ServerMessage;
use bytes::Buf;
use prost::Message;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The cost of a message in addition to its bytes.
const OVERHEAD: u64 = 64;

/// Messages between the session and the connection. Replies go before batches, which may take long to be sent.
#[derive(Default)]
pub(super) struct MessageQueue {
    /// Guards the messages and the wakers; nothing is encoded, freed or woken under the lock.
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    messages: VecDeque<QueuedMessage>,
    /// Replies and the like, which go before batches.
    ahead: VecDeque<ServerMessage>,
    bytes: u64,
    /// The session sends no more.
    ended: bool,
    /// The remaining messages are not sent.
    abandoned: bool,
    /// The connection sends no more.
    closed: bool,
    /// The session's waker, and the queued bytes below which it is woken.
    session: Option<(Waker, u64)>,
    connection: Option<Waker>,
}

/// A message to be sent.
#[allow(clippy::large_enum_variant)]
pub(super) enum QueuedMessage {
    Message(ServerMessage),
    /// A part of a batch, whose bytes are sent from where they are in memory.
    Part {
        id: u64,
        offset: u64,
        data: Pieces,
    },
}

impl QueueState {
    fn next(&mut self) -> Option<QueuedMessage> {
        self.ahead.pop_front().map(QueuedMessage::Message).or_else(|| self.messages.pop_front())
    }

    fn take_all(&mut self) -> (VecDeque<QueuedMessage>, VecDeque<ServerMessage>) {
        self.bytes = 0;
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.ahead))
    }

    fn wait(&mut self, context: &Context<'_>, below: u64) -> Poll<()> {
        let before = self.session.take().map_or(0, |(_, below)| below);
        self.session = Some((context.waker().clone(), before.max(below)));
        Poll::Pending
    }
}

/// The connection's next message. It is moved on at once, so its size costs nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum NextMessage {
    Message(QueuedMessage),
    End,
    Abandoned,
}

impl MessageQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the other end.
    fn change(&self, change: impl FnOnce(&mut QueueState) -> Option<Waker>) {
        let waker = change(&mut self.state());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next message.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<NextMessage> {
        let mut state = self.state();
        if state.abandoned {
            return Poll::Ready(NextMessage::Abandoned);
        }
        let Some(message) = state.next() else {
            if state.ended {
                return Poll::Ready(NextMessage::End);
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
        Poll::Ready(NextMessage::Message(message))
    }

    /// Ends the queue: the connection sends no more.
    pub(super) fn close(&self) {
        let mut left = Default::default();
        self.change(|state| {
            state.closed = true;
            left = state.take_all();
            state.session.take().map(|(session, _)| session)
        });
        drop(left);
    }

    pub(super) fn send(&self, message: QueuedMessage) {
        self.change(|state| {
            if !state.closed {
                state.bytes += size(&message);
                state.messages.push_back(message);
            }
            state.connection.take()
        });
    }

    /// Queues a message that is sent before batches and their parts, and after others that were sent ahead.
    pub(super) fn send_ahead(&self, message: ServerMessage) {
        self.change(|state| {
            if !state.closed {
                state.bytes += message.encoded_len() as u64 + OVERHEAD;
                state.ahead.push_back(message);
            }
            state.connection.take()
        });
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Ready when fewer bytes are queued, or the connection sends no more.
    pub(super) fn poll_below(&self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        let mut state = self.state();
        if state.bytes < below || state.closed { Poll::Ready(()) } else { state.wait(context, below) }
    }

    pub(super) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.closed { Poll::Ready(()) } else { state.wait(context, 0) }
    }

    /// Notes that the session sends no more; true if messages remain.
    pub(super) fn end(&self) -> bool {
        let mut left = false;
        self.change(|state| {
            state.ended = true;
            left = !state.messages.is_empty() || !state.ahead.is_empty();
            state.connection.take()
        });
        left
    }

    /// Drops the remaining messages.
    pub(super) fn abandon(&self) {
        let mut left = Default::default();
        self.change(|state| {
            state.abandoned = true;
            left = state.take_all();
            state.connection.take()
        });
        drop(left);
    }
}

fn size(queued: &QueuedMessage) -> u64 {
    let bytes = match queued {
        QueuedMessage::Part { data, .. } => data.remaining(),
        QueuedMessage::Message(message) => message.encoded_len(),
    };
    bytes as u64 + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::server_message::Body;
    use crate::proto::{Credit, Goodbye, Part};
    use bytes::Bytes;

    fn credit(insert_credit_bytes: u64) -> ServerMessage {
        ServerMessage { body: Some(Body::Credit(Credit { insert_credit_bytes })) }
    }

    fn sent(queue: &MessageQueue) -> Vec<Option<Body>> {
        let mut all = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(NextMessage::Message(message)) = queue.poll_next(&mut context) {
            all.push(match message {
                QueuedMessage::Message(message) => message.body,
                QueuedMessage::Part { id, offset, .. } => Some(Body::Part(Part { id, offset, data: Bytes::new() })),
            });
        }
        all
    }

    #[test]
    fn small_messages_overtake_batches_and_each_of_both_keep_their_order() {
        let queue = MessageQueue::default();
        let part = |offset| QueuedMessage::Part { id: 1, offset, data: Bytes::from(vec![0; 1000]).into() };
        let goodbye = || Some(Body::Goodbye(Goodbye::default()));
        queue.send_ahead(credit(1));
        queue.send(part(0));
        queue.send_ahead(credit(2));
        queue.send(part(1000));
        queue.send(QueuedMessage::Message(ServerMessage { body: goodbye() }));
        queue.send_ahead(credit(3));
        let small = [1, 2, 3].map(|of| credit(of).body);
        let parts = [0, 1000].map(|offset| Some(Body::Part(Part { id: 1, offset, data: Bytes::new() })));
        assert_eq!(sent(&queue), [&small[..], &parts, &[goodbye()]].concat());
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn small_messages_count_as_queued_and_are_left_at_an_end_as_others_are() {
        let queue = MessageQueue::default();
        queue.send_ahead(credit(1));
        assert!(queue.bytes() > 0);
        assert!(queue.end());
        queue.abandon();
        assert_eq!((queue.bytes(), queue.end()), (0, false));
        queue.close();
        queue.send_ahead(credit(2));
        assert_eq!((queue.bytes(), queue.end()), (0, false));
    }
}
