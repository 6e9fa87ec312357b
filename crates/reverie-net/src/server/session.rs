//! A session: one task that reads its connection, polls waiting requests, and sends what is done.
//!
//! It outlives its connections: when one is lost, waiting requests continue, and outcomes are remembered until the
//! client reconnects or the session is forgotten.

mod commits;
mod connection;
mod deliver;
mod events;
mod inserts;
mod leases;
mod requests;
mod traced;
mod memory;

use super::charges::Charge;
use super::clients::ClientFigures;
use super::delivery::Link;
use super::inserts::SessionInserts;
use super::latencies::{RequestTransport, Stopwatch};
use super::outcome_future::OutcomeFuture;
use super::outcomes::{MOST_REMEMBERED, Outcomes, RequestOutcome};
use super::samples::DrawDelivery;
use super::shared::{BusyGuard, Credit, ServerState, SessionId, UndrainedGuard};
use super::spans::OpenSpans;
use crate::convert;
use crate::items::{Episodes, ReleasedChunks};
use crate::proto::client_message::Body as ClientBody;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientMessage, ServerMessage};
use crate::transport::server::ServerConnection;
use futures_util::stream::FuturesUnordered;
use reverie_core::table::{Arrivals, Keys, Lease, SharedTable};
use reverie_core::{Error, Result};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

/// Messages that arrived before a stop and are still taken, at most: a client that keeps sending must not delay it.
const LAST_MESSAGES: u32 = 256;
/// The outcome of a request that waited.
pub(super) enum FinishedRequest {
    /// An insert: its keys, or those so far if it was withdrawn, for the reason `late`.
    Insert { id: u64, keys: Result<Keys>, late: Option<String>, stopwatch: Stopwatch },
    /// Draws.
    Draws(DrawDelivery, Arc<DrawRequest>),
    /// Anything else.
    Reply(proto::Reply, Option<Stopwatch>),
}

impl FinishedRequest {
    fn id(&self) -> u64 {
        match self {
            Self::Insert { id, .. } => *id,
            Self::Draws(answer, _) => answer.id,
            Self::Reply(reply, _) => reply.id,
        }
    }
}

/// A waiting request, and how it is withdrawn.
pub(super) struct CancellableRequest {
    /// `None` if it cannot be withdrawn, or was.
    sender: Option<oneshot::Sender<()>>,
    /// Set for a request for draws.
    pub(super) drawing: Option<Arc<DrawRequest>>,
    /// True if executing the request again would have a second effect: it stays known until its reply is remembered.
    pub(super) has_effect: bool,
}

impl CancellableRequest {
    /// A request that leaves nothing behind when it is withdrawn.
    pub(super) fn new(sender: oneshot::Sender<()>) -> Self {
        Self { sender: Some(sender), drawing: None, has_effect: false }
    }

    /// A request for draws.
    pub(super) fn of_draws(sender: oneshot::Sender<()>, drawing: Arc<DrawRequest>) -> Self {
        Self { drawing: Some(drawing), ..Self::new(sender) }
    }

    /// A change that is done and waits for its commit.
    pub(super) fn of_change(sender: oneshot::Sender<()>) -> Self {
        Self { has_effect: true, ..Self::new(sender) }
    }

    /// A request that finishes whether its client waits for it or not.
    pub(super) fn never() -> Self {
        Self { sender: None, drawing: None, has_effect: true }
    }

    /// Withdraws the request. If it finishes at this moment, its outcome follows.
    pub(super) fn withdraw(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(());
        }
    }
}

/// A waiting request for draws.
pub(super) struct DrawRequest {
    pub(super) tables: SmallVec<[Arc<SharedTable>; 2]>,
    /// The number of the connection that it came on.
    pub(super) connection: u64,
}

impl DrawRequest {
    /// True if one of its tables deletes sampled items. That may change while it waits.
    pub(super) fn consumes(&self) -> bool {
        self.tables.iter().any(|table| table.deletes_sampled())
    }
}

/// The name of a session, and its part of the server's state.
pub(super) struct SessionIdentity {
    pub(super) id: SessionId,
    pub(super) arrivals: mpsc::Receiver<Box<dyn ServerConnection>>,
    pub(super) figures: Arc<ClientFigures>,
}

