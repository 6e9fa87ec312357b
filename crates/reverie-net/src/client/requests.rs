//! Requests that wait for their answers.

use super::answer::{RequestPromise, describe_request};
use super::answer_time::{AnswerTime, MOST, earlier};
use super::request::{Request, is_for_the_disk};
use super::work::NewRequest;
use crate::deadline::{FAR, after};
use crate::proto::{self, reply};
use reverie_core::batch::Arrays;
use reverie_core::sample::{DrawnBatch, Lease, Lender};
use reverie_core::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a client waits for the reason why a request waits.
const PATIENCE_FOR_REASONS: Duration = Duration::from_millis(500);

/// Requests by their numbers.
pub(super) struct Requests {
    /// The least time by which the client checks a deadline later than the server.
    grace: Duration,
    answer_time: AnswerTime,
    /// The time for which the server may wait for its journal beyond a deadline.
    commit_grace: Duration,
    /// Receives the program's acknowledgements of leased draws.
    lender: Weak<dyn Lender>,
    all: BTreeMap<u64, Request>,
    /// The requests that were not sent on this connection, in order.
    unsent: VecDeque<u64>,
    /// Requests for the disk wait until inserts that a restarted server may have lost are confirmed again.
    holds: bool,
    held: Vec<u64>,
    /// The error of the next request for the disk: an earlier server may have lost what it asks for.
    next_error: Option<Error>,
    /// No caller must be answered before this time while there is a connection.
    /// Thousands of requests may be in flight, and each turn of the task asks: so it is computed again only when it is
    /// over.
    soonest: Option<Instant>,
}

impl Requests {
    pub(super) fn new(grace: Duration, lender: Weak<dyn Lender>) -> Self {
        Self {
            grace: grace.min(FAR),
            answer_time: AnswerTime::default(),
            commit_grace: Duration::ZERO,
            lender,
            all: BTreeMap::new(),
            unsent: VecDeque::new(),
            holds: false,
            held: Vec::new(),
            next_error: None,
            soonest: None,
        }
    }

    /// Adds the time that an answer took that the server gave at once.
    pub(super) fn measured(&mut self, took: Duration) {
        self.answer_time.measured(took);
    }

    /// Notes whether a batch is arriving in parts.
    pub(super) fn receiving(&mut self, receiving: bool) {
        if self.answer_time.receiving(receiving) {
            self.soonest = self.soonest.map(|soonest| soonest.min(Instant::now() + self.grace()));
        }
    }

    /// Sets the time that the server of this connection may wait for its journal beyond a deadline.
    pub(super) fn set_commit_grace(&mut self, commit_grace: Duration) {
        self.commit_grace = commit_grace.min(MOST);
        self.soonest = self.wanted().filter_map(|request| Some(request.answer_deadline? + self.grace())).min();
    }

    /// The time after its deadline in which an answer may still come: its way, and the server's wait for its journal.
    pub(super) fn grace(&self) -> Duration {
        self.grace.max(self.answer_time.bound()) + self.commit_grace
    }

    pub(super) fn push(&mut self, new: NewRequest, now: Instant) {
        let NewRequest { id, body, timeout, unawaited, leases, answer } = new;
        if is_for_the_disk(body.as_ref())
            && let Some(error) = self.next_error.take()
        {
            return answer.fail(error, Vec::new());
        }
        let is_held = self.holds && is_for_the_disk(body.as_ref());
        let answer_deadline = match answer {
            RequestPromise::Sentence(_) => Some(now + PATIENCE_FOR_REASONS.saturating_sub(self.grace())),
            _ => timeout.and_then(|timeout| after(now, timeout)),
        };
        let request = Request {
            body,
            answer: Some(answer),
            since: now,
            timeout,
            answer_deadline,
            withdrawn: false,
            sent: None,
            returning: false,
            batches: Vec::new(),
            arriving: None,
            unawaited,
            leases,
            consumes: false,
            leased: false,
        };
        self.all.insert(id, request);
        if is_held {
            self.held.push(id);
        } else {
            self.unsent.push_back(id);
        }
        self.soonest = earlier(self.soonest, answer_deadline.map(|answer_deadline| answer_deadline + self.grace()));
    }

