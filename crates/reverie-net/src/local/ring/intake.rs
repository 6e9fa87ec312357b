//! The server's end of an insert slot.

use super::super::slots::Budget;
use super::SMALLEST;
use crate::bulk::BulkSource;
use crate::mapping::Mapping;
use crate::proto::{Slot, SlotRange};
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The server's end.
#[derive(Debug)]
pub(crate) struct Intake {
    current: Option<Ring>,
    /// Given to the client, and not used yet.
    next: Option<Ring>,
    numbers: u32,
    limit: u64,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Ring {
    number: u32,
    mapping: Mapping,
    /// The end of the last range.
    end: u64,
    /// The position up to which bytes were copied out.
    consumed: u64,
}

impl Intake {
    /// No slot yet; each has at most `limit` bytes, counted in the budget.
    pub(crate) fn new(limit: u64, budget: Arc<Budget>) -> Self {
        Self { current: None, next: None, numbers: 0, limit, budget }
    }

    /// Makes a slot for the client, of the requested size or less.
    /// It has no bytes if there is no room, and the client's inserts then go inside their messages. `Protocol` if the
    /// client has not used the previous slot.
    pub(crate) fn wanted(&mut self, size: u64) -> Result<(Slot, Option<OwnedFd>)> {
        if self.next.is_some() {
            return Err(Error::Protocol("an insert slot was requested while another one is still unused".to_owned()));
        }
        let size = size.min(self.limit).max(SMALLEST as u64).checked_next_power_of_two().unwrap_or(u64::MAX);
        let none = (Slot::default(), None);
        if size > self.limit || !self.budget.take(size) {
            return Ok(none);
        }
        let Some((mapping, fd)) = usize::try_from(size).ok().and_then(|size| Mapping::create(size).ok()) else {
            self.budget.give(size);
            return Ok(none);
        };
        self.numbers += 1;
        self.next = Some(Ring { number: self.numbers, mapping, end: 0, consumed: 0 });
        Ok((Slot { slot: self.numbers, size_bytes: size, fresh: true }, Some(fd)))
    }

    /// The bytes of a range. `Protocol` if the range is invalid.
    pub(crate) fn bytes(&mut self, range: &SlotRange) -> Result<ReceivedBytes<'_>> {
        if self.next.as_ref().is_some_and(|next| next.number == range.slot) {
            // Messages arrive in order: no later one names the previous slot.
            let before = std::mem::replace(&mut self.current, self.next.take());
            self.forget(before);
        }
        let wrong = || Error::Protocol(format!("bytes at {} of slot {} are outside the slot", range.start, range.slot));
        let ring = self.current.as_mut().filter(|ring| ring.number == range.slot).ok_or_else(wrong)?;
        let size = ring.mapping.len() as u64;
        let end = range.start.checked_add(range.size_bytes).ok_or_else(wrong)?;
        let offset = range.start % size;
        let whole = range.size_bytes <= size - offset;
        // In an empty ring the bytes skipped before the range are unused.
        let consumed = if ring.consumed == ring.end { range.start } else { ring.consumed };
        if range.start < ring.end || end.saturating_sub(consumed) > size || !whole {
            return Err(wrong());
        }
        (ring.consumed, ring.end) = (consumed, end);
        Ok(ReceivedBytes { mapping: &ring.mapping, offset: offset as usize, len: range.size_bytes })
    }

    /// Notes that all ranges up to this one were copied; the position may be sent to the client.
    pub(crate) fn consumed(&mut self, range: &SlotRange) {
        if let Some(ring) = self.current.as_mut().filter(|ring| ring.number == range.slot) {
            ring.consumed = ring.end.min(range.start.saturating_add(range.size_bytes)).max(ring.consumed);
        }
    }

    fn forget(&self, ring: Option<Ring>) {
        if let Some(ring) = ring {
            self.budget.give(ring.mapping.len() as u64);
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let rings = [self.current.take(), self.next.take()];
        rings.into_iter().for_each(|ring| self.forget(ring));
    }
}

/// Bytes in the server's mapping of an insert slot.
#[derive(Debug)]
pub(crate) struct ReceivedBytes<'a> {
    mapping: &'a Mapping,
    offset: usize,
    len: u64,
}

impl BulkSource for ReceivedBytes<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let fits = offset.checked_add(to.len() as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "{} bytes at {offset} of {}", to.len(), self.len);
        self.mapping.copy_out(self.offset + offset as usize, to)
    }
}
