//! Requests for draws: waiting for the tables, and the draws to gather.

use super::latencies::Stopwatch;
use super::read_options::ReadOptions;
use super::shared::ServerState;
use crate::convert;
use crate::proto;
use reverie_core::chunk::Chunk;
use reverie_core::item::{Body, Item};
use reverie_core::sample::{Draws, MAX_SAMPLES, SampleRequest};
use reverie_core::table::{COMMIT_GRACE, Lease, Lessee, SharedTable, Ticket};
use reverie_core::{Error, Result};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The bytes of a draw before it is gathered, and those sent for it in addition to its columns.
pub(super) const DRAW_BYTES: u64 = 128;
/// The bytes of a draw that a table deletes: it may have to be sent as a batch of its own.
const ALONE_BYTES: u64 = 1024;

/// Draws that are being sent to the client.
/// If it is dropped before the client acknowledged them, leased draws return to their tables.
pub(super) struct DrawDelivery {
    pub(super) id: u64,
    pub(super) read_options: ReadOptions,
    /// Each group becomes one batch.
    pub(super) groups: VecDeque<Draws>,
    /// The groups that were sent, while the client may ask for them again.
    pub(super) sent: VecDeque<Draws>,
    /// True if batches were sent, which its end must follow.
    pub(super) has_sent: bool,
    /// The error that ended the request early.
    pub(super) error: Option<Error>,
    /// The lease of the draws from tables that delete sampled items.
    pub(super) lease: Lease,
    /// True if a separate thread gathers its first group, or will after another one: other answers are sent first.
    pub(super) by_thread: bool,
    /// The bytes that the session counts for it until it is sent.
    pub(super) requested_bytes: u64,
    /// The arrival of its request, until it is sent for the first time.
    pub(super) stopwatch: Option<Stopwatch>,
}

impl DrawDelivery {
    fn empty(id: u64, read_options: ReadOptions) -> Self {
        let lease = Lease::default();
        let (groups, sent) = (VecDeque::new(), VecDeque::new());
        Self {
            id,
            read_options,
            groups,
            sent,
            has_sent: false,
            error: None,
            lease,
            by_thread: false,
            requested_bytes: 0,
            stopwatch: None,
        }
    }

    /// An answer of one batch.
    pub(super) fn whole(id: u64, read_options: ReadOptions, draws: Draws) -> Self {
        Self { groups: VecDeque::from([draws]), ..Self::empty(id, read_options) }
    }

    /// An answer with an error only.
    pub(super) fn refused(id: u64, read_options: ReadOptions, error: Error) -> Self {
        Self { error: Some(error), ..Self::empty(id, read_options) }
    }

    /// True if draws are leased.
    pub(super) fn is_leased(&self) -> bool {
        !self.lease.is_empty()
    }

    /// The bytes of the draws while they are not received. Only chunks that are in no table count.
    pub(super) fn held_bytes(&self) -> u64 {
        let (mut last, mut bytes) = (std::ptr::null(), 0);
        for draws in self.groups.iter().chain(&self.sent) {
            bytes += size_of::<Draws>() as u64 + draws.len() as u64 * DRAW_BYTES;
            for chunk in draws.items.iter().flat_map(chunks) {
                // Consecutive draws mostly have the same chunk.
                let before = std::mem::replace(&mut last, Arc::as_ptr(chunk));
                bytes += if before == last || chunk.in_tables() { 0 } else { chunk.size_bytes() };
            }
        }
        bytes
    }

    /// Moves the first group to the sent ones, if it may be asked for again.
    pub(super) fn first_was_sent(&mut self) {
        self.has_sent = true;
        let sent = self.groups.pop_front();
        let leased = self.is_leased();
        self.sent.extend(sent.filter(|_| leased));
    }

    /// The answer as it was before anything was sent.
    pub(super) fn whole_again(mut self) -> Self {
        self.sent.append(&mut self.groups);
        self.groups = std::mem::take(&mut self.sent);
        self.by_thread = false;
        self
    }

    /// Replaces the first group, which cannot be sent as one batch, and ends the answer with the error.
    ///
    /// Draws of tables that keep their items are dropped. Those of a table that deletes them exist only here: each
    /// becomes a batch of its own, of the whole item. They go back to their places in the table if memory ran out, or
    /// if one alone cannot be sent either. Only a damaged item is dropped: back in its table it would end every later
    /// request.
    pub(super) fn split_first(&mut self, error: Error) {
        let before = self.sent.iter().map(Draws::len).sum();
        let first = self.groups.pop_front();
        if !self.is_leased() {
            self.groups.clear();
        } else if let Some(draws) = first {
            let can_split = draws.len() > 1 || draws.wanted_windows.is_some();
            match error {
                Error::OutOfMemory { .. } => self.lease.return_draws(before..before + draws.len()),
                _ if can_split => split(draws.without_windows(), |_| 1, &mut self.groups),
                Error::Damaged(_) | Error::DamagedFile { .. } => {}
                _ => self.lease.return_draws(before..before + draws.len()),
            }
        }
        self.error.get_or_insert(error);
    }
}

