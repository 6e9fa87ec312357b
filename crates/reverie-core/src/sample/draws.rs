//! The result of a request for samples: one entry per draw in every vector.

use super::lease::Lease;
use super::windows::{Window, Windows};
use crate::error::Error;
use crate::item::{Item, Key};
use crate::table::{Keys, Lessee, Tally};

/// The most draws that memory is reserved for in advance; for more, it grows with the draws.
const MOST_RESERVED: usize = 1 << 16;

/// A batch of draws, column by column, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    /// The items' keys.
    pub keys: Vec<Key>,
    /// The items: they keep their chunks alive while the draws live.
    pub items: Vec<Item>,
    /// The probability of the draw when it was made; 1 for deterministic selectors.
    pub probabilities: Vec<f64>,
    /// The priority as it was given.
    pub priorities: Vec<f64>,
    /// The number of items in the table at the draw, before any removal by it.
    pub table_sizes: Vec<u64>,
    /// The item's number of draws, this one included.
    pub times_sampled: Vec<u32>,
    /// The number of updates of the item's priority so far.
    pub versions: Vec<u32>,
    /// The time of the item's insertion, in nanoseconds of the table's clock.
    pub inserted_at: Vec<u64>,
    /// The smallest probability of any item with a weight, after the last draw.
    ///
    /// It normalises importance weights over the whole table.
    pub smallest_probability: Option<f64>,
    /// The table's tally after the last draw, for a client that draws from several shards.
    pub tally: Option<Tally>,
    /// The windows that were requested, if any.
    pub wanted_windows: Option<Windows>,
    /// One window for each draw, if windows were requested; else empty.
    pub windows: Vec<Window>,
    /// Draws that were skipped since the last one here, because their items were too short for a window.
    pub short: u32,
    /// The request that the draws are leased to, if they are.
    pub lessee: Option<Lessee>,
    /// Returns the draws to their tables unless it is [acknowledged](Lease::acknowledge).
    ///
    /// Stays with these draws when they are split or copied, and joins when they are joined.
    pub lease: Lease,
    /// True if one of the draws was made while its table deleted sampled items.
    pub consuming: bool,
    /// Draws of items too short for a window that are not replaced; see [`Windows::once`].
    pub passed: usize,
    /// The reason why draws that use items up were withdrawn before the journal of their table had written that.
    pub not_committed: Option<String>,
}

impl Draws {
    /// Reserves memory for `n` draws, up to a limit.
    pub fn with_capacity(n: usize) -> Self {
        let n = n.min(MOST_RESERVED);
        Self {
            keys: Vec::with_capacity(n),
            items: Vec::with_capacity(n),
            probabilities: Vec::with_capacity(n),
            priorities: Vec::with_capacity(n),
            table_sizes: Vec::with_capacity(n),
            times_sampled: Vec::with_capacity(n),
            versions: Vec::with_capacity(n),
            inserted_at: Vec::with_capacity(n),
            smallest_probability: None,
            tally: None,
            wanted_windows: None,
            windows: Vec::new(),
            short: 0,
            passed: 0,
            not_committed: None,
            lessee: None,
            lease: Lease::default(),
            consuming: false,
        }
    }

    /// The number of draws.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of draws of the request that are done: made, or skipped for good.
    pub fn done(&self) -> usize {
        self.len() + self.passed
    }

    /// True before the first draw.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// These draws, of whole items.
    pub fn without_windows(mut self) -> Self {
        (self.wanted_windows, self.windows) = (None, Vec::new());
        self
    }

    /// The figures of some of the draws, in this order, without their items, windows and lease.
    pub fn figures_of(&self, draws: &[usize]) -> Draws {
        fn some<T: Copy>(all: &[T], draws: &[usize]) -> Vec<T> {
            draws.iter().map(|draw| all[*draw]).collect()
        }
        Draws {
            keys: some(&self.keys, draws),
            probabilities: some(&self.probabilities, draws),
            priorities: some(&self.priorities, draws),
            table_sizes: some(&self.table_sizes, draws),
            times_sampled: some(&self.times_sampled, draws),
            versions: some(&self.versions, draws),
            inserted_at: some(&self.inserted_at, draws),
            ..Draws::default()
        }
    }

    /// Takes the reason out of draws that their table's journal has not written, as an error.
    pub fn take_not_committed(&mut self) -> Option<Error> {
        self.not_committed.take().map(|why| Error::NotCommitted { keys: Keys::new(), why })
    }

    /// A copy of one of the draws, of the whole item; without the lease.
    pub fn one(&self, draw: usize) -> Draws {
        Draws {
            items: vec![self.items[draw].clone()],
            smallest_probability: self.smallest_probability,
            tally: self.tally,
            ..self.figures_of(&[draw])
        }
    }

    /// Removes and returns the draws after the first `n`, in order.
    pub fn split_off(&mut self, n: usize) -> Draws {
        Draws {
            keys: self.keys.split_off(n),
            items: self.items.split_off(n),
            probabilities: self.probabilities.split_off(n),
            priorities: self.priorities.split_off(n),
            table_sizes: self.table_sizes.split_off(n),
            times_sampled: self.times_sampled.split_off(n),
            versions: self.versions.split_off(n),
            inserted_at: self.inserted_at.split_off(n),
            smallest_probability: self.smallest_probability,
            tally: self.tally,
            wanted_windows: self.wanted_windows,
            windows: self.windows.split_off(n.min(self.windows.len())),
            short: 0,
            passed: 0,
            not_committed: None,
            lessee: self.lessee,
            lease: Lease::default(),
            consuming: self.consuming,
        }
    }

    /// Appends other draws.
    pub fn append(&mut self, mut other: Draws) {
        self.lease.join_behind(std::mem::take(&mut other.lease), self.len());
        self.keys.append(&mut other.keys);
        self.items.append(&mut other.items);
        self.probabilities.append(&mut other.probabilities);
        self.priorities.append(&mut other.priorities);
        self.table_sizes.append(&mut other.table_sizes);
        self.times_sampled.append(&mut other.times_sampled);
        self.versions.append(&mut other.versions);
        self.inserted_at.append(&mut other.inserted_at);
        self.smallest_probability = other.smallest_probability;
        self.tally = other.tally;
        self.wanted_windows = other.wanted_windows.or(self.wanted_windows);
        self.windows.append(&mut other.windows);
        self.consuming |= other.consuming;
        self.not_committed = self.not_committed.take().or(other.not_committed);
    }
}
