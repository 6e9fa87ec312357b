//! What a request for samples gets: one entry per draw in every vector.

use super::lease::Lease;
use super::windows::{Window, Windows};
use crate::item::{Item, Key};
use crate::table::Tally;

/// A number that somebody asks for is no reason to take memory for it: beyond, it comes with the draws.
const MOST_RESERVED: usize = 1 << 16;

/// A batch of draws, column by column, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    /// The items' keys.
    pub keys: Vec<Key>,
    /// The items: they keep their chunks alive while the draws live.
    pub items: Vec<Item>,
    /// Probability of the draw at its time; 1 for deterministic selectors.
    pub probabilities: Vec<f64>,
    /// The priority as it was given.
    pub priorities: Vec<f64>,
    /// Items in the table at the draw, before any removal by it.
    pub table_sizes: Vec<u64>,
    /// How often the item was drawn, this draw included.
    pub times_sampled: Vec<u32>,
    /// Updates of the item's priority so far.
    pub versions: Vec<u32>,
    /// When the item was inserted: nanoseconds of the table's clock.
    pub inserted_at: Vec<u64>,
    /// The smallest probability of any item with a weight, after the last draw: weights normalised by table.
    pub smallest_probability: Option<f64>,
    /// What the table was after the last draw, for one who draws from several shards.
    pub tally: Option<Tally>,
    /// What windows were drawn of the items, where any were.
    pub wanted_windows: Option<Windows>,
    /// One for each draw then; else none.
    pub windows: Vec<Window>,
    /// Draws that were passed over since the last one here, their items being too short for a window.
    pub short: u32,
    /// True where the draws are made to be leased.
    pub is_leased: bool,
    /// What returns the draws to their tables unless it is [acknowledged](Lease::acknowledge). Stays with these draws as
    /// they are cut and copied, and joins as they are joined.
    pub lease: Lease,
    /// Draws that met such an item and were not to be made again; see [`Windows::once`].
    pub passed: usize,
}

impl Draws {
    /// Room for `n` draws, or for as many as a request may want before there is one.
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
            is_leased: false,
            lease: Lease::default(),
        }
    }

    /// How many draws were made.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many draws of the request need no more to be made.
    pub fn done(&self) -> usize {
        self.len() + self.passed
    }

    /// True before the first draw.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The same draws of whole items.
    pub fn without_windows(mut self) -> Self {
        (self.wanted_windows, self.windows) = (None, Vec::new());
        self
    }

    /// Takes the draws behind the first `n` off, in order.
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
            is_leased: self.is_leased,
            lease: Lease::default(),
        }
    }

    /// Puts other draws behind these.
    pub fn append(&mut self, mut other: Draws) {
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
        self.lease.join(other.lease);
    }
}
