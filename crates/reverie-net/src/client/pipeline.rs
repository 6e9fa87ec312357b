//! Batches that a server makes: several requests in flight, so that the way to it costs no time.

use super::{ReadAhead, Remote, RemoteBatch, SampleRequest, Sampled};
use reverie_core::Result;
use reverie_core::replay::Replay;
use reverie_core::sample::Schedule;
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
    waiting: VecDeque<Asked>,
    ahead: ReadAhead,
    /// The reader waits for the first of them.
    held_up: bool,
    /// Draws that were asked for.
    asked: usize,
    /// What an error left of the draws before it.
    left: Vec<RemoteBatch>,
    ended: bool,
}

/// A batch that was asked for.
struct Asked {
    ticket: Ticket<Sampled>,
    since: Instant,
}

impl Pipeline {
    /// Asks for the first batches. `form` says how to read; what to read is the schedule's, and how many ahead is
    /// `ahead`'s (the schedule's own number is for the thread that makes batches in one process).
    pub fn new(remote: Arc<Remote>, schedule: Schedule, form: SampleRequest, ahead: ReadAhead) -> Self {
        let (waiting, left) = (VecDeque::with_capacity(ahead.ahead().min(1024)), Vec::new());
        let mut pipeline =
            Self { remote, schedule, form, waiting, ahead, held_up: false, asked: 0, left, ended: false };
        pipeline.ask();
        pipeline
    }

    /// The next batch, waiting for it at most for `timeout`: `None` where there is none yet, `Ok(None)` at the end.
    /// After an error comes the end.
    pub fn next(&mut self, timeout: Duration) -> Option<Result<Option<RemoteBatch>>> {
        let Some(first) = self.waiting.front_mut().filter(|_| !self.ended) else { return Some(Ok(None)) };
        let ready = first.ticket.poll();
        self.held_up |= ready.is_none();
        let outcome = ready.or_else(|| first.ticket.wait(timeout))?;
        let took = first.since.elapsed();
        self.waiting.pop_front();
        let held_up = std::mem::take(&mut self.held_up);
        let Sampled { mut batches, error } = match outcome {
            Ok(sampled) => sampled,
            Err(error) => Sampled { batches: Vec::new(), error: Some(error) },
        };
        if let Some(error) = error {
            self.ended = true;
            self.left = batches;
            return Some(Err(error));
        }
        match held_up {
            true => {
                let bytes = batches.iter().map(|batch| batch.layout.size_bytes as u64).sum();
                self.ahead.waited(took, bytes, self.remote.round_trip().unwrap_or_default());
            }
            false => self.ahead.was_ready(),
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
        for Asked { ticket, .. } in self.waiting.drain(..) {
            // An error here is the connection's: then the server keeps the draws for nobody.
            left.extend(ticket.cancel().map(|sampled| sampled.batches).unwrap_or_default());
        }
        left
    }

    /// Keeps as many requests in flight as were asked for.
    fn ask(&mut self) {
        while self.waiting.len() < self.ahead.ahead() {
            let parts = self.schedule.next(self.asked);
            if parts.is_empty() {
                return;
            }
            self.asked += parts.iter().map(|(_, count)| count).sum::<usize>();
            let parts = parts.into_iter().map(|(table, count)| (table.to_owned(), count)).collect();
            let request = SampleRequest { parts, ..self.form.clone() };
            let ticket = self.remote.sample(request, None);
            self.waiting.push_back(Asked { ticket, since: Instant::now() });
        }
    }
}
