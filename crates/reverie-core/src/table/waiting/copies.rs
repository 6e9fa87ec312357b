//! Copies: an item that one table hands out for the first time goes into another table, too.
//!
//! The table's lock is held for noting who was drawn first; the copies are offered to the other table behind it, before
//! whoever sampled is told. Copies that the other table's limits hold back wait in its queue of inserts, as data.

use crate::item::Key;
use crate::table::types::copies::{Copied, FirstDraw};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What became of the copies of one extension, counted under the other table's lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) inserted: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) waiting: AtomicU64,
}

impl Counts {
    pub(super) fn get(&self) -> Copied {
        let [inserted, dropped, waiting] =
            [&self.inserted, &self.dropped, &self.waiting].map(|count| count.load(Relaxed));
        Copied { inserted, dropped, waiting }
    }

    pub(super) fn clear(&self) {
        self.inserted.store(0, Relaxed);
        self.dropped.store(0, Relaxed);
    }

    pub(super) fn end(&self, went_in: bool) {
        if went_in { &self.inserted } else { &self.dropped }.fetch_add(1, Relaxed);
    }
}

/// A table that takes copies. Each call takes its lock.
pub(super) trait CopyTarget: Send + Sync {
    /// Takes copies in, or lets them wait; true where that freed bytes, and where an insert there waits for bytes.
    fn offer(&self, first: &[FirstDraw], how: &Copying) -> (bool, bool);

    /// Drops copies whose time is over.
    fn drop_late(&self);
}

/// One extension of a table that lives.
pub(super) struct Copying {
    pub(super) target: Weak<dyn CopyTarget>,
    pub(super) timeout: Option<Duration>,
    pub(super) counts: Arc<Counts>,
}

/// What makes a waiting insert that of a copy.
pub(super) struct Copy {
    /// The key that it has in the table that it comes from.
    pub(super) key: Key,
    pub(super) until: Option<Duration>,
    pub(super) counts: Arc<Counts>,
}

impl Copy {
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// How long it may wait.
    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }

    /// It waits no more.
    pub(super) fn end(&self, went_in: bool) {
        self.counts.waiting.fetch_sub(1, Relaxed);
        self.counts.end(went_in);
    }
}
