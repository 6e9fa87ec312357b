//! The holder's end of leased draws: they are returned when it is dropped, unless it was acknowledged.
//!
//! A server holds the leases of its tables until its clients have acknowledged; a client holds leases of its server
//! until the program has taken what was drawn.

use crate::item::Key;
use crate::table::Lessee;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Weak;

/// A table, or a client of a server, that leases draws.
pub trait Lender: Send + Sync {
    /// The draws of these keys reached their reader.
    fn acknowledge(&self, lessee: &Lessee, keys: &[Key]);

    /// The draws of these keys are about to be their reader's: as [`Lender::acknowledge`], unless they are back in
    /// their tables. False if they are: nothing is done then.
    fn try_acknowledge(&self, lessee: &Lessee, keys: &[Key]) -> bool;

    /// The draws of these keys did not reach their reader: they are undone.
    fn return_draws(&self, lessee: &Lessee, keys: &[Key]);

    /// The state of the lease: whether the draws are still those of this request.
    fn lease_state(&self, _: &Lessee) -> LeaseState {
        LeaseState::Held
    }
}

/// The state of a lease: whether leased draws may be given to their reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseState {
    /// The draws may be given to their reader.
    Held,
    /// There is no connection to the server, which returns them to their tables if it lasts.
    Unknown,
    /// The draws are back in their tables, and others may have them.
    Ended,
}

/// Consecutive draws of one table.
struct LeasedDraws {
    /// The table, or the client of its server.
    lender: Weak<dyn Lender>,
    /// The request that holds them.
    lessee: Lessee,
    keys: Vec<Key>,
    /// The position of the first among all draws of the request.
    start: usize,
}

/// Draws of tables that delete sampled items, not yet known to have reached their reader.
///
/// Dropping it undoes the draws: the items get their former places. A clone holds no draws.
#[derive(Default)]
pub struct Lease(SmallVec<[LeasedDraws; 1]>);

impl Lease {
    pub(crate) fn of(lender: &Weak<dyn Lender>, lessee: Lessee, keys: &[Key]) -> Self {
        let lent = || LeasedDraws { lender: Weak::clone(lender), lessee, keys: keys.to_vec(), start: 0 };
        Self(SmallVec::from_iter((!keys.is_empty()).then(lent)))
    }

    /// All draws of a request to a server, whose client identifies the request by its number alone.
    pub fn of_request(client: Weak<dyn Lender>, number: u64) -> Self {
        let lessee = Lessee { request: number, ..Lessee::HERE };
        Self(SmallVec::from_iter([LeasedDraws { lender: client, lessee, keys: Vec::new(), start: 0 }]))
    }

    /// The number of draws; zero for the requests of a client, which does not count them.
    pub fn len(&self) -> usize {
        self.0.iter().map(|lent| lent.keys.len()).sum()
    }

    /// True if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The draws are their reader's from now on: as [`Lease::acknowledge`], unless they are back in their tables.
    ///
    /// False if they are: the reader must not have them. If several tables lent, the answer of the first holds for all,
    /// and the draws of the others go back, too.
    pub fn try_acknowledge(mut self) -> bool {
        let Some(LeasedDraws { lender, lessee, keys, .. }) = self.0.first() else { return true };
        if !lender.upgrade().is_some_and(|lender| lender.try_acknowledge(lessee, keys)) {
            return false;
        }
        self.0.remove(0);
        self.acknowledge();
        true
    }

    /// The draws reached their reader: used-up items are removed for good.
    pub fn acknowledge(mut self) {
        for LeasedDraws { lender, lessee, keys, .. } in std::mem::take(&mut self.0) {
            if let Some(lender) = lender.upgrade() {
                lender.acknowledge(&lessee, &keys);
            }
        }
    }

    /// Undoes the draws at these positions among those of the request, and keeps the others, which move up.
    pub fn return_draws(&mut self, draws: Range<usize>) {
        // The latest draws go back first.
        for LeasedDraws { lender, lessee, keys, start } in self.0.iter_mut().rev() {
            let [from, to] = [draws.start, draws.end].map(|at| at.saturating_sub(*start).min(keys.len()));
            let back: Vec<Key> = keys.drain(from..to).collect();
            *start -= start.saturating_sub(draws.start).min(draws.len());
            if let (false, Some(lender)) = (back.is_empty(), lender.upgrade()) {
                lender.return_draws(lessee, &back);
            }
        }
        self.0.retain(|lent| !lent.keys.is_empty());
    }

    /// The state of the lease: whether all draws may be given to their reader.
    pub fn lease_state(&self) -> LeaseState {
        let lease_state = |lent: &LeasedDraws| {
            lent.lender.upgrade().map_or(LeaseState::Ended, |lender| lender.lease_state(&lent.lessee))
        };
        self.0.iter().map(lease_state).max().unwrap_or(LeaseState::Held)
    }

    /// Takes over the draws of another lease, behind those that it holds.
    pub fn join(&mut self, other: Self) {
        let after = self.len();
        self.join_behind(other, after);
    }

    /// Takes over the draws of another lease, which come behind this number of draws of the request.
    pub(crate) fn join_behind(&mut self, mut other: Self, after: usize) {
        other.0.iter_mut().for_each(|lent| lent.start += after);
        self.0.append(&mut other.0);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The latest draws go back first.
        for LeasedDraws { lender, lessee, keys, .. } in self.0.drain(..).rev() {
            if let Some(lender) = lender.upgrade() {
                lender.return_draws(&lessee, &keys);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, Mutex, lock};

    /// A table, and its draws that came back, in that order.
    #[derive(Default)]
    struct ReturnedDraws(Mutex<Vec<Key>>);

    impl Lender for ReturnedDraws {
        fn acknowledge(&self, _: &Lessee, _: &[Key]) {}

        fn try_acknowledge(&self, _: &Lessee, _: &[Key]) -> bool {
            true
        }

        fn return_draws(&self, _: &Lessee, keys: &[Key]) {
            lock(&self.0).extend_from_slice(keys);
        }
    }

    impl ReturnedDraws {
        fn take(&self) -> Vec<Key> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    fn lease(table: &Arc<ReturnedDraws>, keys: &[Key]) -> Lease {
        let lender: Weak<dyn Lender> = Arc::downgrade(table) as _;
        Lease::of(&lender, Lessee::HERE, keys)
    }

    #[test]
    fn draws_go_back_to_the_table_that_they_are_of_also_where_two_tables_have_the_same_keys() {
        let (first, second) = (Arc::new(ReturnedDraws::default()), Arc::new(ReturnedDraws::default()));
        let [a, b, c] = [1, 2, 3].map(|slot| Key::new(0, 1, slot));
        // Draws: a b c of the first table, two of a table that keeps its items, then a b c of the second.
        let mut all = lease(&first, &[a, b, c]);
        all.join_behind(lease(&second, &[a, b, c]), 5);
        all.return_draws(6..7);
        assert_eq!((first.take(), second.take(), all.len()), (vec![], vec![b], 5));
        // Now: a b c, two, a c.
        all.return_draws(2..6);
        assert_eq!((first.take(), second.take(), all.len()), (vec![c], vec![a], 3));
        // Now: a b, c.
        all.return_draws(2..3);
        assert_eq!((first.take(), second.take(), all.len()), (vec![], vec![c], 2));
        all.return_draws(0..1);
        drop(all);
        assert_eq!((first.take(), second.take()), (vec![a, b], vec![]));
    }
}
