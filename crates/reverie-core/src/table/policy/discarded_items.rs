//! Items that left a table. The caller drops them after it releases the lock.

use super::slots::page::Cut;
use crate::chunk::Account;
use crate::item::Item;
use smallvec::SmallVec;
use std::sync::Arc;

/// Items that left. An insert into a full table drops one item, and does not allocate for it.
pub type RemovedItems = SmallVec<[Item; 2]>;

/// All items of a table before its reset. Dropping it releases their chunks.
///
/// That takes too long to do under the lock with a million items.
#[derive(Debug)]
pub struct DiscardedItems {
    pub(super) items: Cut,
    pub(super) account: Arc<Account>,
}

impl Drop for DiscardedItems {
    fn drop(&mut self) {
        for (_, slot, _) in self.items.iter() {
            for chunk in slot.item.iter().flat_map(Item::chunks) {
                chunk.table_unref(&self.account);
            }
        }
    }
}
