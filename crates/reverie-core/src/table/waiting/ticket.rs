//! A request that was made: done, or waiting as data at the table or connection that will complete it.

use super::promise::{OutcomeCell, Promise};
use crate::error::Result;
use crate::sync::Arc;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The holder of waiting requests: a table, or a connection to a server that has it.
pub trait RequestHolder<T>: Send + Sync {
    /// Withdraws a request and returns its completed part; `None` if its outcome is in its cell or will soon be.
    ///
    /// After `None`, the implementation must not let the caller wait for long.
    fn withdraw(&self, id: u64) -> Option<T>;

    /// A caller waits: checks again for requests that only the passing of time unblocks.
    fn retry(&self) {}
}

/// A request that is done or waits.
///
/// Dropping it lets an insert continue unobserved, and withdraws a sample: draws already made for it are discarded.
/// [`Ticket::cancel`] returns them.
pub struct Ticket<T> {
    state: TicketState<T>,
}

enum TicketState<T> {
    Done(Result<T>),
    Waiting(WaitingRequest<T>),
    Pending(Box<dyn Pending<T>>),
    Taken,
}

struct WaitingRequest<T> {
    holder: Arc<dyn RequestHolder<T>>,
    id: u64,
    cell: Arc<OutcomeCell<T>>,
    withdraw_on_drop: bool,
}

/// A request that something else than a [`RequestHolder`] completes.
pub(super) trait Pending<T>: Send + Sync {
    fn poll(&mut self) -> Option<Result<T>>;
    fn is_done(&self) -> bool;
    fn is_done_or_wakes(&self, waker: &Waker) -> bool;
    fn park(&self, timeout: Duration);
    fn nudge(&self);
    fn withdraw(&mut self);
    fn cancel(self: Box<Self>) -> Result<T>;

    /// See [`Ticket::needs_commit`].
    fn needs_commit(&self) -> bool {
        false
    }
}

struct MappedTicket<T, U> {
    ticket: Ticket<T>,
    map: fn(T) -> U,
}

impl<T: Default + Send + Sync, U> Pending<U> for MappedTicket<T, U> {
    fn poll(&mut self) -> Option<Result<U>> {
        self.ticket.poll().map(|outcome| outcome.map(self.map))
    }

    fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        self.ticket.is_done_or_wakes(waker)
    }

    fn park(&self, timeout: Duration) {
        self.ticket.park(timeout);
    }

    fn nudge(&self) {
        self.ticket.nudge();
    }

    fn withdraw(&mut self) {
        self.ticket.withdraw();
    }

    fn cancel(self: Box<Self>) -> Result<U> {
        self.ticket.cancel().map(self.map)
    }

    fn needs_commit(&self) -> bool {
        self.ticket.needs_commit()
    }
}

impl<T> Ticket<T> {
    /// This request, whose outcome (or completed part) is mapped when it is taken.
    pub fn map<U>(self, map: fn(T) -> U) -> Ticket<U>
    where
        T: Default + Send + Sync + 'static,
        U: 'static,
    {
        let mut ticket = self;
        let state = match ticket.poll() {
            Some(outcome) => TicketState::Done(outcome.map(map)),
            None => TicketState::Pending(Box::new(MappedTicket { ticket, map })),
        };
        Ticket { state }
    }

    pub(super) fn pending(pending: Box<dyn Pending<T>>) -> Self {
        Self { state: TicketState::Pending(pending) }
    }

    /// A ticket whose outcome is known.
    pub fn done(outcome: Result<T>) -> Self {
        Self { state: TicketState::Done(outcome) }
    }

    pub(super) fn waiting(
        holder: Arc<dyn RequestHolder<T>>,
        id: u64,
        cell: Arc<OutcomeCell<T>>,
        withdraw_on_drop: bool,
    ) -> Self {
        Self { state: TicketState::Waiting(WaitingRequest { holder, id, cell, withdraw_on_drop }) }
    }

