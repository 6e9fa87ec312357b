//! The outcomes of a session's requests, kept for as long as the client may ask again.

use super::samples::{DRAW_BYTES, DrawDelivery};
use crate::proto;
use prost::Message;
use reverie_core::table::{Arrivals, Keys, Lease};
use reverie_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Unreceived outcomes of a session at most: a client that never acknowledges must not fill the server.
pub(super) const MOST_REMEMBERED: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// The outcome of one request.
pub(super) enum RequestOutcome {
    /// The answer, as it was sent.
    Reply(Box<proto::Reply>),
    /// Leased draws that were sent: gathered again if the client asks again.
    Draws(Box<DrawDelivery>),
    /// Leased draws from before the server was restarted: undone if the client asks again.
    Held(Lease),
}

impl RequestOutcome {
    fn acknowledge(self) {
        match self {
            Self::Draws(answer) => answer.lease.acknowledge(),
            Self::Held(lease) => lease.acknowledge(),
            Self::Reply(_) => {}
        }
    }

    fn is_leased(&self) -> bool {
        matches!(self, Self::Draws(_) | Self::Held(_))
    }
}

/// Finished requests, by number, until the client reports that it received their outcomes.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The outcomes of all requests below were received.
    below: u64,
    /// The largest number seen.
    highest: u64,
    /// Inserts in runs of consecutive numbers, by the first number.
    inserts: BTreeMap<u64, ConsecutiveInserts>,
    others: BTreeMap<u64, (RequestOutcome, u64)>,
    len: usize,
    bytes: u64,
}

/// Inserts with consecutive numbers.
struct ConsecutiveInserts {
    /// `None` if received.
    keys: Vec<Option<Keys>>,
    bytes: u64,
    /// The number of keys that were not received.
    left: usize,
    /// The number of outcomes, from the front, that are known to be received.
    behind: usize,
}

/// The bytes of an outcome in addition to its content.
const OUTCOME_BYTES: u64 = 128;

impl RequestOutcome {
    fn size_bytes(&self) -> u64 {
        OUTCOME_BYTES
            + match self {
                Self::Reply(reply) => reply.encoded_len() as u64,
                Self::Draws(answer) => answer.held_bytes(),
                Self::Held(lease) => lease.len() as u64 * DRAW_BYTES,
            }
    }
}

/// The state of a request, looked up by its number.
pub(super) enum RequestStatus<'a> {
    /// The request is new, or waits.
    New,
    /// The outcome was received.
    Received,
    /// The keys of an insert.
    Keys(&'a Keys),
    /// Another outcome: see [`Outcomes::take`].
    Other,
}

impl Outcomes {
    /// The outcomes of a session from before the start of its server: inserts that are done, and leased draws by
    /// request.
    pub(super) fn restored(done: Arrivals, leases: Vec<(u64, Lease)>) -> Self {
        let mut outcomes = Self::default();
        let mut held = BTreeMap::<u64, Lease>::new();
        // A request may have drawn from several tables.
        leases.into_iter().for_each(|(id, lease)| held.entry(id).or_default().join(lease));
        for (id, lease) in held {
            outcomes.highest = outcomes.highest.max(id);
            outcomes.done(id, RequestOutcome::Held(lease));
        }
        for (id, keys) in done {
            outcomes.highest = outcomes.highest.max(id);
            outcomes.inserted(id, vec![keys]);
        }
        outcomes
    }

    /// Removes the entry of an insert that is in its table in part, and now continues. `Protocol` if the insert was
    /// confirmed together with others: those are whole, and what is sent again is something else.
    pub(super) fn resume_insert(&mut self, id: u64) -> Result<()> {
        match self.inserts.remove(&id) {
            Some(run) if run.keys.len() == 1 => {
                self.len -= run.left;
                self.bytes -= run.bytes;
                Ok(())
            }
            _ => Err(Error::Protocol(format!("the insert {id} was sent again with more items than before"))),
        }
    }

