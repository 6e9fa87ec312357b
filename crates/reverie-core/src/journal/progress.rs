//! Who waits for which commit of a journal.

use crate::error::Error;
use crate::table::{JournalInfo, Promise};

#[derive(Default)]
pub(super) struct Progress {
    /// The number of the round that begins next: what is done before it begins is in it.
    pub(super) next: u64,
    /// Who waits for a round to be written, and for one to be on the disk.
    pub(super) written: Vec<(u64, Promise<()>)>,
    pub(super) synced: Vec<(u64, Promise<()>)>,
    /// As `synced`, for who does not make the journal wait for the disk earlier.
    pub(super) synced_later: Vec<(u64, Promise<()>)>,
    pub(super) info: JournalInfo,
    pub(super) failed: Option<Error>,
    pub(super) ended: bool,
    /// Someone waits for a round to be written who cannot make it: the thread does not linger.
    pub(super) hurried: bool,
    /// The thread waits for the next reason to commit, and must be woken for it.
    pub(super) asleep: bool,
    /// Someone waits for the disk for whom the journal's thread has begun no round.
    pub(super) wants_disk: bool,
    /// The newest round that was written and that the thread of the syncs has not looked at.
    pub(super) to_sync: Option<u64>,
    /// The thread of the syncs ends.
    pub(super) syncs_end: bool,
    /// The bytes since the newest checkpoint at which another was asked for.
    pub(super) asked: u64,
}

impl Progress {
    /// Takes those who wait for this round or an earlier one; with `synced` also those who wait for the disk.
    pub(super) fn take_done(&mut self, round: u64, synced: bool) -> Vec<Promise<()>> {
        let mut done = Vec::new();
        let Self { written, synced: for_disk, synced_later, .. } = self;
        for waiting in [written, for_disk, synced_later].into_iter().take(if synced { 3 } else { 1 }) {
            done.extend(waiting.extract_if(.., |(of, _)| *of <= round).map(|(_, promise)| promise));
        }
        done
    }

    /// Takes all who wait.
    pub(super) fn take_all(&mut self) -> Vec<Promise<()>> {
        self.take_done(u64::MAX, true)
    }
}
