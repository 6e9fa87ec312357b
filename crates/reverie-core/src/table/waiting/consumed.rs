//! Requests for draws of a table with a journal: whether they wait for it is known when they are made.

use super::durable::{Durable, OnceDurable, Outcome, why_not_committed};
use super::ticket::{Pending, Ticket};
use crate::error::Result;
use crate::sample::Draws;
use crate::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The outcome of a request for draws, once it is durable that their items are used up.
pub(super) fn durably_consumed(outcome: Result<Draws>, durable: &Arc<dyn Durable>) -> Ticket<Draws> {
    match outcome {
        Ok(draws) if draws.consuming => {
            Ticket::pending(Box::new(OnceDurable::new(Ticket::done(Ok(draws)), Arc::clone(durable))))
        }
        outcome => Ticket::done(outcome),
    }
}

/// A request for draws that waits at its table, which may begin to delete sampled items meanwhile.
pub(super) struct OnceConsumed {
    /// Held while the thread that waits is parked.
    stage: Mutex<Stage>,
    durable: Arc<dyn Durable>,
}

struct Stage {
    ticket: Ticket<Draws>,
    /// The draws are made or the request was withdrawn: the ticket is the one to return.
    made: bool,
}

impl OnceConsumed {
    pub(super) fn new(ticket: Ticket<Draws>, durable: Arc<dyn Durable>) -> Self {
        Self { stage: Mutex::new(Stage { ticket, made: false }), durable }
    }

    /// Its stage, after what has happened meanwhile.
    fn stage(&self) -> MutexGuard<'_, Stage> {
        let mut stage = lock(&self.stage);
        if !stage.made
            && let Some(outcome) = stage.ticket.poll()
        {
            *stage = Stage { ticket: durably_consumed(outcome, &self.durable), made: true };
        }
        stage
    }
}

impl Pending<Draws> for OnceConsumed {
    fn poll(&mut self) -> Option<Result<Draws>> {
        let mut stage = self.stage();
        if stage.made { stage.ticket.poll() } else { None }
    }

    fn is_done(&self) -> bool {
        let stage = self.stage();
        stage.made && stage.ticket.is_done()
    }

    fn is_done_or_wakes(&self, waker: &Waker) -> bool {
        loop {
            let stage = self.stage();
            if !stage.ticket.is_done_or_wakes(waker) {
                return false;
            }
            if stage.made {
                return true;
            }
        }
    }

    fn park(&self, timeout: Duration) {
        self.stage().ticket.park(timeout);
    }

    fn nudge(&self) {
        self.stage().ticket.nudge();
    }

    /// The caller gets all draws that are made. If these are all that were asked for, and they use items up, they say that
    /// they are not committed.
    fn withdraw(&mut self) {
        let mut stage = self.stage();
        stage.ticket.withdraw();
        if !stage.made {
            let is_part = stage.ticket.is_known();
            let made = std::mem::replace(&mut stage.ticket, Ticket::done(Ok(Draws::default()))).cancel();
            let outcome = match made {
                // Made between the last look and the withdrawal.
                Ok(draws) if draws.consuming && !is_part => {
                    draws.not_committed(why_not_committed(&self.durable.info()))
                }
                made => made,
            };
            *stage = Stage { ticket: Ticket::done(outcome), made: true };
        }
    }

    fn cancel(mut self: Box<Self>) -> Result<Draws> {
        self.withdraw();
        self.poll().unwrap_or_else(|| Ok(Draws::default()))
    }

    fn needs_commit(&self) -> bool {
        self.stage().ticket.needs_commit()
    }
}
