//! A table's configuration.

use super::copies::InsertOnSample;
use super::limiter::Limiter;
use super::selector::SelectorOptions;
use crate::chunk::Compression;
use crate::spec::Signature;
use serde::{Deserialize, Serialize};

/// A table's configuration. Immutable except for the fields of [`Change`].
///
/// Files have neither the seeds, which the next process draws, nor the extensions, which are its constructor's. They do
/// have the limits that the constructor gave: a journal restores changed limits to a table that is constructed as
/// before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableOptions {
    /// Unique on its server, not empty.
    pub name: String,
    /// Chooses which item is sampled.
    pub sampler: SelectorOptions,
    /// Chooses which item is evicted when the table is above its size.
    pub remover: SelectorOptions,
    /// The largest number of items.
    pub max_size: u64,
    /// Decides which requests wait.
    pub limiter: Limiter,
    /// An item is removed after it was sampled this often; 0 for no limit.
    pub max_times_sampled: u32,
    /// The columns that every item must have.
    pub signature: Option<Signature>,
    /// The largest number of bytes of chunks that the items may keep alive; above it, the remover evicts items.
    pub max_bytes: Option<u64>,
    /// The compression of chunks written for this table.
    pub compression: Compression,
    /// The shard encoded in the table's keys, below 64.
    pub shard: u8,
    /// Seeds the sampler's random draws; the caller takes a system random number if the user gave none.
    #[serde(skip)]
    pub sampler_seed: u64,
    /// Seeds the remover's random draws, in the same way.
    #[serde(skip)]
    pub remover_seed: u64,
    /// Tables that get copies of the items.
    #[serde(skip)]
    pub extensions: Vec<InsertOnSample>,
    /// The limits before the first [`Change`]; `None` while they are the constructor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constructed: Option<Limits>,
}

/// The options that a [`Change`] can change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// See [`TableOptions::max_size`].
    pub max_size: u64,
    /// See [`TableOptions::limiter`].
    pub limiter: Limiter,
    /// See [`TableOptions::max_times_sampled`].
    pub max_times_sampled: u32,
}

/// The options that can change while a table is in use; `None` keeps the current value.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// See [`TableOptions::max_size`]; a smaller size evicts items through the remover at once.
    pub max_size: Option<u64>,
    /// See [`TableOptions::limiter`].
    pub limiter: Option<Limiter>,
    /// See [`TableOptions::max_times_sampled`].
    pub max_times_sampled: Option<u32>,
}

impl From<Limits> for Change {
    fn from(limits: Limits) -> Self {
        let Limits { max_size, limiter, max_times_sampled } = limits;
        Self { max_size: Some(max_size), limiter: Some(limiter), max_times_sampled: Some(max_times_sampled) }
    }
}

impl TableOptions {
    /// The present limits.
    pub fn limits(&self) -> Limits {
        let Self { max_size, limiter, max_times_sampled, .. } = self;
        Limits { max_size: *max_size, limiter: *limiter, max_times_sampled: *max_times_sampled }
    }
}
