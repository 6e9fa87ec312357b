//! Draws that a program takes while their server turns out to have forgotten them.

use super::*;

fn of(request: u64) -> Lessee {
    Lessee { request, ..Lessee::HERE }
}

#[test]
fn a_batch_that_the_program_took_before_its_request_is_forgotten_stays_its_own_and_later_ones_do_not() {
    let outbox = Outbox::new("replay.test:8000");
    assert!(outbox.try_acknowledge(&of(1), &[]));
    outbox.return_draws(&of(2), &[]);
    assert_eq!(outbox.forget_leases(vec![1, 2, 3, 4]), [3, 4], "the others have ended here already");
    assert_eq!(
        [1, 2, 3].map(|request| outbox.lease_state(&of(request))),
        [LeaseState::Unknown, LeaseState::Unknown, LeaseState::Ended]
    );
    assert!(!outbox.try_acknowledge(&of(3), &[]));
    outbox.return_draws(&of(4), &[]);
    let mut left = QueuedWork::default();
    outbox.take(&mut left, TaskState::Busy);
    assert_eq!(left.leases_ended, [(1, true), (2, false)]);
}

#[test]
fn a_client_that_is_closed_hands_over_nothing() {
    let outbox = Outbox::new("replay.test:8000");
    outbox.end(ClientEnding::Now);
    assert_eq!(outbox.lease_state(&of(1)), LeaseState::Ended);
    assert!(!outbox.try_acknowledge(&of(1), &[]), "its server gives the draws to others");
}