/// A session: one task that reads its connection, polls waiting requests, and sends what is done.
pub(super) struct Session {
    pub(super) shared: Arc<ServerState>,
    pub(super) id: Option<SessionId>,
    arrivals: mpsc::Receiver<Box<dyn ServerConnection>>,
    pub(super) link: Option<Link>,
    pub(super) outcomes: Outcomes,
    pub(super) waiting: FuturesUnordered<OutcomeFuture<FinishedRequest>>,
    /// The waiting requests, by number.
    pub(super) cancels: HashMap<u64, CancellableRequest>,
    /// Counts the connections: leased draws for an earlier one are not sent.
    pub(super) connection: u64,
    /// Waiting requests that the client returned.
    pub(super) unwanted: HashSet<u64>,
    /// The time for which a stop waits for the acknowledgement of draws that were sent.
    acknowledged_by: Option<Pin<Box<Sleep>>>,
    /// Draws to be gathered, in the order in which they were made.
    pub(super) ready: VecDeque<DrawDelivery>,
    pub(super) inserts: SessionInserts,
    /// The chunks that waiting inserts have, while there is no connection.
    released: ReleasedChunks,
    pub(super) episodes: Arc<Episodes>,
    pub(super) credit: Credit,
    pub(super) charge: Charge,
    /// The figures shown of the client; those of a session without a name are not shown.
    pub(super) figures: Arc<ClientFigures>,
    /// The spans of its requests that belong to a trace.
    pub(super) spans: OpenSpans,
    /// The bytes of draws that are still to be made or gathered.
    pub(super) requested_bytes: u64,
    stop: OutcomeFuture<()>,
    stopping: bool,
    /// Held until the messages that arrived before a stop are taken.
    undrained: Option<UndrainedGuard>,
    last_messages: u32,
    asked: bool,
    forget: Option<Pin<Box<Sleep>>>,
    /// The outcomes of the session before it are lost, and the client may not have been notified yet.
    forgot: bool,
    /// Dropped last: once a stop has waited for it, the session's open spans are noted as well.
    _busy: BusyGuard,
}

impl Session {
    /// Makes a session. One without a name answers one message and ends.
    /// `forgot`: a session of that name existed, and its outcomes are lost. `done` and `leases`: the inserts and the
    /// leased draws of a session of that name from before this server's start.
    pub(super) fn new(
        shared: &Arc<ServerState>,
        named: Option<SessionIdentity>,
        forgot: bool,
        done: Arrivals,
        leases: Vec<(u64, Lease)>,
    ) -> Self {
        let (id, arrivals, figures) = match named {
            Some(SessionIdentity { id, arrivals, figures }) => (Some(id), arrivals, figures),
            None => (None, mpsc::channel(1).1, Arc::new(ClientFigures::new())),
        };
        let tables = if done.is_empty() { Vec::new() } else { shared.tables.iter().cloned().collect() };
        Self {
            id,
            arrivals,
            link: None,
            outcomes: Outcomes::restored(done, leases),
            waiting: FuturesUnordered::new(),
            cancels: HashMap::new(),
            connection: 0,
            unwanted: HashSet::new(),
            acknowledged_by: None,
            ready: VecDeque::new(),
            inserts: SessionInserts::new(tables),
            released: ReleasedChunks::default(),
            episodes: Arc::default(),
            credit: Credit::new(shared),
            charge: Charge::new(&shared.charges),
            figures,
            spans: OpenSpans::new(&shared.spans),
            requested_bytes: 0,
            stop: Box::pin(shared.stopping()),
            stopping: false,
            undrained: Some(UndrainedGuard::new(shared)),
            last_messages: LAST_MESSAGES,
            asked: false,
            forget: None,
            forgot,
            _busy: shared.busy(),
            shared: Arc::clone(shared),
        }
    }

    /// Serves the connection, and those that follow.
    pub(super) async fn run(mut self, mut first: Option<Box<dyn ServerConnection>>) {
        let _leaving = SessionPanicGuard(Arc::clone(&self.shared), self.id);
        loop {
            if let Some(connection) = first.take() {
                self.connect(connection);
            }
            while self.turn().await {}
            let Some(id) = self.id else { return };
            // A connection may have arrived just now.
            let shared = Arc::clone(&self.shared);
            first = shared.leave(id, &mut self.arrivals, self.inserts.waiting() > 0);
            if first.is_none() {
                return;
            }
        }
    }

