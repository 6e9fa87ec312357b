//! The outcome of a request for draws, from tables of this process or of another one.

use super::{Draws, GatheredBatch, Lease, LeaseState};
use crate::batch::Arrays;
use crate::error::Error;
use crate::table::Tally;

/// Draws of one form, which become one batch.
pub enum DrawnBatch {
    /// The items, which the caller gathers into memory of its own.
    Items(Draws),
    /// Gathered into memory of the reader: ahead of it, or from several servers.
    Gathered(GatheredBatch),
    /// Gathered by another process.
    Arrays(Arrays),
}

impl DrawnBatch {
    /// The number of draws.
    pub fn len(&self) -> usize {
        match self {
            Self::Items(draws) => draws.len(),
            Self::Gathered(batch) => batch.draws.len(),
            Self::Arrays(arrays) => arrays.num_draws,
        }
    }

    /// True if there are no draws.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table's tally after the last draw, if the table is one of several shards.
    pub fn tally(&self) -> Option<Tally> {
        match self {
            Self::Items(draws) => draws.tally,
            Self::Gathered(batch) => batch.draws.tally,
            Self::Arrays(arrays) => arrays.tally,
        }
    }

    /// True if the items are single steps. False for a batch that was gathered ahead, which does not know its items.
    pub fn is_one_step(&self) -> bool {
        match self {
            Self::Items(draws) => draws.items.first().is_some_and(|item| item.pattern.is_one_step()),
            Self::Gathered(batch) => batch.description.is_one_step(),
            Self::Arrays(arrays) => arrays.head.timestep,
        }
    }

    /// Removes the lease: the caller decides whether the draws reach their reader. Until it is
    /// [acknowledged](Lease::try_acknowledge), dropping it returns them to their tables.
    pub fn take_lease(&mut self) -> Lease {
        std::mem::take(match self {
            Self::Items(draws) => &mut draws.lease,
            Self::Gathered(batch) => &mut batch.draws.lease,
            Self::Arrays(arrays) => &mut arrays.lease,
        })
    }

    /// The state of the draws' lease: whether they may be given to their reader. Draws that are not leased may.
    pub fn lease_state(&self) -> LeaseState {
        match self {
            Self::Items(draws) => draws.lease.lease_state(),
            Self::Gathered(batch) => batch.draws.lease.lease_state(),
            Self::Arrays(arrays) => arrays.lease.lease_state(),
        }
    }

    /// The bytes that arrived from another process.
    pub fn arrived_bytes(&self) -> usize {
        match self {
            Self::Items(_) | Self::Gathered(_) => 0,
            Self::Arrays(arrays) => arrays.layout.size_bytes,
        }
    }

    /// The arrays, if another process gathered them.
    pub fn arrays(&self) -> Option<&Arrays> {
        match self {
            Self::Arrays(arrays) => Some(arrays),
            Self::Items(_) | Self::Gathered(_) => None,
        }
    }
}

/// The outcome of a request for draws. `batches` is also filled where an error ended the request.
#[derive(Default)]
pub struct SampleOutcome {
    /// One batch, or one for each run of items of the same form.
    pub batches: Vec<DrawnBatch>,
    /// The error that ended the request early.
    pub error: Option<Error>,
}

impl SampleOutcome {
    /// The draws as one batch; none if there are no draws.
    pub fn whole(mut draws: Draws) -> Self {
        let error = draws.take_not_committed();
        let batches = if draws.is_empty() { Vec::new() } else { vec![DrawnBatch::Items(draws)] };
        Self { batches, error }
    }

    /// The outcome of a request that waits for nothing: fewer draws than requested are not an error.
    pub fn of_now(self) -> Self {
        match self.error {
            Some(Error::Deadline(_)) => Self { error: None, ..self },
            _ => self,
        }
    }

    /// One batch for each run of items of the same form.
    pub fn runs(mut draws: Draws) -> Self {
        let (error, mut batches) = (draws.take_not_committed(), Vec::new());
        while let Some(first) = draws.items.first().map(|item| item.pattern.clone()) {
            let alike = draws.items.iter().take_while(|item| item.pattern.same(&first)).count();
            let rest = draws.split_off(alike);
            batches.push(DrawnBatch::Items(std::mem::replace(&mut draws, rest)));
        }
        Self { batches, error }
    }
}
