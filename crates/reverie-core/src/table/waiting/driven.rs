//! A request of several steps: a future that the thread which waits for the ticket drives.

use super::ticket::{Pending, Ticket};
use crate::error::Result;
use crate::sync::{Condvar, Mutex, lock};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The withdrawal of a request of several steps. Clones are of one request.
#[derive(Clone, Debug, Default)]
pub struct Withdrawal(Arc<AtomicBool>);

impl Withdrawal {
    /// Withdraws the request. Its future must be polled again.
    pub fn make(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once the request was withdrawn: its future ends with the part that is done.
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The output of a future; `None` if the request is withdrawn before.
    pub async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        // A withdrawal polls the whole request again. An outcome that has arrived by then is not lost.
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_made() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

struct DrivenRequest<T> {
    /// Held while the future is polled.
    state: Mutex<DrivenState<T>>,
    wakes: Arc<WakeSignal>,
    withdrawal: Withdrawal,
}

struct DrivenState<T> {
    work: Option<Work<T>>,
    outcome: Option<Result<T>>,
}

/// The signal that the future can go on, for the thread or the task that waits for it.
struct WakeSignal {
    state: Mutex<WakeState>,
    woken: Condvar,
}

struct WakeState {
    woken: bool,
    waker: Option<Waker>,
}

impl WakeSignal {
    /// True if it was woken since the last call.
    fn take(&self) -> bool {
        std::mem::take(&mut lock(&self.state).woken)
    }

    /// Parks this thread until it is woken, at most for `timeout`; may return early.
    fn park(&self, timeout: Duration) {
        let state = lock(&self.state);
        if !state.woken && !timeout.is_zero() {
            drop(self.woken.wait_timeout(state, timeout));
        }
    }
}

impl Wake for WakeSignal {
    fn wake(self: Arc<Self>) {
        let waker = {
            let mut state = lock(&self.state);
            state.woken = true;
            state.waker.take()
        };
        self.woken.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> DrivenRequest<T> {
    /// Polls the future if it was woken.
    fn drive(&self) {
        let mut state = lock(&self.state);
        while let Some(work) = &mut state.work {
            if !self.wakes.take() {
                return;
            }
            let waker = Arc::clone(&self.wakes).into();
            if let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                (state.work, state.outcome) = (None, Some(outcome));
            }
        }
    }
}

impl<T: Send> Pending<T> for DrivenRequest<T> {
    fn poll(&mut self) -> Option<Result<T>> {
        self.drive();
        lock(&self.state).outcome.take()
    }

    fn is_done(&self) -> bool {
        self.drive();
        lock(&self.state).outcome.is_some()
    }

    fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        lock(&self.wakes.state).waker = Some(waker.clone());
        self.is_done()
    }

    fn park(&self, timeout: Duration) {
        if !self.is_done() {
            self.wakes.park(timeout);
            self.drive();
        }
    }

    fn nudge(&self) {}

    fn withdraw(&mut self) {
        self.withdrawal.make();
        Arc::clone(&self.wakes).wake();
        self.drive();
    }

    fn cancel(mut self: Box<Self>) -> Result<T> {
        self.withdraw();
        loop {
            if let Some(outcome) = self.poll() {
                return outcome;
            }
            self.wakes.park(Duration::from_secs(1));
        }
    }
}

impl<T: Send + 'static> Ticket<T> {
    /// A request of several steps.
    ///
    /// The future is polled here once, so that it makes its first requests, and then by the thread or task that waits
    /// for the ticket. It must end soon, with the part that is done, once the withdrawal is made.
    pub fn driven(future: impl Future<Output = Result<T>> + Send + 'static, withdrawal: Withdrawal) -> Self {
        let state = DrivenState { work: Some(Box::pin(future) as Work<T>), outcome: None };
        let wakes = WakeSignal { state: Mutex::new(WakeState { woken: true, waker: None }), woken: Condvar::new() };
        let mut driven = DrivenRequest { state: Mutex::new(state), wakes: Arc::new(wakes), withdrawal };
        match driven.poll() {
            Some(outcome) => Self::done(outcome),
            None => Self::pending(Box::new(driven)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::RequestHolder;

    struct SilentHolder;

    impl RequestHolder<u32> for SilentHolder {
        fn withdraw(&self, _: u64) -> Option<u32> {
            None
        }
    }

    /// A request of two steps that adds their outcomes, and returns the first if it is withdrawn.
    fn sum() -> (Ticket<u32>, Vec<super::super::promise::Promise<u32>>) {
        let (first, one) = Ticket::promised(Arc::new(SilentHolder), 1, false);
        let (second, other) = Ticket::promised(Arc::new(SilentHolder), 2, false);
        let withdrawal = Withdrawal::default();
        let seen = withdrawal.clone();
        let sum = async move {
            let Some(first) = seen.or(first).await else { return Ok(0) };
            let first = first?;
            Ok(first + seen.or(second).await.unwrap_or(Ok(0))?)
        };
        (Ticket::driven(sum, withdrawal), vec![other, one])
    }

    #[test]
    fn the_thread_that_waits_drives_the_steps() {
        let (mut ticket, mut promises) = sum();
        assert!(ticket.poll().is_none() && !ticket.is_done());
        promises.pop().unwrap().fill(Ok(3));
        assert!(ticket.wait(Duration::ZERO).is_none());
        let last = promises.pop().unwrap();
        let filler = std::thread::spawn(move || last.fill(Ok(4)));
        let outcome = (0..100).find_map(|_| ticket.wait(Duration::from_secs(1)));
        assert_eq!(outcome, Some(Ok(7)));
        filler.join().unwrap();
    }

    #[test]
    fn a_withdrawn_request_returns_the_part_that_is_done() {
        let (ticket, mut promises) = sum();
        promises.pop().unwrap().fill(Ok(3));
        assert_eq!(ticket.cancel(), Ok(3));
        let (mut ticket, _promises) = sum();
        ticket.withdraw();
        assert_eq!(ticket.poll(), Some(Ok(0)));
    }

    #[test]
    fn a_task_that_waits_is_woken_for_each_step() {
        struct WakeCounter(std::sync::atomic::AtomicUsize);
        impl Wake for WakeCounter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (mut ticket, mut promises) = sum();
        let count = Arc::new(WakeCounter(Default::default()));
        let waker: Waker = count.clone().into();
        for step in 1..=2 {
            assert!(!ticket.is_done_or_wakes(&waker));
            promises.pop().unwrap().fill(Ok(step));
            assert_eq!(count.0.load(Ordering::Relaxed), step as usize);
        }
        assert!(ticket.is_done_or_wakes(&waker));
        assert_eq!(ticket.poll(), Some(Ok(3)));
    }

    #[test]
    fn an_error_of_a_step_ends_the_request() {
        let (mut ticket, mut promises) = sum();
        drop(promises.pop());
        assert!(matches!(ticket.poll(), Some(Err(crate::error::Error::Unavailable(_)))));
    }
}