fn chunks(item: &Item) -> impl Iterator<Item = &Arc<Chunk>> {
    let (one, parts) = match &item.body {
        Body::Chunk(chunk) => (Some(chunk), &[][..]),
        Body::Span(span) => (None, &span.parts[..]),
    };
    one.into_iter().chain(parts.iter().flat_map(|part| &part.chunks[..]))
}

/// Cuts draws into runs from the end, each as long as `tail` returns, and puts them in front of `groups` in order.
fn split(mut draws: Draws, tail: impl Fn(&Draws) -> usize, groups: &mut VecDeque<Draws>) {
    while !draws.is_empty() {
        let behind = draws.split_off(draws.len() - tail(&draws));
        groups.push_front(behind);
    }
}

/// The deadline of a waiting request, and its earlier withdrawal.
pub(super) struct WaitLimit {
    deadline: Option<Instant>,
    cancel: oneshot::Receiver<()>,
}

impl WaitLimit {
    /// Starts at the request's arrival; `None` waits without limit.
    pub(super) fn new(timeout: Option<Duration>, cancel: oneshot::Receiver<()>) -> Self {
        // A deadline beyond the clock's range never passes.
        Self { deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)), cancel }
    }

    fn is_over(&mut self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now()) || self.cancel.try_recv().is_ok()
    }

    async fn over(&mut self) {
        let deadline = self.deadline;
        let late = async move {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = late => {}
            // A dropped sender means that the session is gone.
            _ = &mut self.cancel => {}
        }
    }
}

/// The shortest interval at which an insert checks whether a copy ahead of it was dropped at its time limit.
/// Everything else that it may wait for wakes it.
const RETRY: Duration = Duration::from_millis(50);

/// Waits for a ticket. `retry`: it is an insert's. `Err`: withdrawn, with the part that was done and the reason.
/// The work that was done outlives the server, or is marked as without a commit.
pub(super) async fn wait<T: Default + Unpin>(
    table: &SharedTable,
    mut ticket: Ticket<T>,
    patience: &mut WaitLimit,
    retry: bool,
) -> Result<Result<T>, (Result<T>, String)> {
    if let Some(outcome) = ticket.poll() {
        return Ok(outcome);
    }
    if !patience.is_over() {
        loop {
            let late = if retry { table.drops_late_in() } else { None };
            tokio::select! {
                biased;
                outcome = &mut ticket => return Ok(outcome),
                () = patience.over() => break,
                () = tokio::time::sleep(late.unwrap_or_default().max(RETRY)), if late.is_some() => {
                    if let Some(outcome) = ticket.wait(Duration::ZERO) {
                        return Ok(outcome);
                    }
                }
            }
        }
    }
    // Only the journal has not written it: what is answered now outlives the server.
    let is_whole = ticket.needs_commit();
    let waits_for = |table: &SharedTable| table.why().to_string();
    let why = if is_whole { None } else { Some(waits_for(table)) };
    ticket.withdraw();
    if ticket.needs_commit()
        && let Ok(outcome) = tokio::time::timeout(COMMIT_GRACE, &mut ticket).await
    {
        return match why {
            None => Ok(outcome),
            Some(why) => Err((outcome, why)),
        };
    }
    let why = why.unwrap_or_else(|| waits_for(table));
    Err((ticket.cancel(), why))
}

/// Draws for a request, waiting for the tables as long as `patience` allows. `lessee`: the client
/// acknowledges them.
pub(super) async fn draw(
    shared: Arc<ServerState>,
    id: u64,
    sample: proto::Sample,
    mut patience: WaitLimit,
    lessee: Option<Lessee>,
) -> DrawDelivery {
    let read_options = match ReadOptions::decode(sample.reading) {
        Ok(read_options) => read_options,
        Err(error) => return DrawDelivery::refused(id, ReadOptions::default(), error),
    };
    let mut answer = DrawDelivery::empty(id, read_options);
    let mut draws = Draws::default();
    let parts = match tables(&shared, &sample.parts) {
        Ok(parts) => parts,
        Err(error) => return DrawDelivery { error: Some(error), ..answer },
    };
    let windows = match sample.windows.map(convert::batch::decode_windows).transpose() {
        Ok(None) => None,
        Ok(Some(_)) if sample.at_once || sample.without_replacement => {
            let reason = "windows need draws with replacement, a whole batch at a time".to_owned();
            return DrawDelivery { error: Some(Error::InvalidArgument(reason)), ..answer };
        }
        // A client of several shards repeats a draw of an item too short for a window itself, at any of them.
        Ok(windows) => windows.map(|windows| if sample.only_now { windows.once() } else { windows }),
        Err(error) => return DrawDelivery { error: Some(error), ..answer },
    };
    if sample.only_now {
        patience.deadline = Some(Instant::now());
    }
    let without_replacement = sample.without_replacement;
    let request = |num_samples| SampleRequest { num_samples, without_replacement, windows, lessee };
    for (index, (table, count)) in parts.iter().enumerate() {
        let (more, error) = match sample.at_once {
            true => draw_some(table, *count, request, &mut patience).await,
            false => draw_all(table, request(*count), &mut patience).await,
        };
        match index {
            0 => draws = more,
            _ => {
                draws.append(more);
                // The smallest probability of one table does not give weights in a mixture.
                (draws.smallest_probability, draws.tally) = (None, None);
            }
        }
        answer.error = error;
        if answer.error.is_some() {
            break;
        }
    }
    answer.lease = std::mem::take(&mut draws.lease);
    if sample.at_once {
        split(draws, alike_at_the_end, &mut answer.groups);
    } else if !draws.is_empty() {
        answer.groups.push_front(draws);
    }
    answer
}

