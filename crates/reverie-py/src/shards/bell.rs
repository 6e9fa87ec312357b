//! Who waits for several things at once, and is woken by the first.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Wake;
use std::time::Duration;

/// One who waits.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// True once it was rung; parks this thread until then, for so long at most.
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

/// All who wait.
#[derive(Default)]
pub(super) struct Bells(Mutex<Hanging>);

#[derive(Default)]
struct Hanging {
    /// How often all were rung.
    rung: u64,
    bells: Vec<Weak<Bell>>,
}

impl Bells {
    pub(super) fn rung(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rung
    }

    /// One more; `None` where all were rung since that was the number.
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

    /// Wakes all who wait.
    pub(super) fn ring(&self) {
        let mut hanging = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hanging.rung += 1;
        hanging.bells.drain(..).filter_map(|bell| bell.upgrade()).for_each(Wake::wake);
    }
}
