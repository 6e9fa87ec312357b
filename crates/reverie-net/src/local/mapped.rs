//! The client's batch slots: mapped when they are first named, lent to the owner of the batch.

use crate::mapping::Mapping;
use crate::proto::Slot;
use reverie_core::batch::Block;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A server that names more slots is not one of ours.
const MAX_SLOTS: usize = 4096;

/// Numbers of released slots, until they are sent to the server.
#[derive(Debug, Default)]
pub(crate) struct FreedSlots(Mutex<Vec<u32>>);

impl FreedSlots {
    /// Takes the numbers out.
    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, number: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }
}

#[derive(Debug)]
struct MappedSlot {
    mapping: Mapping,
    lent: AtomicBool,
}

/// The slots of one connection.
#[derive(Debug)]
pub(crate) struct MappedSlots {
    known: Vec<Option<Arc<MappedSlot>>>,
    freed: Arc<FreedSlots>,
}

/// A batch's slot.
/// Its memory belongs to this process while this lives, even after the connection; then the server may reuse it.
#[derive(Debug)]
struct HeldSlot {
    mapped: Arc<MappedSlot>,
    number: u32,
    freed: Arc<FreedSlots>,
}

impl MappedSlots {
    /// No slots yet.
    pub(crate) fn new(freed: Arc<FreedSlots>) -> Self {
        Self { known: Vec::new(), freed }
    }

    /// The memory of a batch of `size` bytes in this slot; `descriptor` is called if the slot is fresh.
    /// `Protocol`: a slot that is unknown, already lent, of another size than before, or not valid shared memory.
    pub(crate) fn hold(
        &mut self,
        slot: &Slot,
        size: u64,
        descriptor: impl FnOnce() -> Result<OwnedFd>,
    ) -> Result<Box<dyn Block>> {
        let wrong = |why: &str| Error::Protocol(format!("slot {} of {} bytes {why}", slot.slot, slot.size_bytes));
        let index = slot.slot as usize;
        if index >= MAX_SLOTS {
            return Err(wrong("exceeds the number of slots"));
        }
        if slot.fresh {
            if self.lent(index) {
                return Err(wrong("replaces one that is still in use"));
            }
            let len = usize::try_from(slot.size_bytes).map_err(|_| wrong("is too large for the address space"))?;
            let mapping = Mapping::open(&descriptor()?, len)?;
            self.known.resize_with(self.known.len().max(index + 1), || None);
            self.known[index] = Some(Arc::new(MappedSlot { mapping, lent: AtomicBool::new(false) }));
        }
        let mapped = self.known.get(index).cloned().flatten().ok_or_else(|| wrong("does not exist"))?;
        if mapped.mapping.len() as u64 != slot.size_bytes || size > slot.size_bytes {
            return Err(wrong("does not have the size that was announced or that its batch needs"));
        }
        if mapped.lent.swap(true, Ordering::Acquire) {
            return Err(wrong("is still in use"));
        }
        Ok(Box::new(HeldSlot { mapped, number: slot.slot, freed: Arc::clone(&self.freed) }))
    }

    fn lent(&self, index: usize) -> bool {
        self.known.get(index).and_then(Option::as_ref).is_some_and(|mapped| mapped.lent.load(Ordering::Acquire))
    }
}

impl Block for HeldSlot {
    fn as_ptr(&self) -> *mut u8 {
        self.mapped.mapping.as_ptr()
    }

    fn len(&self) -> usize {
        self.mapped.mapping.len()
    }

    fn copy_to(&self, start: usize, to: &mut [MaybeUninit<u8>]) {
        self.mapped.mapping.copy_out(start, to);
    }

