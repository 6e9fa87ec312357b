//! Where a sampler waits: requests for draws, in order of arrival, and requests that wait for the table to change.

use super::ticket::Cell;
use crate::sample::{Draws, Lease, Lender, SampleRequest};
use crate::sync::Arc;
use crate::table::types::tally::{Seen, Tally};
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

pub(super) struct PendingSample {
    pub(super) id: u64,
    pub(super) request: SampleRequest,
    pub(super) draws: Draws,
    pub(super) since: Duration,
    pub(super) cell: Arc<Cell<Draws>>,
    /// Where leased draws go back to.
    pub(super) lender: Weak<dyn Lender>,
}

impl PendingSample {
    pub(super) fn left(&self) -> u64 {
        (self.request.num_samples - self.draws.done()) as u64
    }

    /// The draws, with their lease. Called without the lock: a lease that is dropped takes it.
    pub(super) fn into_draws(self) -> Draws {
        let mut draws = self.draws;
        if draws.is_leased {
            draws.lease = Lease::of(&self.lender, &draws.keys);
        }
        draws
    }
}

/// Whoever draws from several shards and has to wait: told when there is news.
pub(super) struct PendingLook {
    pub(super) id: u64,
    pub(super) seen: Seen,
    pub(super) cell: Arc<Cell<Tally>>,
}

/// The requests for draws of one table, the first to come first.
pub(super) type SampleQueue = VecDeque<PendingSample>;
