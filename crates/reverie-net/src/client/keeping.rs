//! The inserts that are confirmed and may not be on the server's disk; see [`KeptInserts`](super::kept_inserts).

use super::answer::RequestPromise;
use super::engine::Engine;
use super::outbox::ClientEnding;
use super::work::Handling;
use crate::proto;
use reverie_core::{Error, Result};

impl Engine {
    /// Asks whether the kept inserts are on the server's disk, and releases those that are.
    pub(super) fn ask_for_the_disk(&mut self) {
        if let Some((up_to, outcome)) =
            self.question.as_mut().and_then(|(up_to, ticket)| Some((*up_to, ticket.poll()?)))
        {
            self.question = None;
            match outcome {
                Ok(()) => {
                    let released = self.kept.durable(up_to);
                    self.answered.extend(released.into_iter().map(|id| (id, 1)));
                }
                // Its journal has stopped: nothing more gets to the disk there.
                Err(_) => self.keeps = false,
            }
            self.outbox.set_kept(self.kept.size_bytes());
        }
        if self.keeps && self.question.is_none() && self.kept.needs_query() && self.ending == ClientEnding::No {
            let body = proto::request::Body::Durable(proto::Durable { later: true });
            let handling = Handling { unawaited: true, ..Handling::default() };
            let ticket = self.outbox.request(Some(body), None, handling, RequestPromise::Own);
            self.question = Some((self.kept.confirmed(), ticket));
        }
    }

    /// Handles the confirmation of inserts.
    pub(super) fn inserted(&mut self, inserted: proto::Inserted) -> Result<()> {
        let (first, count) = (inserted.first_id, u64::from(inserted.requests));
        let dropped = self.inserts.inserted(inserted, self.keeps.then_some(&mut self.kept))?;
        if self.keeps {
            let kept = &self.kept;
            let rest = (first..first.saturating_add(count)).filter(|id| !kept.contains(*id));
            self.answered.extend(rest.chain(dropped).map(|id| (id, 1)));
            self.outbox.set_kept(self.kept.size_bytes());
        } else {
            self.answered.push((first, count));
        }
        self.release_requests();
        Ok(())
    }

    /// Sends the requests that waited until the inserts that an earlier server confirmed are confirmed again.
    pub(super) fn release_requests(&mut self) {
        if self.requests.holds() && self.inserts.again() == 0 {
            self.requests.release();
        }
    }

    /// Sends the kept inserts to a server that was restarted. If it still has them, it confirms them again.
    pub(super) fn send_kept_again(&mut self) {
        self.question = None;
        self.inserts.send_again(self.kept.take_all());
        self.outbox.set_kept(0);
        self.refuse_unknown_tables();
        if self.inserts.again() > 0 {
            self.requests.hold();
        }
        self.report_possible_loss();
    }

    /// Reports to the requests for the disk that an earlier server may have lost what it confirmed.
    fn report_possible_loss(&mut self) {
        if self.kept.take_dropped() {
            let error = format!(
                "{} was restarted, and inserts that it had confirmed are not known to be on the disk: more were on \
                 their way to it than this client keeps (max_kept_bytes)",
                self.outbox.address()
            );
            self.requests.fail_disk_requests(Error::Unavailable(error));
        }
    }

    /// Drops the kept inserts: the server has forgotten this client, and could insert them twice.
    pub(super) fn drop_kept(&mut self) {
        self.question = None;
        let dropped = self.kept.drop_all();
        self.answered.extend(dropped.into_iter().map(|id| (id, 1)));
        self.outbox.set_kept(0);
        self.report_possible_loss();
    }
}
