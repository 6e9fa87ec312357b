//! The interface to draw samples from: local tables, or a client of a server.

use super::{Draws, Windows};
use crate::error::Result;
use crate::table::{Lessee, Ticket};

/// The most draws that a caller should allow in one request: more is a mistake.
///
/// Without a limiter that stops them, they would hold the table's lock for seconds and use all memory.
pub const MAX_SAMPLES: usize = 1 << 24;

/// A request for samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleRequest {
    /// The number of draws; see [`MAX_SAMPLES`].
    pub num_samples: usize,
    /// No item twice within this request (random selectors only).
    ///
    /// The draw's probability is still that of a draw from the whole table, so that importance weights are approximate.
    pub without_replacement: bool,
    /// Windows of the items, each chosen when its item is drawn.
    pub windows: Option<Windows>,
    /// Draws of a table that deletes sampled items are leased to this request: see [`Draws::lease`].
    ///
    /// A client of a server leases them from the server under a name of its own.
    pub lessee: Option<Lessee>,
}

/// A source of draws. A batch of n is n single draws in sequence; a request keeps its place until it is complete.
pub trait Source: Send + Sync {
    /// Enqueues a request; never blocks.
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>>;
}
