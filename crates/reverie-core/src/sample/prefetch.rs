//! Batches made ahead: one thread draws and gathers into the reader's memory, a bounded number ahead of the reader.
//!
//! Their draws are leased: those of a reader that is dropped go back to their tables.

use super::{ArrayAllocator, ArrayMemory, Description, Draws, GatheredBatch, Mixture, SampleRequest, Source, Windows};
use crate::batch::Planner;
use crate::error::{Error, Result};
use crate::sync::{Arc, Condvar, Mutex, lock};
use crate::table::{COMMIT_GRACE, Lessee};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;
use std::time::Duration;

/// The time for which the thread waits for a table before it checks whether it must stop.
const SLICE: Duration = Duration::from_millis(20);

/// The batches that are made ahead of their reader.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Each batch has this many draws of each of these tables, one table after the other.
    pub parts: Vec<(String, usize)>,
    /// Set if the numbers of draws change from batch to batch: those of `parts` are then the batch size.
    pub mixture: Option<Mixture>,
    /// See [`SampleRequest::without_replacement`].
    pub without_replacement: bool,
    /// See [`SampleRequest::windows`].
    pub windows: Option<Windows>,
    /// The total number of draws; the last batch is smaller if they do not fill it. `None` for no end.
    pub max_samples: Option<usize>,
    /// The most batches made ahead; at least 1.
    pub ahead: usize,
    /// If a network holds the reader up, more batches than that, as long as they have at most this many bytes.
    pub budget: Option<u64>,
}

impl Schedule {
    /// The draws of the next batch from each table, after this many draws; empty at the end.
    pub fn next(&self, drawn: usize) -> Vec<(&str, usize)> {
        let mut left = self.max_samples.map_or(usize::MAX, |max| max.saturating_sub(drawn));
        let mut parts = Vec::with_capacity(self.parts.len());
        let changing = self.mixture.as_ref().map(|mixture| mixture.counts((drawn / mixture.batch_size) as u64));
        for (index, (table, wanted)) in self.parts.iter().enumerate() {
            let count = changing.as_ref().map_or(*wanted, |counts| counts[index]).min(left);
            left -= count;
            if count > 0 {
                parts.push((table.as_str(), count));
            }
        }
        parts
    }
}

/// The thread and its queue.
pub struct Prefetcher {
    shared: Arc<PrefetchQueue>,
    thread: Option<JoinHandle<()>>,
}

struct PrefetchQueue {
    /// Guards the queue; held for a push or a pop, never during a draw or a copy.
    state: Mutex<PrefetchState>,
    changed: Condvar,
    ahead: usize,
}

struct PrefetchState {
    ready: VecDeque<Result<GatheredBatch>>,
    /// Draws for a batch that was unfinished when the reader closed, or that cannot be gathered.
    unfinished: Draws,
    stop: bool,
    ended: bool,
}

impl Prefetcher {
    /// Starts drawing. `planner` decides on the arrays, and `allocate` returns their memory.
    pub fn new(
        source: Arc<dyn Source>,
        schedule: Schedule,
        planner: Planner,
        allocate: ArrayAllocator,
    ) -> std::io::Result<Self> {
        let state = PrefetchState { ready: VecDeque::new(), unfinished: Draws::default(), stop: false, ended: false };
        let shared =
            Arc::new(PrefetchQueue { state: Mutex::new(state), changed: Condvar::new(), ahead: schedule.ahead.max(1) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("reverie-prefetch".to_owned())
            .spawn(move || run(&*source, &schedule, (planner, allocate), &theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits for the next batch, at most for `timeout`: `None` if there is none yet, `Some(None)` at the end.
    ///
    /// An error is followed by the end.
    pub fn next(&self, timeout: Duration) -> Option<Option<Result<GatheredBatch>>> {
        let mut state = lock(&self.shared.state);
        if state.ready.is_empty() && !state.ended && !timeout.is_zero() {
            let waited = self.shared.changed.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let next = state.ready.pop_front();
        let ended = state.ended;
        drop(state);
        if next.is_some() {
            self.shared.changed.notify_all();
        }
        next.map(Some).or(ended.then_some(None))
    }

    /// Stops the thread, and returns what was drawn and not delivered. Blocks for as long as a gather takes.
    ///
    /// These are the batches that are ready, and the draws (with their items) of an unfinished one.
    pub fn close(&mut self) -> (Vec<GatheredBatch>, Draws) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there ended the thread, which is all that is needed here.
            let _ = thread.join();
        }
        let mut state = lock(&self.shared.state);
        let ready = state.ready.drain(..).filter_map(Result::ok).collect();
        (ready, std::mem::take(&mut state.unfinished))
    }
}

impl Drop for Prefetcher {
    /// Signals the thread to stop, and does not wait for it.
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_all();
    }
}

/// Sets `ended` however the thread ends; after a panic, an error comes first.
struct PrefetchEndGuard<'a>(&'a PrefetchQueue);

impl Drop for PrefetchEndGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if std::thread::panicking() {
            let defect = "the thread that prefetches batches panicked, which is a defect in reverie; please report it with the panic on stderr";
            state.ready.push_back(Err(Error::Unavailable(defect.to_owned())));
        }
        state.ended = true;
        drop(state);
        self.0.changed.notify_all();
    }
}

