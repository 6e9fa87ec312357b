//! Requests for draws of a table with a journal: whether they wait for it is known when they are made.

use super::durable::{DurableRequest, TableJournal};
use super::ticket::{Pending, Ticket};
use crate::error::Result;
use crate::sample::Draws;
use crate::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The outcome of a request for draws, once it is durable that their items are used up.
pub(super) fn durably_consumed(outcome: Result<Draws>, durable: &Arc<dyn TableJournal>) -> Ticket<Draws> {
    match outcome {
        Ok(draws) if draws.consuming => {
            Ticket::pending(Box::new(DurableRequest::new(Ticket::done(Ok(draws)), Arc::clone(durable))))
        }
        outcome => Ticket::done(outcome),
    }
}

/// A request for draws that waits at its table, which may begin to delete sampled items meanwhile.
pub(super) struct DurableDraws {
    /// Held while the thread that waits is parked.
    stage: Mutex<DrawsStage>,
    durable: Arc<dyn TableJournal>,
}

struct DrawsStage {
    ticket: Ticket<Draws>,
    /// The draws are made or the request was withdrawn: the ticket is the one to return.
    made: bool,
}

fn take_ticket(stage: &mut DrawsStage) -> Ticket<Draws> {
    std::mem::replace(&mut stage.ticket, Ticket::done(Ok(Draws::default())))
}

impl DurableDraws {
    pub(super) fn new(ticket: Ticket<Draws>, durable: Arc<dyn TableJournal>) -> Self {
        Self { stage: Mutex::new(DrawsStage { ticket, made: false }), durable }
    }

    /// The request's stage, brought up to date.
    fn stage(&self) -> MutexGuard<'_, DrawsStage> {
        let mut stage = lock(&self.stage);
        if !stage.made
            && let Some(outcome) = stage.ticket.poll()
        {
            *stage = DrawsStage { ticket: durably_consumed(outcome, &self.durable), made: true };
        }
        stage
    }
}

impl Pending<Draws> for DurableDraws {
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

    /// The draws that are made wait for the journal if they use items up, as all of them would.
    fn withdraw(&mut self) {
        let mut stage = self.stage();
        if !stage.made {
            let made = take_ticket(&mut stage).cancel();
            *stage = DrawsStage { ticket: durably_consumed(made, &self.durable), made: true };
        }
    }

    /// The caller gets all draws that are made. They are marked as not committed, unless they are.
    fn cancel(mut self: Box<Self>) -> Result<Draws> {
        self.withdraw();
        let made = take_ticket(&mut self.stage());
        made.cancel()
    }

    fn needs_commit(&self) -> bool {
        self.stage().ticket.needs_commit()
    }
}