    /// Looks up a number, and notes that it was seen.
    pub(super) fn look_up(&mut self, id: u64) -> RequestStatus<'_> {
        if id > self.highest {
            self.highest = id;
            return RequestStatus::New;
        }
        if id < self.below {
            return RequestStatus::Received;
        }
        if let Some((first, run)) = self.inserts.range(..=id).next_back() {
            match run.keys.get((id - first) as usize) {
                Some(Some(keys)) => return RequestStatus::Keys(keys),
                Some(None) => return RequestStatus::Received,
                None => {}
            }
        }
        if self.others.contains_key(&id) { RequestStatus::Other } else { RequestStatus::New }
    }

    /// Stores the keys of requests `first`, `first + 1`, ..., which are in their tables.
    pub(super) fn inserted(&mut self, first: u64, keys: Vec<Keys>) {
        let left = keys.len();
        self.len += left;
        // Their table has them a second time, for its checkpoints.
        let own = |keys: &Keys| 2 * (size_of::<(u64, Option<Keys>)>() + size_of_val(&keys[..])) as u64;
        let bytes = OUTCOME_BYTES + keys.iter().map(own).sum::<u64>();
        self.bytes += bytes;
        self.inserts
            .insert(first, ConsecutiveInserts { keys: keys.into_iter().map(Some).collect(), bytes, left, behind: 0 });
    }

    /// Stores the outcome of a request.
    pub(super) fn done(&mut self, id: u64, outcome: RequestOutcome) {
        let bytes = outcome.size_bytes();
        self.bytes += bytes;
        match self.others.insert(id, (outcome, bytes)) {
            Some((_, before)) => self.bytes -= before,
            None => self.len += 1,
        }
    }

    /// Removes an outcome, to send it again.
    pub(super) fn take(&mut self, id: u64) -> Option<RequestOutcome> {
        let (outcome, bytes) = self.others.remove(&id)?;
        self.len -= 1;
        self.bytes -= bytes;
        Some(outcome)
    }

    /// True while draws wait for their acknowledgement.
    pub(super) fn has_leases(&self) -> bool {
        self.others.values().any(|(outcome, _)| outcome.is_leased())
    }

    /// Returns draws to their tables: the client will not ask for them again.
    pub(super) fn end_leases(&mut self) {
        self.others.retain(|_, (outcome, bytes)| {
            let leased = outcome.is_leased();
            if leased {
                self.len -= 1;
                self.bytes -= *bytes;
            }
            !leased
        });
    }

    /// Removes all outcomes below a number but those of `open`; leased draws among them are acknowledged.
    pub(super) fn received_but(&mut self, before: u64, open: &[u64]) {
        let open: BTreeSet<u64> = open.iter().copied().collect();
        let known = self.others.range(..before).map(|(id, _)| *id);
        let ids: Vec<u64> = known.filter(|id| !open.contains(id)).collect();
        self.received(0, &ids);
    }

    /// Removes the outcomes that the client received: those below a number, and these; leased draws among them are
    /// acknowledged.
    pub(super) fn received(&mut self, below: u64, ids: &[u64]) {
        if below > self.below {
            self.below = below;
            self.forget_below();
        }
        for id in ids {
            if let Some((outcome, bytes)) = self.others.remove(id) {
                self.len -= 1;
                self.bytes -= bytes;
                outcome.acknowledge();
            } else if let Some((first, run)) = self.inserts.range_mut(..=*id).next_back() {
                let first = *first;
                if run.keys.get_mut((id - first) as usize).is_some_and(|keys| keys.take().is_some()) {
                    self.len -= 1;
                    run.left -= 1;
                    if run.left == 0 {
                        self.bytes -= run.bytes;
                        self.inserts.remove(&first);
                    }
                }
            }
        }
    }

    fn forget_below(&mut self) {
        let rest = self.others.split_off(&self.below);
        let gone = std::mem::replace(&mut self.others, rest);
        self.len -= gone.len();
        for (outcome, bytes) in gone.into_values() {
            self.bytes -= bytes;
            outcome.acknowledge();
        }
        while let Some(mut run) = self.inserts.first_entry() {
            let (first, end) = (*run.key(), run.key() + run.get().keys.len() as u64);
            if first >= self.below {
                return;
            }
            let gone = (self.below.min(end) - first) as usize;
            let ConsecutiveInserts { keys, left, behind, .. } = run.get_mut();
            // Each is looked at once, also where they are received one by one.
            let received = keys[(*behind).min(gone)..gone].iter_mut().filter_map(Option::take).count();
            *behind = gone.max(*behind);
            self.len -= received;
            *left -= received;
            if end > self.below && *left > 0 {
                // Runs are looked up by their first number, so the run stays whole until its last request was received.
                return;
            }
            self.bytes -= run.remove().bytes;
        }
    }

    /// The bytes of the outcomes, and of the chunks that they keep.
    pub(super) fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of remembered outcomes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reverie_core::item::Key;

    fn keys(ids: std::ops::Range<u64>) -> Vec<Keys> {
        ids.map(|id| Keys::from_iter([Key::from(id as i64)])).collect()
    }

    fn key(outcomes: &mut Outcomes, id: u64) -> Option<i64> {
        match outcomes.look_up(id) {
            RequestStatus::Keys(keys) => Some(keys[0].get()),
            _ => None,
        }
    }

    #[test]
    fn an_outcome_is_known_until_it_was_received() {
        let mut outcomes = Outcomes::default();
        assert!((1..=20).all(|id| matches!(outcomes.look_up(id), RequestStatus::New)));
        outcomes.inserted(3, keys(3..8));
        outcomes.inserted(10, keys(10..12));
        outcomes.done(9, RequestOutcome::Reply(Box::default()));
        assert_eq!(
            (key(&mut outcomes, 3), key(&mut outcomes, 7), key(&mut outcomes, 11)),
            (Some(3), Some(7), Some(11))
        );
        assert!(
            matches!(outcomes.look_up(8), RequestStatus::New) && matches!(outcomes.look_up(12), RequestStatus::New)
        );
        assert!(matches!(outcomes.look_up(9), RequestStatus::Other));
        outcomes.received(5, &[9, 11]);
        assert!([1, 3, 4, 11].iter().all(|id| matches!(outcomes.look_up(*id), RequestStatus::Received)));
        assert_eq!((key(&mut outcomes, 5), key(&mut outcomes, 10), outcomes.len()), (Some(5), Some(10), 4));
        assert!(outcomes.size_bytes() > 0);
        outcomes.received(12, &[]);
        assert_eq!((outcomes.len(), outcomes.size_bytes()), (0, 0));
        assert!(outcomes.inserts.is_empty() && outcomes.others.is_empty());
    }

    #[test]
    fn all_but_the_open_ones_are_received_at_once() {
        let mut outcomes = Outcomes::default();
        (1..=9).for_each(|id| _ = outcomes.look_up(id));
        (2..=6).for_each(|id| outcomes.done(id, RequestOutcome::Reply(Box::default())));
        outcomes.received_but(6, &[3, 5]);
        let known = |outcomes: &mut Outcomes| {
            (1..=9).filter(|id| matches!(outcomes.look_up(*id), RequestStatus::Other)).collect::<Vec<_>>()
        };
        assert_eq!((known(&mut outcomes), outcomes.len()), (vec![3, 5, 6], 3));
    }

    #[test]
    fn an_insert_that_was_confirmed_with_others_cannot_continue() {
        let mut outcomes = Outcomes::default();
        assert!((1..=9).all(|id| matches!(outcomes.look_up(id), RequestStatus::New)));
        outcomes.inserted(3, keys(3..5));
        outcomes.inserted(7, keys(7..8));
        assert!([3, 4, 5].iter().all(|id| matches!(outcomes.resume_insert(*id), Err(Error::Protocol(_)))));
        outcomes.resume_insert(7).unwrap();
        assert!(matches!(outcomes.look_up(7), RequestStatus::New));
    }

    #[test]
    fn keys_that_are_received_one_by_one_are_looked_at_once() {
        let mut outcomes = Outcomes::default();
        (1..=100).for_each(|id| _ = outcomes.look_up(id));
        outcomes.inserted(1, keys(1..101));
        for below in 2..=100 {
            outcomes.received(below, &[]);
            assert_eq!((outcomes.inserts[&1].behind, outcomes.len()), (below as usize - 1, 101 - below as usize));
        }
        // The run does not look further back than where it was, and is removed with its last key.
        outcomes.received(101, &[]);
        assert_eq!((outcomes.inserts.len(), outcomes.len(), outcomes.size_bytes()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn runs_have_the_keys_of_a_plain_list(steps in prop::collection::vec((0_u8..4, 1_u64..40, 1_u64..9), 1..60)) {
            let (mut outcomes, mut model) = (Outcomes::default(), BTreeMap::<u64, ()>::new());
            let (mut next, mut below) = (1, 0);
            for (step, number, count) in steps {
                match step {
                    0 => {
                        // Every other run leaves a gap to the one before it.
                        next += number % 2;
                        (next..next + count).for_each(|id| _ = outcomes.look_up(id));
                        outcomes.inserted(next, keys(next..next + count));
                        model.extend((next..next + count).map(|id| (id, ())));
                        next += count;
                    }
                    1 => {
                        below = below.max(number.min(next));
                        outcomes.received(below, &[]);
                        model = model.split_off(&below);
                    }
                    _ => {
                        let ids = [number, number + count];
                        outcomes.received(0, &ids);
                        ids.iter().for_each(|id| _ = model.remove(id));
                    }
                }
                let known: Vec<u64> = (1..next).filter(|id| key(&mut outcomes, *id) == Some(*id as i64)).collect();
                prop_assert_eq!(&known, &model.keys().copied().collect::<Vec<_>>());
                prop_assert_eq!(outcomes.len(), model.len());
                prop_assert_eq!(outcomes.size_bytes() == 0, model.is_empty());
            }
        }
    }

    #[test]
    fn receiving_by_number_leaves_nothing_behind() {
        let mut outcomes = Outcomes::default();
        outcomes.inserted(1, keys(1..4));
        outcomes.received(0, &[2, 1, 3, 3, 77]);
        assert!(outcomes.inserts.is_empty());
        assert_eq!((outcomes.len(), outcomes.size_bytes()), (0, 0));
    }
}
