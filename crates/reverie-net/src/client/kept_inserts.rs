//! Inserts that are confirmed and may not be on the server's disk yet.
//!
//! They are kept within a bound of bytes, and not reported as received: a server that starts after a loss of power,
//! with a journal that lost its end, gets them again, and inserts those that it does not have.

use reverie_core::table::Inserts as Items;
use std::collections::BTreeMap;

/// Inserts that are kept at most: the server remembers the outcome of each.
const MOST: usize = 1 << 18;

/// A confirmed insert.
pub(super) struct KeptInsert {
    /// The client's number of the table.
    pub(super) table: u32,
    pub(super) items: Items,
    /// The bytes of the insert as it was sent.
    bytes: u64,
    /// The position of the insert among all that were confirmed.
    order: u64,
}

/// Confirmed inserts that may not be on the disk.
#[derive(Default)]
pub(super) struct KeptInserts {
    /// The bytes that are kept at most.
    max_bytes: u64,
    /// The kept inserts by number.
    all: BTreeMap<u64, KeptInsert>,
    bytes: u64,
    /// The number of inserts that were ever kept.
    confirmed: u64,
    /// The last that was dropped for want of room and is not known to be on the disk.
    dropped_unsynced: Option<u64>,
}

impl KeptInserts {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, ..Self::default() }
    }

    /// Keeps an insert that was confirmed; returns the numbers of those that have no room any more, it may be among
    /// them.
    pub(super) fn keep(&mut self, id: u64, (table, items): (u32, Items), bytes: u64) -> Vec<u64> {
        self.confirmed += 1;
        self.bytes += bytes;
        if let Some(before) = self.all.insert(id, KeptInsert { table, items, bytes, order: self.confirmed }) {
            self.bytes -= before.bytes;
        }
        let mut dropped = Vec::new();
        while self.bytes > self.max_bytes || self.all.len() > MOST {
            let Some((id, insert)) = self.all.pop_first() else { break };
            self.bytes -= insert.bytes;
            self.dropped_unsynced = self.dropped_unsynced.max(Some(insert.order));
            dropped.push(id);
        }
        dropped
    }

    /// The position of the last insert that was confirmed: the server is asked when all up to it are on the disk.
    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Releases the inserts up to this position, which are on the disk; returns their numbers.
    pub(super) fn durable(&mut self, up_to: u64) -> Vec<u64> {
        self.dropped_unsynced.take_if(|dropped_unsynced| *dropped_unsynced <= up_to);
        let mut released = Vec::new();
        self.all.retain(|id, insert| {
            let stays = insert.order > up_to;
            if !stays {
                self.bytes -= insert.bytes;
                released.push(*id);
            }
            stays
        });
        released
    }

    /// Takes all out, to send them again.
    pub(super) fn take_all(&mut self) -> BTreeMap<u64, KeptInsert> {
        self.bytes = 0;
        std::mem::take(&mut self.all)
    }

    /// Drops all: they cannot be sent again. Returns their numbers.
    pub(super) fn drop_all(&mut self) -> Vec<u64> {
        if !self.all.is_empty() {
            self.dropped_unsynced = Some(self.confirmed);
        }
        self.take_all().into_keys().collect()
    }

    /// True if inserts were confirmed that may not be on the disk and are not kept; false at the next call.
    pub(super) fn take_dropped(&mut self) -> bool {
        self.dropped_unsynced.take().is_some()
    }

    /// True if the server is to be asked what is on its disk.
    pub(super) fn needs_query(&self) -> bool {
        !self.all.is_empty() || self.dropped_unsynced.is_some()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn first_id(&self) -> Option<u64> {
        self.all.first_key_value().map(|(id, _)| *id)
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(kept: &mut KeptInserts, id: u64, bytes: u64) -> Vec<u64> {
        kept.keep(id, (0, Items::new()), bytes)
    }

    #[test]
    fn inserts_beyond_the_bound_are_dropped_oldest_first_and_noted_until_they_are_on_the_disk() {
        let mut kept = KeptInserts::new(100);
        assert_eq!((keep(&mut kept, 7, 40), keep(&mut kept, 5, 40)), (vec![], vec![]));
        let before = kept.confirmed();
        assert_eq!((keep(&mut kept, 9, 40), kept.size_bytes(), kept.first_id()), (vec![5], 80, Some(7)));
        assert_eq!((kept.durable(before - 1), kept.size_bytes()), (vec![7], 40));
        assert!(kept.take_dropped(), "5 was confirmed after that");
        assert!(!kept.take_dropped());
        assert_eq!((keep(&mut kept, 10, 200), kept.size_bytes(), kept.is_empty()), (vec![9, 10], 0, true));
        assert_eq!(kept.durable(kept.confirmed()), [0; 0]);
        assert!(!kept.take_dropped(), "all are on the disk");
    }

    #[test]
    fn inserts_that_are_taken_out_or_dropped_are_not_kept() {
        let mut kept = KeptInserts::new(100);
        keep(&mut kept, 1, 40);
        assert!(kept.contains(1));
        assert_eq!((kept.take_all().len(), kept.size_bytes(), kept.take_dropped()), (1, 0, false));
        keep(&mut kept, 2, 40);
        assert_eq!((kept.drop_all(), kept.is_empty(), kept.take_dropped()), (vec![2], true, true));
    }
}
