//! One table of all servers: the limits over all of them, their counts, and the requests that wait here.

use super::calls::RequestEnd;
use super::members::{MAX_RETRY_PAUSE, Members, Watcher};
use super::model::Model;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reverie_core::replay::ShardTable;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Tally, Ticket, WaitEntry};
use reverie_core::{Error, Result};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{MutexGuard as Turn, Notify};
use tokio::time::Instant;

/// The longest wait for news of servers before they are asked again, so that a silent one is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The properties that decide how a table is drawn from.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableKind {
    /// This client has the limits over all servers.
    pub(super) is_limited: bool,
    /// This client grants inserts to the servers.
    pub(super) grants: bool,
    /// No server is in this process.
    pub(super) is_remote: bool,
    /// Draws of a server may be discarded: they are independent, and no other client counts them.
    pub(super) discards: bool,
}

pub(super) struct Table {
    pub(super) name: String,
    pub(super) kind: TableKind,
    members: Arc<Members>,
    /// Held for a decision.
    model: Mutex<Model>,
    /// Held while draws are made or inserts granted, one after the other.
    turn: tokio::sync::Mutex<()>,
    /// True if the figures of the last responses are still valid.
    is_fresh: AtomicBool,
    /// Notified when a server is lost or back, when limits change, and when the client is closed.
    wake: Notify,
    /// Draws that wait, in order of arrival.
    waiting: Mutex<Vec<(u64, Instant, WaitEntry)>>,
    /// The start of this object's clock.
    began: Instant,
}

impl Watcher for Table {
    fn lost(&self, shard: usize) {
        self.model().lost(shard);
        self.wake_draws();
    }

    fn join(&self, shard: usize) -> BoxFuture<'_, Result<()>> {
        async move {
            // In turn: a tally that is on its way for longer must not replace a newer one.
            let _turn = self.turn.lock().await;
            let (asked, replay) = (self.began.elapsed(), self.members.replay(shard));
            let tally = tokio::time::timeout(MAX_RETRY_PAUSE, replay.tally(&self.name, None)).await;
            let tally =
                tally.unwrap_or_else(|_| Err(Error::Unavailable(replay.no_response_reason(MAX_RETRY_PAUSE))))?;
            self.received(shard, tally, asked);
            self.wake_draws();
            Ok(())
        }
        .boxed()
    }
}