    /// A ticket that waits for its promise to be filled.
    ///
    /// A withdrawal calls `holder` with this number. With `withdraw_on_drop`, dropping the waiting ticket withdraws it,
    /// too.
    pub fn promised(holder: Arc<dyn RequestHolder<T>>, id: u64, withdraw_on_drop: bool) -> (Self, Promise<T>) {
        let cell = OutcomeCell::new();
        (Self::waiting(holder, id, Arc::clone(&cell), withdraw_on_drop), Promise::of(cell))
    }

    /// This ticket, whose request is withdrawn when it is dropped.
    pub fn withdrawn_on_drop(mut self) -> Self {
        if let TicketState::Waiting(waiting) = &mut self.state {
            waiting.withdraw_on_drop = true;
        }
        self
    }

    /// True if [`Ticket::poll`] would return an outcome.
    pub fn is_done(&self) -> bool {
        match &self.state {
            TicketState::Done(_) => true,
            TicketState::Waiting(waiting) => waiting.cell.is_filled(),
            TicketState::Pending(pending) => pending.is_done(),
            TicketState::Taken => false,
        }
    }

    /// The outcome, if there is one; never blocks. It is returned once.
    pub fn poll(&mut self) -> Option<Result<T>> {
        match std::mem::replace(&mut self.state, TicketState::Taken) {
            TicketState::Done(outcome) => Some(outcome),
            TicketState::Waiting(waiting) => match waiting.cell.take() {
                Some(outcome) => Some(outcome),
                None => {
                    self.state = TicketState::Waiting(waiting);
                    None
                }
            },
            TicketState::Pending(mut pending) => {
                let outcome = pending.poll();
                if outcome.is_none() {
                    self.state = TicketState::Pending(pending);
                }
                outcome
            }
            TicketState::Taken => None,
        }
    }

    /// True if [`Ticket::poll`] would return an outcome; if not, `waker` is woken when it would.
    pub fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        match &self.state {
            TicketState::Done(_) => true,
            TicketState::Waiting(waiting) => waiting.cell.is_filled_or_wakes(waker),
            TicketState::Pending(pending) => pending.is_done_or_wakes(waker),
            TicketState::Taken => false,
        }
    }

    /// Parks this thread until the outcome is set, at most for `timeout`; does not take the outcome. May return early.
    pub fn park(&self, timeout: Duration) {
        match &self.state {
            TicketState::Waiting(waiting) => waiting.cell.park(timeout),
            TicketState::Pending(pending) => pending.park(timeout),
            TicketState::Done(_) | TicketState::Taken => {}
        }
    }

    /// True if nothing more is to be done at the table, and only the journal has not written it: a short wait then
    /// makes that commit. After [`Ticket::withdraw`] it is the commit of the part that is done.
    pub fn needs_commit(&self) -> bool {
        matches!(&self.state, TicketState::Pending(pending) if pending.needs_commit())
    }

    /// A caller waits: checks again whether the request can continue. See [`RequestHolder::retry`].
    pub fn nudge(&self) {
        match &self.state {
            TicketState::Waiting(waiting) => waiting.holder.retry(),
            TicketState::Pending(pending) => pending.nudge(),
            TicketState::Done(_) | TicketState::Taken => {}
        }
    }

    /// Waits for the outcome, at most for `timeout`. May return early with `None`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<T>> {
        self.park(timeout);
        let outcome = self.poll();
        if outcome.is_none() {
            self.nudge();
            return self.poll();
        }
        outcome
    }

    /// Withdraws the request without waiting.
    ///
    /// Its completed part becomes its outcome: now, when its holder completes it, or with a journal when that has
    /// written it.
    pub fn withdraw(&mut self) {
        match &mut self.state {
            TicketState::Waiting(waiting) => {
                if let Some(partial) = waiting.holder.withdraw(waiting.id) {
                    self.state = TicketState::Done(Ok(partial));
                }
            }
            TicketState::Pending(pending) => pending.withdraw(),
            TicketState::Done(_) | TicketState::Taken => {}
        }
    }

    /// Withdraws the request and returns its completed part, all of it if it was completed meanwhile.
    ///
    /// Items of an insert that are in their table stay there. If the journal has not written what is done, the outcome
    /// reports it, see [`Error::NotCommitted`](crate::error::Error::NotCommitted) and
    /// [`Draws::not_committed`](crate::sample::Draws::not_committed).
    pub fn cancel(mut self) -> Result<T>
    where
        T: Default,
    {
        match std::mem::replace(&mut self.state, TicketState::Taken) {
            TicketState::Pending(pending) => return pending.cancel(),
            state => self.state = state,
        }
        self.withdraw();
        if let TicketState::Waiting(waiting) = &self.state {
            // Its outcome was put into the cell or is about to be.
            waiting.cell.park_until_filled();
        }
        self.poll().unwrap_or_else(|| Ok(T::default()))
    }

    /// Like [`Ticket::cancel`], after a wait of at most `grace` for the commit of what is done.
    pub fn cancel_within(mut self, grace: Duration) -> Result<T>
    where
        T: Default,
    {
        self.withdraw();
        if self.needs_commit() {
            self.park(grace);
        }
        self.cancel()
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let TicketState::Waiting(waiting) = &self.state
            && waiting.withdraw_on_drop
        {
            waiting.holder.withdraw(waiting.id);
        }
    }
}

