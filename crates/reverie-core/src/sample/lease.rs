//! The holder's end of leased draws: they are returned when it is dropped, unless it was acknowledged.

use crate::item::Key;
use crate::table::Lessee;
use smallvec::SmallVec;
use std::sync::Weak;

/// A table that leases draws.
pub(crate) trait Lender: Send + Sync {
    /// The draws of these keys reached their client.
    fn acknowledge(&self, lessee: &Lessee, keys: &[Key]);

    /// The draws of these keys did not reach their client: they are undone.
    fn give_back(&self, lessee: &Lessee, keys: &[Key]);
}

/// The table that leased draws, the request that holds them, and their keys.
type Lent = (Weak<dyn Lender>, Lessee, Vec<Key>);

/// Draws of tables that delete sampled items, not yet known to have reached a client.
///
/// Dropping it undoes the draws: the items get their former places. A clone holds no draws.
#[derive(Default)]
pub struct Lease(SmallVec<[Lent; 1]>);

impl Lease {
    pub(crate) fn of(lender: &Weak<dyn Lender>, lessee: Lessee, keys: &[Key]) -> Self {
        Self(SmallVec::from_iter((!keys.is_empty()).then(|| (Weak::clone(lender), lessee, keys.to_vec()))))
    }

    /// The number of draws.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, _, keys)| keys.len()).sum()
    }

    /// True if it holds no draw.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The draws reached their client: used-up items are removed for good.
    pub fn acknowledge(mut self) {
        for (lender, lessee, keys) in std::mem::take(&mut self.0) {
            if let Some(lender) = lender.upgrade() {
                lender.acknowledge(&lessee, &keys);
            }
        }
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
