//! What callers leave for the connection's task, and how they wake it.
//!
//! A call takes the lock for a push. The task is woken only where it sleeps: while inserts come in quick succession it
//! looks by itself, every millisecond, so that a push is a push. The same holds for requests that nobody waits for.

use super::answer::Answer;
use super::{Described, Link};
use crate::proto::request::Body;
use reverie_core::append::Sink;
use reverie_core::item::Item;
use reverie_core::table::{Desk, Inserts, Keys, Priority, Promise, Table, TableOptions, Ticket};
use reverie_core::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// Items, or requests that nobody waits for, after which the task is woken from a nap.
const NAP_ITEMS: usize = 256;
/// See `NAP_ITEMS`.
const NAP_REQUESTS: usize = 64;

/// What the task does when nothing was left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Looks again before it sleeps.
    Busy,
    /// Looks again within a millisecond; whoever waits wakes it, and so does much that nobody waits for.
    Napping,
    /// Must be woken.
    Sleeping,
}

/// An insert on its way to the task.
pub(super) struct NewInsert {
    pub(super) id: u64,
    /// Index in the client's own list of tables.
    pub(super) table: u32,
    pub(super) items: Inserts,
    pub(super) promise: Promise<Keys>,
}

/// A request on its way to the task.
pub(super) struct NewRequest {
    pub(super) id: u64,
    /// `None` where the answer comes with the connection.
    pub(super) body: Option<Body>,
    pub(super) timeout: Option<Duration>,
    /// Nobody waits for the answer: it may be sent with what comes within a nap.
    pub(super) patient: bool,
    pub(super) answer: Answer,
}

/// What was left for the task.
#[derive(Default)]
pub(super) struct Left {
    pub(super) inserts: Vec<NewInsert>,
    pub(super) requests: Vec<NewRequest>,
    pub(super) withdrawn: Vec<u64>,
    /// Questions what became of an insert: their numbers, the inserts' numbers.
    pub(super) fates: Vec<(u64, u64, Promise<Keys>)>,
    /// Items of the inserts.
    items: usize,
}

impl Left {
    pub(super) fn is_empty(&self) -> bool {
        self.inserts.is_empty() && self.requests.is_empty() && self.withdrawn.is_empty() && self.fates.is_empty()
    }

    /// Takes off the inserts.
    pub(super) fn drain_inserts(&mut self) -> impl Iterator<Item = NewInsert> {
        self.items = 0;
        self.inserts.drain(..)
    }
}

/// True where the last `more` of `all` made it `enough`: so that the task is woken once.
fn crosses(all: usize, more: usize, enough: usize) -> bool {
    all >= enough && all - more < enough
}

/// How the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// Not.
    No,
    /// Nobody can ask for more: when all is done.
    Idle,
    /// At once.
    Now,
}

struct State {
    left: Left,
    next_id: u64,
    mood: Mood,
    ending: Ending,
    /// As the server described them: empty tables, which refuse what the server's would. In the client's own order,
    /// which only grows.
    tables: Vec<Table>,
    described: Option<Arc<Described>>,
    link: Link,
    outage: Option<String>,
    /// The server said that inserts wait for their tables.
    held: bool,
}

/// Shared by the callers and the task.
pub(super) struct Outbox {
    address: String,
    /// Guards what was left and what is shown. Under it: pushes, moves and checks of arguments.
    state: Mutex<State>,
    pub(super) bell: Arc<Notify>,
    /// `Link::server_restarts`, for those who look at every step.
    restarts: AtomicU64,
    /// Nanoseconds; see `Remote::grace`.
    grace: AtomicU64,
    /// Nanoseconds of the shortest round trip on this connection, for senders that pace themselves.
    round_trip: AtomicU64,
}

