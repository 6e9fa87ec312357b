//! A journal without room on its disk.
#![allow(dead_code)]

use reverie_core::chunk::Chunk;
use reverie_core::error::{Error, Result};
use reverie_core::table::{JournalInfo, Promise, RequestHolder, TableJournal, Ticket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A journal without room on the disk, until there is some.
#[derive(Default)]
pub struct FullJournal {
    promises: Mutex<Vec<Promise<()>>>,
    /// Set once it commits what a task waits for.
    works: AtomicBool,
    /// Set once it has failed.
    failed: AtomicBool,
    committed: AtomicUsize,
}

/// The holder of a journal's barriers, which end with its tables.
struct BarrierHolder;

impl RequestHolder<()> for BarrierHolder {
    fn withdraw(&self, _: u64) -> Option<()> {
        None
    }
}

impl FullJournal {
    pub fn num_barriers(&self) -> usize {
        self.promises.lock().unwrap().len()
    }

    /// Commits what waits.
    pub fn commit(&self) {
        let promises: Vec<_> = self.promises.lock().unwrap().drain(..).collect();
        self.committed.fetch_add(promises.len(), Relaxed);
        promises.into_iter().for_each(|promise| promise.fill(Ok(())));
    }

    /// Fails what waits.
    pub fn fail(&self) {
        self.promises.lock().unwrap().drain(..).for_each(|promise| promise.fill(Err(failure())));
    }

    /// The number of barriers that were passed since the last call.
    pub fn take_committed(&self) -> usize {
        self.committed.swap(0, Relaxed)
    }

    /// Sets whether the journal commits what a task waits for.
    pub fn set_works(&self, works: bool) {
        self.works.store(works, Relaxed);
    }

    /// Sets whether the journal fails later barriers.
    pub fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Relaxed);
    }
}

impl TableJournal for FullJournal {
    fn barrier(&self) -> Ticket<()> {
        if self.failed.load(Relaxed) {
            return Ticket::done(Err(failure()));
        }
        let (ticket, promise) = Ticket::promised(Arc::new(BarrierHolder), 0, false);
        self.promises.lock().unwrap().push(promise);
        ticket
    }

    fn durable(&self, _: bool) -> Ticket<()> {
        self.barrier()
    }

    fn commit_here(&self) {}

    fn wake_committer(&self) {
        if self.works.load(Relaxed) {
            self.commit();
        }
    }

    fn is_durable_later(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn has(&self, _: &Arc<Chunk>) -> bool {
        true
    }

    fn info(&self) -> JournalInfo {
        JournalInfo { is_full: true, error: Some("no space left".to_owned()), ..JournalInfo::default() }
    }
}

fn failure() -> Error {
    Error::Storage { path: "the journal".to_owned(), action: "write".into(), reason: "the disk is gone".to_owned() }
}
