//! The tables of this process as a replay.

use super::{Batches, ConnectionInfo, Info, Replay, WaitSummary};
use crate::batch::{BatchOptions, Planner};
use crate::error::{Error, Result};
use crate::sample::{
    ArrayAllocator, DrawnBatch, Draws, LeaseState, Prefetcher, SampleOutcome, SampleRequest, Schedule, Source, Windows,
};
use crate::table::{
    Change, ChangeCounts, Condition, Keys, Outcome, Query, RequestHolder, SeenTally, SharedTable, TableOptions, Tables,
    Tally, Ticket, Updates,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

fn sample(tables: &Tables, table: &str, request: SampleRequest) -> Ticket<Draws> {
    Source::sample(tables, table, request).unwrap_or_else(|error| Ticket::done(Err(error)))
}

/// The draws that can be made now, which are done once it is durable that their items are used up; `None` if there are
/// none.
fn sample_now(tables: &Tables, table: &str, request: SampleRequest) -> Option<Ticket<Draws>> {
    let mut ticket = sample(tables, table, request);
    ticket.withdraw();
    match ticket.poll() {
        Some(Ok(draws)) if draws.is_empty() => None,
        Some(outcome) => Some(Ticket::done(outcome)),
        None => Some(ticket),
    }
}

fn none() -> Ticket<Draws> {
    Ticket::done(Ok(Draws::default()))
}

/// The outcome of a change of a table, which is done once it is durable.
fn durably<T: Outcome + Send + Sync + Unpin + 'static>(
    tables: &Tables,
    table: &str,
    change: impl FnOnce(&SharedTable) -> Result<T>,
) -> Ticket<T> {
    match Tables::get(tables, table) {
        Ok(table) => table.durable_request(Ticket::done(change(table))),
        Err(error) => Ticket::done(Err(error)),
    }
}

/// Holds a checkpoint, which continues when its caller stops waiting.
struct CheckpointHolder;

impl RequestHolder<String> for CheckpointHolder {
    fn withdraw(&self, _: u64) -> Option<String> {
        Some(String::new())
    }
}

fn defect(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic without a message");
    Error::Unavailable(format!("the checkpoint failed by a defect in reverie's engine, please report it: {text}"))
}

/// The draws as one batch, also if there are none.
fn one_batch(mut draws: Draws) -> SampleOutcome {
    let error = draws.take_not_committed();
    SampleOutcome { batches: vec![DrawnBatch::Items(draws)], error }
}

impl Replay for Tables {
    fn ready(&self) -> Ticket<()> {
        Ticket::done(Ok(()))
    }

    fn tables(&self) -> Vec<TableOptions> {
        self.iter().map(|table| table.info().options).collect()
    }

    fn sample(
        &self,
        table: &str,
        request: SampleRequest,
        _: &BatchOptions<'_>,
        _: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        sample(self, table, request).map(SampleOutcome::whole)
    }

    fn sample_available(&self, table: &str, at_most: usize, _: Option<Duration>) -> Ticket<SampleOutcome> {
        let request = |num_samples| SampleRequest { num_samples, ..SampleRequest::default() };
        sample_now(self, table, request(at_most))
            .unwrap_or_else(|| sample(self, table, request(1)))
            .map(SampleOutcome::runs)
    }

    fn try_sample_available(&self, table: &str, at_most: usize, _: Option<Duration>) -> Ticket<SampleOutcome> {
        let request = SampleRequest { num_samples: at_most, ..SampleRequest::default() };
        sample_now(self, table, request).unwrap_or_else(none).map(SampleOutcome::runs)
    }

    fn try_sample(
        &self,
        table: &str,
        request: SampleRequest,
        _: &BatchOptions<'_>,
        _: Option<Duration>,
    ) -> Ticket<SampleOutcome> {
        let request = SampleRequest { windows: request.windows.map(Windows::once), ..request };
        sample_now(self, table, request).unwrap_or_else(none).map(one_batch)
    }

    fn batches(
        self: Arc<Self>,
        schedule: Schedule,
        read_options: &BatchOptions<'_>,
        allocate: ArrayAllocator,
    ) -> Result<Box<dyn Batches>> {
        schedule.parts.iter().try_for_each(|(table, _)| Tables::get(&self, table).map(drop))?;
        let prefetcher = Prefetcher::new(self, schedule, Planner::new(read_options), allocate).map_err(|error| {
            Error::Unavailable(format!("the thread that prefetches batches could not be started: {error}"))
        })?;
        Ok(Box::new(prefetcher))
    }

    fn get(&self, table: &str, keys: &[i64], _: &BatchOptions<'_>) -> Ticket<SampleOutcome> {
        Ticket::done(Tables::get(self, table).and_then(|table| table.get(keys)).map(one_batch))
    }

    fn query(&self, table: &str, query: &Query) -> Ticket<SampleOutcome> {
        Ticket::done(Tables::get(self, table).and_then(|table| table.query(query)).map(one_batch))
    }

