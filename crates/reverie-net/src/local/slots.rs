//! The server's batch slots of one connection: batches are gathered into them and read in place.
//!
//! A slot is free, being written, or lent. Free slots are reused, the last freed first, while its lines are still in
//! the cache. All of them end with the connection; if a client still has one mapped, the client keeps the memory, not
//! the server.

use crate::mapping::{HUGE_PAGE, Mapping};
use crate::proto::Slot;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The smallest slot.
const SMALLEST: usize = 64 << 10;
/// Slots of one connection at most: each is an entry in the system's tables.
const MAX_SLOTS: usize = 256;

/// The bytes of shared memory that all connections together may use.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    taken: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicU64::new(0) })
    }

    /// Takes this many bytes, or none.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn give(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes in use.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// A slot's memory, counted in the budget.
#[derive(Debug)]
struct Memory {
    mapping: Mapping,
    budget: Arc<Budget>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.budget.give(self.mapping.len() as u64);
    }
}

#[derive(Debug)]
enum SlotsState {
    /// The number of the slot can be reused.
    Retired,
    /// The slot is not in use.
    Free(Memory),
    /// Being written in this process.
    Taken,
    /// The client reads it.
    Lent(Memory),
}

#[derive(Debug)]
struct SlotEntry {
    state: SlotsState,
    /// The size of the slot in bytes, also while it is taken.
    size: usize,
    /// The descriptor, until the client was given it.
    descriptor: Option<OwnedFd>,
}

#[derive(Debug)]
struct SlotEntries {
    entries: Vec<SlotEntry>,
    /// Numbers of the free slots; the last freed is at the end.
    free: Vec<u32>,
    size_bytes: u64,
}

/// The slots of one connection.
#[derive(Debug)]
pub(crate) struct ServerSlots {
    /// Held for lookups, or for creating one mapping; never while bytes are copied.
    inner: Mutex<SlotEntries>,
    limit: u64,
    budget: Arc<Budget>,
    /// Bytes of the slots that the client reads.
    lent: AtomicU64,
}

/// A slot that is being written. If it is dropped and not given, it is free again.
#[derive(Debug)]
pub(crate) struct Lease {
    slots: Arc<ServerSlots>,
    number: u32,
    size: usize,
    memory: Option<Memory>,
}

