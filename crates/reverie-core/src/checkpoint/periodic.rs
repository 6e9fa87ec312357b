//! A thread that repeats a call until it is stopped: after each period, and when it is woken.

use crate::error::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that repeats a call. Dropping it signals the thread to end, and does not wait for it.
pub struct PeriodicThread {
    shared: Arc<PeriodicState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct PeriodicState {
    /// Nothing else happens under the lock.
    signals: Mutex<PeriodicSignals>,
    changed: Condvar,
}

#[derive(Default)]
struct PeriodicSignals {
    /// The thread must end.
    ended: bool,
    /// The next call is due, whatever the period.
    due: bool,
}

impl PeriodicThread {
    /// Calls `act` after a period, and then a period after each call began, or at once if a call took longer.
    pub fn start(period: Duration, mut act: impl FnMut() + Send + 'static) -> Result<Self> {
        if period.is_zero() {
            return Err(Error::InvalidArgument("period must be above 0 seconds".to_owned()));
        }
        let shared = Arc::new(PeriodicState::default());
        let theirs = Arc::clone(&shared);
        let run = move || {
            let mut next = Instant::now().checked_add(period);
            while theirs.wait_until(next) {
                next = Instant::now().checked_add(period);
                act();
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(run).map_err(|error| {
            let (path, action) = ("the thread of the checkpoints".to_owned(), "start".into());
            Error::Storage { path, action, reason: error.to_string() }
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Makes the next call due at once. If a call is under way, another follows it.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.signal(|signals| signals.due = true)
    }

    /// Ends the thread, and waits for the call that it is in. Idempotent.
    pub fn stop(&self) {
        self.shared.signal(|signals| signals.ended = true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there ended it, which is all that is needed.
            let _ = thread.join();
        }
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.shared.signal(|signals| signals.ended = true);
    }
}

impl PeriodicState {
    fn signal(&self, change: impl FnOnce(&mut PeriodicSignals)) {
        change(&mut self.signals.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits; false if the thread must end. A moment beyond the clock's range never comes.
    fn wait_until(&self, moment: Option<Instant>) -> bool {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        while !signals.ended {
            let left = moment.map_or(Duration::MAX, |moment| moment.saturating_duration_since(Instant::now()));
            if std::mem::take(&mut signals.due) || left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(signals, left.min(Duration::from_secs(3600)));
            signals = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}
