//! Messages to the server: what is sent next, and the report of what the server may forget.

use super::engine::Engine;
use crate::convert;
use crate::proto::client_message::Body as ClientBody;
use crate::proto::{self, ClientMessage, TracedRequest};
use crate::transport::client::Outlet;
use bytes::Bytes;
use reverie_core::Result;
use tokio::time::Instant;

/// The kind of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Insert,
    /// A request that no caller waits for.
    Unawaited,
    Other,
}

/// Requests that one message returns at most: the server answers each.
const RETURNED_AT_ONCE: usize = 1 << 10;
/// Answers after which the client reports to the server although it has nothing else to send.
const MAX_UNREPORTED: usize = 256;

impl Engine {
    /// Asks the server again, on a new connection, for the outcome of withdrawn inserts and to take draws back.
    pub(super) fn ask_again(&mut self) {
        self.cancels = self.inserts.withdrawn().map(|id| proto::Cancel { id, insert: true }).collect();
        self.returned = self.requests.returning().collect();
    }

    /// True if there is a message that can be sent when the outlet is ready.
    pub(super) fn has_message(&self) -> bool {
        !self.cancels.is_empty()
            || !self.returned.is_empty()
            || self.must_list_open
            || self.requests.has_unsent()
            || self.inserts.is_planned()
            || self.inserts.can_send(self.credit)
            || self.answered.len() >= MAX_UNREPORTED
    }

    /// True if there are answers that the server may forget and that were not reported yet.
    pub(super) fn has_unreported(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Bulk bytes of the next message; see [`Outlet::MESSAGE_BYTES`].
    pub(super) fn next_bytes(&mut self, message_bytes: u64) -> u64 {
        let others =
            !self.cancels.is_empty() || !self.returned.is_empty() || self.must_list_open || self.requests.has_unsent();
        if others && !self.inserts.is_planned() {
            return 0;
        }
        self.inserts.plan(&mut self.encoder, &self.tables, self.credit, message_bytes).unwrap_or(0)
    }

    /// Sends the next message: an insert that is planned already; else requests; else inserts.
    /// A planned insert goes first because its withdrawal must not overtake it.
    pub(super) fn send<O: Outlet>(&mut self, outlet: &mut O) -> Result<MessageKind> {
        let (mut kind, mut traced) = (MessageKind::Other, Vec::new());
        let body = if self.inserts.is_planned() {
            let insert = self.inserts.take(&mut self.encoder, outlet);
            if let Some(insert) = &insert {
                kind = MessageKind::Insert;
                traced = self.traced.of_inserts(insert);
                self.round_trip.sent(insert.first_id, Instant::now());
            }
            insert.map(ClientBody::Insert)
        } else if let Some((request, waits)) = self.requests.next(Instant::now()) {
            if !waits {
                kind = MessageKind::Unawaited;
            }
            traced = self.traced.of_request(request.id);
            Some(ClientBody::Request(request))
        } else {
            self.cancels.pop().map(ClientBody::Cancel)
        };
        self.post(outlet, body, traced)?;
        Ok(kind)
    }

    /// Sends what the encoder has to send without items, and reports to the server what was received.
    pub(super) fn tidy<O: Outlet>(&mut self, outlet: &mut O) -> Result<()> {
        let body = match !self.inserts.is_planned() && self.inserts.has_room(self.credit) {
            true => self.inserts.take(&mut self.encoder, outlet).map(ClientBody::Insert),
            false => None,
        };
        self.post(outlet, body, Vec::new())
    }

    /// Sends the last message of a client that ends on purpose.
    pub(super) fn leave<O: Outlet>(&mut self, outlet: &mut O) -> Result<()> {
        self.post(outlet, Some(ClientBody::Leave(proto::Leave {})), Vec::new())
    }

    fn post<O: Outlet>(&mut self, outlet: &mut O, body: Option<ClientBody>, traced: Vec<TracedRequest>) -> Result<()> {
        let received = self.received();
        if body.is_none() && received.is_none() {
            return Ok(());
        }
        outlet.send(ClientMessage { received, freed_slots: Vec::new(), body, traced })
    }

    /// The report of what the server may forget; each answer is reported once on a connection.
    fn received(&mut self) -> Option<proto::Received> {
        let waiting = self.inserts.first_id().into_iter().chain(self.requests.first_id());
        let waiting = waiting.chain(self.kept.first_id()).min();
        let below = waiting.unwrap_or(self.taken_below);
        let must_list_open = std::mem::take(&mut self.must_list_open);
        if must_list_open {
            // This report, too, may be lost with its connection.
            self.has_leased |= self.reports_until.take().is_some();
        }
        if !must_list_open && self.answered.is_empty() && self.returned.is_empty() && below == self.reported_below {
            return None;
        }
        let encode = |numbers: Vec<u64>| convert::numbers::encode(&numbers);
        let answered = self.answered.drain(..).flat_map(|(first, count)| first..first + count);
        let ids = encode(answered.filter(|id| *id >= below).collect());
        self.reported_below = below;
        let returned = encode(self.returned.drain(..self.returned.len().min(RETURNED_AT_ONCE)).collect());
        let (before, open) = match must_list_open {
            true => (self.taken_below, encode(self.inserts.ids().chain(self.requests.ids()).collect())),
            false => (0, Bytes::new()),
        };
        Some(proto::Received { below, ids, returned, before, open })
    }
}
