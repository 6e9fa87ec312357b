//! The insert slot: a ring of shared memory that the client fills and the server empties.
//!
//! Positions grow without end; the place is the position modulo the size. A range never wraps around: if it does not
//! fit before the end, it begins at the start again. The server takes ranges in the order of the messages that name
//! them.

use super::slots::Budget;
use crate::bulk::{BulkIn, BulkOut};
use crate::mapping::Mapping;
use crate::proto::{Slot, SlotRange};
use bytes::Bytes;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The smallest insert slot.
const SMALLEST: usize = 1 << 20;
/// From this position on, an empty slot is used from its start again, where bytes are warm and pages are present.
const WARM: u64 = 512 << 10;

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
            return Err(Error::Protocol("an insert slot was asked for while another is not used yet".to_owned()));
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
    pub(crate) fn bytes(&mut self, range: &SlotRange) -> Result<Received<'_>> {
        if self.next.as_ref().is_some_and(|next| next.number == range.slot) {
            // Messages arrive in order: no later one names the previous slot.
            let before = std::mem::replace(&mut self.current, self.next.take());
            self.forget(before);
        }
        let wrong = || Error::Protocol(format!("bytes at {} of slot {} that cannot be there", range.start, range.slot));
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
        Ok(Received { mapping: &ring.mapping, offset: offset as usize, len: range.size_bytes })
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
pub(crate) struct Received<'a> {
    mapping: &'a Mapping,
    offset: usize,
    len: u64,
}

impl BulkIn for Received<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let fits = offset.checked_add(to.len() as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "{} bytes at {offset} of {}", to.len(), self.len);
        self.mapping.copy_out(self.offset + offset as usize, to)
    }
}

/// The client's end: takes the bytes of one message at a time.
#[derive(Debug)]
pub(crate) struct Outlet {
    number: u32,
    mapping: Mapping,
    /// The position where the next range may begin.
    end: u64,
    consumed: u64,
    /// The start, the room and the length of the current message's bytes.
    start: u64,
    room: u64,
    len: u64,
    /// All bytes of the message, if they turned out to be more than there was room for.
    spilled: Option<Vec<u8>>,
}

/// The place of a message's bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Placed {
    /// In the slot.
    Slot(SlotRange),
    /// They did not fit, and go inside the message.
    Spilled(Bytes),
}

impl Outlet {
    /// Maps the slot that the server gave. `Protocol` if it is not as described.
    pub(crate) fn open(slot: &Slot, fd: &OwnedFd) -> Result<Self> {
        let size = usize::try_from(slot.size_bytes)
            .map_err(|_| Error::Protocol(format!("an insert slot of {} bytes", slot.size_bytes)))?;
        let mapping = Mapping::open(fd, size)?;
        Ok(Self { number: slot.slot, mapping, end: 0, consumed: 0, start: 0, room: 0, len: 0, spilled: None })
    }

    /// The size of the slot.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// True if a range was put in.
    pub(crate) fn is_used(&self) -> bool {
        self.end > 0
    }

    /// Notes that the server has copied everything before `end`. `Protocol` if it cannot have.
    pub(crate) fn consumed(&mut self, number: u32, end: u64) -> Result<()> {
        if number != self.number {
            // The previous slot.
            return Ok(());
        }
        if end < self.consumed || end > self.end {
            return Err(Error::Protocol(format!("bytes before {end} were consumed, but {} were sent", self.end)));
        }
        self.consumed = end;
        Ok(())
    }

    /// Makes room for a message of about `size` bytes; drops bytes of a message that was not ended.
    /// False if there is no room until more is consumed, or never if the slot is too small.
    pub(crate) fn begin(&mut self, size: u64) -> bool {
        let all = self.size_bytes();
        let begins_again = all - self.end % all < size || (self.consumed == self.end && self.end % all >= WARM);
        let start = if begins_again { self.end.next_multiple_of(all) } else { self.end };
        let until = self.consumed_before(start) + all;
        (self.start, self.len, self.spilled) = (start, 0, None);
        self.room = (all - start % all).min(until.saturating_sub(start));
        self.room >= size
    }

    /// The consumed position when a range begins at `start`: in an empty ring, everything before it.
    fn consumed_before(&self, start: u64) -> u64 {
        if self.consumed == self.end { start } else { self.consumed }
    }

