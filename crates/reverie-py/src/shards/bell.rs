//! Waiting for several things at once: the first one wakes the thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Wake;
use std::time::Duration;

/// The waker of one waiting thread.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// True once it was rung; parks this thread until then, for at most `timeout`.
    pub(super) fn has_rung(&self, timeout: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(rung, timeout, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_all();
    }
}

/// The bells of all waiting threads.
#[derive(Default)]
pub(super) struct Bells(Mutex<Hanging>);

#[derive(Default)]
struct Hanging {
    /// How often all bells were rung.
    rung: u64,
    bells: Vec<Weak<Bell>>,
}

impl Bells {
    pub(super) fn rung(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rung
    }

    /// A new bell; `None` if all were rung since the count was `rung`.
    pub(super) fn hang(&self, rung: u64) -> Option<Arc<Bell>> {
        let mut hanging = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hanging.rung != rung {
            return None;
        }
        let bell = Arc::new(Bell::default());
        hanging.bells.retain(|bell| bell.strong_count() > 0);
        hanging.bells.push(Arc::downgrade(&bell));
        Some(bell)
    }

    /// Wakes all waiting threads.
    pub(super) fn ring(&self) {
        let mut hanging = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hanging.rung += 1;
        hanging.bells.drain(..).filter_map(|bell| bell.upgrade()).for_each(Wake::wake);
    }
}
