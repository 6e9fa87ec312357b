//! The holder's end of leased draws: they are returned when it is dropped, unless it was acknowledged.
//!
//! A server holds the leases of its tables until its clients have acknowledged; a client holds leases of its server
//! until the program has taken what was drawn.

use crate::item::Key;
use crate::table::Lessee;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Weak;

/// A table, or a client of a server, that leases draws.
pub trait Lender: Send + Sync {
    /// The draws of these keys reached their reader.
    fn acknowledge(&self, lessee: &Lessee, keys: &[Key]);

    /// The draws of these keys did not reach their reader: they are undone.
    fn give_back(&self, lessee: &Lessee, keys: &[Key]);

    /// Whether the draws are still those of this request.
    fn tenure(&self, _: &Lessee) -> Tenure {
        Tenure::Held
    }
}

/// Whether leased draws may be given to their reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tenure {
    /// They may.
    Held,
    /// There is no connection to the server, which returns them to their tables if it lasts.
    Unknown,
    /// They are back in their tables, and others may have them.
    Ended,
}

/// The table that leased draws, the request that holds them, and their keys.
type Lent = (Weak<dyn Lender>, Lessee, Vec<Key>);

/// Draws of tables that delete sampled items, not yet known to have reached their reader.
///
/// Dropping it undoes the draws: the items get their former places. A clone holds no draws.
#[derive(Default)]
pub struct Lease(SmallVec<[Lent; 1]>);

impl Lease {
    pub(crate) fn of(lender: &Weak<dyn Lender>, lessee: Lessee, keys: &[Key]) -> Self {
        Self(SmallVec::from_iter((!keys.is_empty()).then(|| (Weak::clone(lender), lessee, keys.to_vec()))))
    }

    /// All draws of a request to a server, whose client knows the request by its number alone.
    pub fn of_request(client: Weak<dyn Lender>, number: u64) -> Self {
        Self(SmallVec::from_iter([(client, Lessee { request: number, ..Lessee::HERE }, Vec::new())]))
    }

    /// The number of draws; zero for the requests of a client, which does not count them.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, _, keys)| keys.len()).sum()
    }

    /// True if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The draws reached their reader: used-up items are removed for good.
    pub fn acknowledge(mut self) {
        for (lender, lessee, keys) in std::mem::take(&mut self.0) {
            if let Some(lender) = lender.upgrade() {
                lender.acknowledge(&lessee, &keys);
            }
        }
    }

    /// Undoes the draws of these keys, and keeps the others. Of draws of several tables, whose keys may be the same, it can
    /// undo all or none: false if it undid none.
    pub fn give_back(&mut self, keys: &[Key]) -> bool {
        let [(lender, lessee, held)] = &mut self.0[..] else { return false };
        let mut wanted: HashMap<Key, usize> = HashMap::new();
        keys.iter().for_each(|key| *wanted.entry(*key).or_default() += 1);
        // The latest draws of an item go back.
        let (mut back, mut kept) = (Vec::new(), Vec::new());
        for key in held.drain(..).rev() {
            match wanted.get_mut(&key).filter(|count| **count > 0) {
                Some(count) => {
                    *count -= 1;
                    back.push(key);
                }
                None => kept.push(key),
            }
        }
        (back, *held) = (back.into_iter().rev().collect(), kept.into_iter().rev().collect());
        if let Some(lender) = lender.upgrade() {
            lender.give_back(lessee, &back);
        }
        if held.is_empty() {
            self.0.clear();
        }
        true
    }

    /// Whether all draws may be given to their reader.
    pub fn tenure(&self) -> Tenure {
        let each = self
            .0
            .iter()
            .map(|(lender, lessee, _)| lender.upgrade().map_or(Tenure::Ended, |lender| lender.tenure(lessee)));
        each.max().unwrap_or(Tenure::Held)
    }

    /// Takes over the draws of another lease.
    pub fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The latest draws go back first.
        for (lender, lessee, keys) in self.0.drain(..).rev() {
            if let Some(lender) = lender.upgrade() {
                lender.give_back(&lessee, &keys);
            }
        }
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({} draws)", self.len())
    }
}
