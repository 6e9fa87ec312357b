//! The sending of draws: the batches of one connection, each when there is room for it.

use super::batches::{Batches, PlannedBatch, SendOutcome};
use super::gathering::{GatherTarget, Gathering};
use super::outcome_future::OutcomeFuture;
use super::pool::BlockPermit;
use super::samples::DrawDelivery;
use super::shared::ServerState;
use crate::items::Decoder;
use crate::transport::server::ServerConnection;
use reverie_core::sample::Draws;
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Interval;

/// A session's connection and its state.
pub(super) struct Link {
    pub(super) connection: Box<dyn ServerConnection>,
    pub(super) decoder: Decoder,
    pub(super) batches: Batches,
    /// The planned batch of the first draws to be gathered.
    pub(super) planned: Option<PlannedBatch>,
    leave: Option<BlockPermit>,
    pub(super) waits_for_leave: Option<OutcomeFuture<BlockPermit>>,
    /// The batch that a thread gathers.
    pub(super) gathering: Option<(Arc<PlannedBatch>, Gathering)>,
    queued: u64,
    moved: bool,
    watch: Interval,
}

/// The time for which a client may read none of the queued messages before its connection is ended, up to twice as
/// long. It holds memory that others wait for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Link {
    pub(super) fn new(connection: Box<dyn ServerConnection>, decoder: Decoder) -> Self {
        Self {
            connection,
            decoder,
            batches: Batches::default(),
            planned: None,
            leave: None,
            waits_for_leave: None,
            gathering: None,
            queued: 0,
            moved: true,
            watch: tokio::time::interval(PATIENCE),
        }
    }

    /// Drops the batch that a thread gathers for a request.
    pub(super) fn forget_gathering(&mut self, id: u64) {
        self.gathering.take_if(|(_, gathering)| gathering.id == id);
    }

    /// Drops the plan of the first answer, which is not sent any more.
    pub(super) fn forget_planned(&mut self) {
        (self.planned, self.leave, self.waits_for_leave) = (None, None, None);
    }

    /// Stores the permission that was waited for.
    pub(super) fn may_set_aside(&mut self, leave: BlockPermit) {
        (self.leave, self.waits_for_leave) = (Some(leave), None);
    }

    /// True if the client has read nothing for too long. Call it at every turn.
    pub(super) fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let queued = self.connection.queued_bytes();
        self.moved |= queued == 0 || queued < self.queued;
        self.queued = queued;
        // The first tick fires at once.
        while self.watch.poll_tick(context).is_ready() {
            if !std::mem::take(&mut self.moved) {
                return true;
            }
        }
        false
    }

    /// The bytes that were queued at the last turn.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// Ready when the next batch can be planned or gathered; returns the permission if one was waited for.
    pub(super) fn poll_delivery(&mut self, context: &mut Context<'_>, most: u64) -> Poll<Option<BlockPermit>> {
        if let Some(waits) = &mut self.waits_for_leave {
            return waits.as_mut().poll(context).map(Some);
        }
        let size = self.planned.as_ref().map_or(0, |planned| planned.size_bytes() as u64);
        // One batch may always be sent: otherwise a batch larger than the bound could never be.
        let below = most.saturating_sub(size + self.gathering_bytes()).max(1);
        self.connection.poll_queued(context, below).map(|()| None)
    }

    /// Ready when a thread has gathered the batch. There is room for it among the unsent batches, as it counts as one.
    pub(super) fn poll_gathered(&mut self, context: &mut Context<'_>) -> Poll<Result<GatherTarget>> {
        self.gathering.as_mut().map_or(Poll::Pending, |(_, gathering)| gathering.poll(context))
    }

    /// The bytes of the batch that a thread gathers.
    fn gathering_bytes(&self) -> u64 {
        self.gathering.as_ref().map_or(0, |(planned, _)| planned.size_bytes() as u64)
    }

    pub(super) fn deliver(
        &mut self,
        shared: &ServerState,
        answer: &DrawDelivery,
        draws: &Draws,
        last: bool,
    ) -> Result<SendOutcome> {
        let (planned, contiguous) = match self.planned.take() {
            Some(planned) => {
                let contiguous = planned.contiguous_cells(draws);
                (planned, contiguous)
            }
            None => {
                let planned = self.batches.plan(&*self.connection, &answer.read_options, draws)?;
                let (needed, budget) = (planned.size_bytes() as u64, shared.limits.session_batch_bytes);
                if needed > budget {
                    return Err(Error::ResourceExhausted {
                        what: format!("a batch of {} draws", draws.len()),
                        needed,
                        budget,
                        hint: "ask for fewer samples, or for fewer columns".to_owned(),
                    });
                }
                let (unpacked, most) = (planned.unpacked_bytes(), shared.limits.batch_unpacked_bytes);
                if unpacked > most {
                    return Err(Error::ResourceExhausted {
                        what: format!("unpacking the chunks of {} draws", draws.len()),
                        needed: unpacked,
                        budget: most,
                        hint: "ask for fewer samples or columns, or cut shorter chunks (max_chunk_length)".to_owned(),
                    });
                }
                let contiguous = planned.contiguous_cells(draws);
                if self.gathering.is_some() && planned.is_gathered_by_thread(draws, contiguous.is_some()) {
                    return Ok(SendOutcome::OtherThread);
                }
                if self.connection.queued_bytes() + self.gathering_bytes() + needed > budget {
                    self.planned = Some(planned);
                    return Ok(SendOutcome::Refused);
                }
                (planned, contiguous)
            }
        };
        let size = planned.size_bytes();
        let leave = self.leave.take().or_else(|| shared.pool.try_leave(size));
        if planned.is_gathered_by_thread(draws, contiguous.is_some()) {
            return self.gather_by_thread(shared, answer.id, planned, draws, leave);
        }
        let kind = (last, answer.is_leased());
        let batch = (answer.id, &planned, draws);
        let sent = self.batches.send(&mut *self.connection, &shared.pool, batch, contiguous, leave, kind)?;
        if let SendOutcome::Refused = sent {
            self.waits_for_leave = Some(Box::pin(shared.pool.leave(size)));
            self.planned = Some(planned);
        }
        Ok(sent)
    }

    fn gather_by_thread(
        &mut self,
        shared: &ServerState,
        id: u64,
        planned: PlannedBatch,
        draws: &Draws,
        leave: Option<BlockPermit>,
    ) -> Result<SendOutcome> {
        let size = planned.size_bytes();
        let Some(room) = GatherTarget::take(self.connection.lend(size), &shared.pool, size, leave)? else {
            self.waits_for_leave = Some(Box::pin(shared.pool.leave(size)));
            self.planned = Some(planned);
            return Ok(SendOutcome::Refused);
        };
        let planned = Arc::new(planned);
        let gathering = Gathering::begin(&shared.turns, id, &planned, draws.clone(), room);
        self.gathering = Some((planned, gathering));
        Ok(SendOutcome::OtherThread)
    }
}
