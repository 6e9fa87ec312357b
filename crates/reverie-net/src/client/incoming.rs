//! Messages from the server: answers go to their callers, and draws that reach no caller back to the server.

use super::arriving_batch::ArrivingBatch;
use super::engine::Engine;
use crate::convert;
use crate::proto;
use crate::proto::server_message::Body;
use crate::transport::client::ArrivedMessage;
use reverie_core::{Error, Result};
use tokio::time::Instant;

impl Engine {
    /// Handles a message from the server. `Err` ends the connection.
    pub(super) fn take(&mut self, arrived: ArrivedMessage) -> Result<()> {
        let ArrivedMessage { message, block } = arrived;
        match message.body {
            Some(Body::Inserted(inserted)) => {
                let below = inserted.first_id.saturating_add(u64::from(inserted.requests));
                if let Some(round_trip) = self.round_trip.confirmed(below, Instant::now()) {
                    self.outbox.set_round_trip(round_trip);
                }
                self.inserted(inserted)
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
            Some(Body::Goodbye(goodbye)) => Err(goodbye_error(self.outbox.address(), goodbye)),
            Some(Body::Hello(_) | Body::Challenge(_)) => {
                Err(Error::Protocol("the server sent a second hello".to_owned()))
            }
            // The transport handles slots.
            Some(Body::InsertSlot(_) | Body::Consumed(_)) | None => Ok(()),
        }
    }

    fn reply(&mut self, reply: proto::Reply) -> Result<()> {
        let proto::Reply { id, body } = reply;
        let body = body.ok_or_else(|| Error::Protocol("a reply has no body".to_owned()))?;
        if let Some(request) = self.requests.get_mut(id) {
            if request.is_wanted() || !request.may_hold_draws() {
                self.answered.extend((!request.keeps_lease()).then_some((id, 1)));
            } else if !request.is_returning() && !request.is_leased() {
                self.returned.push(request.take_back(id));
            }
            self.requests.reply(id, body, Instant::now())?;
            self.outbox.set_grace(self.requests.grace());
            return Ok(());
        }
        self.answered.push((id, 1));
        match body {
            proto::reply::Body::Error(detail) => {
                let keys = match &detail.kind {
                    Some(proto::error_detail::Kind::Deadline(deadline)) => deadline.keys.clone(),
                    _ => Vec::new(),
                };
                self.inserts.refused(id, convert::error::decode(detail), &keys);
                self.release_requests();
                Ok(())
            }
            // A reply to a request without a caller.
            _ => Ok(()),
        }
    }

    fn batch(&mut self, mut batch: proto::Batch, block: Option<crate::block::Block>) -> Result<()> {
        let head = self.heads.of(&mut batch)?;
        let id = batch.id;
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        if request.arriving.is_some() {
            return Err(Error::Protocol("a batch began before the previous one ended".to_owned()));
        }
        request.consumes |= batch.leased;
        let arriving = match ArrivingBatch::new(&batch, head, block, &self.pool, request.is_wanted()) {
            Err(error @ Error::OutOfMemory { .. }) => {
                request.fail(error);
                ArrivingBatch::skipped(&batch)
            }
            arriving => arriving?,
        };
        request.arriving = Some(arriving);
        self.finish_batch(id)
    }

    fn part(&mut self, part: &proto::Part) -> Result<()> {
        let Some(request) = self.requests.get_mut(part.id) else {
            self.receiving(false);
            return Ok(());
        };
        let arriving = request.arriving.as_mut();
        arriving.ok_or_else(|| Error::Protocol("a part belongs to no batch".to_owned()))?.part(part)?;
        self.finish_batch(part.id)
    }

    fn finish_batch(&mut self, id: u64) -> Result<()> {
        let Some(request) = self.requests.get_mut(id) else { return Ok(()) };
        let Some(arriving) = request.arriving.take_if(|arriving| arriving.is_complete()) else {
            self.receiving(true);
            return Ok(());
        };
        let last = arriving.last;
        // Draws without a caller are not acknowledged.
        self.has_leased |= request.consumes;
        if last && !request.is_returning() {
            match request.is_wanted() {
                true => self.answered.extend((!request.keeps_lease()).then_some((id, 1))),
                // There was no memory for the draws, or their ticket was dropped.
                false => self.returned.push(request.take_back(id)),
            }
        }
        self.requests.complete(id, arriving.finish(), last)?;
        self.receiving(false);
        Ok(())
    }

    fn receiving(&mut self, receiving: bool) {
        self.requests.receiving(receiving);
        self.outbox.set_grace(self.requests.grace());
    }
}

/// The error that a goodbye means for callers that wait.
pub(super) fn goodbye_error(address: &str, goodbye: proto::Goodbye) -> Error {
    match goodbye.reason.map(convert::error::decode) {
        _ if goodbye.stopping => Error::Unavailable(format!("the server at {address} has stopped")),
        Some(Error::Unauthenticated(reason)) => Error::Unauthenticated(format!("{address}: {reason}")),
        Some(error) => error,
        None => Error::Unavailable(format!("the server at {address} ended the connection")),
    }
}
