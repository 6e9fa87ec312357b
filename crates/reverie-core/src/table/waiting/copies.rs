//! Copies: an item that one table samples for the first time is also inserted into another table.
//!
//! First draws are noted under the table's lock. After that lock is released, and before the caller gets its sample,
//! the copies are offered to the other table. Copies that the other table's limits hold back wait in its insert queue,
//! as data.

use crate::item::Key;
use crate::table::types::copies::{CopyStats, FirstDraw};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Counts of the copies of one extension, changed under the other table's lock.
#[derive(Debug, Default)]
pub(super) struct CopyCounts {
    pub(super) inserted: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) waiting: AtomicU64,
}

impl CopyCounts {
    pub(super) fn get(&self) -> CopyStats {
        let [inserted, dropped, waiting] =
            [&self.inserted, &self.dropped, &self.waiting].map(|count| count.load(Relaxed));
        CopyStats { inserted, dropped, waiting }
    }

    pub(super) fn clear(&self) {
        self.inserted.store(0, Relaxed);
        self.dropped.store(0, Relaxed);
    }

    pub(super) fn end(&self, went_in: bool) {
        if went_in { &self.inserted } else { &self.dropped }.fetch_add(1, Relaxed);
    }
}

/// A table that accepts copies. Each call takes its lock.
pub(super) trait CopyTarget: Send + Sync {
    /// Inserts or queues copies; true if that freed bytes, and true if an insert there waits for bytes.
    fn offer(&self, first: &[FirstDraw], how: &CopyExtension) -> (bool, bool);

    /// Drops copies that timed out.
    fn drop_late(&self);
}

/// One extension of a table in use.
pub(super) struct CopyExtension {
    pub(super) target: Weak<dyn CopyTarget>,
    pub(super) timeout: Option<Duration>,
    pub(super) counts: Arc<CopyCounts>,
}

/// Marks a waiting insert as that of a copy.
pub(super) struct InsertedCopy {
    /// The key of the original in its table.
    pub(super) key: Key,
    pub(super) until: Option<Duration>,
    pub(super) counts: Arc<CopyCounts>,
}

impl InsertedCopy {
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The time at which it times out.
    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Counts the end of its wait.
    pub(super) fn end(&self, went_in: bool) {
        self.counts.waiting.fetch_sub(1, Relaxed);
        self.counts.end(went_in);
    }
}
