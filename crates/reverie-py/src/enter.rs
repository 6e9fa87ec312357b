//! The gate: calls from Python into the engine that wait, lock or copy go through here.
//!
//! It decides whether the GIL is kept (`quick`: the work is shorter than getting the GIL back) or released (`detached`,
//! `wait`), turns panics into exceptions, and checks signals while it waits. No thread of the engine ever needs the GIL
//! while it holds a table's lock.

use crate::errors::{defect, exception, raise};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reverie_core::Result;
use reverie_core::batch::reads_in_place;
use reverie_core::item::Item;
use reverie_core::table::{COMMIT_GRACE, Ticket};
use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait before signals are checked: Ctrl-C takes effect within 100 ms.
pub const SLICE: Duration = Duration::from_millis(50);
/// The time after which an endless wait first logs what it waits for.
/// Each later line comes after three times as long as the one before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Copies up to this size keep the GIL.
/// They take about 15 us (docs/decisions/0005-reading-nests-and-arrays.md), and a thread that gets the GIL may keep it
/// for 5 ms (`sys.getswitchinterval`).
pub const QUICK_BYTES: usize = 256 << 10;
/// The bytes that drawing or inserting an item counts for in this, in addition to copies.
pub const ITEM_BYTES: usize = 256;
/// Like [`ITEM_BYTES`], for an item that is read by its key.
pub const READ_BYTES: usize = 128;

/// Entries through the gate since the start. A thread that has the GIL counts them: no update is lost.
static ENTRIES: AtomicU64 = AtomicU64::new(0);

#[inline]
pub fn count(_: Python<'_>) {
    ENTRIES.store(ENTRIES.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Runs work so short that releasing the GIL would cost more: the GIL is kept.
#[inline]
pub fn quick<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    into_py_result(py, catch_panic(py, work))
}

/// The outcome of work behind the gate; it may be a panic.
pub type UnwindResult<T> = std::thread::Result<Result<T>>;

/// Like [`quick`], for a caller that holds a lock which others wait for under the GIL.
/// Making an exception runs Python code: call [`into_py_result`] after the lock is released.
#[inline]
pub fn catch_panic<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> UnwindResult<T> {
    count(py);
    catch_unwind(AssertUnwindSafe(work))
}

/// Turns an error or a panic into an exception.
#[inline]
pub fn into_py_result<T>(py: Python<'_>, caught: UnwindResult<T>) -> PyResult<T> {
    match caught {
        Ok(done) => done.map_err(|error| raise(py, error)),
        Err(panic) => Err(defect(py, &*panic)),
    }
}

/// Runs work that takes long enough for other Python threads to run meanwhile.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    count(py);
    into_py_result(py, py.detach(|| catch_unwind(AssertUnwindSafe(work))))
}

/// Chooses between `quick` and `detached` by the bytes that will be copied.
#[inline]
pub fn copying<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    if bytes <= QUICK_BYTES { quick(py, work) } else { detached(py, work) }
}

/// Like [`copying`], for work on items' cells: cells that have to be unpacked, or read from the disk, always release
/// the GIL.
pub fn reading_cells<T: Send, I: Borrow<Item>>(
    py: Python<'_>,
    items: &[I],
    bytes: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    copying(py, if reads_in_place(items) { bytes } else { usize::MAX }, work)
}

/// A request that a thread waits for.
pub trait Request: Send + Sync {
    /// The outcome, or the part of it that was done.
    type Done: Send;

    /// Waits for the outcome, at most for `timeout`. May return early with `None`.
    fn wait(&mut self, timeout: Duration) -> Option<Result<Self::Done>>;

    /// Withdraws the request; returns the part that was done, after a wait of at most `grace` for its commit.
    fn withdraw(&mut self, grace: Duration) -> Result<Self::Done>;

    /// See [`Ticket::needs_commit`].
    fn needs_commit(&self) -> bool;
}

impl<T: Default + Send + Sync> Request for Ticket<T> {
    type Done = T;

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Option<Result<T>> {
        Ticket::wait(self, timeout)
    }

    fn withdraw(&mut self, grace: Duration) -> Result<T> {
        std::mem::replace(self, Self::done(Ok(T::default()))).cancel_within(grace)
    }

    fn needs_commit(&self) -> bool {
        Ticket::needs_commit(self)
    }
}

/// A request that was made.
pub struct IssuedRequest<R: Request> {
    /// The request.
    pub request: R,
    /// The outcome of the request, if it was done at once.
    outcome: Option<Result<R::Done>>,
}

impl<R: Request> From<R> for IssuedRequest<R> {
    fn from(request: R) -> Self {
        Self { request, outcome: None }
    }
}

