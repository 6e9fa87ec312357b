//! Copies: an item that one table hands out for the first time goes into another table, too.
//!
//! The table's lock is held for noting who was drawn first; the copies are offered to the other table behind it, before
//! whoever sampled is told. Copies that the other table's limits hold back wait in its queue of inserts, as data.

use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::spec::Signature;
use crate::table::insert_queue::PendingInsert;
use crate::table::queues::{After, State};
use crate::table::shared::{Priority, SharedTable};
use crate::table::table::FirstDraw;
use crate::table::tables::Budget;
use crate::table::ticket::{Cell, Keys};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Copies that may wait for one extension; beyond, they are dropped at once.
pub const MOST_WAITING: u64 = 1024;

/// An extension of a table: what is sampled the first time goes into another table of the same server, too.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertOnSample {
    /// The other table.
    pub target: String,
    /// For how long a copy may wait to be let in, then it is dropped; `None` for as long as it takes.
    pub timeout: Option<Duration>,
}

/// What became of the copies of one extension, since the start or the last reset of the table that has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Went in.
    pub inserted: u64,
    /// Did not: their time was over, too many waited, the other table refused them or was closed.
    pub dropped: u64,
    /// Wait now.
    pub waiting: u64,
}

/// The same while it changes, under the other table's lock.
#[derive(Debug, Default)]
pub(in crate::table) struct Counts {
    inserted: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicU64,
}

impl Counts {
    fn get(&self) -> Copied {
        let [inserted, dropped, waiting] =
            [&self.inserted, &self.dropped, &self.waiting].map(|count| count.load(Relaxed));
        Copied { inserted, dropped, waiting }
    }

    fn clear(&self) {
        self.inserted.store(0, Relaxed);
        self.dropped.store(0, Relaxed);
    }

    fn end(&self, went_in: bool) {
        if went_in { &self.inserted } else { &self.dropped }.fetch_add(1, Relaxed);
    }
}

/// One extension of a table that lives.
pub(in crate::table) struct Copying {
    target: Weak<SharedTable>,
    timeout: Option<Duration>,
    counts: Arc<Counts>,
}

/// What makes a waiting insert that of a copy.
pub(in crate::table) struct Copy {
    /// The key that it has in the table that it comes from.
    key: Key,
    until: Option<Duration>,
    counts: Arc<Counts>,
}

impl Copy {
    pub(in crate::table) fn key(&self) -> Key {
        self.key
    }

    /// How long it may wait.
    pub(in crate::table) fn until(&self) -> Option<Duration> {
        self.until
    }

    /// It waits no more.
    pub(in crate::table) fn end(&self, went_in: bool) {
        self.counts.waiting.fetch_sub(1, Relaxed);
        self.counts.end(went_in);
    }
}

/// Refuses extensions that can never work: a table that there is not, one that comes back to where it began, items that
/// the other table never takes.
pub(in crate::table) fn check(all: &[Arc<SharedTable>], extensions: &[(String, Vec<InsertOnSample>)]) -> Result<()> {
    let refuse = |table: &str, target: &str, reason: &str| {
        let what = format!("table '{table}': insert_on_sample into table '{target}' {reason}");
        Err(Error::InvalidArgument(what))
    };
    let targets = |of: &str| {
        let found = extensions.iter().find(|(table, _)| table == of);
        found.into_iter().flat_map(|(_, extensions)| extensions).map(|extension| extension.target.as_str())
    };
    for (table, extensions) in extensions {
        for (index, InsertOnSample { target, .. }) in extensions.iter().enumerate() {
            let of = |name: &str| all.iter().find(|table| table.name() == name).map(|table| table.signature());
            let Some(wanted) = of(target) else {
                let known: Vec<String> = all.iter().map(|table| format!("'{}'", table.name())).collect();
                let reason = format!("needs it on the same server, which has {}", known.join(", "));
                return refuse(table, target, &reason);
            };
            if extensions[..index].iter().any(|before| before.target == *target) {
                return refuse(table, target, "is there twice; give it once");
            }
            let (mut reached, mut at) = (vec![target.as_str()], 0);
            while at < reached.len() {
                if reached[at] == table {
                    return refuse(table, target, "leads back to it; leave one of the extensions out");
                }
                let more: Vec<&str> = targets(reached[at]).filter(|name| !reached.contains(name)).collect();
                reached.extend(more);
                at += 1;
            }
            if let (Some(wanted), Some(Some(got))) = (wanted, of(table))
                && !alike(&wanted, &got)
            {
                return refuse(table, target, &format!("copies {got}, which its signature {wanted} refuses"));
            }
        }
    }
    Ok(())
}

