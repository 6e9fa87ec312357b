//! Answers with draws that are leased: whose they are while they are made, sent and not acknowledged yet.

use super::delivery::Link;
use super::memory::Outcome;
use super::samples::Answer;
use super::session::Session;
use crate::proto;
use reverie_core::{Error, Result};

/// Requests that one message may return: each gets an answer.
const RETURNED_AT_ONCE: usize = 1 << 12;

impl Session {
    /// Draws that are to be sent.
    pub(super) fn answer(&mut self, answer: Answer) {
        self.cancels.remove(&answer.id);
        match self.link.is_some() {
            true => self.ready.push_back(answer),
            false => self.discard(answer),
        }
    }

    /// All was sent: leased draws are kept until the client says that it has them.
    pub(super) fn await_acknowledgement(&mut self, mut answer: Answer) {
        self.asked_bytes -= std::mem::take(&mut answer.asked_bytes);
        if answer.is_leased() {
            self.memory.done(answer.id, Outcome::Draws(Box::new(answer.whole_again())));
        }
    }

    /// The client does not take the draws of these requests. `Protocol` where they are too many for one message.
    pub(super) fn take_all_back(&mut self, ids: &[u64]) -> Result<()> {
        if ids.len() > RETURNED_AT_ONCE {
            let reason = format!("{} requests returned in one message; {RETURNED_AT_ONCE} are allowed", ids.len());
            return Err(Error::Protocol(reason));
        }
        ids.iter().for_each(|id| self.take_back(*id));
        Ok(())
    }

    /// Gives leased draws back that the client cannot have, and withdraws what draws more of them: a client that comes
    /// back asks again, and one that does not must not take from others.
    pub(super) fn end_consuming(&mut self) {
        let consuming = self.cancels.extract_if(|_, cancel| cancel.consumes);
        // A request that is done just now is not listened to; see `finished`.
        consuming.for_each(|(_, cancel)| _ = cancel.sender.send(()));
        self.link.iter_mut().for_each(Link::forget_planned);
        std::mem::take(&mut self.ready).into_iter().for_each(|answer| self.discard(answer));
    }

    /// An answer that is not sent any more: its lease ends.
    pub(super) fn discard(&mut self, answer: Answer) {
        self.asked_bytes -= answer.asked_bytes;
    }

    /// The client does not take the draws of a request, whatever became of it.
    fn take_back(&mut self, id: u64) {
        if let Some(cancel) = self.cancels.remove(&id) {
            self.unwanted.insert(id);
            let _ = cancel.sender.send(());
        }
        if self.ready.front().is_some_and(|answer| answer.id == id) {
            self.link.iter_mut().for_each(Link::forget_planned);
        }
        self.link.iter_mut().for_each(|link| link.forget_unpacking(id));
        if let Some(at) = self.ready.iter().position(|answer| answer.id == id) {
            self.ready.remove(at).into_iter().for_each(|answer| self.discard(answer));
        }
        // Dropped, its lease ends.
        self.memory.take(id);
        let done = proto::reply::Body::Done(proto::Done {});
        self.reply(proto::Reply { id, body: Some(done) }, false);
    }
}