impl Outbox {
    pub(super) fn new(address: &str) -> Arc<Self> {
        let link = Link {
            transport: None,
            reason: "not connected yet".to_owned(),
            connected: false,
            reconnects: 0,
            server_restarts: 0,
            bytes_sent: 0,
            bytes_received: 0,
        };
        let state = State {
            left: Left::default(),
            next_id: 1,
            mood: Mood::Sleeping,
            ending: Ending::No,
            tables: Vec::new(),
            described: None,
            link,
            outage: None,
            held: false,
        };
        Arc::new(Self {
            address: address.to_owned(),
            state: Mutex::new(state),
            bell: Arc::default(),
            restarts: AtomicU64::new(0),
            grace: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Wakes the task unless it looks by itself.
    fn ring(&self, mut state: MutexGuard<'_, State>, wake: bool) {
        if wake {
            state.mood = Mood::Busy;
            drop(state);
            self.bell.notify_one();
        }
    }

    /// Leaves an insert. Refuses what the table would, and whatever comes after the end.
    pub(super) fn insert(self: &Arc<Self>, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        let mut state = self.lock();
        let index = state.check(&self.address, table, &items)?;
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, false);
        let more = items.len();
        state.left.items += more;
        state.left.inserts.push(NewInsert { id, table: index, items, promise });
        let wake = match state.mood {
            Mood::Busy => false,
            Mood::Napping => crosses(state.left.items, more, NAP_ITEMS),
            Mood::Sleeping => true,
        };
        self.ring(state, wake);
        Ok(ticket)
    }

    /// Leaves a request. After the end it is answered here. `patient`: nobody waits for the answer.
    pub(super) fn request<T: 'static>(
        self: &Arc<Self>,
        body: Option<Body>,
        timeout: Option<Duration>,
        (withdraw_on_drop, patient): (bool, bool),
        answer: fn(Promise<T>) -> Answer,
    ) -> Ticket<T> {
        let mut state = self.lock();
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, withdraw_on_drop);
        let answer = answer(promise);
        if state.ending == Ending::Now {
            drop(state);
            answer.fail(Error::ClientClosed { address: self.address.clone() }, Vec::new());
            return ticket;
        }
        state.left.requests.push(NewRequest { id, body, timeout, patient, answer });
        let wake = match state.mood {
            Mood::Busy => false,
            Mood::Napping => !patient || crosses(state.left.requests.len(), 1, NAP_REQUESTS),
            Mood::Sleeping => true,
        };
        self.ring(state, wake);
        ticket
    }

    /// Leaves a question what became of an insert. After the end it is answered here.
    pub(super) fn fate(self: &Arc<Self>, number: u64) -> Ticket<Keys> {
        let mut state = self.lock();
        let id = state.take_id();
        let (ticket, promise) = Ticket::promised(self.clone(), id, false);
        if state.ending == Ending::Now {
            drop(state);
            promise.fill(Err(Error::ClientClosed { address: self.address.clone() }));
            return ticket;
        }
        state.left.fates.push((id, number, promise));
        self.ring(state, true);
        ticket
    }

    /// Refuses items that [`Outbox::insert`] would refuse.
    pub(super) fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.lock().check(&self.address, table, items).map(drop)
    }

    /// What the server said of a table.
    pub(super) fn options<T>(&self, table: &str, read: impl FnOnce(&Table) -> T) -> Result<T> {
        let state = self.lock();
        let index = state.find(&self.address, table)?;
        Ok(read(&state.tables[index]))
    }

    pub(super) fn described(&self) -> Option<Arc<Described>> {
        self.lock().described.clone()
    }

    pub(super) fn end(&self, ending: Ending) {
        let mut state = self.lock();
        state.ending = state.ending.max(ending);
        self.ring(state, true);
    }

    pub(super) fn link(&self) -> Link {
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

    /// Why there is no connection, and since when, in a few words; `None` where there is one.
    pub(super) fn outage(&self) -> Option<String> {
        self.lock().outage.clone()
    }

    /// True where what is not confirmed waits for the server itself: for neither a connection nor a table.
    pub(super) fn server_lags(&self) -> bool {
        let state = self.lock();
        state.link.connected && !state.held
    }

    // What follows is the task's.

    /// Moves what was left into `left` (empty before). Where it was nothing, the task will be in that mood.
    pub(super) fn take(&self, left: &mut Left, idle: Mood) -> (Ending, u64) {
        let mut state = self.lock();
        if state.left.is_empty() {
            state.mood = idle;
        } else {
            state.mood = Mood::Busy;
            std::mem::swap(left, &mut state.left);
        }
        (state.ending, state.next_id)
    }

    /// To be polled last, before the task sleeps for whatever reason: pending, and from then on callers wake the task as
    /// that mood says. Ready where something was left since the task looked, and nobody woke it for that.
    pub(super) fn sleeps(&self, idle: Mood) -> impl Future<Output = ()> {
        std::future::poll_fn(move |_| {
            let mut state = self.lock();
            if state.mood != Mood::Busy {
                return Poll::Pending;
            }
            if !state.left.is_empty() {
                return Poll::Ready(());
            }
            state.mood = idle;
            Poll::Pending
        })
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Link)) {
        let mut state = self.lock();
        change(&mut state.link);
        self.restarts.store(state.link.server_restarts, Ordering::Relaxed);
    }

    pub(super) fn set_outage(&self, outage: Option<String>) {
        self.lock().outage = outage;
    }

    pub(super) fn set_held(&self, held: bool) {
        self.lock().held = held;
    }

    /// Notes what the server is; gives for each of its tables the index in the client's own list.
    pub(super) fn describe(&self, version: String, tables: Vec<TableOptions>) -> Result<Vec<usize>> {
        let mut state = self.lock();
        let mut numbers = Vec::with_capacity(tables.len());
        for options in &tables {
            let table = Table::new(options.clone(), 0)?;
            let known = state.tables.iter().position(|known| known.options().name == options.name);
            numbers.push(known.unwrap_or(state.tables.len()));
            match known {
                Some(known) => state.tables[known] = table,
                None => state.tables.push(table),
            }
        }
        if state.described.is_none() {
            state.described = Some(Arc::new(Described { version, tables }));
        }
        Ok(numbers)
    }

    /// All names, as an error lists them.
    pub(super) fn table_names(&self) -> Vec<String> {
        self.lock().tables.iter().map(|table| table.options().name.clone()).collect()
    }
}

