//! Deadlines and withdrawals of requests to several servers.

use reverie_core::replay::Replay;
use reverie_core::table::{COMMIT_GRACE, Ticket, Withdrawal};
use reverie_core::{Error, Result};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The time that a response that needs no waiting may take, also past the caller's deadline.
const ANSWER: Duration = Duration::from_secs(1);

/// Requests to servers.
pub(super) type ShardTickets<T> = Vec<(usize, Arc<dyn Replay>, Ticket<T>)>;

/// The outcome of each server that was asked.
pub(super) type ShardOutcomes<T> = Vec<(usize, Result<T>)>;

/// The end of a request: its deadline, or its withdrawal.
#[derive(Clone)]
pub(super) struct RequestEnd {
    runtime: Handle,
    deadline: Option<Instant>,
    withdrawal: Withdrawal,
    /// The request changes tables: see [`RequestEnd::of_change`].
    is_change: bool,
}

impl RequestEnd {
    pub(super) fn new(runtime: &Handle, timeout: Option<Duration>, withdrawal: &Withdrawal) -> Self {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { runtime: runtime.clone(), deadline, withdrawal: withdrawal.clone(), is_change: false }
    }

    /// This end for a change. If it is withdrawn, each server has a moment to report that it has not committed its
    /// part.
    pub(super) fn of_change(&self) -> Self {
        Self { is_change: true, ..self.clone() }
    }

    /// True once the caller waits no longer.
    pub(super) fn is_over(&self) -> bool {
        self.is_withdrawn() || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawal.is_made()
    }

    /// The time until the deadline.
    pub(super) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The time in which a response that needs no waiting must arrive: a second, or until a second past the deadline.
    pub(super) fn answer(&self) -> Option<Duration> {
        let (deadline, now) = (self.deadline?, Instant::now());
        let left = deadline.saturating_duration_since(now);
        Some(left.max(ANSWER.saturating_sub(now.saturating_duration_since(deadline))))
    }

    /// The output of a future; `None` if the request is withdrawn before.
    pub(super) async fn unless_withdrawn<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.withdrawal.or(future).await
    }

    fn sleep(&self, timeout: Duration) -> tokio::time::Sleep {
        // The timer belongs to the runtime, on whatever thread the request is driven.
        let _entered = self.runtime.enter();
        tokio::time::sleep(timeout)
    }

    /// The output of a future; `None` after `timeout`, or if the request is withdrawn before.
    pub(super) async fn within<T>(&self, timeout: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
        self.withdrawal.or(self.timed(timeout, future)).await.flatten()
    }

    /// The output of a future; `None` after `timeout`.
    async fn timed<T>(&self, timeout: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        // Most need no timer.
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(output);
        }
        let mut timer = pin!(timeout.map(|timeout| self.sleep(timeout)));
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            match timer.as_mut().as_pin_mut() {
                Some(timer) => timer.poll(context).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Waits for the responses of all servers. One that does not arrive in time is a `Deadline` error.
    ///
    /// One after the other, as all were asked before: the caller is not woken for a response while it needs another.
    pub(super) async fn all<T: Unpin + Default>(&self, asked: ShardTickets<T>) -> ShardOutcomes<T> {
        let since = Instant::now();
        let until = self.answer().and_then(|timeout| since.checked_add(timeout));
        let mut outcomes = Vec::with_capacity(asked.len());
        let mut late = Vec::new();
        for (shard, replay, mut ticket) in asked {
            let outcome = match ticket.poll() {
                Some(outcome) => outcome,
                None => {
                    let outcome = self.response(&*replay, &mut ticket, since, until).await;
                    if self.is_change && self.is_withdrawn() && matches!(outcome, Err(Error::Deadline(_))) {
                        ticket.withdraw();
                        late.push((outcomes.len(), ticket));
                    }
                    outcome
                }
            };
            outcomes.push((shard, outcome));
        }
        let withdrawn = Instant::now();
        for (at, ticket) in late {
            if let Some(error) = self.late_error(ticket, withdrawn).await {
                outcomes[at].1 = Err(error);
            }
        }
        outcomes
    }

    /// The error of a withdrawn change that a server reports within a moment, if it is more than that it is late.
    async fn late_error<T: Unpin + Default>(&self, mut ticket: Ticket<T>, withdrawn: Instant) -> Option<Error> {
        let needs_commit = ticket.needs_commit();
        let moment = if needs_commit { COMMIT_GRACE } else { ANSWER };
        // The same moment for all servers, however many are silent.
        let outcome = match self.timed(Some(moment.saturating_sub(withdrawn.elapsed())), &mut ticket).await {
            // A journal of this process: it has the reason at once.
            None if needs_commit => ticket.cancel(),
            outcome => outcome?,
        };
        outcome.err().filter(|error| !is_lost(error) && !matches!(error, Error::Deadline(_)))
    }

    /// The response of a server, at most until then.
    ///
    /// A request may take long. If there is no response within the server's patience, the server is asked for its
    /// figures; if that has no response either, the error is `Unavailable`.
    async fn response<T: Unpin>(
        &self,
        replay: &dyn Replay,
        mut ticket: &mut Ticket<T>,
        since: Instant,
        until: Option<Instant>,
    ) -> Result<T> {
        let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(Instant::now()));
        let reason = || replay.no_response_reason(since.elapsed());
        let mut checked = since;
        loop {
            let check = replay.patience().and_then(|patience| checked.checked_add(patience));
            let next = check.into_iter().chain(until).min();
            if let Some(outcome) = self.within(left(next), &mut ticket).await {
                return outcome;
            }
            if self.is_withdrawn() || left(until).is_some_and(|left| left.is_zero()) {
                return Err(Error::Deadline(reason()));
            }
            let mut figures = replay.info();
            let either = poll_fn(|context| match Pin::new(&mut ticket).poll(context) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => Pin::new(&mut figures).poll(context).map(|answered| answered.err().map(Err)),
            });
            match self.within(Some(left(until).map_or(ANSWER, |left| left.min(ANSWER))), either).await {
                Some(Some(outcome)) => return outcome,
                Some(None) => checked = Instant::now(),
                None if self.is_withdrawn() || left(until).is_some_and(|left| left.is_zero()) => {
                    return Err(Error::Deadline(reason()));
                }
                None => return Err(Error::Unavailable(reason())),
            }
        }
    }
}

/// True if an error means that the server cannot be reached.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Closed { .. } | Error::ClientClosed { .. })
}