impl Table {
    pub(super) fn new(members: &Arc<Members>, name: String, model: Model, kind: TableKind) -> Self {
        Self {
            name,
            kind,
            members: Arc::clone(members),
            model: Mutex::new(model),
            turn: tokio::sync::Mutex::default(),
            is_fresh: AtomicBool::new(false),
            wake: Notify::new(),
            waiting: Mutex::default(),
            began: Instant::now(),
        }
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// The time of this object's clock.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes in a tally that was asked for at this time, unless the server was lost or restarted meanwhile.
    pub(super) fn received(&self, shard: usize, tally: Tally, asked: Duration) {
        let mut model = self.model();
        if self.members.is_lost(shard) || self.members.is_restarted(shard) {
            return;
        }
        model.received(shard, tally);
        model.received_clock(shard, asked, self.now(), tally.now);
    }

    /// Makes the next draws ask the servers first.
    pub(super) fn forget(&self) {
        self.is_fresh.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh.load(Ordering::Relaxed)
    }

    pub(super) fn refreshed(&self) {
        self.is_fresh.store(true, Ordering::Relaxed);
    }

    /// Wakes draws that wait.
    pub(super) fn wake_draws(&self) {
        self.wake.notify_waiters();
    }

    pub(super) fn next_wake(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Waits for the turn. Its holder waits only for responses, never for a limiter.
    pub(super) async fn turn(&self, end: &RequestEnd) -> Result<Turn<'_, ()>> {
        match end.within(end.answer(), self.turn.lock()).await {
            Some(turn) => Ok(turn),
            None => {
                Err(Error::Deadline(format!("another call waits for an answer of the shards of table '{}'", self.name)))
            }
        }
    }

    /// Replaces the limits over all servers; the counts go on.
    pub(super) fn limit(&self, limiter: Limiter) {
        self.model().set_limiter(limiter);
        self.forget();
        self.wake_draws();
    }

    /// Asks all servers for the first time, or after all tables were reset.
    pub(super) async fn begin(&self, end: &RequestEnd) -> Result<()> {
        let _turn = self.turn(end).await?;
        self.model().reset();
        self.forget();
        self.ask(end, &vec![None; self.members.len()]).await?;
        self.exchange(end, &vec![0; self.members.len()]).await
    }

    /// Asks all servers, and grants inserts. `wants`: inserts about to come, one number for each server.
    pub(super) async fn refresh(&self, end: &RequestEnd, wants: &[u64]) -> Result<()> {
        let _turn = self.turn(end).await?;
        self.exchange(end, wants).await
    }

    /// Like `refresh`, twice: the second exchange grants what the first took back from others.
    pub(super) async fn refresh_granting(&self, end: &RequestEnd, wants: &[u64]) -> Result<()> {
        self.refresh(end, wants).await?;
        self.refresh(end, wants).await
    }

    /// Changes when a server is restarted or its table reset: its ration is lost.
    pub(super) fn session(&self, shard: usize) -> (u64, Option<u64>) {
        let incarnation = self.model().tally(shard).map(|tally| tally.incarnation);
        (self.members.replay(shard).restarts(), incarnation)
    }

    /// True if inserts wait at servers that the limits of all allow, by the last responses.
    pub(super) fn holds_inserts_back(&self) -> bool {
        let model = self.model();
        let present = (0..model.len()).filter(|shard| model.is_present(*shard));
        let waiting: u64 = present.filter_map(|shard| model.tally(shard)).map(|tally| tally.waiting_inserts).sum();
        waiting > 0 && model.inserts_left() != Some(0)
    }

    /// Like `refresh`, for a caller that has the turn.
    pub(super) async fn exchange(&self, end: &RequestEnd, wants: &[u64]) -> Result<()> {
        let grants = match self.kind.grants {
            true => self.model().rations(wants),
            false => vec![None; self.members.len()],
        };
        self.ask(end, &grants).await
    }

    /// Asks for the tallies of the servers that can be reached.
    async fn ask(&self, end: &RequestEnd, grants: &[Option<(u64, u64)>]) -> Result<()> {
        self.members.check_restarted(end, 0..self.members.len()).await;
        let asked = self.now();
        let tickets = self.members.present().into_iter().map(|shard| {
            let replay = self.members.replay(shard);
            (shard, Arc::clone(replay), replay.tally(&self.name, grants[shard]))
        });
        let tickets = tickets.collect();
        let mut failed = None;
        for (shard, outcome) in end.all(tickets).await {
            match outcome {
                Ok(tally) => self.received(shard, tally, asked),
                Err(error) if self.members.missed(shard, &error) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)?;
        self.members.refuse_none()
    }

    /// Grants inserts without waiting for the responses: the next draws bring them.
    pub(super) fn grant(&self) {
        if !self.kind.grants {
            return;
        }
        let rations = {
            let mut model = self.model();
            let wants = vec![0; model.len()];
            model.rations(&wants)
        };
        for (shard, grant) in rations.into_iter().enumerate().filter(|(_, grant)| grant.is_some()) {
            // A response that is there already is not used either: a draw that then waits for news would miss it.
            drop(self.members.replay(shard).tally(&self.name, grant));
        }
    }

    /// Waits until a server has changed since its last tally, so that a draw might succeed, or until draws are woken.
    ///
    /// At most ten seconds, and not past the end. Never leaves a server's answer unread that means that it is lost.
    pub(super) async fn wait_for_change(&self, end: &RequestEnd, mut wake: Pin<&mut Notified<'_>>) -> Result<()> {
        let limit = end.left().map_or(LONGEST_WAIT, |left| left.min(LONGEST_WAIT));
        let seen: Vec<_> = {
            let model = self.model();
            let more = model.patience();
            let present = (0..model.len()).filter(|shard| model.is_present(*shard));
            present.filter_map(|shard| Some((shard, model.tally(shard)?.seen(more)))).collect()
        };
        let change = |(shard, seen)| (shard, self.members.replay(shard).changed_tally(&self.name, seen, limit));
        let mut pending: Vec<(usize, Ticket<Tally>)> = seen.into_iter().map(change).collect();
        let tallies = poll_fn(|context| {
            // Each must know the task that it wakes.
            let done = pending.iter().filter(|(_, ticket)| ticket.is_done_or_wakes(context.waker())).count();
            let woken = wake.as_mut().poll(context).is_ready();
            if done > 0 || woken { Poll::Ready(()) } else { Poll::Pending }
        });
        end.within(Some(limit), tallies).await;
        for (shard, mut ticket) in pending.drain(..) {
            // The next round asks these servers again, without concurrent draws, so that no older state is stored.
            match ticket.poll() {
                Some(Err(error)) if self.members.missed(shard, &error) => {}
                Some(Err(error)) => return Err(error),
                Some(Ok(_)) | None => {}
            }
        }
        Ok(())
    }

    fn queue(&self) -> MutexGuard<'_, Vec<(u64, Instant, WaitEntry)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a draw among those that wait, until the result is dropped.
    pub(super) fn waits(&self, since: Instant, wanted: u64) -> QueuedDraw<'_> {
        let mut queue = self.queue();
        let number = queue.last().map_or(0, |(number, ..)| number + 1);
        queue.push((number, since, WaitEntry { since: Duration::ZERO, wanted, done: 0 }));
        QueuedDraw { table: self, number }
    }

    /// The draws that wait, in order of arrival.
    pub(super) fn waiting(&self) -> Vec<WaitEntry> {
        let queue = self.queue();
        queue.iter().map(|(_, since, waiting)| WaitEntry { since: since.elapsed(), ..*waiting }).collect()
    }

    /// The number of inserts that the limits allow now; `None` if this client has none, or they allow any number.
    pub(super) fn inserts_left(&self) -> Option<u64> {
        self.model().inserts_left().filter(|_| self.kind.is_limited)
    }

    /// The reason why draws and inserts wait, over all servers, by their last responses.
    pub(super) fn why(&self) -> String {
        let (model, waiting) = (self.model(), self.queue().len());
        let counters = model.counters();
        let present = (0..model.len()).filter(|shard| model.is_present(*shard));
        let tallies: Vec<_> = present.map(|shard| model.tally(shard).copied().unwrap_or_default()).collect();
        let mut text = format!(
            "table '{}' over {} of {} shards: {} items, {} inserts, {} samples.",
            self.name,
            tallies.len(),
            model.len(),
            model.size(),
            counters.inserts,
            counters.samples
        );
        text += &if waiting > 0 { format!(" {waiting} samples waiting") } else { " no samples waiting".to_owned() };
        text += &match model.blocked_sample() {
            Some(reason) => format!("; one would: {reason}."),
            None => ". Samples can go on.".to_owned(),
        };
        if self.kind.is_limited {
            let inserts: u64 = tallies.iter().map(|tally| tally.waiting_inserts).sum();
            let open = match model.inserts_left() {
                Some(left) => format!("{left} more inserts"),
                None => "any number of inserts".to_owned(),
            };
            text += &format!(" {inserts} inserts waiting; the limiter of all shards allows {open}");
            text += &match model.limiter().blocked_insert(&counters) {
                Some(reason) => format!(": {reason}."),
                None => ".".to_owned(),
            };
        }
        drop(model);
        match self.members.lost_names() {
            lost if lost.is_empty() => text,
            lost => format!("{text} Lost: {lost}."),
        }
    }

    /// The figures of a server.
    pub(super) fn figures(&self, shard: usize) -> ShardTable {
        let model = self.model();
        let tally = model.tally(shard).copied().unwrap_or_default();
        ShardTable {
            mass: tally.mass.total,
            chance: model.probabilities().map_or(0.0, |probabilities| probabilities[shard]),
            ration: tally.ration,
            num_inserts: tally.counters.inserts,
            num_samples: tally.counters.samples,
            waiting_inserts: tally.waiting_inserts,
            discarded: model.discarded(shard),
            clock_ahead: model.clock_ahead(shard),
        }
    }
}

/// A draw that waits, in the list of its table.
pub(super) struct QueuedDraw<'a> {
    table: &'a Table,
    number: u64,
}

impl QueuedDraw<'_> {
    /// Shows how many of its draws are made.
    pub(super) fn has(&self, done: u64) {
        if let Some((.., waiting)) = self.table.queue().iter_mut().find(|(number, ..)| *number == self.number) {
            waiting.done = done;
        }
    }
}

impl Drop for QueuedDraw<'_> {
    fn drop(&mut self) {
        self.table.queue().retain(|(number, ..)| *number != self.number);
    }
}
