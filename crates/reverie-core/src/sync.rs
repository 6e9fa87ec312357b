//! The lock, the condition variable and the atomics, from one place, so that a model checker can replace them.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Locks, also after a panic in another thread.
///
/// The state machines behind the locks are consistent between statements that can panic, and a poisoned lock would turn
/// one error into many.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Marks that this thread decides under a table's lock, where no chunk may be freed.
///
/// Chunks check it when they are dropped. Does nothing in a release build, nor under the model checker, which runs all
/// its threads on one.
pub(crate) struct DecisionGuard(());

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod deciding {
    use std::cell::Cell;

    thread_local!(pub(super) static DEPTH: Cell<u32> = const { Cell::new(0) });
}

impl DecisionGuard {
    pub(crate) fn new() -> Self {
        #[cfg(all(debug_assertions, not(feature = "shuttle")))]
        deciding::DEPTH.set(deciding::DEPTH.get() + 1);
        Self(())
    }

    /// Panics if this thread decides (and does not panic already).
    #[inline]
    pub(crate) fn check_not() {
        #[cfg(all(debug_assertions, not(feature = "shuttle")))]
        assert!(deciding::DEPTH.get() == 0 || std::thread::panicking(), "a chunk is freed under a table's lock");
    }
}

impl Drop for DecisionGuard {
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, not(feature = "shuttle")))]
        deciding::DEPTH.set(deciding::DEPTH.get() - 1);
    }
}
