//! The queue from callers to the connection's task, and how callers wake the task.
//!
//! A call takes the lock only for a push. It wakes the task only if the task sleeps: while inserts come in quick
//! succession, the task looks by itself within a millisecond. The same holds for requests that no caller waits for.

use super::answer::RequestPromise;
use super::known_tables::KnownTables;
use super::server_description::ServerDescription;
use super::work::{Handling, NewInsert, NewRequest, QueuedWork, crosses};
use crate::proto::request::Body;
use crate::trace::TraceContext;
use reverie_core::item::{Item, Key};
use reverie_core::replay::ConnectionInfo;
use reverie_core::sample::{LeaseState, Lender};
use reverie_core::table::{Inserts, Keys, Lessee, Priority, Promise, RequestHolder, Table, TableOptions, Ticket};
use reverie_core::{Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// Items after which the task is woken while it coalesces work.
const COALESCED_ITEMS: usize = 256;
/// Requests that no caller waits for, after which the task is woken while it coalesces work.
const COALESCED_REQUESTS: usize = 64;

/// The task's behaviour when the outbox is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    /// Looks again before it sleeps.
    Busy,
    /// Looks again within a millisecond. A caller that waits wakes it, and so does much work that no caller waits for.
    Coalescing,
    /// Must be woken.
    Sleeping,
}

/// The way in which the client ends, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientEnding {
    /// The client does not end.
    No,
    /// The client ends when all work is done: no caller can ask for more.
    Idle,
    /// The client ends at once.
    Now,
}

struct OutboxState {
    left: QueuedWork,
    next_id: u64,
    task: TaskState,
    ending: ClientEnding,
    tables: KnownTables,
    link: ConnectionInfo,
    outage: Option<String>,
    /// The server reported that inserts wait for their tables.
    held: bool,
    /// Requests whose draws have arrived and were not taken, and whose server does not know them any more.
    forgotten_leases: BTreeSet<u64>,
    /// The task has ended before the client: why all work fails.
    failed: Option<Error>,
}

/// The outbox, shared by the callers and the task.
pub(super) struct Outbox {
    address: String,
    /// Guards the queued work and the displayed state. Held for pushes, moves and checks of arguments.
    state: Mutex<OutboxState>,
    pub(super) wake: Arc<Notify>,
    /// `ConnectionInfo::server_restarts`, for callers that read it at every step.
    restarts: AtomicU64,
    /// Nanoseconds; see `Remote::grace`.
    grace: AtomicU64,
    /// Nanoseconds of the shortest round trip on this connection, for senders that pace themselves.
    round_trip: AtomicU64,
    /// Bytes of confirmed inserts that are kept.
    kept: AtomicU64,
}

impl Outbox {
    pub(super) fn new(address: &str) -> Arc<Self> {
        let link = ConnectionInfo {
            transport: None,
            reason: "not connected yet".to_owned(),
            connected: false,
            reconnects: 0,
            server_restarts: 0,
            bytes_sent: 0,
            bytes_received: 0,
            kept_bytes: 0,
            max_kept_bytes: 0,
        };
        let state = OutboxState {
            left: QueuedWork::default(),
            next_id: 1,
            task: TaskState::Sleeping,
            ending: ClientEnding::No,
            tables: KnownTables::new(address),
            link,
            outage: None,
            held: false,
            forgotten_leases: BTreeSet::new(),
            failed: None,
        };
        Arc::new(Self {
            address: address.to_owned(),
            state: Mutex::new(state),
            wake: Arc::default(),
            restarts: AtomicU64::new(0),
            grace: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Wakes the task if `wake`.
    fn wake_if(&self, mut state: MutexGuard<'_, OutboxState>, wake: bool) {
        if wake {
            state.task = TaskState::Busy;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Queues an insert. Refuses items that the table would refuse, and every insert after the client ended.
    pub(super) fn insert(self: &Arc<Self>, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        let mut state = self.lock();
        let index = state.check(&self.address, table, &items)?;
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, false);
        let more = items.len();
        state.left.items += more;
        state.left.traced.extend(TraceContext::current().map(|context| (id, context)));
        state.left.inserts.push(NewInsert { id, table: index, items, promise });
        let wake = match state.task {
            TaskState::Busy => false,
            TaskState::Coalescing => crosses(state.left.items, more, COALESCED_ITEMS),
            TaskState::Sleeping => true,
        };
        self.wake_if(state, wake);
        Ok(ticket)
    }

    /// Queues a request; answers it here after the client ended.
    pub(super) fn request<T: 'static>(
        self: &Arc<Self>,
        body: Option<Body>,
        timeout: Option<Duration>,
        handling: Handling,
        answer: fn(Promise<T>) -> RequestPromise,
    ) -> Ticket<T> {
        let Handling { withdraw_on_drop, unawaited, leases } = handling;
        let mut state = self.lock();
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, withdraw_on_drop);
        let answer = answer(promise);
        if let Some(error) = state.refusal(&self.address) {
            drop(state);
            answer.fail(error, Vec::new());
            return ticket;
        }
        state.left.traced.extend(TraceContext::current().map(|context| (id, context)));
        state.left.requests.push(NewRequest { id, body, timeout, unawaited, leases, answer });
        let wake = match state.task {
            TaskState::Busy => false,
            TaskState::Coalescing => !unawaited || crosses(state.left.requests.len(), 1, COALESCED_REQUESTS),
            TaskState::Sleeping => true,
        };
        self.wake_if(state, wake);
        ticket
    }

    /// Queues a question about the outcome of an insert; answers it here after the client ended.
    pub(super) fn insert_outcome(self: &Arc<Self>, number: u64) -> Ticket<Keys> {
        let mut state = self.lock();
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, false);
        if let Some(error) = state.refusal(&self.address) {
            drop(state);
            promise.fill(Err(error));
            return ticket;
        }
        state.left.outcomes.push((id, number, promise));
        self.wake_if(state, true);
        ticket
    }

    /// Refuses items that [`Outbox::insert`] would refuse.
    pub(super) fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.lock().check(&self.address, table, items).map(drop)
    }

