//! Batches that a server makes: several requests in flight, so that the way to it costs no time.

use super::{Remote, RemoteBatch, SampleRequest, Sampled};
use reverie_core::Result;
use reverie_core::sample::Schedule;
use reverie_core::table::Ticket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Requests in flight, in order.
pub struct Pipeline {
    remote: Arc<Remote>,
    schedule: Schedule,
    form: SampleRequest,
    waiting: VecDeque<Ticket<Sampled>>,
    /// Draws that were asked for.
    asked: usize,
    /// What an error left of the draws before it.
    left: Vec<RemoteBatch>,
    ended: bool,
}

impl Pipeline {
    /// Asks for the first batches. `form` says how to read; what to read is the schedule's.
    pub fn new(remote: Arc<Remote>, schedule: Schedule, form: SampleRequest) -> Self {
        let waiting = VecDeque::with_capacity(schedule.ahead.min(1024));
        let mut pipeline = Self { remote, schedule, form, waiting, asked: 0, left: Vec::new(), ended: false };
        pipeline.ask();
        pipeline
    }

    /// The next batch, waiting for it at most for `timeout`: `None` where there is none yet, `Ok(None)` at the end.
    /// After an error comes the end.
    pub fn next(&mut self, timeout: Duration) -> Option<Result<Option<RemoteBatch>>> {
        let Some(first) = self.waiting.front_mut().filter(|_| !self.ended) else { return Some(Ok(None)) };
        let outcome = first.wait(timeout)?;
        self.waiting.pop_front();
        let Sampled { mut batches, error } = match outcome {
            Ok(sampled) => sampled,
            Err(error) => Sampled { batches: Vec::new(), error: Some(error) },
        };
        if let Some(error) = error {
            self.ended = true;
            self.left = batches;
            return Some(Err(error));
        }
        self.ask();
        // One batch was asked for.
        Some(Ok(batches.pop()))
    }

    /// Withdraws what is in flight, and hands out what was drawn and never delivered. Blocks for as long as the server
    /// takes to answer.
    pub fn close(&mut self) -> Vec<RemoteBatch> {
        self.ended = true;
        let mut left = std::mem::take(&mut self.left);
        for ticket in self.waiting.drain(..) {
            // An error here is the connection's: then the server keeps the draws for nobody.
            left.extend(ticket.cancel().map(|sampled| sampled.batches).unwrap_or_default());
        }
        left
    }

    /// Keeps as many requests in flight as were asked for.
    fn ask(&mut self) {
        while self.waiting.len() < self.schedule.ahead {
            let parts = self.schedule.next(self.asked);
            if parts.is_empty() {
                return;
            }
            self.asked += parts.iter().map(|(_, count)| count).sum::<usize>();
            let parts = parts.into_iter().map(|(table, count)| (table.to_owned(), count)).collect();
            let request = SampleRequest { parts, ..self.form.clone() };
            self.waiting.push_back(self.remote.sample(request, None));
        }
    }
}
