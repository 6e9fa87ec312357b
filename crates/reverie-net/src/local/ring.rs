//! The insert slot: a ring of shared memory that the client fills and the server empties.
//!
//! Positions grow without end; the place is the position modulo the size. A range never wraps around: if it does not
//! fit before the end, it begins at the start again. The server takes ranges in the order of the messages that name
//! them.

mod intake;
mod outlet;

pub(crate) use intake::Intake;
pub(crate) use outlet::{BulkPlacement, RingOutlet};

/// The smallest insert slot.
const SMALLEST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::intake::ReceivedBytes;
    use super::outlet::WARM;
    use super::*;
    use crate::bulk::{BulkSink, BulkSource};
    use crate::local::slots::Budget;
    use crate::proto::{Slot, SlotRange};
    use proptest::prelude::*;
    use reverie_core::Error;
    use std::collections::VecDeque;
    use std::mem::MaybeUninit;
    use std::sync::Arc;

    const SIZE: u64 = SMALLEST as u64;

    fn ends(size: u64) -> (Intake, RingOutlet) {
        let mut intake = Intake::new(size, Budget::new(u64::MAX));
        let (slot, fd) = intake.wanted(size).unwrap();
        (intake, RingOutlet::open(&slot, &fd.unwrap()).unwrap())
    }

    fn send(outlet: &mut RingOutlet, bytes: &[u8]) -> SlotRange {
        assert!(outlet.begin(bytes.len() as u64));
        outlet.put(bytes);
        match outlet.end() {
            BulkPlacement::Slot(range) => range,
            BulkPlacement::Spilled(_) => panic!("there was room"),
        }
    }

    fn copy(received: &ReceivedBytes<'_>) -> Vec<u8> {
        let mut bytes = vec![MaybeUninit::uninit(); received.len() as usize];
        received.copy_to(0, &mut bytes).to_vec()
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
        let BulkPlacement::Spilled(spilled) = outlet.end() else { panic!("it cannot fit") };
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
        let mut small = RingOutlet::open(&slot, &fd.unwrap()).unwrap();
        intake.bytes(&send(&mut small, b"a")).unwrap();
        let (slot, fd) = intake.wanted(SIZE + 1).unwrap();
        let mut large = RingOutlet::open(&slot, &fd.unwrap()).unwrap();
        assert_eq!((large.size_bytes(), budget.taken()), (2 * SIZE, 3 * SIZE));
        assert!(matches!(intake.wanted(1), Err(Error::Protocol(_))), "the one before is not used yet");
        let late = send(&mut small, b"late");
        assert_eq!(copy(&intake.bytes(&late).unwrap()), b"late");
        let range = send(&mut large, b"large");
        assert_eq!(copy(&intake.bytes(&range).unwrap()), b"large");
        assert_eq!(budget.taken(), 2 * SIZE);
        assert!(intake.bytes(&send(&mut small, b"too late")).is_err());
        large.consumed(late.slot, 1).unwrap();
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