impl ServerSlots {
    /// No slots yet; at most `limit` bytes of them, and the budget's for all connections.
    pub(crate) fn new(limit: u64, budget: Arc<Budget>) -> Arc<Self> {
        let inner = SlotEntries { entries: Vec::new(), free: Vec::new(), size_bytes: 0 };
        Arc::new(Self { inner: Mutex::new(inner), limit, budget, lent: AtomicU64::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, SlotEntries> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot of at least `size` bytes, to be written; `None` if the bounds or the system allow no more.
    pub(crate) fn take(self: &Arc<Self>, size: usize) -> Option<Lease> {
        let mut inner = self.lock();
        let (number, memory) = match inner.take_free(size) {
            Some(found) => found,
            None => self.make(&mut inner, rounded(size)?)?,
        };
        Some(Lease { slots: Arc::clone(self), number, size, memory: Some(memory) })
    }

    fn make(&self, inner: &mut SlotEntries, size: usize) -> Option<(u32, Memory)> {
        let bytes = size as u64;
        while inner.size_bytes + bytes > self.limit || inner.live() >= MAX_SLOTS || !self.budget.take(bytes) {
            // Free slots of other sizes use up the room. The peer's mapping of them keeps no memory.
            let oldest = (!inner.free.is_empty() && bytes <= self.limit).then(|| inner.free.remove(0))?;
            inner.retire(oldest);
        }
        let Ok((mapping, descriptor)) = Mapping::create(size) else {
            self.budget.give(bytes);
            return None;
        };
        let memory = Memory { mapping, budget: Arc::clone(&self.budget) };
        let entry = SlotEntry { state: SlotsState::Taken, size, descriptor: Some(descriptor) };
        inner.size_bytes += bytes;
        let retired = inner.entries.iter().position(|entry| matches!(entry.state, SlotsState::Retired));
        let number = retired.unwrap_or(inner.entries.len());
        match retired {
            Some(number) => inner.entries[number] = entry,
            None => inner.entries.push(entry),
        }
        Some((number as u32, memory))
    }

    /// Takes back a slot that the client released. `Protocol` if it was not lent.
    pub(crate) fn freed(&self, number: u32) -> Result<()> {
        let mut inner = self.lock();
        let entry = inner.entries.get_mut(number as usize).filter(|entry| matches!(entry.state, SlotsState::Lent(_)));
        let Some(entry) = entry else {
            return Err(Error::Protocol(format!("slot {number} was freed, but is not in use")));
        };
        self.lent.fetch_sub(entry.size as u64, Ordering::Relaxed);
        if let SlotsState::Lent(memory) = std::mem::replace(&mut entry.state, SlotsState::Retired) {
            entry.state = SlotsState::Free(memory);
            inner.free.push(number);
        }
        Ok(())
    }

    /// The descriptor of a slot, at its first use.
    pub(crate) fn descriptor(&self, number: u32) -> Option<OwnedFd> {
        self.lock().entries.get_mut(number as usize)?.descriptor.take()
    }

    /// Bytes of the slots that the client reads.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Bytes of all slots of the connection.
    #[cfg(test)]
    pub(crate) fn size_bytes(&self) -> u64 {
        self.lock().size_bytes
    }
}

impl SlotEntries {
    fn live(&self) -> usize {
        self.entries.iter().filter(|entry| !matches!(entry.state, SlotsState::Retired)).count()
    }

    /// The smallest free slot with enough room; among equals, the last freed.
    fn take_free(&mut self, size: usize) -> Option<(u32, Memory)> {
        let size_of = |number: &u32| self.entries[*number as usize].size;
        let fitting = self.free.iter().enumerate().rev().filter(|(_, number)| size_of(number) >= size);
        let (index, _) = fitting.min_by_key(|(_, number)| size_of(number))?;
        let number = self.free.remove(index);
        match std::mem::replace(&mut self.entries[number as usize].state, SlotsState::Taken) {
            SlotsState::Free(memory) => Some((number, memory)),
            _ => unreachable!("slot {number} is in the list of free ones"),
        }
    }

    fn retire(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        self.size_bytes -= entry.size as u64;
        if let SlotsState::Free(mut memory) = std::mem::replace(&mut entry.state, SlotsState::Retired) {
            memory.mapping.discard();
        }
    }
}

impl Lease {
    /// The memory, of the requested size.
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        match &mut self.memory {
            Some(memory) => &mut memory.mapping.as_uninit()[..self.size],
            None => &mut [],
        }
    }

    /// Lends the slot to the client.
    pub(crate) fn give(mut self) -> Slot {
        let mut inner = self.slots.lock();
        let entry = &mut inner.entries[self.number as usize];
        if let Some(memory) = self.memory.take() {
            entry.state = SlotsState::Lent(memory);
            self.slots.lent.fetch_add(entry.size as u64, Ordering::Relaxed);
        }
        Slot { slot: self.number, size_bytes: entry.size as u64, fresh: entry.descriptor.is_some() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let mut inner = self.slots.lock();
            inner.entries[self.number as usize].state = SlotsState::Free(memory);
            inner.free.push(self.number);
        }
    }
}

/// The size of a slot for a batch: a power of two, or whole huge pages for large sizes.
fn rounded(size: usize) -> Option<usize> {
    match size {
        0..SMALLEST => Some(SMALLEST),
        SMALLEST..HUGE_PAGE => Some(size.next_power_of_two()),
        _ => size.checked_next_multiple_of(HUGE_PAGE).filter(|size| isize::try_from(*size).is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = SMALLEST;

    fn slots(limit: usize, total: u64) -> (Arc<ServerSlots>, Arc<Budget>) {
        let budget = Budget::new(total);
        (ServerSlots::new(limit as u64, Arc::clone(&budget)), budget)
    }

    #[test]
    fn the_slot_that_was_freed_last_is_lent_first_and_its_descriptor_goes_once() {
        let (slots, _) = slots(8 * SIZE, u64::MAX);
        let [first, second] = [0; 2].map(|_| slots.take(1000).unwrap()).map(Lease::give);
        assert_eq!((first.slot, second.slot, first.fresh, second.fresh), (0, 1, true, true));
        assert!(slots.descriptor(0).is_some() && slots.descriptor(0).is_none());
        slots.freed(1).unwrap();
        slots.freed(0).unwrap();
        let again = slots.take(1000).unwrap().give();
        assert_eq!((again.slot, again.fresh), (0, false));
        assert!(slots.take(1000).unwrap().give().fresh, "the client has not received it yet");
    }

    #[test]
    fn a_lease_has_the_bytes_asked_for_and_dropped_ungiven_is_free_again() {
        let (slots, _) = slots(SIZE, u64::MAX);
        let mut lease = slots.take(1000).unwrap();
        assert_eq!(lease.bytes().len(), 1000);
        assert!(slots.take(1).is_none(), "the only one is being written");
        drop(lease);
        assert_eq!(slots.take(SIZE).unwrap().give().slot, 0);
        assert!(slots.take(1).is_none(), "the only one is lent");
    }

    #[test]
    fn a_slot_that_was_not_lent_cannot_be_freed() {
        let (slots, _) = slots(8 * SIZE, u64::MAX);
        assert!(matches!(slots.freed(0), Err(Error::Protocol(_))), "there is none");
        let lease = slots.take(1).unwrap();
        assert!(matches!(slots.freed(0), Err(Error::Protocol(_))), "it is being written");
        lease.give();
        slots.freed(0).unwrap();
        assert!(matches!(slots.freed(0), Err(Error::Protocol(_))), "it was freed already");
        assert!(slots.freed(u32::MAX).is_err());
    }

    #[test]
    fn slots_stay_within_the_bounds_of_the_connection_and_of_all() {
        let budget = Budget::new(3 * SIZE as u64);
        let (one, other) =
            (ServerSlots::new(2 * SIZE as u64, budget.clone()), ServerSlots::new(2 * SIZE as u64, budget.clone()));
        let held = [one.take(SIZE), one.take(SIZE), one.take(SIZE)];
        assert_eq!(held.iter().flatten().count(), 2);
        let more = [other.take(SIZE), other.take(SIZE)];
        assert_eq!(more.iter().flatten().count(), 1);
        assert!(other.take(3 * SIZE).is_none(), "larger than the bound");
        assert_eq!(budget.taken(), 3 * SIZE as u64);
        drop((held, more, one, other));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn free_slots_make_way_for_one_of_another_size() {
        let (slots, budget) = slots(4 * SIZE, u64::MAX);
        let lent = [0; 4].map(|_| slots.take(SIZE).unwrap()).map(|lease| lease.give().slot);
        lent.into_iter().for_each(|number| slots.freed(number).unwrap());
        let large = slots.take(3 * SIZE).unwrap().give();
        assert_eq!((large.size_bytes, large.fresh), (4 * SIZE as u64, true));
        assert_eq!((slots.size_bytes(), budget.taken()), (4 * SIZE as u64, 4 * SIZE as u64));
        assert!(slots.freed(large.slot).is_ok());
        assert!(slots.take(usize::MAX).is_none());
    }

    #[test]
    fn a_lease_outlives_the_connection_that_it_was_for() {
        let (slots, budget) = slots(SIZE, u64::MAX);
        let mut lease = slots.take(10).unwrap();
        drop(slots);
        lease.bytes()[9].write(1);
        drop(lease);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn sizes_are_rounded_to_what_serves_the_next_batch_too() {
        let cases = [(0, SMALLEST), (SMALLEST + 1, 2 * SMALLEST), (HUGE_PAGE - 1, HUGE_PAGE), (HUGE_PAGE, HUGE_PAGE)];
        cases.into_iter().for_each(|(size, want)| assert_eq!(rounded(size), Some(want)));
        assert_eq!(rounded(5 * HUGE_PAGE / 2), Some(3 * HUGE_PAGE));
        assert_eq!(rounded(usize::MAX), None);
    }
}