impl State {
    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn find(&self, address: &str, table: &str) -> Result<usize> {
        if let Some(index) = self.tables.iter().position(|known| known.options().name == table) {
            return Ok(index);
        }
        match &self.described {
            None => Err(Error::Unavailable(format!("{address} has not been asked for its tables yet"))),
            Some(_) => Err(Error::UnknownTable {
                name: table.to_owned(),
                known: self.tables.iter().map(|known| known.options().name.clone()).collect(),
            }),
        }
    }

    fn check(&mut self, address: &str, table: &str, items: &[(Item, Priority)]) -> Result<u32> {
        let index = self.find(address, table)?;
        if self.ending == Ending::Now {
            return Err(Error::ClientClosed { address: address.to_owned() });
        }
        let checker = &mut self.tables[index];
        for (item, priority) in items {
            checker.check(item, if let Priority::Value(value) = priority { *value } else { 0.0 })?;
        }
        Ok(index as u32)
    }
}

impl<T> Desk<T> for Outbox {
    /// The task answers, within a bound, also where the server does not.
    fn withdraw(&self, id: u64) -> Option<T> {
        let mut state = self.lock();
        state.left.withdrawn.push(id);
        let wake = state.mood != Mood::Busy;
        self.ring(state, wake);
        None
    }

    fn retry(&self) {
        let state = self.lock();
        let wake = state.mood == Mood::Napping && !state.left.is_empty();
        self.ring(state, wake);
    }
}

/// Writers reach the server through it. `Unavailable` until the server was described.
impl Sink for super::Remote {
    fn insert(&self, table: &str, items: Inserts) -> Result<Ticket<Keys>> {
        self.outbox.insert(table, items)
    }

    fn check(&self, table: &str, items: &[(Item, Priority)]) -> Result<()> {
        self.outbox.check(table, items)
    }

    fn check_priority(&self, table: &str, priority: Priority) -> Result<()> {
        self.outbox.options(table, |checker| match priority {
            Priority::Value(value) => checker.check_priority(value),
            Priority::Max => Ok(()),
        })?
    }

    fn signature(&self, table: &str) -> Result<Option<reverie_core::spec::Signature>> {
        self.outbox.options(table, |table| table.options().signature.clone())
    }

    fn why(&self, table: &str) -> Ticket<String> {
        match self.outbox.outage() {
            Some(outage) => {
                Ticket::done(Ok(format!("{outage}; what was not confirmed is kept, and sent when it is back")))
            }
            None => self.request(Body::Why(table.to_owned()), None, false, Answer::Sentence),
        }
    }

    fn compression(&self, table: &str) -> Result<reverie_core::chunk::Compression> {
        self.outbox.options(table, |table| table.options().compression)
    }

    fn meter(&self) -> &Arc<reverie_core::chunk::Meter> {
        &self.meter
    }
}