/// True where an item may fit both.
fn alike(left: &Signature, right: &Signature) -> bool {
    left.columns.len() == right.columns.len()
        && left.structure.difference(&right.structure).is_none()
        && left.columns.iter().zip(&right.columns).all(|(left, right)| left.dtype == right.dtype)
}

impl SharedTable {
    /// Its copies go there from now on; once, and before it is used.
    pub(in crate::table) fn copy_to(&self, extensions: &[InsertOnSample], all: &[Arc<SharedTable>]) {
        let found = |name: &str| all.iter().find(|table| table.name() == name);
        let copying = |extension: &InsertOnSample| {
            let target = Arc::downgrade(found(&extension.target).expect("the extensions were checked"));
            Copying { target, timeout: extension.timeout, counts: Arc::default() }
        };
        if !extensions.is_empty() {
            crate::sync::lock(&self.state).table.note_first_draws();
            // Only just made, so it cannot have been set.
            let _ = self.copying.set(extensions.iter().map(copying).collect());
        }
    }

    /// Offers what was drawn first to the tables that take copies; true where that freed bytes, and where an insert
    /// there waits for bytes. Called without the lock.
    pub(in crate::table) fn copy(&self, first: Vec<FirstDraw>) -> (bool, bool) {
        let (mut freed, mut starves) = (false, false);
        for copying in self.copying.get().into_iter().flatten() {
            let Some(target) = copying.target.upgrade() else {
                copying.counts.dropped.fetch_add(first.len() as u64, Relaxed);
                continue;
            };
            let budget = target.budget.clone();
            let (refused, more, waits) =
                target.decide_alone(|state, now| state.offer(&first, copying, now, budget.as_deref()));
            drop(refused);
            (freed, starves) = (freed | more, starves | waits);
        }
        (freed, starves)
    }

    /// What became of the copies, for each extension.
    pub(in crate::table) fn copied(&self) -> Vec<Copied> {
        let all = self.copying.get().into_iter().flatten();
        all.map(|copying| {
            if let Some(target) = copying.target.upgrade() {
                target.drop_late();
            }
            copying.counts.get()
        })
        .collect()
    }

    /// Counts copies anew.
    pub(in crate::table) fn forget_copied(&self) {
        self.copying.get().into_iter().flatten().for_each(|copying| copying.counts.clear());
    }

    /// In how long the first copy that waits here for a time at most is dropped, and inserts behind it may go on; `None`
    /// without one. Nothing else that an insert waits for comes with time alone.
    pub fn drops_late_in(&self) -> Option<Duration> {
        let late_at = crate::sync::lock(&self.state).inserts.late_at()?;
        Some(late_at.saturating_sub(self.clock.now()))
    }

    /// Lets go of copies whose time is over: figures are as if that had been done in time.
    pub(in crate::table) fn drop_late(&self) {
        if self.drops_late_in().is_some_and(|left| left.is_zero()) {
            self.decide(|_, _| ());
        }
    }
}

impl State {
    /// Takes copies in, or lets them wait. Gives back those that were refused, to be dropped without the lock.
    fn offer(
        &mut self,
        first: &[FirstDraw],
        how: &Copying,
        now: Duration,
        budget: Option<&Budget>,
    ) -> Vec<(Item, Priority)> {
        let mut refused = Vec::new();
        for FirstDraw { item, priority, key } in first {
            let offered = (item.clone(), Priority::Value(*priority));
            if self.closed || self.table.check(item, *priority).is_err() {
                how.counts.end(false);
                refused.push(offered);
                continue;
            }
            let until = how.timeout.map(|timeout| now.saturating_add(timeout));
            let copy = Copy { key: *key, until, counts: Arc::clone(&how.counts) };
            copy.counts.waiting.fetch_add(1, Relaxed);
            let mut keys = Keys::new();
            let next = match self.inserts.is_empty() {
                true => self.admit(&mut std::iter::empty(), &mut keys, Some(offered), Some(&copy), now, budget),
                false => Some(offered),
            };
            let Some(next) = next else { continue };
            if until.is_some_and(|until| until <= now) || how.counts.waiting.load(Relaxed) > MOST_WAITING {
                copy.end(false);
                refused.push(next);
                continue;
            }
            let (id, items) = (self.take_id(), smallvec::SmallVec::new().into_iter());
            let (next, copy, cell) = (Some(next), Some(copy), Cell::new());
            self.inserts.put(PendingInsert { id, items, next, keys, origin: None, since: now, cell, copy });
        }
        refused
    }

    /// Takes copies whose time is over out of the queue.
    pub(in crate::table) fn take_late(&mut self, now: Duration, after: &mut After) {
        while let Some(pending) = self.inserts.remove_late(now) {
            pending.copy.iter().for_each(|copy| copy.end(false));
            after.late.push(pending);
        }
    }
}
