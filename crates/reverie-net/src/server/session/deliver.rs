//! The sending of draws, each when there is room for it.

use super::super::batches::SendOutcome;
use super::super::gathering::GatherTarget;
use super::super::session::Session;
use super::requests::refusal;
use crate::proto::server_message::Body;
use reverie_core::{Error, Result};

impl Session {
    /// Gathers and sends one batch of the first answer, or sends the error that ended it.
    pub(super) fn deliver(&mut self) {
        self.choose();
        let (Some(link), Some(answer)) = (&mut self.link, self.ready.front_mut()) else { return };
        if let Some(draws) = answer.groups.front() {
            let last = answer.groups.len() == 1 && answer.error.is_none();
            match link.deliver(&self.shared, answer, draws, last) {
                Ok(SendOutcome::Refused) => return,
                Ok(SendOutcome::OtherThread) => {
                    answer.by_thread = true;
                    return;
                }
                Ok(SendOutcome::Whole) => answer.first_was_sent(),
                Err(error) => answer.split_first(error),
            }
        }
        self.finish(0);
    }

    /// Sends a batch that a separate thread gathered.
    pub(super) fn gathered(&mut self, gathered: Result<GatherTarget>) {
        let Some((link, (planned, gathering))) =
            self.link.as_mut().and_then(|link| link.gathering.take().map(|gathering| (link, gathering)))
        else {
            return;
        };
        let Some(at) = self.ready.iter().position(|answer| answer.id == gathering.id) else { return };
        let answer = &mut self.ready[at];
        answer.by_thread = false;
        if let Some(draws) = answer.groups.front() {
            let last = answer.groups.len() == 1 && answer.error.is_none();
            match gathered {
                Ok(room) => {
                    let (slot, bytes) = room.give();
                    link.batches.announce(
                        &mut *link.connection,
                        (answer.id, &planned, draws),
                        slot,
                        bytes.into(),
                        (last, answer.is_leased()),
                    );
                    answer.first_was_sent();
                }
                Err(error) => answer.split_first(error),
            }
        }
        self.finish(at);
    }

    /// Ends an answered request whose caller no longer waits, if a thread gathers a batch for it or for one before it.
    /// Draws that are in no table any more are sent nevertheless.
    pub(super) fn withdraw_answer(&mut self, id: u64) {
        let Some(link) = self.link.as_mut().filter(|link| link.gathering.is_some()) else { return };
        let unplanned = usize::from(link.planned.is_some());
        let behind = self.ready.iter_mut().skip(unplanned);
        let Some(answer) = behind.into_iter().find(|answer| answer.id == id && !answer.is_leased()) else { return };
        answer.groups.clear();
        answer.error.get_or_insert_with(|| Error::Deadline("the batch was still being gathered".to_owned()));
        answer.by_thread = false;
        link.gathering.take_if(|(_, gathering)| gathering.id == id);
    }

    /// True if a batch can be gathered, or a refusal sent, now.
    /// A batch that waits for the thread that gathers another lets others go first.
    pub(super) fn has_deliverable(&self) -> bool {
        let gathering = self.link.as_ref().is_some_and(|link| link.gathering.is_some());
        self.ready.iter().any(|answer| !(gathering && answer.by_thread))
    }

    /// Moves the answer that is sent next to the front.
    fn choose(&mut self) {
        let Some(link) = self.link.as_ref().filter(|link| link.planned.is_none() && link.gathering.is_some()) else {
            return;
        };
        debug_assert!(link.waits_for_leave.is_none(), "it waits with a plan");
        if let Some(at) = self.ready.iter().position(|answer| !answer.by_thread).filter(|at| *at > 0)
            && let Some(answer) = self.ready.remove(at)
        {
            self.ready.push_front(answer);
        }
    }

    /// Removes an answer that was sent completely, and sends the error that ended it.
    fn finish(&mut self, at: usize) {
        if self.ready.get(at).is_none_or(|answer| !answer.groups.is_empty()) {
            return;
        }
        let Some(mut answer) = self.ready.remove(at) else { return };
        if let Some(stopwatch) = answer.stopwatch.take() {
            self.note_done(stopwatch, 1);
        }
        match &answer.error {
            None => self.spans.end(answer.id, None),
            Some(error) => {
                let reply = refusal(answer.id, error);
                self.end_span(&reply);
                match answer.has_sent {
                    true => self.send_behind(Body::Reply(reply)),
                    false => self.send(Body::Reply(reply)),
                }
            }
        }
        self.await_acknowledgement(answer);
    }
}
