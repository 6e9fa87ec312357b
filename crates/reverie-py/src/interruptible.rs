//! Work on files that may take long and has no deadline: Ctrl-C ends it, or the wait for it.

use crate::enter::{SLICE, UnwindResult, count, detached, into_py_result};
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::checkpoint::{CancellableDisk, LocalFileSystem, cancellable};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, scope};

/// The machine's files, for [`interruptible`] work.
pub const FILES: CancellableDisk<LocalFileSystem> = CancellableDisk(LocalFileSystem);

/// Runs work in a thread of its own, while this one checks signals.
///
/// If a signal's handler raises, the next call of the work to [`FILES`] fails, and the exception is raised once the
/// work has ended. The work itself never asks for the GIL, so that it may hold locks.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce() -> reverie_core::Result<T> + Send) -> PyResult<T> {
    ended_by(py, None, work)
}

/// Like [`interruptible`], for work that nothing can do later: it ends at the second signal whose handler raises. At
/// the first one the log reports that `what` goes on, and how to end it.
pub fn interruptible_at_second<T: Send>(
    py: Python<'_>,
    what: &str,
    work: impl FnOnce() -> reverie_core::Result<T> + Send,
) -> PyResult<T> {
    ended_by(py, Some(what), work)
}

/// Runs work that a signal ends: the second one with `at_second`, otherwise the first.
fn ended_by<T: Send>(
    py: Python<'_>,
    at_second: Option<&str>,
    work: impl FnOnce() -> reverie_core::Result<T> + Send,
) -> PyResult<T> {
    count(py);
    let mut at_second = at_second;
    let cancel = Arc::new(AtomicBool::new(false));
    let (done, mut outcome) = channel();
    let (theirs, mut interrupt) = (Arc::clone(&cancel), None);
    let caught = scope(|scope| {
        let run = move || {
            let caught = catch_unwind(AssertUnwindSafe(|| cancellable(theirs, work)));
            // This thread waits for it.
            let _ = done.send(caught);
        };
        if let Err(error) = Builder::new().name("reverie-files".to_owned()).spawn_scoped(scope, run) {
            let reason = format!("the thread that reads and writes the files could not be started: {error}");
            return Ok(Err(Error::Unavailable(reason)));
        }
        loop {
            if let Some(caught) = after_a_slice(py, &mut outcome) {
                return caught;
            }
            if !cancel.load(Relaxed)
                && let Err(error) = py.check_signals().and_then(|()| crate::log_bridge::deliver(py))
            {
                match at_second.take() {
                    Some(what) => tracing::warn!("{what} goes on; Ctrl-C again gives it up"),
                    None => cancel.store(true, Relaxed),
                }
                interrupt = Some(error);
            }
        }
    });
    match interrupt {
        // The result of the work after that is not used.
        Some(interrupt) if cancel.load(Relaxed) => Err(interrupt),
        // The work went on to its end: a failure of it is the cause.
        Some(interrupt) => {
            if let Err(failure) = into_py_result(py, caught) {
                tracing::error!("what went on after Ctrl-C failed: {failure}");
                interrupt.set_cause(py, Some(failure));
            }
            Err(interrupt)
        }
        None => into_py_result(py, caught),
    }
}

/// Runs work in a thread of its own, while this one checks signals: for work that must not be left half done.
///
/// If a signal's handler raises, the exception is raised at once, and the work goes on without a caller.
pub fn uninterrupted<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> reverie_core::Result<T> + Send + Clone + 'static,
) -> PyResult<T> {
    count(py);
    let (done, mut outcome) = channel();
    let theirs = work.clone();
    let run = move || {
        // The caller may have left.
        let _ = done.send(catch_unwind(AssertUnwindSafe(theirs)));
    };
    if Builder::new().name("reverie-files".to_owned()).spawn(run).is_err() {
        // It must be done all the same: here, where Ctrl-C waits for it.
        return detached(py, work);
    }
    loop {
        if let Some(caught) = after_a_slice(py, &mut outcome) {
            return into_py_result(py, caught);
        }
        py.check_signals()?;
        crate::log_bridge::deliver(py)?;
    }
}

/// The outcome of the work, if it has ended within a slice.
fn after_a_slice<T: Send>(py: Python<'_>, outcome: &mut Receiver<UnwindResult<T>>) -> Option<UnwindResult<T>> {
    py.detach(move || match outcome.recv_timeout(SLICE) {
        Ok(caught) => Some(caught),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends the outcome, also that of a panic"),
    })
}
