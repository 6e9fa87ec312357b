//! The interface that writers send items through: local tables, or a client of a server.

use crate::chunk::{Compression, Meter};
use crate::error::Result;
use crate::item::Item;
use crate::spec::Signature;
use crate::table::{Inserts, Keys, Priority, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Accepts items, and the chunks that they keep alive.
pub trait Sink: Send + Sync {
    /// Enqueues items for a table, in order, as one request; never blocks.
    ///
    /// All or none are accepted; accepted items are inserted one by one as the table's limiter allows. Every cell of
    /// the items must exist.
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>>;

    /// Refuses items that [`Sink::insert`] would refuse, as far as known without waiting; inserts nothing.
    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()>;

    /// Refuses a priority that [`Sink::insert`] would refuse.
    fn check_priority(&self, table: &str, priority: Priority) -> Result<()>;

    /// The columns that every item of the table must have.
    fn signature(&self, table: &str) -> Result<Option<Signature>>;

    /// The requests that wait at the table, and the reasons, as a sentence, for a caller whose insert waits. Completes
    /// soon.
    fn wait_reason(&self, table: &str) -> Ticket<String>;

    /// The compression of chunks for this table.
    fn compression(&self, table: &str) -> Result<Compression>;

    /// Counts the bytes of chunks.
    fn meter(&self) -> &Arc<Meter>;
}

/// Consecutive cells of one column, contiguous.
#[derive(Clone, Copy, Debug)]
pub struct ColumnCells<'a> {
    /// Bytes of one element: the dtype's own, or the width of these `Bytes` or `Str` elements.
    pub itemsize: usize,
    /// The cells, C-contiguous, native byte order.
    pub bytes: &'a [u8],
}

/// The number of a new episode: never 0; wraps after 2^32 episodes.
pub fn next_episode() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    next_of(&NEXT)
}

/// The number of a new stream of steps: never 0; wraps after 2^32 streams.
pub fn next_stream() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    next_of(&NEXT)
}

fn next_of(counter: &AtomicU32) -> u32 {
    loop {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        if number != 0 {
            return number;
        }
    }
}
