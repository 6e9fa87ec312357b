//! A session: one task that reads its connection, polls waiting requests, and sends what is done.
//!
//! It outlives its connections: when one is lost, waiting requests continue, and outcomes are remembered until the
//! client reconnects or the session is forgotten.

mod deliver;
mod inserts;
mod leases;
mod requests;
mod traced;
mod weigh;

use super::charges::Charge;
use super::clients::ClientFigures;
use super::delivery::Link;
use super::inserts::Inserts;
use super::latencies::{Stopwatch, Transport};
use super::later::Later;
use super::memory::{MOST_REMEMBERED, Memory, Outcome};
use super::pool::Leave;
use super::samples::Answer;
use super::shared::{Busy, Credit, SessionId, Shared, Undrained};
use super::spans::OpenSpans;
use super::unpacking::Room;
use crate::convert;
use crate::items::{self, Decoder, Episodes, Released};
use crate::proto::client_message::Body as Asked;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientMessage, PROTOCOL, ServerMessage};
use crate::way::server::Way;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reverie_core::table::{Arrivals, Keys, Lease};
use reverie_core::{Error, Result};
use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

/// Events that a session handles before it yields to the other tasks of its thread.
const TURN: u32 = 32;
/// How long a stop waits for the acknowledgement of draws that were sent.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);
/// Messages that arrived before a stop and are still taken, at most: a client that keeps sending must not delay it.
const LAST_MESSAGES: u32 = 256;
/// Bytes of small replies that a client may leave unread before the server stops reading from it.
const REPLIES: u64 = 4 << 20;

/// The outcome of a request that waited.
pub(super) enum Finished {
    /// An insert: its keys, or those so far if `late` says why it was withdrawn.
    Insert { id: u64, keys: Result<Keys>, late: Option<String>, stopwatch: Stopwatch },
    /// Draws. From tables that delete sampled items, they carry the number of the connection that requested them.
    Draws(Answer, Option<u64>),
    /// Anything else.
    Reply(proto::Reply, Option<Stopwatch>),
}

impl Finished {
    fn id(&self) -> u64 {
        match self {
            Self::Insert { id, .. } => *id,
            Self::Draws(answer, _) => answer.id,
            Self::Reply(reply, _) => reply.id,
        }
    }
}

/// Withdraws a waiting request.
pub(super) struct Cancel {
    pub(super) sender: oneshot::Sender<()>,
    /// True if it draws from a table that deletes sampled items.
    pub(super) consumes: bool,
}

/// The name of a session, and its part of what the server knows of it.
pub(super) struct Named {
    pub(super) id: SessionId,
    pub(super) arrivals: mpsc::Receiver<Box<dyn Way>>,
    pub(super) figures: Arc<ClientFigures>,
}

/// See the module.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Option<SessionId>,
    arrivals: mpsc::Receiver<Box<dyn Way>>,
    pub(super) link: Option<Link>,
    pub(super) memory: Memory,
    pub(super) waiting: FuturesUnordered<Later<Finished>>,
    /// The cancels of waiting requests, by number.
    pub(super) cancels: HashMap<u64, Cancel>,
    /// Counts the connections: leased draws for an earlier one are not sent.
    pub(super) connection: u64,
    /// Waiting requests that the client returned.
    pub(super) unwanted: HashSet<u64>,
    /// How long a stop waits for the acknowledgement of draws that were sent.
    acknowledged_by: Option<Pin<Box<Sleep>>>,
    /// Draws to be gathered, in the order in which they were made.
    pub(super) ready: VecDeque<Answer>,
    pub(super) inserts: Inserts,
    /// Without a connection: the chunks that waiting inserts have.
    released: Released,
    pub(super) episodes: Arc<Episodes>,
    pub(super) credit: Credit,
    pub(super) charge: Charge,
    /// What is shown of the client; of a session without a name it is shown nowhere.
    pub(super) figures: Arc<ClientFigures>,
    /// The spans of its requests that belong to a trace.
    pub(super) spans: OpenSpans,
    /// The bytes of draws that are still to be made or gathered.
    pub(super) asked_bytes: u64,
    stop: Later<()>,
    stopping: bool,
    /// Held until the messages that arrived before a stop are taken.
    undrained: Option<Undrained>,
    last_messages: u32,
    asked: bool,
    forget: Option<Pin<Box<Sleep>>>,
    /// The outcomes of the session before it are lost, and the client may not have been notified yet.
    forgot: bool,
    _busy: Busy,
}

