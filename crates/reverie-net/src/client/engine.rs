//! The state of all work that a client has under way, with or without a connection. Owned by the client's one task.

use super::arriving_batch::Heads;
use super::inserts::{UnconfirmedInserts, Withdrawal, unknown_outcome};
use super::kept_inserts::KeptInserts;
use super::outbox::{ClientEnding, Outbox, TaskState};
use super::requests::Requests;
use super::round_trip::RoundTrip;
use super::work::QueuedWork;
use crate::block::MemoryPool;
use crate::items::Encoder;
use crate::proto;
use crate::trace::RequestTraces;
use reverie_core::Error;
use reverie_core::table::{Keys, Promise, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// See the module.
pub(super) struct Engine {
    pub(super) outbox: Arc<Outbox>,
    pub(super) patience: Duration,
    pub(super) inserts: UnconfirmedInserts,
    pub(super) requests: Requests,
    pub(super) kept: KeptInserts,
    /// The server reports what is on its disk, later than it confirms it.
    pub(super) keeps: bool,
    /// The server is asked whether the kept inserts up to a position are on its disk.
    pub(super) question: Option<(u64, Ticket<()>)>,
    left: QueuedWork,
    pub(super) traced: RequestTraces,
    pub(super) ending: ClientEnding,
    /// All numbers below were assigned and taken from the outbox.
    pub(super) taken_below: u64,
    /// Requests to be withdrawn at the server.
    pub(super) cancels: Vec<proto::Cancel>,
    /// Requests whose draws the server is asked to take back.
    pub(super) returned: Vec<u64>,
    /// Questions about the outcome of an insert, by the question's number: the insert's number and the promise.
    outcomes: BTreeMap<u64, (u64, Promise<Keys>)>,
    /// Withdrawn inserts, and the time at which their callers stop waiting.
    abandon: Vec<(Instant, u64)>,
    /// Ranges of numbers that were answered since the last report to the server: the first, and how many.
    pub(super) answered: Vec<(u64, u64)>,
    pub(super) reported_below: u64,
    /// Draws have arrived, on this connection or the one before, that their server keeps until that is reported to it.
    pub(super) has_leased: bool,
    /// The time until which the client connects again only to report that.
    pub(super) reports_until: Option<Instant>,
    /// Nothing was sent yet on this connection, which replaces another: the first message lists all open numbers.
    pub(super) must_list_open: bool,
    /// The time when the connection was lost or the attempt to make one began; `None` while connected.
    pub(super) outage: Option<Instant>,
    /// The error of the last attempt to connect.
    pub(super) last_error: String,
    // The state of the current connection.
    pub(super) encoder: Encoder,
    pub(super) credit: u64,
    pub(super) round_trip: RoundTrip,
    /// The server's number of each table, in the client's order; `None` if the server no longer has the table.
    pub(super) tables: Vec<Option<u32>>,
    pub(super) heads: Heads,
    pub(super) pool: Arc<MemoryPool>,
}

/// The time after a lost connection in which a client that has nothing else to do connects again to report that it has
/// draws: as long as a server remembers its clients by default.
const REPORTS_WITHIN: Duration = Duration::from_secs(60);
/// Warm memory that a client keeps for batches.
const POOL_BYTES: usize = 256 << 20;

impl Engine {
    pub(super) fn new(outbox: Arc<Outbox>, (patience, grace): (Duration, Duration), max_kept_bytes: u64) -> Self {
        let lender: Weak<Outbox> = Arc::downgrade(&outbox);
        Self {
            outbox,
            patience,
            inserts: UnconfirmedInserts::default(),
            requests: Requests::new(grace, lender),
            kept: KeptInserts::new(max_kept_bytes),
            keeps: false,
            question: None,
            left: QueuedWork::default(),
            traced: RequestTraces::default(),
            ending: ClientEnding::No,
            taken_below: 1,
            cancels: Vec::new(),
            returned: Vec::new(),
            outcomes: BTreeMap::new(),
            abandon: Vec::new(),
            answered: Vec::new(),
            reported_below: 1,
            has_leased: false,
            reports_until: None,
            must_list_open: false,
            outage: Some(Instant::now()),
            last_error: String::new(),
            encoder: Encoder::default(),
            credit: 0,
            round_trip: RoundTrip::default(),
            tables: Vec::new(),
            heads: Heads::default(),
            pool: MemoryPool::new(POOL_BYTES),
        }
    }

    /// Calls [`Engine::take_queued`] until nothing is left.
    /// Needed before the task sleeps: callers would otherwise believe that the task looks again.
    pub(super) fn take_all_queued(&mut self, idle: TaskState) {
        while self.take_queued(idle) {}
    }

    /// Takes the work that callers left; false if there was none.
    /// If there was none, callers wake the task according to `idle`. Otherwise they do not, and the task must look
    /// again before it sleeps: see [`Outbox::sleeps`].
    pub(super) fn take_queued(&mut self, idle: TaskState) -> bool {
        (self.ending, self.taken_below) = self.outbox.take(&mut self.left, idle);
        let mut left = std::mem::take(&mut self.left);
        let some = !left.is_empty();
        let mut unknown = false;
        left.traced.drain(..).for_each(|(id, context)| self.traced.add(id, context));
        for insert in left.drain_inserts() {
            unknown |= self.tables.get(insert.table as usize).is_some_and(Option::is_none);
            self.inserts.push(insert);
        }
        if unknown {
            self.refuse_unknown_tables();
        }
        left.leases_ended.drain(..).for_each(|(id, is_taken)| self.end_lease(id, is_taken));
        if !left.requests.is_empty() || !left.withdrawn.is_empty() || !left.outcomes.is_empty() {
            let now = Instant::now();
            left.requests.drain(..).for_each(|request| self.requests.push(request, now));
            self.outcomes.extend(left.outcomes.drain(..).map(|(id, number, promise)| (id, (number, promise))));
            left.withdrawn.drain(..).for_each(|id| self.withdraw(id, now));
        }
        // Keep the memory for the next call.
        self.left = left;
        self.answer_outcome_questions();
        some
    }

    /// Refuses inserts into tables that the server of the present connection does not have.
    pub(super) fn refuse_unknown_tables(&mut self) {
        if self.outage.is_some() {
            return; // The next server may have them.
        }
        let (tables, names) = (&self.tables, self.outbox.table_names());
        let known =
            || tables.iter().zip(&names).filter(|(there, _)| there.is_some()).map(|(_, name)| name.clone()).collect();
        self.inserts.fail(|own| {
            let gone = tables[own as usize].is_none();
            gone.then(|| Error::UnknownTable { name: names[own as usize].clone(), known: known() })
        });
    }

    fn withdraw(&mut self, id: u64, now: Instant) {
        let connected = self.outage.is_none();
        if let Some(at_server) = self.requests.withdraw(id, connected, now) {
            self.cancels.extend(at_server.then_some(proto::Cancel { id, insert: false }));
            // A request that was sent on an earlier connection.
            let returning = connected && self.requests.get_mut(id).is_some_and(|request| request.is_returning());
            self.returned.extend(returning.then_some(id));
            return;
        }
        if let Some((number, promise)) = self.outcomes.remove(&id) {
            promise.fill(Err(unknown_outcome(number)));
            return;
        }
        if self.inserts.withdraw(id) == Withdrawal::Ask {
            self.abandon.push((now + self.requests.grace(), id));
            // Also if it was sent on an earlier connection and waits on this one for its share of the credit.
            self.cancels.extend(connected.then_some(proto::Cancel { id, insert: true }));
        }
    }

    /// Acknowledges draws that the program has taken, or returns those that it will not take.
    fn end_lease(&mut self, id: u64, is_taken: bool) {
        let is_known = self.requests.end_lease(id, is_taken);
        if is_known && is_taken {
            self.answered.push((id, 1));
            self.has_leased = true;
        }
        // Without a connection, the next one begins with all that are returned.
        self.returned.extend((is_known && !is_taken && self.outage.is_none()).then_some(id));
    }

    /// Answers questions about inserts whose outcome is known.
    fn answer_outcome_questions(&mut self) {
        if self.outcomes.is_empty() {
            return;
        }
        for (id, (number, promise)) in std::mem::take(&mut self.outcomes) {
            match self.inserts.insert_outcome(number) {
                Some(known) => promise.fill(known),
                None => _ = self.outcomes.insert(id, (number, promise)),
            }
        }
    }

    /// True if the task should end.
    pub(super) fn should_end(&self) -> bool {
        match self.ending {
            ClientEnding::No => false,
            // If the server is gone, draws that it was to take back are no reason to stay.
            ClientEnding::Idle => {
                self.is_idle() && (self.outage.is_some() || self.requests.returning().next().is_none())
            }
            ClientEnding::Now => true,
        }
    }

    /// True if no caller waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        self.inserts.is_empty() && !self.requests.any_wanted()
    }

    /// True if no work needs a connection.
    pub(super) fn needs_no_connection(&self) -> bool {
        // Inserts that a server may lose are sent to the next one as soon as there is one. Draws that are not reported
        // are given to other clients after a time.
        let reports = self.reports_until.is_some_and(|until| until > Instant::now());
        self.is_idle() && self.kept.is_empty() && !self.requests.hold_draws() && !reports
    }

    /// Fails everything that is under way.
    pub(super) fn fail_all(&mut self, error: &Error) {
        if self.inserts.again() > 0 {
            // An earlier server had confirmed them: a request for the disk reports it, this one or the next.
            self.requests.fail_disk_requests(error.clone());
        }
        self.requests.fail(error);
        self.inserts.fail(|_| Some(error.clone()));
        self.release_requests();
        self.answer_outcome_questions();
    }

    /// The next time at which a caller may have to be answered although nothing happens.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let abandoned = self.abandon.iter().map(|(when, _)| *when).min();
        self.requests.next_timer(self.outage, self.patience).into_iter().chain(abandoned).min()
    }

    /// Answers the callers whose time is over.
    pub(super) fn expire(&mut self) {
        self.answer_outcome_questions();
        let Some(timer) = self.next_timer() else { return };
        let now = Instant::now();
        if timer > now {
            return;
        }
        let (address, last_error, outage) = (self.outbox.address(), &self.last_error, self.outage);
        let patience = self.patience;
        let (withdrawn, returned) = self.requests.expire(now, outage, patience, |waited, what| {
            let seconds = waited.as_secs_f64();
            let Some(begun) = outage else {
                return Error::Deadline(format!(
                    "{address} did not answer for {seconds:.1} s while {what}; does the server still run?"
                ));
            };
            let is_patient = now.saturating_duration_since(begun) < patience;
            if last_error.is_empty() && is_patient {
                return Error::Deadline(format!(
                    "the connection to {address} is still being made after {seconds:.1} s, which a first call waits for"
                ));
            }
            let last_error = if last_error.is_empty() { "no answer yet" } else { last_error };
            if is_patient {
                // The caller's deadline was sooner than the client's patience with the server.
                return Error::Deadline(format!(
                    "{address} could not be reached for {seconds:.1} s while {what} ({last_error}); does a server run \
                     there?"
                ));
            }
            Error::Unavailable(format!(
                "{address} could not be reached for {seconds:.1} s while {what}: {last_error}; does a server run there?"
            ))
        });
        if outage.is_none() {
            self.cancels.extend(withdrawn.into_iter().map(|id| proto::Cancel { id, insert: false }));
            self.returned.extend(returned);
        }
        for index in (0..self.abandon.len()).rev() {
            if self.abandon[index].0 <= now {
                self.inserts.abandon(self.abandon.swap_remove(index).1);
            }
        }
    }

    /// Resets the state of the connection after it was lost.
    pub(super) fn lost(&mut self, error: &Error) {
        let now = Instant::now();
        self.outage = Some(now);
        self.reports_until = self.reports_until.or(self.has_leased.then_some(now + REPORTS_WITHIN));
        self.outbox.set_held(false);
        self.last_error = error.to_string();
        self.cancels.clear();
        self.answered.clear();
        self.reported_below = 0;
        self.must_list_open = true;
        self.returned.clear();
        self.requests.lost();
        self.inserts.lost();
        self.traced.lost(self.inserts.ids().chain(self.requests.ids()));
        self.encoder = Encoder::default();
        self.heads = Heads::default();
    }
}
