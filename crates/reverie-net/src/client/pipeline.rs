//! Batches made by a server, with several requests in flight to hide the round trip.
//!
//! Draws that delete their items are leased until the program takes them. Without a connection, those that have arrived
//! wait for the next: a server that was restarted or has forgotten the client gives them to others, and they are asked
//! for again.

use super::read_ahead::ReadAhead;
use super::remote::{Remote, SampleRequest};
use crate::trace::TraceContext;
use reverie_core::Result;
use reverie_core::replay::{Batches, Replay};
use reverie_core::sample::{DrawnBatch, LeaseState, SampleOutcome, Schedule};
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Requests in flight, in order.
pub struct Pipeline {
    remote: Arc<Remote>,
    schedule: Schedule,
    form: SampleRequest,
    waiting: VecDeque<RequestedBatch>,
    ahead: ReadAhead,
    /// The reader waits for the first request.
    reader_waits: bool,
    /// The draws of the batch that was returned last.
    returned: Vec<(String, usize)>,
    /// Draws that were requested.
    asked: usize,
    /// The draws that arrived before an error.
    left: Vec<DrawnBatch>,
    ended: bool,
}

/// A batch that was requested.
struct RequestedBatch {
    ticket: Ticket<SampleOutcome>,
    since: Instant,
    trace: Option<TraceContext>,
    parts: Vec<(String, usize)>,
    /// The batch arrived before the connection was lost; the ticket is that of a question that only the next can
    /// answer.
    withheld: Option<(SampleOutcome, Ticket<bool>)>,
}

impl Pipeline {
    /// Requests the first batches. `form` has the options for reading, the schedule the tables and how far ahead to
    /// read.
    pub fn new(remote: Arc<Remote>, schedule: Schedule, form: SampleRequest) -> Self {
        let ahead = match schedule.budget {
            Some(budget) => ReadAhead::within(schedule.ahead, budget),
            None => ReadAhead::fixed(schedule.ahead),
        };
        let (waiting, left) = (VecDeque::with_capacity(ahead.ahead().min(1024)), Vec::new());
        let mut pipeline = Self {
            remote,
            schedule,
            form,
            waiting,
            ahead,
            reader_waits: false,
            returned: Vec::new(),
            asked: 0,
            left,
            ended: false,
        };
        pipeline.ask();
        pipeline
    }

    /// Sends requests until the wanted number is in flight.
    fn ask(&mut self) {
        while self.waiting.len() < self.ahead.ahead() {
            let parts = self.schedule.next(self.asked);
            if parts.is_empty() {
                return;
            }
            self.asked += parts.iter().map(|(_, count)| count).sum::<usize>();
            let parts = parts.into_iter().map(|(table, count)| (table.to_owned(), count)).collect();
            self.ask_for(parts);
        }
    }

    /// Sends a request for one batch.
    fn ask_for(&mut self, parts: Vec<(String, usize)>) {
        let request = SampleRequest { parts: parts.clone(), ..self.form.clone() };
        let ticket = self.remote.draw(request, None);
        let (since, trace) = (Instant::now(), TraceContext::current());
        self.waiting.push_back(RequestedBatch { ticket, since, trace, parts, withheld: None });
    }
}

impl RequestedBatch {
    /// The outcome, once it is here and a connection shows whether its draws are still leased.
    fn outcome(&mut self, remote: &Remote, table: &str, timeout: Duration) -> Option<Result<SampleOutcome>> {
        let outcome = match self.withheld.take() {
            None => self.ticket.poll().or_else(|| self.ticket.wait(timeout))?,
            Some((sampled, mut question)) => match question.wait(timeout) {
                None => {
                    self.withheld = Some((sampled, question));
                    return None;
                }
                Some(answer) => answer.map(|_| sampled),
            },
        };
        match outcome {
            Ok(sampled) if lease_state(&sampled) == LeaseState::Unknown => {
                self.withheld = Some((sampled, remote.can_sample(table, 1)));
                None
            }
            outcome => Some(outcome),
        }
    }
}

/// The state of the lease: whether the draws may be given to the reader.
fn lease_state(sampled: &SampleOutcome) -> LeaseState {
    sampled.batches.iter().map(DrawnBatch::lease_state).max().unwrap_or(LeaseState::Held)
}

impl Batches for Pipeline {
    fn next(&mut self, timeout: Duration) -> Option<Result<Option<DrawnBatch>>> {
        let table = self.schedule.parts.first().map_or("", |(table, _)| table);
        let Some(first) = self.waiting.front_mut().filter(|_| !self.ended) else { return Some(Ok(None)) };
        let ready = first.outcome(&self.remote, table, Duration::ZERO);
        self.reader_waits |= ready.is_none();
        let outcome = ready.or_else(|| first.outcome(&self.remote, table, timeout))?;
        let (took, parts) = (first.since.elapsed(), std::mem::take(&mut first.parts));
        TraceContext::set_answered(first.trace);
        self.waiting.pop_front();
        let reader_waits = std::mem::take(&mut self.reader_waits);
        let SampleOutcome { mut batches, error } = match outcome {
            Ok(sampled) if lease_state(&sampled) == LeaseState::Ended => {
                self.ask_for(parts);
                return None;
            }
            Ok(sampled) => sampled,
            Err(error) => SampleOutcome { batches: Vec::new(), error: Some(error) },
        };
        if let Some(error) = error {
            self.ended = true;
            self.left = batches;
            return Some(Err(error));
        }
        match reader_waits {
            true => {
                let bytes = batches.iter().map(|batch| batch.arrived_bytes() as u64).sum();
                self.ahead.waited(took, bytes, self.remote.round_trip().unwrap_or_default());
            }
            false => self.ahead.was_ready(),
        }
        self.ask();
        self.returned = parts;
        // The request was for one batch.
        Some(Ok(batches.pop()))
    }

    fn again(&mut self) {
        let parts = std::mem::take(&mut self.returned);
        if !self.ended && !parts.is_empty() {
            self.ask_for(parts);
        }
    }

    /// Withdraws the requests in flight, and waits until the server answers.
    fn close(&mut self) -> Vec<DrawnBatch> {
        self.ended = true;
        let mut left = std::mem::take(&mut self.left);
        for RequestedBatch { ticket, withheld, .. } in self.waiting.drain(..) {
            // An error here means that the connection failed: the server then keeps the draws for no client.
            let sampled = withheld.map(|(sampled, _)| Ok(sampled)).unwrap_or_else(|| ticket.cancel());
            left.extend(sampled.map(|sampled| sampled.batches).unwrap_or_default());
        }
        // Draws that are dropped here go back to their table.
        left.retain(|drawn| drawn.lease_state() == LeaseState::Held);
        left
    }
}