enum Event {
    Stop,
    Forget,
    Arrived(Box<dyn Way>),
    Finished(Finished),
    Leave(Leave),
    Deliver,
    Unpacked(Result<Room>),
    Message(Option<Result<ClientMessage>>),
    /// The client does not read.
    Stalled,
    /// An incomplete message takes too much memory.
    TooMuch(Error),
    /// A session without a name has no more work.
    Idle,
}

impl Session {
    /// Makes a session. One without a name answers one message and ends.
    /// `forgot`: a session of that name existed, and its outcomes are lost. `done` and `leases`: the inserts and the leased
    /// draws of a session of that name from before this server's start.
    pub(super) fn new(
        shared: &Arc<Shared>,
        named: Option<Named>,
        forgot: bool,
        done: Arrivals,
        leases: Vec<(u64, Lease)>,
    ) -> Self {
        let (id, arrivals, figures) = match named {
            Some(Named { id, arrivals, figures }) => (Some(id), arrivals, figures),
            None => (None, mpsc::channel(1).1, Arc::new(ClientFigures::new())),
        };
        let tables = if done.is_empty() { Vec::new() } else { shared.tables.iter().cloned().collect() };
        Self {
            id,
            arrivals,
            link: None,
            memory: Memory::restored(done, leases),
            waiting: FuturesUnordered::new(),
            cancels: HashMap::new(),
            connection: 0,
            unwanted: HashSet::new(),
            acknowledged_by: None,
            ready: VecDeque::new(),
            inserts: Inserts::new(tables),
            released: Released::default(),
            episodes: Arc::default(),
            credit: Credit::new(shared),
            charge: Charge::new(&shared.charges),
            figures,
            spans: OpenSpans::new(&shared.spans),
            asked_bytes: 0,
            stop: Box::pin(shared.stopping()),
            stopping: false,
            undrained: Some(Undrained::new(shared)),
            last_messages: LAST_MESSAGES,
            asked: false,
            forget: None,
            forgot,
            _busy: shared.busy(),
            shared: Arc::clone(shared),
        }
    }

    /// Serves the connection, and those that follow.
    pub(super) async fn run(mut self, mut first: Option<Box<dyn Way>>) {
        let _leaving = Leaving(Arc::clone(&self.shared), self.id);
        loop {
            if let Some(way) = first.take() {
                self.connect(way);
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

    /// Handles some events; false at the session's end.
    async fn turn(&mut self) -> bool {
        for _ in 0..TURN {
            let event = std::future::poll_fn(|context| self.poll(context)).await;
            match event {
                Event::Stop => {
                    self.say_goodbye(Error::Unavailable("the server stops".to_owned()), true);
                    return false;
                }
                Event::Idle => return false,
                Event::Forget => {
                    // During a stop, its inserts that are in the tables stay known, for a last checkpoint.
                    if let Some(id) = self.id.filter(|_| !self.stopping && !self.is_empty()) {
                        self.shared.forget_outcomes(id);
                    }
                    return false;
                }
                Event::Arrived(way) => self.connect(way),
                Event::Finished(finished) => self.finished(finished),
                Event::Leave(leave) => {
                    if let Some(link) = &mut self.link {
                        link.may_set_aside(leave);
                    }
                }
                Event::Deliver => self.deliver(),
                Event::Unpacked(gathered) => self.unpacked(gathered),
                Event::Stalled => self.say_goodbye(Error::Unavailable("the client does not read".to_owned()), false),
                Event::Message(Some(Ok(message))) => {
                    let received = self.receive(message);
                    self.spans.handled();
                    if let Err(error) = received {
                        self.say_goodbye(error, false);
                    }
                }
                Event::Message(Some(Err(error))) => self.say_goodbye(error, false),
                Event::Message(None) => self.lose_link(),
                Event::TooMuch(error) => return self.give_up(error),
            }
            if let Err(error) = self.weigh() {
                return self.give_up(error);
            }
            if self.link.is_none() && (self.id.is_none() || self.is_empty()) {
                return false;
            }
        }
        tokio::task::yield_now().await;
        true
    }

    /// True if nothing would be lost with the session.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty() && self.memory.len() == 0
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        // The longest waiting work goes first; new requests are read last.
        if let Poll::Ready(Some(finished)) = self.waiting.poll_next_unpin(context) {
            return Poll::Ready(Event::Finished(finished));
        }
        if let Poll::Ready(Some(way)) = self.arrivals.poll_recv(context) {
            return Poll::Ready(Event::Arrived(way));
        }
        self.stopping = self.stopping || self.stop.as_mut().poll(context).is_ready();
        let (stopping, deliverable) = (self.stopping, self.has_deliverable());
        let Some(link) = &mut self.link else {
            let forgotten = self.forget.as_mut().is_some_and(|forget| forget.as_mut().poll(context).is_ready());
            return if stopping || forgotten { Poll::Ready(Event::Forget) } else { Poll::Pending };
        };
        let stalled = link.is_stalled(context);
        self.figures.queues(link.queued());
        if stalled {
            return Poll::Ready(Event::Stalled);
        }
        if let Poll::Ready(gathered) = link.poll_unpacked(context, self.shared.limits.session_batch_bytes) {
            return Poll::Ready(Event::Unpacked(gathered));
        }
        if stopping && self.undrained.is_some() {
            if self.last_messages > 0
                && let Poll::Ready(message) = link.way.poll_receive(context)
            {
                self.last_messages -= 1;
                return Poll::Ready(Event::Message(message));
            }
            self.undrained = None;
        }
        if deliverable {
            if let Poll::Ready(leave) = link.poll_delivery(context, self.shared.limits.session_batch_bytes) {
                return Poll::Ready(leave.map_or(Event::Deliver, Event::Leave));
            }
        } else if stopping && self.waiting.is_empty() && self.ready.is_empty() {
            // A last checkpoint must not contain draws that the client has.
            let by = self.acknowledged_by.get_or_insert_with(|| Box::pin(tokio::time::sleep(ACKNOWLEDGED_WITHIN)));
            if !self.memory.has_leases() || by.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Stop);
            }
        }
        if stopping && !self.memory.has_leases() {
            return Poll::Pending;
        }
        if self.id.is_none() && self.waiting.is_empty() && self.ready.is_empty() && self.asked {
            return Poll::Ready(Event::Idle);
        }
        // Do not read from a client that does not read.
        let most = self.shared.limits.session_batch_bytes.saturating_add(REPLIES);
        match link.way.poll_queued(context, most) {
            Poll::Ready(()) => {}
            Poll::Pending => return Poll::Pending,
        }
        let message = link.way.poll_receive(context);
        // A complete message is counted as what it becomes.
        let unfinished = if message.is_pending() { link.way.unfinished_bytes() } else { 0 };
        match (message, self.charge.receive(unfinished)) {
            (Poll::Pending, Err(error)) => Poll::Ready(Event::TooMuch(error)),
            (message, _) => message.map(Event::Message),
        }
    }

