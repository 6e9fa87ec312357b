//! A table's configuration.

use super::copies::InsertOnSample;
use super::limiter::Limiter;
use super::selector::SelectorOptions;
use crate::chunk::Compression;
use crate::spec::Signature;
use serde::{Deserialize, Serialize};

/// A table's configuration. Immutable except for the fields of [`Change`].
///
/// Files have neither the seeds, which the next process draws, nor the extensions, which are its constructor's.
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
    /// How chunks written for this table are stored.
    pub compression: Compression,
    /// The shard encoded in the table's keys, below 64.
    pub shard: u8,
    /// Seeds the sampler's random draws; the caller takes a system random number if the user gave none.
    #[serde(skip)]
    pub sampler_seed: u64,
    /// The same for the remover's draws.
    #[serde(skip)]
    pub remover_seed: u64,
    /// Tables that get copies of the items.
    #[serde(skip)]
    pub extensions: Vec<InsertOnSample>,
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
