//! Deadlines and withdrawals of requests to several servers.

use reverie_core::replay::Replay;
use reverie_core::table::{Ticket, Withdrawal};
use reverie_core::{Error, Result};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// How long a response that needs no waiting may take, also past the caller's deadline.
const ANSWER: Duration = Duration::from_secs(1);

/// The outcome of each server that was asked.
pub(super) type Outcomes<T> = Vec<(usize, Result<T>)>;

/// The end of a request: its deadline, or its withdrawal.
#[derive(Clone)]
pub(super) struct End {
    runtime: Handle,
    deadline: Option<Instant>,
    withdrawal: Withdrawal,
}

impl End {
    pub(super) fn new(runtime: &Handle, timeout: Option<Duration>, withdrawal: &Withdrawal) -> Self {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { runtime: runtime.clone(), deadline, withdrawal: withdrawal.clone() }
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

    /// The time in which a response that needs no waiting must arrive.
    pub(super) fn answer(&self) -> Option<Duration> {
        self.left().map(|left| left.max(ANSWER))
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
        let mut future = pin!(future);
        let mut timer = pin!(timeout.map(|timeout| self.sleep(timeout)));
        let timed = poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            match timer.as_mut().as_pin_mut() {
                Some(timer) => timer.poll(context).map(|()| None),
                None => Poll::Pending,
            }
        });
        self.withdrawal.or(timed).await.flatten()
    }

    /// Waits for the responses of all servers. One that does not arrive in time is an error.
    ///
    /// One after the other, as all were asked before: the caller is not woken for a response while it needs another.
    pub(super) async fn all<T: Unpin>(&self, asked: Vec<(usize, Arc<dyn Replay>, Ticket<T>)>) -> Outcomes<T> {
        let (timeout, since) = (self.answer(), Instant::now());
        let mut outcomes = Vec::with_capacity(asked.len());
        for (shard, replay, mut ticket) in asked {
            let left = timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
            let outcome = match ticket.poll() {
                Some(outcome) => Some(outcome),
                None => self.within(left, ticket).await,
            };
            let silent = || Err(Error::Deadline(replay.silence(since.elapsed())));
            outcomes.push((shard, outcome.unwrap_or_else(silent)));
        }
        outcomes
    }
}

/// True if an error means that the server cannot be reached.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Closed { .. } | Error::ClientClosed { .. })
}
