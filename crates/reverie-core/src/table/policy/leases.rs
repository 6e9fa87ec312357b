//! The leased draws of a table, and the state of their items.

use super::multiplicative_hasher::MultiplicativeHasher;
use crate::item::Key;
use crate::table::types::lessee::Lessee;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// The leased draws of a table.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub(super) by_key: HashMap<Key, ItemLeases, BuildHasherDefault<MultiplicativeHasher>>,
    /// Leased draws of present items and of used-up ones.
    pub(super) draws: u64,
    /// The draws among these of items that are gone: they count as made, because nothing can be drawn in their place.
    pub(super) removed: u64,
    /// Items that are used up: their slots are taken, and no selector has them.
    pub(super) used_up: u64,
}

/// The leased draws of one item.
#[derive(Debug, Default)]
pub(super) struct ItemLeases {
    /// The holder of each draw, and the item's age in nanoseconds at the draw, so that its count can be undone.
    pub(super) draws: SmallVec<[(Lessee, u64); 1]>,
    pub(super) item: LeasedItemState,
}

/// The state of a leased item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum LeasedItemState {
    /// In the table: it can still be drawn.
    #[default]
    Present,
    /// Used up: its slot keeps it, and it had these positions in sampler and remover.
    Out { slot: u32, sampled: u64, removed: u64 },
    /// Deleted or evicted meanwhile: it is not put back.
    Removed,
}

impl ItemLeases {
    pub(super) fn out(&self) -> Option<u32> {
        if let LeasedItemState::Out { slot, .. } = self.item { Some(slot) } else { None }
    }
}