    fn info(&self) -> Ticket<Info> {
        let (meter, max_bytes) = self.bytes();
        let tables = self.iter().map(|table| table.info()).collect();
        Ticket::done(Ok(Info {
            tables,
            live_bytes: meter.live_bytes(),
            max_bytes,
            journal: self.journal(),
            disk: meter.tier_info(),
            ..Info::default()
        }))
    }

    fn max_items(&self) -> usize {
        usize::MAX
    }

    fn checkpoint(&self) -> Ticket<Vec<String>> {
        let Some(take) = self.checkpointer().cloned() else {
            let reason = "this server has no checkpointer; give it one at its start";
            return Ticket::done(Err(Error::InvalidArgument(reason.to_owned())));
        };
        let (ticket, promise) = Ticket::promised(Arc::new(CheckpointHolder), 0, false);
        let work = move || {
            promise.fill(catch_unwind(AssertUnwindSafe(|| take())).unwrap_or_else(|panic| Err(defect(&*panic))))
        };
        match Builder::new().name("reverie-save".to_owned()).spawn(work) {
            Ok(_) => ticket.map(|path| vec![path]),
            Err(error) => {
                let reason = format!("the thread that takes the checkpoint could not be started: {error}");
                Ticket::done(Err(Error::Unavailable(reason)))
            }
        }
    }

    fn durable(&self) -> Ticket<()> {
        Tables::durable(self, true)
    }

    fn link(&self) -> Option<ConnectionInfo> {
        None
    }

    fn why(&self, table: &str) -> Ticket<WaitSummary> {
        Ticket::done(Tables::get(self, table).map(|table| WaitSummary::from(&table.why())))
    }

    fn mutate(
        &self,
        table: &str,
        updates: &Updates<'_>,
        deletes: &[i64],
        _: bool,
    ) -> Ticket<(ChangeCounts, ChangeCounts)> {
        match deletes.is_empty() {
            // Priorities are written in intervals.
            true => Ticket::done(Tables::get(self, table).and_then(|table| table.mutate(updates, deletes))),
            false => durably(self, table, |table| table.mutate(updates, deletes)),
        }
    }

    fn delete_where(&self, table: &str, keys: Option<&[i64]>, conditions: &[Condition]) -> Ticket<ChangeCounts> {
        durably(self, table, |table| table.delete_where(keys, conditions))
    }

    fn can_sample(&self, table: &str, num_samples: u64) -> Ticket<bool> {
        Ticket::done(Tables::get(self, table).map(|table| table.can_sample(num_samples)))
    }

    fn can_insert(&self, table: &str, num_inserts: u64) -> Ticket<bool> {
        Ticket::done(Tables::get(self, table).map(|table| table.can_insert(num_inserts)))
    }

    fn reset(&self, table: &str) -> Ticket<()> {
        durably(self, table, SharedTable::reset)
    }

    fn configure(&self, table: &str, change: Change) -> Ticket<()> {
        durably(self, table, |table| table.configure(change))
    }

    fn tally(&self, table: &str, grant: Option<(u64, u64)>) -> Ticket<Tally> {
        Ticket::done(Tables::get(self, table).and_then(|table| table.tally(grant)))
    }

    fn changed_tally(&self, table: &str, seen: SeenTally, _: Duration) -> Ticket<Tally> {
        Tables::get(self, table)
            .and_then(|table| table.changed_tally(None, seen))
            .unwrap_or_else(|error| Ticket::done(Err(error)))
    }

    fn insert_outcome(&self, number: u64) -> Ticket<Keys> {
        Ticket::done(Err(Error::InvalidArgument(format!("no insert with the number {number} has an unknown outcome"))))
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn patience(&self) -> Option<Duration> {
        None
    }

    fn no_response_reason(&self, _: Duration) -> String {
        "the tables of this process have not answered".to_owned()
    }

    fn round_trip(&self) -> Option<Duration> {
        None
    }

    fn server_lags(&self) -> bool {
        false
    }

    fn restarts(&self) -> u64 {
        0
    }
}

impl Batches for Prefetcher {
    fn next(&mut self, timeout: Duration) -> Option<Result<Option<DrawnBatch>>> {
        match Prefetcher::next(self, timeout)? {
            None => Some(Ok(None)),
            // The table was closed meanwhile: the next error reports it.
            Some(Ok(batch)) if batch.draws.lease.lease_state() != LeaseState::Held => None,
            Some(batch) => Some(batch.map(|batch| Some(DrawnBatch::Gathered(batch)))),
        }
    }

    /// Does nothing: the tables were closed, and the next error reports it.
    fn again(&mut self) {}

    fn close(&mut self) -> Vec<DrawnBatch> {
        let (ready, unfinished) = Prefetcher::close(self);
        let unfinished = (!unfinished.is_empty()).then_some(DrawnBatch::Items(unfinished));
        let left = ready.into_iter().map(DrawnBatch::Gathered).chain(unfinished);
        // Dropped draws go back to their tables.
        left.filter(|drawn| drawn.lease_state() == LeaseState::Held).collect()
    }
}
