//! The work that callers queue for the connection's task.

use super::answer::RequestPromise;
use crate::proto::request::Body;
use crate::trace::TraceContext;
use reverie_core::Error;
use reverie_core::table::{Inserts, Keys, Promise};
use std::time::Duration;

/// An insert on its way to the task.
pub(super) struct NewInsert {
    pub(super) id: u64,
    /// Index in the client's own list of tables.
    pub(super) table: u32,
    pub(super) items: Inserts,
    pub(super) promise: Promise<Keys>,
}

/// A request on its way to the task.
pub(super) struct NewRequest {
    pub(super) id: u64,
    /// `None` if the answer comes with the connection.
    pub(super) body: Option<Body>,
    pub(super) timeout: Option<Duration>,
    /// No caller waits for the answer: it may be sent together with later work, within `COALESCE_TIME`.
    pub(super) unawaited: bool,
    /// The draws are acknowledged when the program takes them, not when they arrive.
    pub(super) leases: bool,
    pub(super) answer: RequestPromise,
}

/// The handling of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handling {
    /// A dropped ticket withdraws it.
    pub(super) withdraw_on_drop: bool,
    /// See [`NewRequest::unawaited`].
    pub(super) unawaited: bool,
    /// See [`NewRequest::leases`].
    pub(super) leases: bool,
}

/// The work that callers queued since the task last looked.
#[derive(Default)]
pub(super) struct QueuedWork {
    pub(super) inserts: Vec<NewInsert>,
    pub(super) requests: Vec<NewRequest>,
    pub(super) withdrawn: Vec<u64>,
    /// Requests whose draws the program took (true), or will not take (false).
    pub(super) leases_ended: Vec<(u64, bool)>,
    /// Questions about the outcome of an insert: the question's number, the insert's number, the promise.
    pub(super) outcomes: Vec<(u64, u64, Promise<Keys>)>,
    /// The traces of inserts and requests that belong to one, by their numbers.
    pub(super) traced: Vec<(u64, TraceContext)>,
    /// The number of items in the inserts.
    pub(super) items: usize,
}

impl QueuedWork {
    pub(super) fn is_empty(&self) -> bool {
        self.inserts.is_empty()
            && self.requests.is_empty()
            && self.withdrawn.is_empty()
            && self.leases_ended.is_empty()
            && self.outcomes.is_empty()
    }

    /// Fails all of it.
    pub(super) fn fail(self, error: &Error) {
        self.inserts.into_iter().for_each(|insert| insert.promise.fill(Err(error.clone())));
        self.requests.into_iter().for_each(|request| request.answer.fail(error.clone(), Vec::new()));
        self.outcomes.into_iter().for_each(|(_, _, promise)| promise.fill(Err(error.clone())));
    }

    /// Takes the inserts out.
    pub(super) fn drain_inserts(&mut self) -> impl Iterator<Item = NewInsert> {
        self.items = 0;
        self.inserts.drain(..)
    }
}

/// True if the last `more` of `all` made it reach `enough`, so that the task is woken once.
pub(super) fn crosses(all: usize, more: usize, enough: usize) -> bool {
    all >= enough && all - more < enough
}
