//! A table's configuration.

use super::copies::InsertOnSample;
use super::limiter::Limiter;
use super::selector::SelectorOptions;
use crate::chunk::Compression;
use crate::spec::Signature;

/// A table's configuration. Immutable but for what [`Change`] names.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Unique on its server, not empty.
    pub name: String,
    /// Chooses what is sampled.
    pub sampler: SelectorOptions,
    /// Chooses what leaves when the table is over its size.
    pub remover: SelectorOptions,
    /// Items that the table holds at most.
    pub max_size: u64,
    /// Who may go on.
    pub limiter: Limiter,
    /// An item leaves after it was sampled this often; 0 for no limit.
    pub max_times_sampled: u32,
    /// What every item must look like.
    pub signature: Option<Signature>,
    /// Bytes of chunks that the table's items may hold alive; beyond, the remover is asked.
    pub max_bytes: Option<u64>,
    /// How chunks written for this table are stored.
    pub compression: Compression,
    /// The shard that the table's keys name, below 64.
    pub shard: u8,
    /// Fixes the random draws; the caller takes it from the system where the user gave none.
    pub sampler_seed: u64,
    /// The same for the remover.
    pub remover_seed: u64,
    /// Where copies of its items go.
    pub extensions: Vec<InsertOnSample>,
}

/// What can be changed while a table runs; `None` leaves as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// See [`TableOptions::max_size`]; smaller evicts through the remover at once.
    pub max_size: Option<u64>,
    /// See [`TableOptions::limiter`].
    pub limiter: Option<Limiter>,
    /// See [`TableOptions::max_times_sampled`].
    pub max_times_sampled: Option<u32>,
}
