//! All that a client has under way, whether there is a connection or not. Owned by the client's one task.

use super::arriving::{Arriving, Heads};
use super::inserts::Inserts;
use super::outbox::{Ending, Left, Mood, Outbox};
use super::requests::Requests;
use super::round_trip::RoundTrip;
use crate::block::Pool;
use crate::convert;
use crate::items::Encoder;
use crate::proto::client_message::Body as Asked;
use crate::proto::server_message::Body;
use crate::proto::{self, ClientMessage};
use crate::way::client::{Arrived, Outlet};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// See the module.
pub(super) struct Engine {
    pub(super) outbox: Arc<Outbox>,
    pub(super) patience: Duration,
    /// See `Options::grace`.
    grace: Duration,
    pub(super) inserts: Inserts,
    pub(super) requests: Requests,
    left: Left,
    ending: Ending,
    /// All numbers below have been given out and taken up.
    taken_below: u64,
    /// Requests to be withdrawn at the server.
    cancels: Vec<u64>,
    /// Withdrawn inserts, and when their callers wait no longer.
    abandon: Vec<(Instant, u64)>,
    /// Numbers that were answered since the server was last told: first and how many.
    answered: Vec<(u64, u64)>,
    told_below: u64,
    /// Since when there has been no connection; `None` where there is one.
    pub(super) outage: Option<Instant>,
    /// What the last attempt to connect said.
    pub(super) trouble: String,
    // What belongs to the connection.
    pub(super) encoder: Encoder,
    pub(super) credit: u64,
    pub(super) round_trip: RoundTrip,
    /// The server's number of each table in the client's own order; `None` where it has it no more.
    pub(super) tables: Vec<Option<u32>>,
    heads: Heads,
    pool: Arc<Pool>,
}

/// What a message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Insert,
    /// A request that nobody waits for.
    Patient,
    Other,
}

/// Warm memory that a client keeps for batches.
const POOL_BYTES: usize = 256 << 20;
/// Answers after which the server is told although nothing else is to be said.
const UNTOLD: usize = 256;

impl Engine {
    pub(super) fn new(outbox: Arc<Outbox>, patience: Duration, grace: Duration) -> Self {
        Self {
            outbox,
            patience,
            inserts: Inserts::default(),
            requests: Requests::new(grace),
            grace,
            left: Left::default(),
            ending: Ending::No,
            taken_below: 1,
            cancels: Vec::new(),
            abandon: Vec::new(),
            answered: Vec::new(),
            told_below: 1,
            outage: Some(Instant::now()),
            trouble: String::new(),
            encoder: Encoder::default(),
            credit: 0,
            round_trip: RoundTrip::default(),
            tables: Vec::new(),
            heads: Heads::default(),
            pool: Pool::new(POOL_BYTES),
        }
    }

    /// The same, again and again until there is nothing left: before the task sleeps, or callers would believe that it
    /// looks again.
    pub(super) fn absorb_all(&mut self, idle: Mood) {
        while self.absorb(idle) {}
    }

    /// Takes up what callers left; false where it was nothing: then they will wake the task as that mood says. Else they
    /// will not, and the task must look again before it sleeps: see [`Outbox::sleeps`].
    pub(super) fn absorb(&mut self, idle: Mood) -> bool {
        (self.ending, self.taken_below) = self.outbox.take(&mut self.left, idle);
        let mut left = std::mem::take(&mut self.left);
        let some = !left.is_empty();
        left.drain_inserts().for_each(|insert| self.inserts.push(insert));
        if !left.requests.is_empty() || !left.withdrawn.is_empty() {
            let now = Instant::now();
            left.requests.drain(..).for_each(|request| self.requests.push(request, now));
            left.withdrawn.drain(..).for_each(|id| self.withdraw(id, now));
        }
        // Its memory is used again.
        self.left = left;
        some
    }

    fn withdraw(&mut self, id: u64, now: Instant) {
        let connected = self.outage.is_none();
        let at_server = match self.requests.withdraw(id, connected, now) {
            Some(at_server) => at_server,
            None => match self.inserts.withdraw(id, connected) {
                Some(true) => {
                    self.abandon.push((now + self.grace, id));
                    true
                }
                _ => false,
            },
        };
        if at_server {
            self.cancels.push(id);
        }
    }

    /// True where the task should end.
    pub(super) fn should_end(&self) -> bool {
        match self.ending {
            Ending::No => false,
            Ending::Idle => self.is_idle(),
            Ending::Now => true,
        }
    }