    /// Reads the server's description of a table.
    pub(super) fn options<T>(&self, table: &str, read: impl FnOnce(&Table) -> T) -> Result<T> {
        self.lock().tables.get(table).map(read)
    }

    pub(super) fn described(&self) -> Option<Arc<ServerDescription>> {
        self.lock().tables.described()
    }

    pub(super) fn end(&self, ending: ClientEnding) {
        let mut state = self.lock();
        state.ending = state.ending.max(ending);
        self.wake_if(state, true);
    }

    pub(super) fn link(&self) -> ConnectionInfo {
        self.lock().link.clone()
    }

    pub(super) fn server_restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// See `Remote::grace`.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_nanos(self.grace.load(Ordering::Relaxed))
    }

    pub(super) fn set_grace(&self, grace: Duration) {
        self.grace.store(grace.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    pub(super) fn set_round_trip(&self, round_trip: Duration) {
        self.round_trip.store(round_trip.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    pub(super) fn set_kept(&self, bytes: u64) {
        self.kept.store(bytes, Ordering::Relaxed);
    }

    /// The reason why there is no connection, and since when, as a short text; `None` while connected.
    pub(super) fn outage(&self) -> Option<String> {
        self.lock().outage.clone()
    }

    /// True if unconfirmed inserts wait for the server itself, not for a connection or a table.
    pub(super) fn server_lags(&self) -> bool {
        let state = self.lock();
        state.link.connected && !state.held
    }

    // The functions below are for the task.

    /// Moves the queued work into `left`, which is empty before. If there is none, the task becomes `idle`.
    pub(super) fn take(&self, left: &mut QueuedWork, idle: TaskState) -> (ClientEnding, u64) {
        let mut state = self.lock();
        if state.left.is_empty() {
            state.task = idle;
        } else {
            state.task = TaskState::Busy;
            std::mem::swap(left, &mut state.left);
        }
        (state.ending, state.next_id)
    }

    /// A future that the task polls last before it sleeps.
    /// It is pending, and callers then wake the task according to `idle`. It is ready if work was queued since the task
    /// looked and no caller woke the task for it.
    pub(super) fn sleeps(&self, idle: TaskState) -> impl Future<Output = ()> {
        std::future::poll_fn(move |_| {
            let mut state = self.lock();
            if state.task != TaskState::Busy {
                return Poll::Pending;
            }
            if !state.left.is_empty() {
                return Poll::Ready(());
            }
            state.task = idle;
            Poll::Pending
        })
    }

    /// The task is gone. If the client has not ended, all of its work fails, now and from now on.
    pub(super) fn task_ended(&self, panicked: bool) {
        let mut state = self.lock();
        if state.ending != ClientEnding::No && !panicked {
            return;
        }
        let reason = match panicked {
            true => "its task panicked, which is a defect in reverie: please report it with the panic on stderr",
            false => "its thread has ended",
        };
        let reason = format!("the client of {} has failed, and another one is needed: {reason}", self.address);
        state.link.connected = false;
        state.outage = Some(reason.clone());
        let error = state.failed.insert(Error::Unavailable(reason)).clone();
        let left = std::mem::take(&mut state.left);
        drop(state);
        left.fail(&error);
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut ConnectionInfo)) {
        let mut state = self.lock();
        change(&mut state.link);
        self.restarts.store(state.link.server_restarts, Ordering::Relaxed);
    }

    pub(super) fn set_outage(&self, outage: Option<String>) {
        self.lock().outage = outage;
    }

    /// The server does not know these requests any more. Returns those whose draws the program has not taken, and does
    /// not get from now on.
    pub(super) fn forget_leases(&self, requests: Vec<u64>) -> Vec<u64> {
        let mut state = self.lock();
        let is_open = |id: &u64| !state.left.leases_ended.iter().any(|(ended, _)| ended == id);
        let forgotten: Vec<u64> = requests.into_iter().filter(is_open).collect();
        state.forgotten_leases.extend(&forgotten);
        forgotten
    }

    pub(super) fn set_held(&self, held: bool) {
        self.lock().held = held;
    }

    /// See [`KnownTables::describe`].
    pub(super) fn describe(&self, version: String, tables: Vec<TableOptions>) -> Result<Vec<usize>> {
        self.lock().tables.describe(version, tables)
    }

    /// All table names, as an error lists them.
    pub(super) fn table_names(&self) -> Vec<String> {
        self.lock().tables.names()
    }
}

impl OutboxState {
    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn check(&mut self, address: &str, table: &str, items: &[(Item, Priority)]) -> Result<u32> {
        let index = self.tables.find(table)?;
        self.refusal(address).map_or(Ok(()), Err)?;
        self.tables.check(index, items)?;
        Ok(index as u32)
    }

    /// The reason why no more work is taken.
    fn refusal(&self, address: &str) -> Option<Error> {
        let closed = || Error::ClientClosed { address: address.to_owned() };
        self.failed.clone().or_else(|| (self.ending == ClientEnding::Now).then(closed))
    }
}

/// The program's end of leased draws: the task passes it on to the server with its next message.
impl Lender for Outbox {
    fn acknowledge(&self, lessee: &Lessee, keys: &[Key]) {
        _ = self.try_acknowledge(lessee, keys);
    }

    /// Hands draws over, also without a connection: the task reports it on the next one, and keeps the request from
    /// being forgotten then.
    fn try_acknowledge(&self, lessee: &Lessee, _: &[Key]) -> bool {
        let mut state = self.lock();
        if state.forgotten_leases.contains(&lessee.request) || state.refusal(&self.address).is_some() {
            return false;
        }
        state.left.leases_ended.push((lessee.request, true));
        // A task that naps looks by itself.
        let wake = state.task == TaskState::Sleeping;
        self.wake_if(state, wake);
        true
    }

    fn return_draws(&self, lessee: &Lessee, _: &[Key]) {
        let mut state = self.lock();
        if state.forgotten_leases.remove(&lessee.request) {
            return;
        }
        state.left.leases_ended.push((lessee.request, false));
        let wake = state.task != TaskState::Busy;
        self.wake_if(state, wake);
    }

    /// The state of the lease: unknown after a lost connection, because the server may have given the draws to others
    /// by now.
    fn lease_state(&self, lessee: &Lessee) -> LeaseState {
        let state = self.lock();
        let is_over = state.forgotten_leases.contains(&lessee.request) || state.refusal(&self.address).is_some();
        match (is_over, state.link.connected) {
            (true, _) => LeaseState::Ended,
            (false, false) => LeaseState::Unknown,
            (false, true) => LeaseState::Held,
        }
    }
}

impl<T> RequestHolder<T> for Outbox {
    /// The task answers within a bound even if the server does not.
    fn withdraw(&self, id: u64) -> Option<T> {
        let mut state = self.lock();
        state.left.withdrawn.push(id);
        let wake = state.task != TaskState::Busy;
        self.wake_if(state, wake);
        None
    }

    fn retry(&self) {
        let state = self.lock();
        let wake = state.task == TaskState::Coalescing && !state.left.is_empty();
        self.wake_if(state, wake);
    }
}

#[cfg(test)]
mod tests;
