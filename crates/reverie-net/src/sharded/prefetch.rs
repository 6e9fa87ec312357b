//! Batches of several servers ahead of their reader, made by a task.

use super::calls::RequestEnd;
use super::draws::{Draws, DrawsOutcome};
use super::group::ShardedState;
use super::join::{ShardedReadOptions, joined};
use super::members::Members;
use crate::trace::TraceContext;
use reverie_core::batch::Planner;
use reverie_core::replay::Batches;
use reverie_core::sample::{ArrayMemory, Description, DrawnBatch, GatheredBatch, SampleRequest, Schedule};
use reverie_core::table::Withdrawal;
use reverie_core::{Error, Result};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The time for which closing waits for the task.
const CLOSING: Duration = Duration::from_secs(1);

/// The task and its queue.
pub(super) struct PrefetchTask {
    queue: Arc<PrefetchQueue>,
    withdrawal: Withdrawal,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct PrefetchQueue {
    /// Held for a push or a pop.
    state: Mutex<PrefetchState>,
    changed: Condvar,
    /// Notified when the reader took a batch.
    taken: Notify,
    /// Notified when the reader closes.
    closing: Notify,
}

#[derive(Default)]
struct PrefetchState {
    /// The ready batches, each with the trace that it was drawn for.
    ready: VecDeque<(Result<DrawnBatch>, Option<TraceContext>)>,
    /// The trace of the reader's call that last made room, or of the one that made the iterator.
    trace: Option<TraceContext>,
    /// The draws of a batch that was not finished.
    unfinished: Option<DrawnBatch>,
    has_ended: bool,
}

impl PrefetchQueue {
    fn state(&self) -> MutexGuard<'_, PrefetchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a batch or the end, at most for `timeout`.
    fn wait(&self, timeout: Duration, until: impl Fn(&PrefetchState) -> bool) -> MutexGuard<'_, PrefetchState> {
        let waited = self.changed.wait_timeout_while(self.state(), timeout, |state| !until(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Marks the end however the task ends: by a panic or an abort, the outcome is an error.
struct EndMarker {
    queue: Arc<PrefetchQueue>,
    outcome: Result<()>,
}

impl Drop for EndMarker {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        let mut state = self.queue.state();
        let trace = state.trace;
        state.ready.extend(outcome.err().map(|error| (Err(error), trace)));
        state.has_ended = true;
        drop(state);
        self.queue.changed.notify_all();
    }
}

/// The data of the task.
struct PrefetchWork {
    group: Arc<ShardedState>,
    queue: Arc<PrefetchQueue>,
    schedule: Schedule,
    read_options: ShardedReadOptions,
    end: RequestEnd,
}

impl PrefetchTask {
    pub(super) fn new(group: &Arc<ShardedState>, schedule: Schedule, read_options: ShardedReadOptions) -> Self {
        let (queue, withdrawal) = (Arc::<PrefetchQueue>::default(), Withdrawal::default());
        queue.state().trace = TraceContext::current();
        let end = RequestEnd::new(&group.runtime, None, &withdrawal);
        let work = PrefetchWork { group: Arc::clone(group), queue: Arc::clone(&queue), schedule, read_options, end };
        let task = group.runtime.spawn(async move {
            let defect = "the task that prefetches batches panicked, which is a defect in reverie; please report it with the panic on stderr";
            let mut ending =
                EndMarker { queue: Arc::clone(&work.queue), outcome: Err(Error::Unavailable(defect.to_owned())) };
            ending.outcome = work.group.members.unless_closed(work.until_closed()).await;
        });
        Self { queue, withdrawal, task }
    }
}

impl PrefetchWork {
    async fn until_closed(&self) -> Result<()> {
        let mut run = pin!(self.run());
        loop {
            tokio::select! {
                biased;
                outcome = &mut run => return outcome,
                // A withdrawn request ends when it is polled again.
                () = self.queue.closing.notified() => {}
            }
        }
    }

    async fn run(&self) -> Result<()> {
        let mut drawn = 0;
        loop {
            let parts = self.schedule.next(drawn);
            if parts.is_empty() || !self.has_room().await {
                return Ok(());
            }
            let trace = self.queue.state().trace;
            let batch = TraceContext::within_future(trace, self.batch(&parts)).await?;
            let Some(batch) = batch else { return Ok(()) };
            drawn += parts.iter().map(|(_, count)| count).sum::<usize>();
            self.queue.state().ready.push_back((Ok(batch), trace));
            self.queue.changed.notify_all();
        }
    }

    /// False if the reader closed.
    async fn has_room(&self) -> bool {
        loop {
            let taken = self.queue.taken.notified();
            if self.end.is_withdrawn() {
                return false;
            }
            if self.queue.state().ready.len() < self.schedule.ahead.max(1) {
                return true;
            }
            taken.await;
        }
    }

    /// The next batch; `None` if the reader closed meanwhile.
    async fn batch(&self, parts: &[(&str, usize)]) -> Result<Option<DrawnBatch>> {
        let (mut all, mut whole) = (Vec::new(), true);
        for (table, count) in parts {
            let table = self.group.open(table, &self.end).await?;
            let Schedule { without_replacement, windows, .. } = self.schedule;
            let request = SampleRequest { num_samples: *count, without_replacement, windows, lessee: None };
            let draws = Draws { table: &table, request, read_options: &self.read_options, end: &self.end };
            let DrawsOutcome { made, error } = draws.parts().await?;
            all.extend(made);
            if let Some(error) = error {
                return Err(error);
            }
            if self.end.is_withdrawn() {
                whole = false;
                break;
            }
        }
        if parts.len() > 1 {
            // One table's smallest probability is meaningless for weights in a mixture.
            all.iter_mut().for_each(|part| part.smallest = None);
        }
        if all.is_empty() {
            return Ok(None);
        }
        let read_options = self.read_options.clone();
        // The runtime's thread moves the bytes of all clients: copies are made elsewhere.
        let copied = self.group.runtime.spawn_blocking(move || {
            gathered(joined(all, &read_options.options(), read_options.allocate)?, &read_options)
        });
        let batch = copied.await.unwrap_or_else(|error| Err(Error::Unavailable(format!("a batch failed: {error}"))))?;
        if whole {
            return Ok(Some(batch));
        }
        self.queue.state().unfinished = Some(batch);
        Ok(None)
    }
}

/// Gathers items of this process.
fn gathered(drawn: DrawnBatch, read_options: &ShardedReadOptions) -> Result<DrawnBatch> {
    let DrawnBatch::Items(mut draws) = drawn else { return Ok(drawn) };
    let plan = Planner::new(&read_options.options()).plan_draws(&draws)?;
    let mut arrays: Vec<Box<dyn ArrayMemory>> = Vec::with_capacity(plan.outputs.len());
    for output in &plan.outputs {
        let needed = output.bytes();
        arrays.push((read_options.allocate)(needed).ok_or(Error::OutOfMemory { needed: needed as u64 })?);
    }
    let mut out: Vec<&mut [MaybeUninit<u8>]> =
        plan.outputs.iter().zip(&mut arrays).map(|(output, memory)| memory.bytes(output.bytes())).collect();
    plan.gather_draws(&draws, &mut out)?;
    draws.items = Vec::new();
    Ok(DrawnBatch::Gathered(GatheredBatch { draws, description: Description::Plan(plan), arrays }))
}

impl Batches for PrefetchTask {
    fn next(&mut self, timeout: Duration) -> Option<Result<Option<DrawnBatch>>> {
        let mut state = self.queue.wait(timeout, |state| !state.ready.is_empty() || state.has_ended);
        let (next, has_ended) = (state.ready.pop_front(), state.has_ended);
        state.trace = TraceContext::current();
        drop(state);
        self.queue.taken.notify_one();
        match next {
            Some((batch, trace)) => {
                TraceContext::set_answered(trace);
                Some(batch.map(Some))
            }
            None => has_ended.then_some(Ok(None)),
        }
    }

    /// Does nothing: draws from several servers are not leased.
    fn again(&mut self) {}

    fn close(&mut self) -> Vec<DrawnBatch> {
        self.withdrawal.make();
        self.queue.closing.notify_one();
        self.queue.taken.notify_one();
        drop(self.queue.wait(CLOSING, |state| state.has_ended));
        self.task.abort();
        let mut state = self.queue.state();
        let ready: Vec<DrawnBatch> = state.ready.drain(..).filter_map(|(batch, _)| batch.ok()).collect();
        ready.into_iter().chain(state.unfinished.take()).collect()
    }
}

/// The batches of an only server, which makes them itself.
pub(super) struct SingleServerBatches {
    batches: Box<dyn Batches>,
    members: Arc<Members>,
    has_ended: bool,
}

impl SingleServerBatches {
    pub(super) fn new(batches: Box<dyn Batches>, members: &Arc<Members>) -> Self {
        Self { batches, members: Arc::clone(members), has_ended: false }
    }
}

impl Batches for SingleServerBatches {
    /// Ends when the client is closed, and takes note of a lost server, like batches of several servers.
    fn next(&mut self, timeout: Duration) -> Option<Result<Option<DrawnBatch>>> {
        if self.has_ended {
            return Some(Ok(None));
        }
        let next = match self.members.refuse_closed() {
            Ok(()) => self.batches.next(timeout),
            Err(closed) => Some(Err(closed)),
        };
        if let Some(Err(error)) = &next {
            self.has_ended = true;
            self.members.missed(0, error);
        }
        next
    }

    fn again(&mut self) {
        self.batches.again();
    }

    fn close(&mut self) -> Vec<DrawnBatch> {
        self.batches.close()
    }
}

impl Drop for PrefetchTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
