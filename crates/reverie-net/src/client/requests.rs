//! Requests that wait for their answers.

use super::RemoteBatch;
use super::answer::{Answer, doing};
use super::arriving::Arriving;
use super::outbox::NewRequest;
use crate::proto::{self, reply};
use reverie_core::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// For how long a reason is waited for.
const PATIENCE_FOR_REASONS: Duration = Duration::from_millis(500);

/// Requests by their numbers.
pub(super) struct Requests {
    /// How much later than the server a client looks at a deadline.
    grace: Duration,
    all: BTreeMap<u64, Request>,
    /// Those that were not sent on this connection, in order.
    unsent: VecDeque<u64>,
    /// No caller must be answered before, while there is a connection. Thousands may be in flight, and each turn of the
    /// task asks: so it is only looked up anew when its time has come.
    soonest: Option<Instant>,
}

pub(super) struct Request {
    body: Option<proto::request::Body>,
    /// `None` where nobody waits any more; the server's last word is still awaited.
    answer: Option<Answer>,
    since: Instant,
    /// What the caller allowed.
    timeout: Option<Duration>,
    /// When the caller is answered whatever the server does.
    answer_by: Option<Instant>,
    withdrawn: bool,
    batches: Vec<RemoteBatch>,
    pub(super) arriving: Option<Arriving>,
    patient: bool,
}

impl Request {
    fn deadline(&self) -> Option<Instant> {
        self.timeout.map(|timeout| self.since + timeout)
    }

    pub(super) fn fail(&mut self, error: Error) {
        if let Some(answer) = self.answer.take() {
            answer.fail(error, std::mem::take(&mut self.batches));
        }
    }

    fn withdraw(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer.withdraw(std::mem::take(&mut self.batches));
        }
    }

    /// True where somebody waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.is_some()
    }
}

