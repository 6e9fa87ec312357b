//! The holder's end of leased draws: returned when it is dropped, unless it was acknowledged.

use crate::item::Key;
use crate::sample::Draws;
use crate::table::shared::SharedTable;
use smallvec::SmallVec;
use std::sync::Weak;

/// Draws of tables that delete sampled items, of which it is open whether they reach anybody. Dropped, it undoes them:
/// the items take the places that they had. A copy holds nothing.
#[derive(Default)]
pub struct Lease(SmallVec<[(Weak<SharedTable>, Vec<Key>); 1]>);

impl Lease {
    pub(in crate::table) fn of(table: &Weak<SharedTable>, draws: &Draws) -> Self {
        Self(SmallVec::from_iter((!draws.is_empty()).then(|| (Weak::clone(table), draws.keys.clone()))))
    }

    /// True where it holds no draw.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The draws reached their client: used-up items leave for good.
    pub fn acknowledge(mut self) {
        for (table, keys) in std::mem::take(&mut self.0) {
            if let Some(table) = table.upgrade() {
                table.acknowledge(&keys);
            }
        }
    }

    /// Takes over what another holds.
    pub fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The draws made last go back first.
        for (table, keys) in self.0.drain(..).rev() {
            if let Some(table) = table.upgrade() {
                table.give_back(&keys);
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
        write!(f, "Lease({} draws)", self.0.iter().map(|(_, keys)| keys.len()).sum::<usize>())
    }
}