/// The number of last draws whose items have the same form.
fn alike_at_the_end(draws: &Draws) -> usize {
    let last = draws.items.last().map(|item| &item.pattern);
    draws.items.iter().rev().take_while(|item| last.is_some_and(|last| item.pattern.same(last))).count()
}

/// The bytes of a request's draws before they are gathered, and their tables.
/// A part that will be refused for its table or its number costs nothing.
pub(super) fn cost(shared: &ServerState, parts: &[proto::SamplePart]) -> (u64, SmallVec<[Arc<SharedTable>; 2]>) {
    let (mut bytes, mut tables) = (0_u64, SmallVec::new());
    for proto::SamplePart { table, num_samples } in parts {
        let Ok(table) = shared.tables.get(table) else { continue };
        if *num_samples as usize > MAX_SAMPLES {
            continue;
        }
        tables.push(Arc::clone(table));
        let each = if table.deletes_sampled() { ALONE_BYTES } else { DRAW_BYTES };
        bytes = bytes.saturating_add(u64::from(*num_samples) * each);
    }
    (bytes, tables)
}

/// The tables of a request, and the number of draws from each.
fn tables(shared: &ServerState, parts: &[proto::SamplePart]) -> Result<Vec<(Arc<SharedTable>, usize)>> {
    if parts.is_empty() {
        return Err(Error::InvalidArgument("a request for draws must name a table".to_owned()));
    }
    let tables = parts.iter().map(|proto::SamplePart { table, num_samples }| {
        let table = Arc::clone(shared.tables.get(table)?);
        let count = *num_samples as usize;
        if count == 0 || count > MAX_SAMPLES {
            return Err(Error::InvalidArgument(format!(
                "num_samples must be between 1 and {MAX_SAMPLES}, got {num_samples}"
            )));
        }
        Ok((table, count))
    });
    tables.collect()
}

async fn draw_all(
    table: &Arc<SharedTable>,
    request: SampleRequest,
    patience: &mut WaitLimit,
) -> (Draws, Option<Error>) {
    let ticket = match table.sample(request) {
        Ok(ticket) => ticket,
        Err(error) => return (Draws::default(), Some(error)),
    };
    let (mut draws, late) = match wait(table, ticket, patience, false).await {
        Ok(Ok(draws)) => (draws, None),
        Err((Ok(draws), why)) => (draws, Some(why)),
        Ok(Err(error)) | Err((Err(error), _)) => return (Draws::default(), Some(error)),
    };
    // They are used up, and a kill of the server brings them back: the client must know.
    let error = draws.take_not_committed().or_else(|| match draws.passed {
        // Perhaps completed between the deadline and the withdrawal.
        0 => late.filter(|_| draws.len() < request.num_samples).map(Error::Deadline),
        // Some draws met items that no window fits into, and are not repeated here.
        passed => Some(Error::Deadline(format!("{passed} draws returned items that are too short for a window"))),
    });
    (draws, error)
}

/// The draws that can be made at once; if there are none, the first that can be made.
async fn draw_some(
    table: &Arc<SharedTable>,
    at_most: usize,
    request: impl Fn(usize) -> SampleRequest,
    patience: &mut WaitLimit,
) -> (Draws, Option<Error>) {
    let mut ticket = match table.sample(request(at_most)) {
        Ok(ticket) => ticket,
        Err(error) => return (Draws::default(), Some(error)),
    };
    // From here on it waits for the journal only.
    ticket.withdraw();
    match wait(table, ticket, patience, false).await {
        Ok(Err(error)) | Err((Err(error), _)) => (Draws::default(), Some(error)),
        Ok(Ok(draws)) if draws.is_empty() => draw_all(table, request(1), patience).await,
        Ok(Ok(draws)) => (draws, None),
        Err((Ok(mut draws), why)) => {
            let late = draws.is_empty().then_some(Error::Deadline(why));
            let error = draws.take_not_committed().or(late);
            (draws, error)
        }
    }
}
