//! Where samples come from: the seam behind which a network may stand.

use super::{Draws, Windows};
use crate::error::Result;
use crate::table::Ticket;

/// What a caller should let one request ask for: more is a mistake, and where no limiter stops it, its draws take the
/// table's lock for seconds and all memory.
pub const MAX_SAMPLES: usize = 1 << 24;

/// What is asked of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleRequest {
    /// How many draws; see [`MAX_SAMPLES`].
    pub num_samples: usize,
    /// No item twice within this request (random selectors only); the draw's probability is still that of a
    /// draw from the whole table, so that importance weights are approximate.
    pub without_replacement: bool,
    /// Windows of the items, each chosen as its item is drawn.
    pub windows: Option<Windows>,
    /// Draws of a table that deletes sampled items are leased: see [`Draws::lease`].
    pub lease: bool,
}

/// Gives draws. A batch of n is n single draws in sequence; a request keeps its place until it is full.
pub trait Source: Send + Sync {
    /// Enqueues a request; never blocks.
    fn sample(&self, table: &str, request: SampleRequest) -> Result<Ticket<Draws>>;
}