    /// The numbers of the requests that are not done.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.all.keys().copied()
    }

    pub(super) fn first_id(&self) -> Option<u64> {
        self.all.first_key_value().map(|(id, _)| *id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Request> {
        self.all.get_mut(&id)
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next request to send, and whether a caller waits for the answer.
    /// Skips requests for the server's description, which have no message.
    pub(super) fn next(&mut self, now: Instant) -> Option<(proto::Request, bool)> {
        while let Some(id) = self.unsent.pop_front() {
            let Some(request) = self.all.get_mut(&id) else { continue };
            let Some(body) = request.body.clone() else { continue };
            let timeout = request.deadline().map(|deadline| deadline.saturating_duration_since(now).as_secs_f64());
            request.sent = Some(now);
            return Some((proto::Request { id, timeout, body: Some(body) }, !request.unawaited));
        }
        None
    }

    /// Holds back requests for the disk, until [`Requests::release`].
    pub(super) fn hold(&mut self) {
        self.holds = true;
        let all = &self.all;
        let is_held = |id: &u64| all.get(id).is_some_and(|request| is_for_the_disk(request.body.as_ref()));
        self.held.extend(self.unsent.iter().copied().filter(is_held));
        self.unsent.retain(|id| !is_held(id));
    }

    /// Sends the requests that were held back.
    pub(super) fn release(&mut self) {
        self.holds = false;
        self.unsent.extend(self.held.drain(..));
    }

    /// True while requests for the disk are held back.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Fails the requests for the disk, or the next one: what they ask for may be lost.
    pub(super) fn fail_disk_requests(&mut self, error: Error) {
        let asks = |request: &Request| is_for_the_disk(request.body.as_ref()) && request.answer.is_some();
        let asked: Vec<u64> = self.all.iter().filter(|(_, request)| asks(request)).map(|(id, _)| *id).collect();
        if asked.is_empty() {
            self.next_error = Some(error);
            return;
        }
        for id in asked {
            if let Some(request) = self.all.get_mut(&id) {
                request.fail(error.clone());
            }
            self.forget(id);
        }
    }

    /// Answers the requests for the server's description.
    pub(super) fn describe(&mut self, described: &std::sync::Arc<super::server_description::ServerDescription>) {
        let waiting: Vec<u64> = self.unsent.iter().copied().filter(|id| self.all[id].body.is_none()).collect();
        for id in waiting {
            if let Some(RequestPromise::Described(promise)) = self.all.remove(&id).and_then(|request| request.answer) {
                promise.fill(Ok(Some(described.clone())));
            }
        }
        self.unsent.retain(|id| self.all.contains_key(id));
    }

    /// Withdraws a request. `None` if it does not exist; `Some(true)` if the server must be notified.
    pub(super) fn withdraw(&mut self, id: u64, connected: bool, now: Instant) -> Option<bool> {
        let grace = self.grace();
        let request = self.all.get_mut(&id)?;
        if request.leased || request.returning {
            // The draws have arrived: their lease decides whether they return.
            return Some(false);
        }
        let was_sent = connected && !self.unsent.contains(&id);
        if was_sent {
            request.withdrawn = true;
            request.answer_deadline = Some(now);
            self.soonest = earlier(self.soonest, Some(now + grace));
            return Some(true);
        }
        request.withdraw();
        request.returning = request.may_hold_draws();
        if request.returning {
            self.unsent.retain(|other| *other != id);
        } else {
            self.forget(id);
        }
        Some(false)
    }

    fn forget(&mut self, id: u64) {
        self.all.remove(&id);
        self.unsent.retain(|other| *other != id);
        self.held.retain(|other| *other != id);
    }

    /// Handles a reply.
    pub(super) fn reply(&mut self, id: u64, body: reply::Body, now: Instant) -> Result<()> {
        let Some(request) = self.all.get(&id) else { return Ok(()) };
        if request.leased || request.returning && !matches!(body, reply::Body::Done(_)) {
            // The request's own end, sent before the server was asked to take the draws back.
            return Ok(());
        }
        let Some(mut request) = self.all.remove(&id) else { return Ok(()) };
        if let Some(sent) = request.sent.filter(|_| request.is_answered_at_once()) {
            self.answer_time.measured(now - sent);
        }
        let (answer, withdrawn) = (request.answer.take(), request.withdrawn);
        let batches = self.leased(id, request);
        match (answer, body) {
            (None, _) => {}
            (Some(answer), reply::Body::Error(detail)) if withdrawn => answer.end_withdrawn(detail, batches),
            (Some(answer), body) => answer.fill(body, batches)?,
        }
        Ok(())
    }

    /// Adds a complete batch; answers the request if it was its last.
    pub(super) fn complete(&mut self, id: u64, batch: Option<Arrays>, last: bool) -> Result<()> {
        let Some(request) = self.all.get_mut(&id) else { return Ok(()) };
        request.batches.extend(batch.map(DrawnBatch::Arrays));
        if last && !request.returning {
            let mut request = self.all.remove(&id).expect("it was there");
            let answer = request.answer.take();
            let batches = self.leased(id, request);
            if let Some(answer) = answer {
                answer.sampled(batches)?;
            }
        }
        Ok(())
    }

    /// The batches of a request that is answered; it stays until the program has taken them, if they are leased.
    fn leased(&mut self, id: u64, mut request: Request) -> Vec<DrawnBatch> {
        let mut batches = std::mem::take(&mut request.batches);
        if let (true, Some(DrawnBatch::Arrays(last))) = (request.keeps_lease(), batches.last_mut()) {
            last.lease = Lease::of_request(self.lender.clone(), id);
            request.leased = true;
            self.all.insert(id, request);
        }
        batches
    }

    /// The requests whose draws the program has not taken, as far as is known here.
    pub(super) fn leased_ids(&self) -> Vec<u64> {
        self.all.iter().filter(|(_, request)| request.leased).map(|(id, _)| *id).collect()
    }

    /// Returns the draws of these requests: their server was restarted, or has forgotten the client.
    pub(super) fn return_leased(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(request) = self.all.get_mut(id) {
                (request.leased, request.returning) = (false, true);
            }
        }
    }

    /// The program took the draws of an answered request, or will not take them: these are to be returned. False if the
    /// request is not known.
    pub(super) fn end_lease(&mut self, id: u64, is_taken: bool) -> bool {
        let Some(request) = self.all.get_mut(&id).filter(|request| request.leased) else { return false };
        (request.leased, request.returning) = (false, !is_taken);
        if is_taken {
            self.all.remove(&id);
        }
        true
    }

    /// The next time at which a caller must be answered. `outage`: since when there has been no connection.
    pub(super) fn next_timer(&self, outage: Option<Instant>, patience: Duration) -> Option<Instant> {
        match outage {
            None => self.soonest,
            Some(outage) => self.wanted().filter_map(|request| request.fails_at(outage, patience, self.grace())).min(),
        }
    }

    fn wanted(&self) -> impl Iterator<Item = &Request> {
        self.all.values().filter(|request| request.is_wanted())
    }

    /// Answers the callers whose time is over.
    /// Returns the numbers of the requests to withdraw at the server, and of those whose draws it takes back.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        outage: Option<Instant>,
        patience: Duration,
        silent: impl Fn(Duration, &str) -> Error,
    ) -> (Vec<u64>, Vec<u64>) {
        let grace = self.grace();
        let (mut withdrawn, mut returned, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
        for (id, request) in &mut self.all {
            let answer_deadline = match outage {
                None => request.answer_deadline.map(|answer_deadline| answer_deadline + grace),
                Some(outage) => request.fails_at(outage, patience, grace),
            };
            if request.answer.is_none() || answer_deadline.is_none_or(|answer_deadline| answer_deadline > now) {
                continue;
            }
            match request.withdrawn {
                true => request.withdraw(),
                false => {
                    request.fail(silent(now - request.since, &describe_request(request.body.as_ref())));
                    withdrawn.extend((!request.may_hold_draws()).then_some(*id));
                }
            }
            request.returning = request.may_hold_draws();
            match (request.returning, outage) {
                (true, _) => returned.push(*id),
                (false, Some(_)) => forgotten.push(*id),
                (false, None) => {}
            }
        }
        forgotten.into_iter().for_each(|id| self.forget(id));
        self.unsent.retain(|id| !returned.contains(id));
        self.soonest = self.wanted().filter_map(|request| Some(request.answer_deadline? + grace)).min();
        (withdrawn, returned)
    }

    /// Marks all requests as unsent after the connection was lost; drops those that no caller waits for.
    pub(super) fn lost(&mut self) {
        self.answer_time.receiving(false);
        for request in self.all.values_mut() {
            request.arriving = None;
            if request.withdrawn {
                request.withdraw();
            }
            request.returning = request.answer.is_none() && request.may_hold_draws() && !request.leased;
            // The batches are gathered again: the server keeps the draws until all have arrived.
            request.batches.clear();
        }
        self.all.retain(|_, request| request.answer.is_some() || request.returning || request.leased);
        self.unsent = self.all.iter().filter(|(_, request)| request.answer.is_some()).map(|(id, _)| *id).collect();
        self.held.clear();
        if self.holds {
            self.hold();
        }
    }

    /// Fails what may be done already and must not be done twice: the server at `address` does not know the client.
    pub(super) fn server_restarted(&mut self, address: &str) {
        let undecided: Vec<u64> =
            self.all.iter().filter(|(_, one)| one.is_not_idempotent()).map(|(id, _)| *id).collect();
        for id in undecided {
            if let Some(request) = self.all.get_mut(&id) {
                let what = describe_request(request.body.as_ref());
                request.fail(Error::Undecided(format!(
                    "{address} was restarted, or has forgotten this client, while {what}. It is not known whether that \
                     was done. Repeat the call if it is still wanted: that deletes what was inserted meanwhile, too"
                )));
            }
            self.forget(id);
        }
    }

    /// Fails all requests.
    pub(super) fn fail(&mut self, error: &Error) {
        self.unsent.clear();
        self.held.clear();
        for request in self.all.values_mut() {
            request.fail(error.clone());
            request.returning = request.may_hold_draws() && !request.leased;
        }
        self.all.retain(|_, request| request.returning || request.leased);
    }

    /// The requests whose draws the server is asked to take back.
    pub(super) fn returning(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter(|(_, request)| request.returning).map(|(id, _)| *id)
    }

    /// True if the server is asked to take draws back, or the program has not taken some.
    pub(super) fn hold_draws(&self) -> bool {
        self.all.values().any(|request| request.returning || request.leased)
    }

    /// True if a caller waits for one of them.
    pub(super) fn any_wanted(&self) -> bool {
        self.all.values().any(Request::is_wanted)
    }
}

#[cfg(test)]
mod tests;