    /// True where nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.inserts.is_empty() && !self.requests.any_wanted()
    }

    /// Ends everything.
    pub(super) fn fail_all(&mut self, error: &Error) {
        self.requests.fail(error);
        self.inserts.fail(|_| Some(error.clone()));
    }

    /// When something is to be looked at although nothing happens.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let abandoned = self.abandon.iter().map(|(when, _)| *when).min();
        self.requests.next_timer(self.outage, self.patience).into_iter().chain(abandoned).min()
    }

    /// Answers whoever has waited as long as he wanted.
    pub(super) fn expire(&mut self) {
        let Some(timer) = self.next_timer() else { return };
        let now = Instant::now();
        if timer > now {
            return;
        }
        let (address, trouble, outage) = (self.outbox.address(), &self.trouble, self.outage);
        let patience = self.patience;
        let told = self.requests.expire(now, outage, patience, |waited, what| {
            let seconds = waited.as_secs_f64();
            let Some(begun) = outage else {
                return Error::Unavailable(format!(
                    "{address} did not answer for {seconds:.1} s while {what}; does the server still run?"
                ));
            };
            if trouble.is_empty() && now < begun + patience {
                return Error::Deadline(format!(
                    "the connection to {address} is still being made after {seconds:.1} s, which a first call waits for"
                ));
            }
            let trouble = if trouble.is_empty() { "no answer yet" } else { trouble };
            Error::Unavailable(format!(
                "{address} could not be reached for {seconds:.1} s while {what}: {trouble}; does a server run there?"
            ))
        });
        if outage.is_none() {
            self.cancels.extend(told);
        }
        for index in (0..self.abandon.len()).rev() {
            if self.abandon[index].0 <= now {
                self.inserts.abandon(self.abandon.swap_remove(index).1);
            }
        }
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self, error: &Error) {
        self.outage = Some(Instant::now());
        self.outbox.set_held(false);
        self.trouble = error.to_string();
        self.cancels.clear();
        self.answered.clear();
        self.told_below = 0;
        self.abandon.clear();
        self.requests.lost();
        self.inserts.lost();
        self.encoder = Encoder::default();
        self.heads = Heads::default();
    }

    // What follows is for a connection.

    /// True where a message can be sent but for the outlet.
    pub(super) fn has_message(&self) -> bool {
        !self.cancels.is_empty()
            || self.requests.has_unsent()
            || self.inserts.is_planned()
            || self.inserts.can_send(self.credit)
            || self.answered.len() >= UNTOLD
    }

    /// True where the server could be told of answers that it may forget.
    pub(super) fn has_untold(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Bulk bytes of the next message.
    pub(super) fn next_bytes(&mut self) -> u64 {
        let others = !self.cancels.is_empty() || self.requests.has_unsent();
        if others && !self.inserts.is_planned() {
            return 0;
        }
        self.inserts.plan(&mut self.encoder, &self.tables, self.credit).unwrap_or(0)
    }

    /// The next message, in this order: an insert that is made already, since what withdraws it must not overtake it;
    /// requests; inserts.
    pub(super) fn send<O: Outlet>(&mut self, outlet: &mut O) -> Result<Said> {
        let mut said = Said::Other;
        let body = if self.inserts.is_planned() {
            let insert = self.inserts.take(&mut self.encoder, outlet);
            if let Some(insert) = &insert {
                said = Said::Insert;
                self.round_trip.sent(insert.first_id, Instant::now());
            }
            insert.map(Asked::Insert)
        } else if let Some((request, waits)) = self.requests.next(Instant::now()) {
            if !waits {
                said = Said::Patient;
            }
            Some(Asked::Request(request))
        } else {
            self.cancels.pop().map(|id| Asked::Cancel(proto::Cancel { id }))
        };
        self.post(outlet, body)?;
        Ok(said)
    }

    /// Lets the encoder say what it has to say without items, and tells the server what was received.
    pub(super) fn tidy<O: Outlet>(&mut self, outlet: &mut O) -> Result<()> {
        let body = match !self.inserts.is_planned() && self.inserts.has_room(self.credit) {
            true => self.inserts.take(&mut self.encoder, outlet).map(Asked::Insert),
            false => None,
        };
        self.post(outlet, body)
    }

    fn post<O: Outlet>(&mut self, outlet: &mut O, body: Option<Asked>) -> Result<()> {
        let received = self.received();
        if body.is_none() && received.is_none() {
            return Ok(());
        }
        outlet.send(ClientMessage { received, freed_slots: Vec::new(), body })
    }

    /// What the server may forget: told once on a connection.
    fn received(&mut self) -> Option<proto::Received> {
        let waiting = self.inserts.first_id().into_iter().chain(self.requests.first_id()).min();
        let below = waiting.unwrap_or(self.taken_below);
        if self.answered.is_empty() && below == self.told_below {
            return None;
        }
        let answered = self.answered.drain(..).flat_map(|(first, count)| first..first + count);
        let ids = answered.filter(|id| *id >= below).collect();
        self.told_below = below;
        Some(proto::Received { below, ids })
    }

    /// What came from the server. `Err` ends the connection.
    pub(super) fn take(&mut self, arrived: Arrived) -> Result<()> {
        let Arrived { message, block } = arrived;
        match message.body {
            Some(Body::Inserted(inserted)) => {
                self.answered.push((inserted.first_id, u64::from(inserted.requests)));
                let below = inserted.first_id.saturating_add(u64::from(inserted.requests));
                if let Some(round_trip) = self.round_trip.confirmed(below, Instant::now()) {
                    self.outbox.set_round_trip(round_trip);
                }
                self.inserts.inserted(inserted)
            }
            Some(Body::Reply(reply)) => self.reply(reply),
            Some(Body::Batch(batch)) => self.batch(batch, block),
            Some(Body::Part(part)) => self.part(&part),
            Some(Body::Credit(credit)) => {
                self.credit = self.credit.max(credit.insert_credit_bytes);
                Ok(())
            }
            Some(Body::Held(held)) => {
                self.outbox.set_held(held.held);
                Ok(())
            }
            Some(Body::Goodbye(goodbye)) => Err(farewell(self.outbox.address(), goodbye)),
            Some(Body::Hello(_)) => Err(Error::Protocol("the server greeted twice".to_owned())),
            // The way deals with slots.
            Some(Body::InsertSlot(_) | Body::Consumed(_)) | None => Ok(()),
        }
    }

    fn reply(&mut self, reply: proto::Reply) -> Result<()> {
        let proto::Reply { id, body } = reply;
        let body = body.ok_or_else(|| Error::Protocol("a reply without an answer".to_owned()))?;
        self.answered.push((id, 1));
        if self.requests.get_mut(id).is_some() {
            return self.requests.reply(id, body);
        }
        match body {
            proto::reply::Body::Error(detail) => {
                let keys = match &detail.kind {
                    Some(proto::error_detail::Kind::Deadline(deadline)) => deadline.keys.clone(),
                    _ => Vec::new(),
                };
                self.inserts.refused(id, convert::error::decode(detail), &keys);
                Ok(())
            }
            // Of a request that nobody waited for any more.
            _ => Ok(()),
        }
    }

    fn batch(&mut self, mut batch: proto::Batch, block: Option<super::Block>) -> Result<()> {
        let head = self.heads.of(&mut batch)?;
        let id = batch.id;
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        if request.arriving.is_some() {
            return Err(Error::Protocol("a batch before the end of the one before".to_owned()));
        }
        let arriving = match Arriving::new(&batch, head, block, &self.pool, request.is_wanted()) {
            Err(error @ Error::OutOfMemory { .. }) => {
                request.fail(error);
                Arriving::skipped(&batch)
            }
            arriving => arriving?,
        };
        request.arriving = Some(arriving);
        self.finish_batch(id)
    }

    fn part(&mut self, part: &proto::Part) -> Result<()> {
        let Some(request) = self.requests.get_mut(part.id) else { return Ok(()) };
        let arriving = request.arriving.as_mut();
        arriving.ok_or_else(|| Error::Protocol("a part of no batch".to_owned()))?.part(part)?;
        self.finish_batch(part.id)
    }

    fn finish_batch(&mut self, id: u64) -> Result<()> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let Some(arriving) = request.arriving.take_if(|arriving| arriving.is_complete()) else { return Ok(()) };
        let last = arriving.last;
        if last {
            self.answered.push((id, 1));
        }
        self.requests.complete(id, arriving.finish(), last)
    }
}

/// What a goodbye means to those who wait.
pub(super) fn farewell(address: &str, goodbye: proto::Goodbye) -> Error {
    match goodbye.reason.map(convert::error::decode) {
        _ if goodbye.stopping => Error::Unavailable(format!("the server at {address} has stopped")),
        Some(Error::Unauthenticated(reason)) => Error::Unauthenticated(format!("{address}: {reason}")),
        Some(error) => error,
        None => Error::Unavailable(format!("the server at {address} ended the connection")),
    }
}