    /// True if nothing would be lost with the session.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty() && self.outcomes.len() == 0
    }

    fn receive(&mut self, message: ClientMessage) -> Result<()> {
        self.asked = true;
        self.figures.received();
        // A client that sends a message has read the hello.
        if let (true, Some(id)) = (std::mem::take(&mut self.forgot), &self.id) {
            self.shared.notified(id);
        }
        if let Some(received) = &message.received {
            let numbers = |bytes| convert::numbers::decode::<u64>(bytes, "numbers of requests");
            let ids = numbers(&received.ids)?;
            self.outcomes.received(received.below, &ids);
            if received.before > 0 {
                self.outcomes.received_but(received.before, &numbers(&received.open)?);
            }
            self.take_all_back(&numbers(&received.returned)?)?;
            if let Some(id) = &self.id {
                self.inserts.tables.iter().for_each(|table| table.received(id, received.below, &ids));
            }
        }
        if !message.freed_slots.is_empty() {
            self.link.as_mut().map_or(Ok(()), |link| link.connection.freed(&message.freed_slots))?;
        }
        if !message.traced.is_empty() {
            self.spans.announce(&message.traced);
        }
        match message.body {
            None => Ok(()),
            Some(ClientBody::Hello(_) | ClientBody::Proof(_)) => {
                Err(Error::Protocol("a second hello arrived".to_owned()))
            }
            Some(ClientBody::Insert(insert)) => self.insert(insert),
            Some(ClientBody::Request(request)) => self.request(request),
            Some(ClientBody::Cancel(proto::Cancel { id, insert })) => {
                match self.cancels.get_mut(&id) {
                    Some(cancel) if cancel.has_effect => cancel.withdraw(),
                    Some(cancel) => {
                        cancel.withdraw();
                        self.cancels.remove(&id);
                    }
                    None if insert && self.inserts.note_question(id) => {}
                    None if insert => self.withdraw_insert(id),
                    None => self.withdraw_answer(id),
                }
                Ok(())
            }
            Some(ClientBody::Leave(proto::Leave {})) => {
                self.end_consuming();
                self.outcomes.end_leases();
                self.handle_disconnect();
                return Ok(());
            }
            Some(ClientBody::SlotWanted(wanted)) => {
                self.link.as_mut().map_or(Ok(()), |link| link.connection.slot_wanted(wanted.size_bytes))
            }
        }?;
        match self.outcomes.len() <= MOST_REMEMBERED {
            true => Ok(()),
            false => Err(Error::Protocol(format!("more than {MOST_REMEMBERED} outcomes were never acknowledged"))),
        }
    }

    fn finished(&mut self, finished: FinishedRequest) {
        self.spans.end_wait(finished.id());
        match finished {
            FinishedRequest::Insert { id, keys, late, stopwatch } => {
                self.unwanted.remove(&id);
                self.inserted_late(id, keys, late, stopwatch);
            }
            // Dropping the answer ends its lease.
            FinishedRequest::Draws(answer, _) if self.unwanted.remove(&answer.id) => self.discard(answer),
            FinishedRequest::Draws(answer, drawing) if self.is_requested_again(answer.id, &drawing) => {
                self.discard(answer)
            }
            FinishedRequest::Draws(answer, _) => self.answer(answer),
            // The return was answered.
            FinishedRequest::Reply(reply, _) if self.unwanted.remove(&reply.id) => {}
            FinishedRequest::Reply(reply, stopwatch) => {
                self.cancels.remove(&reply.id);
                self.reply(reply, true);
                stopwatch.into_iter().for_each(|stopwatch| self.note_done(stopwatch, 1));
            }
        }
    }

    /// Sends a reply. `keep`: executing the request again would have a second effect.
    pub(super) fn reply(&mut self, reply: proto::Reply, keep: bool) {
        if keep {
            self.outcomes.done(reply.id, RequestOutcome::Reply(Box::new(reply.clone())));
        }
        self.end_span(&reply);
        self.send(Body::Reply(reply));
    }

    /// Counts the time of `n` requests that have their response. A session without a connection is not counted.
    pub(super) fn note_done(&self, stopwatch: Stopwatch, n: u64) {
        if let Some(link) = &self.link {
            self.shared.latencies.done(stopwatch, RequestTransport::of(link.connection.transport()), n);
        }
    }

    /// Sends a message behind the batches that are queued, of which some are of the same request.
    pub(super) fn send_behind(&mut self, body: Body) {
        if let Some(link) = &mut self.link {
            link.connection.send(ServerMessage { body: Some(body) });
        }
    }

    /// Sends a reply, a confirmation or the like, before batches that are queued. Does nothing without a connection.
    pub(super) fn send(&mut self, body: Body) {
        if let Some(link) = &mut self.link {
            link.connection.send_ahead(ServerMessage { body: Some(body) });
        }
    }
}

/// Removes a session that ends by a panic.
struct SessionPanicGuard(Arc<ServerState>, Option<SessionId>);

impl Drop for SessionPanicGuard {
    fn drop(&mut self) {
        if let (true, Some(id)) = (std::thread::panicking(), self.1) {
            // Waiting inserts must not go in unnoticed by the next session, which begins with the inserts that are in.
            self.0.tables.iter().for_each(|table| table.withdraw_sender(&id));
            self.0.forget(id);
        }
    }
}
