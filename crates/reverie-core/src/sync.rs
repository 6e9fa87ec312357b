//! The lock, the condition and the atomics, from one place, so that a model checker can replace them.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Locks, and goes on after a panic elsewhere: the state machines behind our locks are consistent
/// between statements that can panic, and a poisoned lock would turn one error into many.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
