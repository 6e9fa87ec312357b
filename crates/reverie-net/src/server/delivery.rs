//! Draws on their way out: one connection's batches, each when there is room for it.

use super::batches::{Batches, Planned, Sent};
use super::pool::Leave;
use super::requests::refusal;
use super::samples::Answer;
use super::session::{Later, Session};
use super::shared::Shared;
use crate::items::Decoder;
use crate::proto::server_message::Body;
use crate::way::server::Way;
use reverie_core::sample::Draws;
use reverie_core::{Error, Result};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Interval;

/// A connection of a session, and what is known to its ends.
pub(super) struct Link {
    pub(super) way: Box<dyn Way>,
    pub(super) decoder: Decoder,
    batches: Batches,
    /// The first of the draws that are to be gathered, where it is decided what they become.
    planned: Option<Planned>,
    leave: Option<Leave>,
    waits_for_leave: Option<Later<Leave>>,
    queued: u64,
    moved: bool,
    watch: Interval,
}

/// A client that reads nothing of what is queued for so long, and up to twice as long, is let go: it holds memory that
/// others wait for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Session {
    /// Gathers and sends one batch of the first answer, or says what ended it.
    pub(super) fn deliver(&mut self) {
        let (Some(link), Some(answer)) = (&mut self.link, self.ready.front_mut()) else { return };
        if let Some(draws) = answer.groups.front() {
            let last = answer.groups.len() == 1 && answer.error.is_none();
            match link.deliver(&self.shared, answer, draws, last) {
                Ok(Sent::Refused) => return,
                Ok(Sent::Whole) => {
                    let sent = answer.groups.pop_front();
                    answer.sent.extend(sent.filter(|_| answer.is_leased()));
                }
                Err(error) => answer.split_first(error),
            }
            if !answer.groups.is_empty() {
                return;
            }
        }
        let Some(answer) = self.ready.pop_front() else { return };
        if let Some(error) = &answer.error {
            let reply = refusal(answer.id, error);
            self.send(Body::Reply(reply));
        }
        self.await_acknowledgement(answer);
    }
}

impl Link {
    pub(super) fn new(way: Box<dyn Way>, decoder: Decoder) -> Self {
        Self {
            way,
            decoder,
            batches: Batches::default(),
            planned: None,
            leave: None,
            waits_for_leave: None,
            queued: 0,
            moved: true,
            watch: tokio::time::interval(PATIENCE),
        }
    }

    /// The first answer is not to be sent any more.
    pub(super) fn forget_planned(&mut self) {
        (self.planned, self.waits_for_leave) = (None, None);
    }

    /// The leave that was waited for.
    pub(super) fn may_set_aside(&mut self, leave: Leave) {
        (self.leave, self.waits_for_leave) = (Some(leave), None);
    }

    /// True where the client has read nothing for long. To be asked at every turn.
    pub(super) fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let queued = self.way.queued_bytes();
        self.moved |= queued == 0 || queued < self.queued;
        self.queued = queued;
        // The first tick comes at once.
        while self.watch.poll_tick(context).is_ready() {
            if !std::mem::take(&mut self.moved) {
                return true;
            }
        }
        false
    }

    /// Ready when the next batch can be planned or gathered: with the leave that was waited for, if one was.
    pub(super) fn poll_delivery(&mut self, context: &mut Context<'_>, most: u64) -> Poll<Option<Leave>> {
        if let Some(waits) = &mut self.waits_for_leave {
            return waits.as_mut().poll(context).map(Some);
        }
        let size = self.planned.as_ref().map_or(0, |planned| planned.size_bytes() as u64);
        // One batch may always go, else one that is larger than the bound never could.
        let below = (most.saturating_sub(size)).max(1);
        self.way.poll_queued(context, below).map(|()| None)
    }

    fn deliver(&mut self, shared: &Shared, answer: &Answer, draws: &Draws, last: bool) -> Result<Sent> {
        let planned = match self.planned.take() {
            Some(planned) => planned,
            None => {
                let planned = self.batches.plan(&*self.way, &answer.reading, draws)?;
                let (needed, budget) = (planned.size_bytes() as u64, shared.limits.session_batch_bytes);
                if needed > budget {
                    return Err(Error::ResourceExhausted {
                        what: format!("a batch of {} draws", draws.len()),
                        needed,
                        budget,
                        hint: "ask for fewer samples, or for fewer columns".to_owned(),
                    });
                }
                if self.way.queued_bytes() + needed > budget {
                    self.planned = Some(planned);
                    return Ok(Sent::Refused);
                }
                planned
            }
        };
        let size = planned.size_bytes();
        let leave = self.leave.take().or_else(|| shared.pool.try_leave(size));
        let sent = self.batches.send(
            &mut *self.way,
            &shared.pool,
            (answer.id, &planned, draws),
            leave,
            (last, answer.is_leased()),
        )?;
        if let Sent::Refused = sent {
            self.waits_for_leave = Some(Box::pin(shared.pool.leave(size)));
            self.planned = Some(planned);
        }
        Ok(sent)
    }
}