/// Makes a request that copies this many bytes, and takes its outcome if it is done at once: without a second entry.
#[inline]
pub fn issue<R: Request>(
    py: Python<'_>,
    bytes: usize,
    make: impl FnOnce() -> Result<R> + Send,
) -> PyResult<IssuedRequest<R>> {
    copying(py, bytes, || {
        let mut request = make()?;
        let outcome = request.wait(Duration::ZERO);
        Ok(IssuedRequest { request, outcome })
    })
}

/// A caller's `timeout=` in seconds; `None` waits forever, 0 only tries. It counts from the start of the wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    limit: Option<Duration>,
}

impl Deadline {
    /// Reads the argument; negative numbers and NaN are refused.
    #[inline]
    pub fn from_timeout(timeout: Option<f64>) -> PyResult<Self> {
        match timeout {
            None => Ok(Self { limit: None }),
            // Longer than a Duration can hold: no deadline.
            Some(seconds) if seconds >= 0.0 => Ok(Self { limit: Duration::try_from_secs_f64(seconds).ok() }),
            Some(seconds) => {
                Err(PyValueError::new_err(format!("timeout must be None or at least 0 seconds, got {seconds}")))
            }
        }
    }
}

impl Deadline {
    /// Seconds from now; `None` for no deadline.
    pub fn limit(self) -> Option<Duration> {
        self.limit
    }

    /// The deadline, later by `more`.
    pub fn plus(self, more: Duration) -> Self {
        Self { limit: self.limit.and_then(|limit| limit.checked_add(more)) }
    }

    /// The rest of the deadline after a part was used up.
    pub fn after(self, used: Duration) -> Self {
        Self { limit: self.limit.map(|limit| limit.saturating_sub(used)) }
    }
}

/// The outcome of a wait.
pub enum WaitOutcome<T> {
    /// The request is done, with this value.
    Done(T),
    /// The deadline has passed.
    Expired,
}

/// Waits until `poll` returns a value.
/// `poll` is first called with zero, with the GIL held, and then without the GIL; it may park this thread for at most
/// the given time. `why` describes what is waited for, without the GIL; an endless wait logs it, sparsely.
pub fn wait<T: Send>(
    py: Python<'_>,
    deadline: Deadline,
    mut poll: impl FnMut(Duration) -> Option<Result<T>> + Send,
    why: impl Fn() -> String + Sync,
) -> PyResult<WaitOutcome<T>> {
    wait_with(py, deadline, &mut (), |(), slice| poll(slice), |()| why())
}