    /// Ends the message's bytes.
    pub(crate) fn end(&mut self) -> Placed {
        let len = std::mem::take(&mut self.len);
        if let Some(bytes) = self.spilled.take() {
            return Placed::Spilled(Bytes::from(bytes));
        }
        self.consumed = self.consumed_before(self.start);
        self.end = self.start + len;
        self.room -= len;
        Placed::Slot(SlotRange { slot: self.number, start: self.start, size_bytes: len })
    }

    fn offset(&self) -> usize {
        (self.start % self.size_bytes()) as usize
    }
}

impl BulkOut for Outlet {
    fn put(&mut self, bytes: &[u8]) {
        let more = bytes.len() as u64;
        if self.spilled.is_none() && self.len + more > self.room {
            // Chunks grow while they are encoded: bytes that were expected to fit may not.
            self.spilled = Some(self.mapping.read(self.offset(), self.len as usize));
        }
        match &mut self.spilled {
            Some(all) => all.extend_from_slice(bytes),
            None => self.mapping.copy_in(self.offset() + self.len as usize, bytes),
        }
        self.len += more;
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const SIZE: u64 = SMALLEST as u64;

    fn ends(size: u64) -> (Intake, Outlet) {
        let mut intake = Intake::new(size, Budget::new(u64::MAX));
        let (slot, fd) = intake.wanted(size).unwrap();
        (intake, Outlet::open(&slot, &fd.unwrap()).unwrap())
    }

    fn send(outlet: &mut Outlet, bytes: &[u8]) -> SlotRange {
        assert!(outlet.begin(bytes.len() as u64));
        outlet.put(bytes);
        match outlet.end() {
            Placed::Slot(range) => range,
            Placed::Spilled(_) => panic!("there was room"),
        }
    }

    fn copy(received: &Received<'_>) -> Vec<u8> {
        received.mapping.read(received.offset, received.len as usize)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_message_of_any_size_up_to_the_rings_arrives_as_it_was_sent_however_full_the_ring_is(
            sizes in prop::collection::vec(1usize..=SMALLEST, 1..40),
            lag in 0usize..4,
        ) {
            let (mut intake, mut outlet) = ends(SIZE);
            let mut in_flight = VecDeque::new();
            for (number, size) in sizes.into_iter().enumerate() {
                let bytes = vec![number as u8; size];
                while !outlet.begin(size as u64) {
                    let (range, sent): (SlotRange, Vec<u8>) = in_flight.pop_front().expect("an empty ring has room");
                    prop_assert!(copy(&intake.bytes(&range).unwrap()) == sent);
                    intake.consumed(&range);
                    outlet.consumed(range.slot, range.start + range.size_bytes).unwrap();
                }
                in_flight.push_back((send(&mut outlet, &bytes), bytes));
                if in_flight.len() > lag {
                    let (range, sent) = in_flight.pop_front().unwrap();
                    prop_assert!(copy(&intake.bytes(&range).unwrap()) == sent);
                    intake.consumed(&range);
                    outlet.consumed(range.slot, range.start + range.size_bytes).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_full_ring_has_room_only_after_the_server_consumed() {
        let (_intake, mut outlet) = ends(SIZE);
        let range = send(&mut outlet, &vec![1; SMALLEST]);
        assert!(!outlet.begin(1));
        outlet.consumed(range.slot, 10).unwrap();
        assert!(outlet.begin(10) && !outlet.begin(11));
    }

    #[test]
    fn an_empty_ring_is_begun_again_at_its_warm_start_and_one_with_bytes_in_it_is_not() {
        for (consumed, offset) in [(true, 0), (false, WARM)] {
            let (_intake, mut outlet) = ends(4 * SIZE);
            let first = send(&mut outlet, &vec![1; WARM as usize]);
            outlet.consumed(first.slot, if consumed { WARM } else { 0 }).unwrap();
            assert_eq!(send(&mut outlet, b"next").start % (4 * SIZE), offset);
        }
    }

    #[test]
    fn bytes_that_were_not_expected_leave_the_ring_as_it_was_and_go_within_the_message() {
        let (mut intake, mut outlet) = ends(SIZE);
        assert!(outlet.begin(10));
        outlet.put(b"some");
        outlet.put(&vec![b'x'; SMALLEST]);
        assert_eq!(outlet.len(), 4 + SIZE);
        let Placed::Spilled(spilled) = outlet.end() else { panic!("it cannot fit") };
        assert!(spilled.starts_with(b"somexxx") && spilled.len() == 4 + SMALLEST);
        let next = send(&mut outlet, b"next");
        assert_eq!(next.start, 0, "the place is used again");
        assert_eq!(copy(&intake.bytes(&next).unwrap()), b"next");
    }

    #[test]
    fn ranges_that_cannot_be_there_are_violations() {
        let range = |slot, start, size_bytes| SlotRange { slot, start, size_bytes };
        let lies = [
            range(2, 0, 1),
            range(1, 0, SIZE + 1),
            range(1, SIZE - 1, 2),
            range(1, 9, 1),
            range(1, u64::MAX, 1),
            range(1, u64::MAX - 1, u64::MAX),
            range(1, 5 * SIZE, 10),
            range(1, SIZE + 5, 10),
            range(1, SIZE, 1),
        ];
        for lie in lies {
            let (mut intake, mut outlet) = ends(SIZE);
            let first = send(&mut outlet, &[0; 10]);
            intake.bytes(&first).unwrap();
            assert!(matches!(intake.bytes(&lie), Err(Error::Protocol(_))), "{lie:?}");
        }
        let mut none = Intake::new(SIZE, Budget::new(u64::MAX));
        assert!(none.bytes(&range(0, 0, 0)).is_err() && none.bytes(&range(1, 0, 1)).is_err());
    }

    #[test]
    fn a_larger_slot_takes_over_once_it_is_used_and_its_predecessor_is_given_back() {
        let budget = Budget::new(u64::MAX);
        let mut intake = Intake::new(4 * SIZE, Arc::clone(&budget));
        let (slot, fd) = intake.wanted(1).unwrap();
        let mut small = Outlet::open(&slot, &fd.unwrap()).unwrap();
        intake.bytes(&send(&mut small, b"a")).unwrap();
        let (slot, fd) = intake.wanted(SIZE + 1).unwrap();
        let mut large = Outlet::open(&slot, &fd.unwrap()).unwrap();
        assert_eq!((large.size_bytes(), budget.taken()), (2 * SIZE, 3 * SIZE));
        assert!(matches!(intake.wanted(1), Err(Error::Protocol(_))), "the one before is not used yet");
        let late = send(&mut small, b"late");
        assert_eq!(copy(&intake.bytes(&late).unwrap()), b"late");
        let range = send(&mut large, b"large");
        assert_eq!(copy(&intake.bytes(&range).unwrap()), b"large");
        assert_eq!(budget.taken(), 2 * SIZE);
        assert!(intake.bytes(&send(&mut small, b"too late")).is_err());
        large.consumed(small.number, 1).unwrap();
        drop(intake);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn without_room_for_a_slot_there_is_none() {
        let full = Budget::new(SIZE - 1);
        assert_eq!(Intake::new(SIZE, Arc::clone(&full)).wanted(1).unwrap().0, Slot::default());
        assert_eq!(full.taken(), 0);
        let (slot, _fd) = Intake::new(SIZE, Budget::new(u64::MAX)).wanted(u64::MAX).unwrap();
        assert_eq!(slot.size_bytes, SIZE, "as much as one may have");
    }

    #[test]
    fn a_server_that_consumed_what_was_not_sent_breaks_the_protocol() {
        let (_intake, mut outlet) = ends(SIZE);
        let range = send(&mut outlet, b"ten bytes.");
        assert!(outlet.consumed(range.slot, 11).is_err());
        outlet.consumed(range.slot, 10).unwrap();
        assert!(outlet.consumed(range.slot, 9).is_err(), "not backwards");
    }

    #[test]
    #[should_panic(expected = "of 4")]
    fn no_byte_behind_a_range_is_read() {
        let (mut intake, mut outlet) = ends(SIZE);
        let range = send(&mut outlet, b"four");
        intake.bytes(&range).unwrap().copy_to(1, &mut [MaybeUninit::uninit(); 4]);
    }
}
