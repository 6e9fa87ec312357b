//! The outcome of a waiting request: the cell that a ticket reads, and the promise that fills it.

use crate::error::{Error, Result};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock};
use std::task::Waker;
use std::time::Duration;

/// Receives the outcome of a waiting request. It is filled outside the table's lock.
pub(super) struct OutcomeCell<T> {
    /// Guards the outcome only; held for a move, never during other work.
    state: Mutex<CellState<T>>,
    arrived: Condvar,
}

struct CellState<T> {
    outcome: Option<Result<T>>,
    waker: Option<Waker>,
    /// Threads that are parked: a wake-up without one would still be a system call.
    parked: usize,
}

impl<T> OutcomeCell<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(CellState { outcome: None, waker: None, parked: 0 }),
            arrived: Condvar::new(),
        })
    }

    pub(super) fn fill(&self, outcome: Result<T>) {
        let (waker, parked) = {
            let mut state = lock(&self.state);
            state.outcome = Some(outcome);
            (state.waker.take(), state.parked > 0)
        };
        if parked {
            self.arrived.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn take(&self) -> Option<Result<T>> {
        lock(&self.state).outcome.take()
    }

    pub(super) fn is_filled(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }

    /// True if it is filled; if not, `waker` is woken when it is.
    pub(super) fn is_filled_or_wakes(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        state.waker = Some(waker.clone());
        state.outcome.is_some()
    }

    /// Parks this thread until it is filled, at most for `timeout`; may return early.
    pub(super) fn park(&self, timeout: Duration) {
        let state = lock(&self.state);
        if state.outcome.is_none() && !timeout.is_zero() {
            drop(self.parked(state, Some(timeout)));
        }
    }

    /// Parks this thread until it is filled.
    pub(super) fn park_until_filled(&self) {
        let mut state = lock(&self.state);
        while state.outcome.is_none() {
            state = self.parked(state, None);
        }
    }

    /// Parks this thread, at most for `timeout`; may return early.
    fn parked<'a>(
        &'a self,
        mut state: MutexGuard<'a, CellState<T>>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, CellState<T>> {
        state.parked += 1;
        let mut state = match timeout {
            Some(timeout) => {
                self.arrived.wait_timeout(state, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
            }
            None => self.arrived.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
        };
        state.parked -= 1;
        state
    }
}

/// The other end of a waiting ticket: its holder completes the request, once.
///
/// If it is dropped first, as when its holder panics, the ticket fails with `Unavailable`: no ticket waits for ever.
pub struct Promise<T>(Option<Arc<OutcomeCell<T>>>);

impl<T> Promise<T> {
    pub(super) fn of(cell: Arc<OutcomeCell<T>>) -> Self {
        Self(Some(cell))
    }

    /// False if the ticket was dropped: no caller would get the outcome.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|cell| Arc::strong_count(cell) > 1)
    }

    /// Sets the outcome, and wakes the thread or task that waits for it.
    pub fn fill(mut self, outcome: Result<T>) {
        if let Some(cell) = self.0.take() {
            cell.fill(outcome);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.fill(Err(Error::Unavailable(
                "the request was dropped before it was answered, which is a defect".to_owned(),
            )));
        }
    }
}