    /// Starts a connection of the session: the first, or one that replaces a lost one.
    fn connect(&mut self, mut way: Box<dyn Way>) {
        let resumed = self.link.is_some() || self.forget.is_some();
        self.lose_link();
        self.connection += 1;
        self.forget = None;
        self.inserts.reconnected();
        if self.id.is_some() {
            let hello = proto::ServerHello {
                protocol: PROTOCOL,
                incarnation: self.shared.incarnation(),
                resumed,
                insert_credit_bytes: self.credit.granted(),
                forgot: self.forgot,
                durable_later: self.shared.tables.is_durable_later(),
            };
            way.send(ServerMessage { body: Some(Body::Hello(hello)) });
        }
        self.shared.counter(way.transport()).fetch_add(1, Ordering::Relaxed);
        self.figures.connected(Transport::of(way.transport()), way.peer());
        let meter = Arc::clone(self.shared.tables.bytes().0);
        let mut decoder = Decoder::new(meter, items::Limits::default(), Arc::clone(&self.episodes));
        decoder.adopt(std::mem::take(&mut self.released));
        self.link = Some(Link::new(way, decoder));
        self.tell_held();
    }

    /// Handles the loss of the connection: waiting work continues, and unsent answers wait until the client asks again.
    fn lose_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        self.shared.counter(link.way.transport()).fetch_sub(1, Ordering::Relaxed);
        self.figures.lost();
        self.forget = Some(Box::pin(tokio::time::sleep(self.shared.limits.linger)));
        self.end_consuming();
        self.released = link.decoder.release();
        link.way.close();
        // The incomplete message is gone.
        let _ = self.charge.receive(0);
    }

    pub(super) fn say_goodbye(&mut self, error: Error, stopping: bool) {
        if let Some(link) = &mut self.link {
            if let (false, Some(more)) = (stopping, self.shared.endings.allows()) {
                tracing::warn!(peer = link.way.peer(), %error, "a connection is ended{more}");
            }
            let reason = Some(convert::error::encode(&error));
            let goodbye = proto::Goodbye { reason, stopping };
            link.way.send(ServerMessage { body: Some(Body::Goodbye(goodbye)) });
        }
        self.lose_link();
    }

    fn receive(&mut self, message: ClientMessage) -> Result<()> {
        self.asked = true;
        self.figures.heard();
        // A client that sends a message has read the hello.
        if let (true, Some(id)) = (std::mem::take(&mut self.forgot), &self.id) {
            self.shared.told(id);
        }
        if let Some(received) = &message.received {
            let numbers = |bytes| convert::numbers::decode::<u64>(bytes, "numbers of requests");
            let ids = numbers(&received.ids)?;
            self.memory.received(received.below, &ids);
            if received.before > 0 {
                self.memory.received_but(received.before, &numbers(&received.open)?);
            }
            self.take_all_back(&numbers(&received.returned)?)?;
            if let Some(id) = &self.id {
                self.inserts.tables.iter().for_each(|table| table.received(id, received.below, &ids));
            }
        }
        if !message.freed_slots.is_empty() {
            self.link.as_mut().map_or(Ok(()), |link| link.way.freed(&message.freed_slots))?;
        }
        if !message.traced.is_empty() {
            self.spans.announce(&message.traced);
        }
        match message.body {
            None => Ok(()),
            Some(Asked::Hello(_) | Asked::Proof(_)) => Err(Error::Protocol("a second hello".to_owned())),
            Some(Asked::Insert(insert)) => self.insert(insert),
            Some(Asked::Request(request)) => self.request(request),
            Some(Asked::Cancel(proto::Cancel { id, insert })) => {
                match self.cancels.remove(&id) {
                    // If the request finishes at this moment, its outcome follows.
                    Some(cancel) => _ = cancel.sender.send(()),
                    None if insert && self.inserts.is_asked_for(id) => {}
                    None if insert => self.withdraw_insert(id),
                    None => self.withdraw_answer(id),
                }
                Ok(())
            }
            Some(Asked::Leave(proto::Leave {})) => {
                self.end_consuming();
                self.memory.end_leases();
                self.lose_link();
                return Ok(());
            }
            Some(Asked::SlotWanted(wanted)) => {
                self.link.as_mut().map_or(Ok(()), |link| link.way.slot_wanted(wanted.size_bytes))
            }
        }?;
        match self.memory.len() <= MOST_REMEMBERED {
            true => Ok(()),
            false => Err(Error::Protocol(format!("more than {MOST_REMEMBERED} outcomes that were never received"))),
        }
    }

    fn finished(&mut self, finished: Finished) {
        self.spans.goes_on(finished.id());
        match finished {
            Finished::Insert { id, keys, late, stopwatch } => {
                self.unwanted.remove(&id);
                self.inserted_late(id, keys, late, stopwatch);
            }
            // Dropping the answer ends its lease.
            Finished::Draws(answer, _) if self.unwanted.remove(&answer.id) => self.discard(answer),
            Finished::Draws(answer, Some(connection)) if connection != self.connection => self.discard(answer),
            Finished::Draws(answer, _) => self.answer(answer),
            // The return was answered.
            Finished::Reply(reply, _) if self.unwanted.remove(&reply.id) => {}
            Finished::Reply(reply, stopwatch) => {
                self.cancels.remove(&reply.id);
                self.reply(reply, true);
                stopwatch.into_iter().for_each(|stopwatch| self.note_done(stopwatch, 1));
            }
        }
    }

    /// Sends a reply. `keep`: executing the request again would have a second effect.
    pub(super) fn reply(&mut self, reply: proto::Reply, keep: bool) {
        if keep {
            self.memory.done(reply.id, Outcome::Reply(Box::new(reply.clone())));
        }
        self.end_span(&reply);
        self.send(Body::Reply(reply));
    }

    /// Counts the time of `n` requests that have their response. A session without a connection is not counted.
    pub(super) fn note_done(&self, stopwatch: Stopwatch, n: u64) {
        if let Some(link) = &self.link {
            self.shared.latencies.done(stopwatch, Transport::of(link.way.transport()), n);
        }
    }

    /// Does nothing without a connection.
    pub(super) fn send(&mut self, body: Body) {
        if let Some(link) = &mut self.link {
            link.way.send(ServerMessage { body: Some(body) });
        }
    }
}

/// Removes a session that ends by a panic.
struct Leaving(Arc<Shared>, Option<SessionId>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let (true, Some(id)) = (std::thread::panicking(), self.1) {
            // Waiting inserts must not go in unnoticed by the next session, which begins with the inserts that are in.
            self.0.tables.iter().for_each(|table| table.withdraw_sender(&id));
            self.0.forget(id);
        }
    }
}
