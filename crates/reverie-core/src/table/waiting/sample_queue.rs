//! The queue of requests for draws, in order of arrival, and requests that wait for the table to change.

use super::promise::OutcomeCell;
use crate::sample::{Draws, Lease, Lender, SampleRequest};
use crate::sync::Arc;
use crate::table::types::tally::{SeenTally, Tally};
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

pub(super) struct PendingSample {
    pub(super) id: u64,
    pub(super) request: SampleRequest,
    pub(super) draws: Draws,
    pub(super) since: Duration,
    pub(super) cell: Arc<OutcomeCell<Draws>>,
    /// The table that leased draws are returned to.
    pub(super) lender: Weak<dyn Lender>,
}

impl PendingSample {
    pub(super) fn left(&self) -> u64 {
        (self.request.num_samples - self.draws.done()) as u64
    }

    /// The draws, with their lease. Called without the lock: dropping a lease takes it.
    pub(super) fn into_draws(self) -> Draws {
        let mut draws = self.draws;
        if let Some(lessee) = draws.lessee {
            draws.lease = Lease::of(&self.lender, lessee, &draws.keys);
        }
        draws
    }
}

/// A request of a client that draws from several shards, waiting for a change of this one.
pub(super) struct PendingTally {
    pub(super) id: u64,
    pub(super) seen: SeenTally,
    pub(super) cell: Arc<OutcomeCell<Tally>>,
}

/// Requests for draws, in order of arrival.
pub(super) type SampleQueue = VecDeque<PendingSample>;
