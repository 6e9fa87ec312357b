//! A thread that repeats a call until it is stopped.

use crate::error::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that repeats a call. Dropping it signals the thread to end, and does not wait for it.
pub struct Periodic {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    /// True once the thread must end. Nothing else happens under the lock.
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Periodic {
    /// Calls `act` after a period, and then a period after each call began, or at once if a call took longer.
    pub fn start(period: Duration, mut act: impl FnMut() + Send + 'static) -> Result<Self> {
        if period.is_zero() {
            return Err(Error::InvalidArgument("period must be above 0 seconds".to_owned()));
        }
        let shared = Arc::new(Shared::default());
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

    /// Ends the thread, and waits for the call that it is in. Idempotent.
    pub fn stop(&self) {
        self.shared.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there ended it, which is all that is needed.
            let _ = thread.join();
        }
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits; false if the thread must end. A moment beyond the clock's range never comes.
    fn wait_until(&self, moment: Option<Instant>) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let left = moment.map_or(Duration::MAX, |moment| moment.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(ended, left.min(Duration::from_secs(3600)));
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}