    fn copied(&self, range: Range<usize>) -> Vec<u8> {
        self.mapped.mapping.read(range.start, range.len())
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.mapped.lent.store(false, Ordering::Release);
        self.freed.push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 16;

    fn slot(number: u32, size: usize, fresh: bool) -> Slot {
        Slot { slot: number, size_bytes: size as u64, fresh }
    }

    fn no_descriptor() -> Result<OwnedFd> {
        Err(Error::Protocol("a slot without a descriptor".to_owned()))
    }

    fn violates(outcome: Result<Box<dyn Block>>, why: &str) {
        match outcome {
            Err(Error::Protocol(text)) => assert!(text.contains(why), "{text}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("a slot was taken that {why}"),
        }
    }

    #[test]
    fn a_batch_is_read_in_place_and_its_slot_freed_once_when_the_last_holder_lets_go() {
        let freed = Arc::<FreedSlots>::default();
        let mut slots = MappedSlots::new(Arc::clone(&freed));
        let (server, fd) = Mapping::create(SIZE).unwrap();
        server.copy_in(0, b"batch");
        let held = Arc::new(slots.hold(&slot(3, SIZE, true), 5, || Ok(fd)).unwrap());
        assert_eq!((held.len(), held.as_ptr() as usize % 64), (SIZE, 0));
        let shared = Arc::clone(&held);
        drop(held);
        assert!(freed.take().is_empty(), "an array still shows it");
        drop(shared);
        assert_eq!(freed.take(), [3]);
        assert!(freed.take().is_empty());
        assert!(slots.hold(&slot(3, SIZE, false), 5, no_descriptor).is_ok(), "it is known now");
    }

    #[test]
    fn memory_that_a_holder_has_outlives_the_connection_and_the_server() {
        let mut slots = MappedSlots::new(Arc::default());
        let (server, fd) = Mapping::create(SIZE).unwrap();
        let theirs = Mapping::open(&fd, SIZE).unwrap();
        let held = slots.hold(&slot(0, SIZE, true), 5, || Ok(fd)).unwrap();
        drop((slots, server));
        theirs.copy_in(7, b"x");
        assert_eq!(held.len(), SIZE);
        drop(held);
    }

    #[test]
    fn a_server_that_lends_a_slot_twice_breaks_the_protocol() {
        let mut slots = MappedSlots::new(Arc::default());
        let (_server, fd) = Mapping::create(SIZE).unwrap();
        let (_other, other) = Mapping::create(SIZE).unwrap();
        let _held = slots.hold(&slot(0, SIZE, true), 1, || Ok(fd)).unwrap();
        violates(slots.hold(&slot(0, SIZE, false), 1, no_descriptor), "is still in use");
        violates(slots.hold(&slot(0, SIZE, true), 1, || Ok(other)), "replaces one that is still in use");
    }

    #[test]
    fn slots_that_were_never_given_or_have_another_size_break_the_protocol() {
        let mut slots = MappedSlots::new(Arc::default());
        violates(slots.hold(&slot(0, SIZE, false), 1, no_descriptor), "does not exist");
        violates(slots.hold(&slot(u32::MAX, SIZE, true), 1, no_descriptor), "exceeds the number of slots");
        violates(slots.hold(&slot(0, SIZE, true), 1, no_descriptor), "without a descriptor");
        let (_server, fd) = Mapping::create(SIZE).unwrap();
        let fd = || Ok(fd.try_clone().unwrap());
        violates(slots.hold(&slot(0, 2 * SIZE, true), 1, fd), "whose descriptor has");
        violates(slots.hold(&slot(0, SIZE, true), SIZE as u64 + 1, fd), "does not have the size");
        violates(slots.hold(&slot(0, SIZE / 2, false), 1, no_descriptor), "does not have the size");
        assert!(slots.hold(&slot(0, SIZE, false), SIZE as u64, no_descriptor).is_ok());
    }

    #[test]
    fn a_fresh_slot_replaces_a_known_one_of_its_number() {
        let mut slots = MappedSlots::new(Arc::default());
        for size in [SIZE, 2 * SIZE] {
            let (_server, fd) = Mapping::create(size).unwrap();
            assert_eq!(slots.hold(&slot(0, size, true), 1, || Ok(fd)).unwrap().len(), size);
        }
    }
}
