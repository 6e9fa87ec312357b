//! The events of a session: which it handles next, and how.

use super::{FinishedRequest, Session};
use crate::proto::ClientMessage;
use crate::server::gathering::GatherTarget;
use crate::server::pool::BlockPermit;
use crate::transport::server::ServerConnection;
use futures_util::StreamExt;
use reverie_core::{Error, Result};
use std::task::{Context, Poll};
use std::time::Duration;

/// Events that a session handles before it yields to the other tasks of its thread.
const TURN: u32 = 32;
/// The time for which a stop waits for the acknowledgement of draws that were sent.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of small replies that a client may leave unread before the server stops reading from it.
const REPLIES: u64 = 4 << 20;

enum Event {
    Stop,
    Forget,
    Arrived(Box<dyn ServerConnection>),
    Finished(FinishedRequest),
    Leave(BlockPermit),
    Deliver,
    Gathered(Result<GatherTarget>),
    Message(Option<Result<ClientMessage>>),
    /// The client does not read.
    Stalled,
    /// An incomplete message takes too much memory.
    TooMuch(Error),
    /// A session without a name has no more work.
    Idle,
}

impl Session {
    /// Handles some events; false at the session's end.
    pub(super) async fn turn(&mut self) -> bool {
        for _ in 0..TURN {
            let event = std::future::poll_fn(|context| self.poll(context)).await;
            match event {
                Event::Stop => {
                    self.send_goodbye(Error::Unavailable("the server stops".to_owned()), true);
                    return false;
                }
                Event::Idle => return false,
                Event::Forget => {
                    // During a stop, its inserts that are in the tables stay known, for a last checkpoint.
                    if let Some(id) = self.id.filter(|_| !self.stopping && !self.is_empty()) {
                        self.shared.forget_outcomes(id);
                    }
                    return false;
                }
                Event::Arrived(connection) => self.connect(connection),
                Event::Finished(finished) => self.finished(finished),
                Event::Leave(leave) => {
                    if let Some(link) = &mut self.link {
                        link.may_set_aside(leave);
                    }
                }
                Event::Deliver => self.deliver(),
                Event::Gathered(gathered) => self.gathered(gathered),
                Event::Stalled => self.send_goodbye(Error::Unavailable("the client does not read".to_owned()), false),
                Event::Message(Some(Ok(message))) => {
                    let received = self.receive(message);
                    self.spans.handled();
                    if let Err(error) = received {
                        self.send_goodbye(error, false);
                    }
                }
                Event::Message(Some(Err(error))) => self.send_goodbye(error, false),
                Event::Message(None) => self.handle_disconnect(),
                Event::TooMuch(error) => return self.end_session(error),
            }
            if let Err(error) = self.update_memory() {
                return self.end_session(error);
            }
            if self.link.is_none() && (self.id.is_none() || self.is_empty()) {
                return false;
            }
        }
        tokio::task::yield_now().await;
        true
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        // The longest waiting work goes first; new requests are read last.
        if let Poll::Ready(Some(finished)) = self.waiting.poll_next_unpin(context) {
            return Poll::Ready(Event::Finished(finished));
        }
        if let Poll::Ready(Some(connection)) = self.arrivals.poll_recv(context) {
            return Poll::Ready(Event::Arrived(connection));
        }
        self.stopping = self.stopping || self.stop.as_mut().poll(context).is_ready();
        let (stopping, deliverable) = (self.stopping, self.has_deliverable());
        let Some(link) = &mut self.link else {
            let forgotten = self.forget.as_mut().is_some_and(|forget| forget.as_mut().poll(context).is_ready());
            return if stopping || forgotten { Poll::Ready(Event::Forget) } else { Poll::Pending };
        };
        let stalled = link.is_stalled(context);
        self.figures.queues(link.queued());
        if stalled {
            return Poll::Ready(Event::Stalled);
        }
        if let Poll::Ready(gathered) = link.poll_gathered(context) {
            return Poll::Ready(Event::Gathered(gathered));
        }
        if stopping && self.undrained.is_some() {
            if self.last_messages > 0
                && let Poll::Ready(message) = link.connection.poll_receive(context)
            {
                self.last_messages -= 1;
                return Poll::Ready(Event::Message(message));
            }
            self.undrained = None;
        }
        if deliverable {
            if let Poll::Ready(leave) = link.poll_delivery(context, self.shared.limits.session_batch_bytes) {
                return Poll::Ready(leave.map_or(Event::Deliver, Event::Leave));
            }
        } else if stopping && self.waiting.is_empty() && self.ready.is_empty() {
            // A last checkpoint must not contain draws that the client has.
            let by = self.acknowledged_by.get_or_insert_with(|| Box::pin(tokio::time::sleep(ACKNOWLEDGED_WITHIN)));
            if !self.outcomes.has_leases() || by.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Stop);
            }
        }
        if stopping && !self.outcomes.has_leases() {
            return Poll::Pending;
        }
        if self.id.is_none() && self.waiting.is_empty() && self.ready.is_empty() && self.asked {
            return Poll::Ready(Event::Idle);
        }
        // Do not read from a client that does not read.
        let most = self.shared.limits.session_batch_bytes.saturating_add(REPLIES);
        match link.connection.poll_queued(context, most) {
            Poll::Ready(()) => {}
            Poll::Pending => return Poll::Pending,
        }
        let message = link.connection.poll_receive(context);
        // A complete message is counted as what it becomes.
        let unfinished = if message.is_pending() { link.connection.unfinished_bytes() } else { 0 };
        match (message, self.charge.receive(unfinished)) {
            (Poll::Pending, Err(error)) => Poll::Ready(Event::TooMuch(error)),
            (message, _) => message.map(Event::Message),
        }
    }
}
