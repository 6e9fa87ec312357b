//! Answers with leased draws: their owner while they are made, sent and not acknowledged yet.

use super::super::delivery::Link;
use super::super::outcomes::RequestOutcome;
use super::super::samples::DrawDelivery;
use super::super::session::{CancellableRequest, DrawRequest, Session};
use crate::proto;
use crate::proto::server_message::Body;
use reverie_core::{Error, Result};

/// Requests that one message may return at most: each gets an answer.
const RETURNED_AT_ONCE: usize = 1 << 12;

impl Session {
    /// Queues the draws to be sent, or discards them if there is no connection.
    pub(super) fn answer(&mut self, answer: DrawDelivery) {
        self.cancels.remove(&answer.id);
        match self.link.is_some() {
            true => self.ready.push_back(answer),
            false => self.discard(answer),
        }
    }

    /// Called when everything was sent: keeps leased draws until the client acknowledges them.
    pub(super) fn await_acknowledgement(&mut self, mut answer: DrawDelivery) {
        self.requested_bytes -= std::mem::take(&mut answer.requested_bytes);
        if answer.is_leased() {
            self.outcomes.done(answer.id, RequestOutcome::Draws(Box::new(answer.whole_again())));
        }
    }

    /// Takes back the draws of these requests. `Protocol` if they are too many for one message.
    pub(super) fn take_all_back(&mut self, ids: &[u64]) -> Result<()> {
        if ids.len() > RETURNED_AT_ONCE {
            let reason = format!("{} requests were returned in one message; {RETURNED_AT_ONCE} are allowed", ids.len());
            return Err(Error::Protocol(reason));
        }
        ids.iter().for_each(|id| self.take_back(*id));
        Ok(())
    }

    /// Returns the leased draws that the client cannot receive, and withdraws requests that would draw more of them.
    /// A client that reconnects asks again, and one that does not must not take items from others.
    pub(super) fn end_consuming(&mut self) {
        let consumes = |cancel: &CancellableRequest| cancel.drawing.as_ref().is_some_and(|drawing| drawing.consumes());
        let consuming = self.cancels.extract_if(|_, cancel| consumes(cancel));
        // A request that finishes at this moment ignores this; see `finished`.
        consuming.for_each(|(_, mut cancel)| cancel.withdraw());
        self.link.iter_mut().for_each(Link::forget_planned);
        std::mem::take(&mut self.ready).into_iter().for_each(|answer| self.discard(answer));
    }

    /// True if the client asks for these draws again: the request was withdrawn with its connection, or cancelled,
    /// and the client has connected again.
    ///
    /// A request whose table kept its items when the connection was lost waits on, and is answered on the new
    /// connection.
    pub(super) fn is_requested_again(&self, id: u64, drawing: &DrawRequest) -> bool {
        let waits = || self.cancels.get(&id)?.drawing.as_ref();
        drawing.connection != self.connection
            && waits().map_or_else(|| drawing.consumes(), |waiting| waiting.connection != drawing.connection)
    }

    /// Discards an answer, which ends its lease.
    pub(super) fn discard(&mut self, answer: DrawDelivery) {
        self.requested_bytes -= answer.requested_bytes;
    }

    /// Takes back the draws of a request, in whatever state it is.
    fn take_back(&mut self, id: u64) {
        if let Some(mut cancel) = self.cancels.remove(&id) {
            self.unwanted.insert(id);
            cancel.withdraw();
        }
        if self.ready.front().is_some_and(|answer| answer.id == id) {
            self.link.iter_mut().for_each(Link::forget_planned);
        }
        self.link.iter_mut().for_each(|link| link.forget_gathering(id));
        if let Some(at) = self.ready.iter().position(|answer| answer.id == id) {
            self.ready.remove(at).into_iter().for_each(|answer| self.discard(answer));
        }
        // Dropping the outcome ends its lease.
        self.outcomes.take(id);
        self.spans.abandon(id, "the client did not wait for it");
        let done = proto::reply::Body::Done(proto::Done {});
        let reply = proto::Reply { id, body: Some(done) };
        self.end_span(&reply);
        self.send_behind(Body::Reply(reply));
    }
}
