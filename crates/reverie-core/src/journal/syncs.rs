//! The thread that waits for the disk while commits go on.

use super::group::{Journal, JournalPanicGuard};
use crate::error::Result;
use std::sync::PoisonError;
use std::time::Instant;

/// Ends the thread of the syncs with the journal's.
pub(super) struct SyncThreadGuard<'a>(&'a Journal);

impl Drop for SyncThreadGuard<'_> {
    fn drop(&mut self) {
        self.0.progress().syncs_end = true;
        self.0.sync_asked.notify_all();
    }
}

impl Journal {
    /// The other thread ends when the result is dropped, also by a panic.
    pub(super) fn syncs_while(&self) -> SyncThreadGuard<'_> {
        SyncThreadGuard(self)
    }

    /// Lets the other thread wait for the disk: it notifies those that wait for this round, which is written.
    pub(super) fn begin_sync(&self, round: u64) {
        let mut progress = self.progress();
        progress.to_sync = progress.to_sync.max(Some(round));
        drop(progress);
        self.sync_asked.notify_all();
    }

    /// Waits for the disk whenever there is something to sync, while the journal's thread makes commits.
    pub(super) fn run_syncs(&self) {
        let _end = JournalPanicGuard(self);
        while let Some(round) = self.next_sync() {
            match self.sync() {
                Ok(()) if self.check_failed().is_err() => return,
                Ok(()) => self.finish(round, true, self.log.unsynced_bytes()),
                // Some records could not be written. The last round of the journal's thread writes and syncs them.
                Err(error) if self.log.is_full() => {
                    self.wait_for_room(error);
                    if !self.progress().ended {
                        self.begin_sync(round);
                    }
                }
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Waits until a round is to be synced. `None` at the end, and if the journal has failed.
    fn next_sync(&self) -> Option<u64> {
        let mut progress = self.progress();
        loop {
            if progress.failed.is_some() {
                return None;
            }
            if let Some(round) = progress.to_sync.take() {
                return Some(round);
            }
            if progress.syncs_end {
                return None;
            }
            progress = self.sync_asked.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the disk, and counts that.
    pub(super) fn sync(&self) -> Result<()> {
        let started = Instant::now();
        self.log.sync()?;
        let took = started.elapsed();
        let info = &mut self.progress().info;
        (info.syncs, info.sync_time) = (info.syncs + 1, info.sync_time + took);
        info.longest_sync = info.longest_sync.max(took);
        Ok(())
    }
}