fn run(
    source: &dyn Source,
    schedule: &Schedule,
    (mut planner, allocate): (Planner, ArrayAllocator),
    shared: &PrefetchQueue,
) {
    let _ending = PrefetchEndGuard(shared);
    let mut drawn = 0;
    loop {
        let parts = schedule.next(drawn);
        if parts.is_empty() || !shared.wait_for_room() {
            return;
        }
        let made = match draw(source, schedule, &parts, shared) {
            Ok(Some(draws)) => {
                drawn += draws.len();
                gather(draws, &mut planner, allocate).map_err(|failed| {
                    let (draws, error) = *failed;
                    lock(&shared.state).unfinished = draws;
                    error
                })
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let failed = made.is_err();
        lock(&shared.state).ready.push_back(made);
        shared.changed.notify_all();
        if failed {
            return;
        }
    }
}

/// The draws of one batch; `None` if the reader closed meanwhile.
///
/// Then, and after an error, the draws are kept for the reader: items of a consuming table exist nowhere else.
fn draw(
    source: &dyn Source,
    schedule: &Schedule,
    parts: &[(&str, usize)],
    shared: &PrefetchQueue,
) -> Result<Option<Draws>> {
    let mut all = Draws::default();
    let whole = draw_parts(source, schedule, parts, shared, &mut all);
    if let Ok(true) = whole {
        return Ok(Some(all));
    }
    lock(&shared.state).unfinished = all;
    whole.map(|_| None)
}

/// Adds the draws of every part to `all`; false if the reader closed before the last.
fn draw_parts(
    source: &dyn Source,
    schedule: &Schedule,
    parts: &[(&str, usize)],
    shared: &PrefetchQueue,
    all: &mut Draws,
) -> Result<bool> {
    for (index, (table, count)) in parts.iter().enumerate() {
        let Schedule { without_replacement, windows, .. } = *schedule;
        let request = SampleRequest { num_samples: *count, without_replacement, windows, lessee: Some(Lessee::HERE) };
        let mut ticket = source.sample(table, request)?;
        let draws = loop {
            if let Some(done) = ticket.wait(SLICE) {
                break done?;
            }
            if lock(&shared.state).stop {
                let draws = ticket.cancel_within(COMMIT_GRACE)?;
                // Without a commit, they go back to their table.
                if draws.not_committed.is_none() {
                    all.append(draws);
                }
                return Ok(false);
            }
        };
        if index == 0 {
            *all = draws;
        } else {
            all.append(draws);
            // One table's smallest probability is meaningless for weights in a mixture.
            all.smallest_probability = None;
        }
    }
    Ok(true)
}

/// Gathers draws; on an error, returns the draws with it.
fn gather(
    mut draws: Draws,
    planner: &mut Planner,
    allocate: ArrayAllocator,
) -> Result<GatheredBatch, Box<(Draws, Error)>> {
    let plan = match planner.plan_draws(&draws) {
        Ok(plan) => plan,
        Err(error) => return Err(Box::new((draws, error))),
    };
    let mut arrays: Vec<Box<dyn ArrayMemory>> = Vec::with_capacity(plan.outputs.len());
    for output in &plan.outputs {
        match allocate(output.bytes()) {
            Some(memory) => arrays.push(memory),
            None => return Err(Box::new((draws, Error::OutOfMemory { needed: output.bytes() as u64 }))),
        }
    }
    let mut out: Vec<&mut [MaybeUninit<u8>]> =
        plan.outputs.iter().zip(&mut arrays).map(|(output, memory)| memory.bytes(output.bytes())).collect();
    if let Err(error) = plan.gather_draws(&draws, &mut out) {
        return Err(Box::new((draws, error)));
    }
    // The chunks need not stay alive while the batch waits in the queue.
    draws.items = Vec::new();
    Ok(GatheredBatch { draws, description: Description::Plan(plan), arrays })
}

impl PrefetchQueue {
    /// False if the reader closed.
    fn wait_for_room(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.stop && state.ready.len() >= self.ahead {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        !state.stop
    }
}
