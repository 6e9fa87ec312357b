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

    pub(super) fn send(&self, message: Queued) {
        self.change(|state| {
            if !state.gone {
                state.bytes += size(&message);
                state.messages.push_back(message);
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
        if state.bytes < below || state.gone { Poll::Ready(()) } else { state.wait(context, below) }
    }

    pub(super) fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.gone { Poll::Ready(()) } else { state.wait(context, 0) }
    }

    /// Notes that the session sends no more; true if messages remain.
    pub(super) fn end(&self) -> bool {
        let mut left = false;
        self.change(|state| {
            state.ended = true;
            left = !state.messages.is_empty();
            state.connection.take()
        });
        left
    }

    /// Drops the remaining messages.
    pub(super) fn abandon(&self) {
        let mut left = VecDeque::new();
        self.change(|state| {
            state.abandoned = true;
            left = std::mem::take(&mut state.messages);
            state.bytes = 0;
            state.connection.take()
        });
    }
}

fn size(queued: &Queued) -> u64 {
    let bytes = match queued {
        Queued::Part { data, .. } => data.remaining(),
        Queued::Message(message) => message.encoded_len(),
    };
    bytes as u64 + OVERHEAD
}
