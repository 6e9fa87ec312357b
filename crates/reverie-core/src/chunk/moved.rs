//! A chunk as the disk tier sees it.

use super::form::Form;
use super::tier::{Movable, Record, Stored};
use super::{Chunk, Storage};
use std::sync::Arc;

impl Movable for Chunk {
    fn is_packed(&self) -> bool {
        matches!(&self.storage, Storage::Packable(packable) if matches!(packable.form(), Form::Packed(_)))
    }

    fn take_used(&self) -> bool {
        matches!(&self.storage, Storage::Packable(packable) if packable.take_used())
    }

    fn stored(&self) -> Option<Arc<Stored>> {
        match &self.storage {
            Storage::Plain(_) => None,
            Storage::Packable(packable) => match packable.form() {
                Form::Stored(stored) => Some(stored),
                Form::Raw(_) | Form::Packed(_) => None,
            },
        }
    }

    fn record(&self, out: &mut Vec<u8>) -> Option<Record> {
        let Storage::Packable(packable) = &self.storage else { return None };
        match packable.form() {
            Form::Raw(slab) => Some(Record::of_slab(&slab, out)),
            Form::Packed(packed) => Some(Record::of_packed(&packed, |column| packable.layout.width(column), out)),
            Form::Stored(_) => None,
        }
    }

    fn store(&self, stored: Stored) {
        self.replace(Form::Stored(Arc::new(stored)));
    }
}

impl Chunk {
    /// Chunks on the disk in this order lie one behind the other; `None` in memory.
    pub(crate) fn place_on_disk(&self) -> Option<(u64, u64)> {
        self.stored().map(|stored| stored.order())
    }
}