impl<T: Unpin> Future for Ticket<T> {
    type Output = Result<T>;

    /// Polls the request, for servers: hundreds of waiting requests need no thread. Must not be polled again after it
    /// was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_done_or_wakes(context.waker());
        match Ticket::poll(&mut self) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    struct SilentHolder;

    impl RequestHolder<u32> for SilentHolder {
        fn withdraw(&self, _id: u64) -> Option<u32> {
            None
        }
    }

    #[test]
    fn a_promise_that_is_dropped_unanswered_ends_the_wait_with_an_error_and_so_does_cancelling() {
        for cancels in [false, true] {
            let (mut ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
            assert!(ticket.poll().is_none());
            drop(promise);
            let outcome = if cancels { ticket.cancel() } else { ticket.wait(Duration::ZERO).expect("it is answered") };
            assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
        }
    }

    #[test]
    fn a_promise_that_was_kept_is_not_broken_by_its_end() {
        let (mut ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
        promise.fill(Ok(7));
        assert_eq!(ticket.poll(), Some(Ok(7)));
    }

    #[test]
    fn the_outcome_of_a_mapped_ticket_is_mapped_whether_it_is_there_or_arrives_or_is_a_part_of_what_was_wanted() {
        struct PartialHolder;
        impl RequestHolder<u32> for PartialHolder {
            fn withdraw(&self, id: u64) -> Option<u32> {
                Some(id as u32)
            }
        }
        let twice = |n: u32| u64::from(2 * n);
        assert_eq!(Ticket::done(Ok(3)).map(twice).poll(), Some(Ok(6)));
        let (ticket, promise) = Ticket::promised(Arc::new(SilentHolder), 1, false);
        let mut ticket = ticket.map(twice);
        assert!(!ticket.is_done() && ticket.poll().is_none());
        promise.fill(Ok(4));
        assert!(ticket.is_done());
        assert_eq!(ticket.wait(Duration::ZERO), Some(Ok(8)));
        let waiting = || Ticket::promised(Arc::new(PartialHolder), 5, false);
        let (ticket, _promise) = waiting();
        assert_eq!(ticket.map(twice).cancel(), Ok(10));
        let (ticket, _promise) = waiting();
        let mut ticket = ticket.map(twice);
        ticket.withdraw();
        assert_eq!(ticket.poll(), Some(Ok(10)));
    }
}
