//! What left a table, for the caller to drop where no lock is held.

use super::slots::page::Cut;
use crate::chunk::Account;
use crate::item::Item;
use smallvec::SmallVec;
use std::sync::Arc;

/// Items that left; an insert into a full table drops one, and allocates nothing for it.
pub type Dropped = SmallVec<[Item; 2]>;

/// All items of a table before its reset. Dropping it lets go of their chunks: at a million items that is not for the
/// lock.
#[derive(Debug)]
pub struct Emptied {
    pub(super) items: Cut,
    pub(super) account: Arc<Account>,
}

impl Drop for Emptied {
    fn drop(&mut self) {
        for (_, slot, _) in self.items.iter() {
            for chunk in slot.item.iter().flat_map(Item::chunks) {
                chunk.table_unref(&self.account);
            }
        }
    }
}
