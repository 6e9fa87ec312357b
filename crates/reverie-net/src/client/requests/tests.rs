//! The requests that a client retries after a lost connection.

use super::*;
use crate::client::outbox::Outbox;
use proto::request::Body;
use reverie_core::table::{RequestHolder, Ticket};
use std::sync::Arc;

struct NothingToWithdraw;

impl RequestHolder<()> for NothingToWithdraw {
    fn withdraw(&self, _: u64) -> Option<()> {
        None
    }
}

fn push(requests: &mut Requests, id: u64, body: Body) -> Ticket<()> {
    let (ticket, promise) = Ticket::promised(Arc::new(NothingToWithdraw), id, false);
    let answer = RequestPromise::Done(promise);
    requests.push(
        NewRequest { id, body: Some(body), timeout: None, unawaited: false, leases: false, answer },
        Instant::now(),
    );
    ticket
}

#[test]
fn a_deletion_of_all_that_matches_is_not_done_again_by_a_server_that_has_forgotten_it() {
    let lender: Weak<Outbox> = Weak::new();
    let mut requests = Requests::new(Duration::ZERO, lender);
    let by_keys = proto::Delete { keys: Some(proto::Keys::default()), ..proto::Delete::default() };
    let smaller = proto::Configure { max_size: Some(1), ..proto::Configure::default() };
    let limits = Body::Configure(proto::Configure::default());
    let all = [Body::Reset("t".into()), Body::Delete(proto::Delete::default()), Body::Configure(smaller)];
    let bodies = all.into_iter().chain([Body::Delete(by_keys), limits]);
    let mut sent: Vec<_> = bodies.zip(1..).map(|(body, id)| push(&mut requests, id, body)).collect();
    while requests.next(Instant::now()).is_some() {}
    let mut later = push(&mut requests, 6, Body::Reset("t".into()));
    requests.lost();
    requests.server_restarted("a:1");
    for ticket in &mut sent[..3] {
        let error = ticket.poll().unwrap().unwrap_err();
        assert!(matches!(&error, Error::Undecided(text) if text.contains("not known whether that was done")));
    }
    assert!(sent[3].poll().is_none() && sent[4].poll().is_none() && later.poll().is_none());
    let again: Vec<u64> = std::iter::from_fn(|| requests.next(Instant::now())).map(|(one, _)| one.id).collect();
    assert_eq!(again, [4, 5, 6], "keys name what is deleted, and what was never sent was never done");
}

#[test]
fn behind_a_batch_that_arrives_a_request_for_draws_has_longer_until_that_has_ended() {
    let lender: Weak<Outbox> = Weak::new();
    let (grace, start) = (Duration::from_millis(50), Instant::now());
    let mut requests = Requests::new(grace, lender);
    let (mut ticket, promise) = Ticket::promised(Arc::new(NothingToWithdraw), 1, false);
    let timeout = Some(Duration::from_millis(100));
    let (body, answer) = (Some(Body::Sample(proto::Sample::default())), RequestPromise::Done(promise));
    requests.push(NewRequest { id: 1, body, timeout, unawaited: false, leases: true, answer }, start);
    let mut late = |requests: &mut Requests, now| {
        let _ = requests.expire(now, None, Duration::ZERO, |_, _| Error::Deadline("silent".to_owned()));
        ticket.poll().is_some()
    };
    requests.receiving(true);
    assert!(!late(&mut requests, start + Duration::from_secs(4)), "five seconds");
    assert!(requests.next_timer(None, Duration::ZERO).unwrap() > start + Duration::from_secs(5));
    requests.receiving(false);
    assert!(
        requests.next_timer(None, Duration::ZERO).unwrap() < start + Duration::from_secs(4),
        "it is looked at again"
    );
    assert!(late(&mut requests, start + Duration::from_secs(4)));
}