/// Like [`wait`], with a state that `poll` changes and `why` reads.
fn wait_with<S: Send + Sync, T: Send>(
    py: Python<'_>,
    deadline: Deadline,
    state: &mut S,
    mut poll: impl FnMut(&mut S, Duration) -> Option<Result<T>> + Send,
    why: impl Fn(&S) -> String + Sync,
) -> PyResult<WaitOutcome<T>> {
    if let Some(done) = quick(py, || Ok(poll(state, Duration::ZERO)))? {
        return done.map(WaitOutcome::Done).map_err(|error| raise(py, error));
    }
    let (start, mut patience) = (Instant::now(), PATIENCE);
    loop {
        let left = deadline.limit.map(|limit| limit.saturating_sub(start.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(WaitOutcome::Expired);
        }
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        if let Some(done) = detached(py, || Ok(poll(state, slice)))? {
            return done.map(WaitOutcome::Done).map_err(|error| raise(py, error));
        }
        py.check_signals()?;
        crate::log_bridge::deliver(py)?;
        if deadline.limit.is_none() && start.elapsed() >= patience {
            let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
            let why = detached(py, || Ok(why(state)))?;
            let text = format!("still waiting after {:.0} s: {why}", start.elapsed().as_secs_f64());
            logger.call_method1("warning", ("%s", text))?;
            patience *= 3;
        }
    }
}

/// The outcome of a request at its deadline: the part that was done, and why it was not more.
pub struct ExpiredRequest<T> {
    /// The part that was done.
    pub done: T,
    /// The waiting requests and their reasons, while this request still waited.
    pub why: String,
    /// The exception that ended the wait before the deadline, mostly of Ctrl-C.
    interrupt: Option<PyErr>,
}

impl<T> ExpiredRequest<T> {
    /// The outcome, if the deadline ended the wait but everything was done before the withdrawal.
    pub fn unless_whole(self, whole: impl FnOnce(&T) -> bool) -> std::result::Result<T, Self> {
        if self.interrupt.is_none() && whole(&self.done) { Ok(self.done) } else { Err(self) }
    }

    /// The exception, with the attributes that `more` sets for the part that was done.
    /// DeadlineExceededError, or the exception that ended the wait early. Draws of a consuming table exist nowhere
    /// else.
    pub fn raise(self, py: Python<'_>, what: &str, more: impl FnOnce(T, &Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
        let Self { done, why, interrupt } = self;
        let Some(interrupt) = interrupt else { return late(py, what, &why, |with| more(done, with)) };
        let attributes = PyDict::new(py);
        let all_set = more(done, &attributes).and_then(|()| {
            attributes.iter().try_for_each(|(name, value)| interrupt.value(py).setattr(name.cast::<PyString>()?, value))
        });
        all_set.err().unwrap_or(interrupt)
    }
}

/// Waits for a request, unless it was done at once.
/// At the deadline, or when a signal ends the wait, the request is withdrawn; the part that was done is returned in
/// both cases.
pub fn finish<R: Request>(
    py: Python<'_>,
    asked: &mut IssuedRequest<R>,
    deadline: Deadline,
    why: impl Fn(&R) -> String + Sync,
) -> PyResult<std::result::Result<R::Done, ExpiredRequest<R::Done>>> {
    if let Some(outcome) = asked.outcome.take() {
        return outcome.map(Ok).map_err(|error| raise(py, error));
    }
    let (request, mut ended) = (&mut asked.request, false);
    let poll = |request: &mut R, slice| {
        let outcome = request.wait(slice);
        ended |= outcome.is_some();
        outcome
    };
    let waited = wait_with(py, deadline, request, poll, &why);
    match waited {
        Ok(WaitOutcome::Done(outcome)) => Ok(Ok(outcome)),
        Ok(WaitOutcome::Expired) => {
            let mut grace = COMMIT_GRACE;
            if request.needs_commit() {
                if let Some(outcome) = detached(py, || Ok(request.wait(grace)))? {
                    return outcome.map(Ok).map_err(|error| raise(py, error));
                }
                // It has been waited for.
                grace = Duration::ZERO;
            }
            let why = detached(py, || Ok(why(request)))?;
            detached(py, || request.withdraw(grace)).map(|done| Err(ExpiredRequest { done, why, interrupt: None }))
        }
        // The error is the request's own: there is nothing to withdraw.
        Err(error) if ended => Err(error),
        Err(error) => {
            match detached(py, || request.withdraw(COMMIT_GRACE)) {
                Ok(done) => Ok(Err(ExpiredRequest { done, why: String::new(), interrupt: Some(error) })),
                // Raise the error that ended the wait, not the error of the withdrawal.
                Err(unknown) => {
                    error.set_cause(py, Some(unknown));
                    Err(error)
                }
            }
        }
    }
}

/// Works on state behind a lock: with the GIL if the lock is free and the work short, else without it.
/// The lock is released before the GIL is requested, so that no thread holds one and waits for the other.
pub fn locked<S: Send, T: Send>(
    py: Python<'_>,
    state: &Mutex<S>,
    bytes: usize,
    work: impl FnOnce(&mut S) -> Result<T> + Send,
) -> PyResult<T> {
    locked_then(py, state, bytes, work, Ok)
}

/// Like [`locked`], and goes on with the outcome once the lock is released: without a second entry.
#[inline]
pub fn locked_then<S: Send, M, T: Send>(
    py: Python<'_>,
    state: &Mutex<S>,
    bytes: usize,
    work: impl FnOnce(&mut S) -> Result<M> + Send,
    then: impl FnOnce(M) -> Result<T> + Send,
) -> PyResult<T> {
    if bytes <= QUICK_BYTES
        && let Ok(state) = state.try_lock()
    {
        // A panic in the work leaves the guard here: the lock is not poisoned.
        let mut guard = Some(state);
        return quick(py, || {
            let made = guard.as_deref_mut().map(work).expect("the guard is held until here");
            guard = None;
            then(made?)
        });
    }
    detached(py, || {
        let made = work(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        then(made?)
    })
}

/// The exception for a wait that reached its deadline.
pub fn late<'py>(
    py: Python<'py>,
    what: &str,
    why: &str,
    more: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyErr {
    exception(py, "DeadlineExceededError", &format!("{what}: the timeout passed; {why}"), |with| {
        with.set_item("why", why)?;
        more(with)
    })
}

/// Panics behind the gate, for the gate's test.
#[pyfunction]
pub fn _panic(py: Python<'_>) -> PyResult<()> {
    detached(py, || panic!("a panic on request"))
}

/// The entries through the gate so far, for the test that bounds those of one observation.
#[pyfunction]
pub fn _entries() -> u64 {
    ENTRIES.load(Ordering::Relaxed)
}
