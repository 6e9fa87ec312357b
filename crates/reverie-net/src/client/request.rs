//! A request that waits for its answer.

use super::answer::RequestPromise;
use super::answer_time::earlier;
use super::arriving_batch::ArrivingBatch;
use crate::deadline::after;
use crate::proto;
use reverie_core::Error;
use reverie_core::sample::DrawnBatch;
use std::time::Duration;
use tokio::time::Instant;

/// A request, and what has arrived of its answer.
pub(super) struct Request {
    pub(super) body: Option<proto::request::Body>,
    /// `None` if no caller waits any more; the server's last reply is still expected.
    pub(super) answer: Option<RequestPromise>,
    pub(super) since: Instant,
    /// The caller's timeout.
    pub(super) timeout: Option<Duration>,
    /// The server's latest time to answer; the caller is answered one grace period later, whatever the server does.
    pub(super) answer_deadline: Option<Instant>,
    pub(super) withdrawn: bool,
    /// The time when it was sent, on any connection.
    pub(super) sent: Option<Instant>,
    /// The draws have no caller any more: the server is asked to take them back, and reports when it has.
    pub(super) returning: bool,
    pub(super) batches: Vec<DrawnBatch>,
    pub(super) arriving: Option<ArrivingBatch>,
    pub(super) unawaited: bool,
    /// See [`NewRequest::leases`](super::work::NewRequest::leases).
    pub(super) leases: bool,
    /// Draws among those that have arrived are leased by the server.
    pub(super) consumes: bool,
    /// The draws have arrived, and the program has not taken them yet.
    pub(super) leased: bool,
}

impl Request {
    /// True if the server may hold draws for it that must not be lost.
    pub(super) fn may_hold_draws(&self) -> bool {
        self.sent.is_some() && matches!(self.body, Some(proto::request::Body::Sample(_)))
    }

    /// True if the server answers without waiting.
    pub(super) fn is_answered_at_once(&self) -> bool {
        use proto::request::Body;
        matches!(self.body, Some(Body::Mutate(_) | Body::Delete(_) | Body::Can(_) | Body::Info(_) | Body::Why(_)))
    }

    /// True if a server may have done it already, and doing it again could delete what was inserted after that.
    pub(super) fn is_not_idempotent(&self) -> bool {
        use proto::request::Body;
        let deletes_matches = match &self.body {
            Some(Body::Reset(_)) => true,
            Some(Body::Delete(delete)) => delete.keys.is_none(),
            Some(Body::Configure(configure)) => configure.max_size.is_some(),
            _ => false,
        };
        deletes_matches && self.sent.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| after(self.since, timeout))
    }

    pub(super) fn fail(&mut self, error: Error) {
        let batches = self.final_batches();
        if let Some(answer) = self.answer.take() {
            answer.fail(error, batches);
        }
    }

    pub(super) fn withdraw(&mut self) {
        let batches = self.final_batches();
        if let Some(answer) = self.answer.take() {
            answer.withdraw(batches);
        }
    }

    /// The draws that have arrived, except for leased ones, which the server is asked to take back: the caller must not
    /// have them as well.
    fn final_batches(&mut self) -> Vec<DrawnBatch> {
        let batches = std::mem::take(&mut self.batches);
        if self.consumes { Vec::new() } else { batches }
    }

    /// True if draws have arrived that the program acknowledges.
    pub(super) fn keeps_lease(&self) -> bool {
        self.leases && self.consumes
    }

    /// Marks its draws as returned to the server; returns the request's number.
    pub(super) fn take_back(&mut self, id: u64) -> u64 {
        (self.returning, self.answer) = (true, None);
        self.batches.clear();
        id
    }

    /// True if its draws have no caller any more.
    pub(super) fn is_returning(&self) -> bool {
        self.returning
    }

    /// True if its draws have arrived, and the program has not taken them yet.
    pub(super) fn is_leased(&self) -> bool {
        self.leased
    }

    /// True if a caller waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_some_and(RequestPromise::is_awaited)
    }

    /// The time at which the caller gets the error that there is no connection; `None` if it is to wait for ever.
    pub(super) fn fails_at(&self, outage: Instant, patience: Duration, grace: Duration) -> Option<Instant> {
        let unreachable_at = after(self.since.max(outage), patience);
        let by = self.deadline().or(self.answer_deadline.map(|answer_deadline| answer_deadline + grace));
        earlier(unreachable_at, by)
    }
}

/// True if a caller asks whether the disk has what was done.
pub(super) fn is_for_the_disk(body: Option<&proto::request::Body>) -> bool {
    matches!(body, Some(proto::request::Body::Durable(proto::Durable { later: false })))
}