impl Requests {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, all: BTreeMap::new(), unsent: VecDeque::new(), soonest: None }
    }

    pub(super) fn push(&mut self, new: NewRequest, now: Instant) {
        let NewRequest { id, body, timeout, patient, answer } = new;
        let answer_by = match answer {
            Answer::Sentence(_) => Some(now + PATIENCE_FOR_REASONS.max(self.grace)),
            _ => timeout.map(|timeout| now + timeout + self.grace),
        };
        let request = Request {
            body,
            answer: Some(answer),
            since: now,
            timeout,
            answer_by,
            withdrawn: false,
            batches: Vec::new(),
            arriving: None,
            patient,
        };
        self.all.insert(id, request);
        self.unsent.push_back(id);
        self.soonest = earlier(self.soonest, answer_by);
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

    /// The next that is to be sent, and whether somebody waits for the answer. Those that only want a connection are
    /// answered with what the server is.
    pub(super) fn next(&mut self, now: Instant) -> Option<(proto::Request, bool)> {
        while let Some(id) = self.unsent.pop_front() {
            let Some(request) = self.all.get(&id) else { continue };
            let Some(body) = request.body.clone() else { continue };
            let timeout = request.deadline().map(|deadline| deadline.saturating_duration_since(now).as_secs_f64());
            return Some((proto::Request { id, timeout, body: Some(body) }, !request.patient));
        }
        None
    }

    /// Answers those that only want to know the server.
    pub(super) fn describe(&mut self, described: &std::sync::Arc<super::Described>) {
        let waiting: Vec<u64> = self.unsent.iter().copied().filter(|id| self.all[id].body.is_none()).collect();
        for id in waiting {
            if let Some(Answer::Described(promise)) = self.all.remove(&id).and_then(|request| request.answer) {
                promise.fill(Ok(Some(described.clone())));
            }
        }
        self.unsent.retain(|id| self.all.contains_key(id));
    }

    /// The caller takes one back. `None`: there is none. `Some(true)`: the server has to be told.
    pub(super) fn withdraw(&mut self, id: u64, connected: bool, now: Instant) -> Option<bool> {
        let request = self.all.get_mut(&id)?;
        let was_sent = connected && !self.unsent.contains(&id);
        if was_sent {
            request.withdrawn = true;
            request.answer_by = Some(now + self.grace);
            self.soonest = earlier(self.soonest, request.answer_by);
            return Some(true);
        }
        request.withdraw();
        self.forget(id);
        Some(false)
    }

    fn forget(&mut self, id: u64) {
        self.all.remove(&id);
        self.unsent.retain(|other| *other != id);
    }

    /// A reply.
    pub(super) fn reply(&mut self, id: u64, body: reply::Body) -> Result<()> {
        let Some(request) = self.all.remove(&id) else { return Ok(()) };
        let Request { answer, batches, withdrawn, .. } = request;
        match (answer, body) {
            (None, _) => {}
            (Some(answer), reply::Body::Error(_)) if withdrawn => answer.withdraw(batches),
            (Some(answer), body) => answer.fill(body, batches)?,
        }
        Ok(())
    }

    /// A batch is complete; true where it was the request's last.
    pub(super) fn complete(&mut self, id: u64, batch: Option<RemoteBatch>, last: bool) -> Result<()> {
        let Some(request) = self.all.get_mut(&id) else { return Ok(()) };
        request.batches.extend(batch);
        if last {
            let request = self.all.remove(&id).expect("it was there");
            if let Some(answer) = request.answer {
                answer.sampled(request.batches)?;
            }
        }
        Ok(())
    }

    /// When to look whether a caller must be answered. `outage` and `patience`: there has been no connection since.
    pub(super) fn next_timer(&self, outage: Option<Instant>, patience: Duration) -> Option<Instant> {
        match outage {
            None => self.soonest,
            Some(outage) => self.wanted().map(|request| request.give_up(outage, patience)).min(),
        }
    }

    fn wanted(&self) -> impl Iterator<Item = &Request> {
        self.all.values().filter(|request| request.is_wanted())
    }

    /// Answers those whose time has come; gives the numbers of those that the server has to be told of.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        outage: Option<Instant>,
        patience: Duration,
        silent: impl Fn(Duration, &str) -> Error,
    ) -> Vec<u64> {
        let mut told = Vec::new();
        let mut forgotten = Vec::new();
        for (id, request) in &mut self.all {
            let due = match outage {
                None => request.answer_by,
                Some(outage) => Some(request.give_up(outage, patience)),
            };
            if request.answer.is_none() || due.is_none_or(|due| due > now) {
                continue;
            }
            match request.withdrawn {
                true => request.withdraw(),
                false => {
                    let what = doing(request.body.as_ref());
                    request.fail(silent(now - request.since, &what));
                    told.push(*id);
                }
            }
            if outage.is_some() {
                forgotten.push(*id);
            }
        }
        forgotten.into_iter().for_each(|id| self.forget(id));
        self.soonest = self.wanted().filter_map(|request| request.answer_by).min();
        told
    }

    /// The connection is gone: all are to be sent again, but for those that nobody waits for.
    pub(super) fn lost(&mut self) {
        for request in self.all.values_mut() {
            request.arriving = None;
            if request.withdrawn {
                request.withdraw();
            }
            // What came is gathered again: the server keeps the draws until it knows that all arrived.
            request.batches.clear();
        }
        self.all.retain(|_, request| request.answer.is_some());
        self.unsent = self.all.keys().copied().collect();
    }

    /// Ends all.
    pub(super) fn fail(&mut self, error: &Error) {
        self.unsent.clear();
        for (_, mut request) in std::mem::take(&mut self.all) {
            request.fail(error.clone());
        }
    }

    /// True where somebody waits for one.
    pub(super) fn any_wanted(&self) -> bool {
        self.all.values().any(Request::is_wanted)
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

impl Request {
    /// When the caller is told that there is no connection.
    fn give_up(&self, outage: Instant, patience: Duration) -> Instant {
        let patient = self.since.max(outage) + patience;
        let by = self.deadline().or(self.answer_by);
        by.map_or(patient, |by| by.min(patient))
    }
}
