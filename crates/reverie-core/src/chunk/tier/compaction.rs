//! Compaction: the chunks of files of which most bytes belong to no chunk any more are written once more.

use super::files::{Files, WriteFailure};
use super::ledger::lock_unpoisoned;
use super::movable::Memory;
use super::mover::{AT_ONCE, MoverState, TierState};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The share of live bytes up to which a file is compacted.
const SPARSE: f64 = 0.67;
/// The share of live bytes up to which a file is compacted while the files have `disk_bytes`.
const SPARSE_IF_FULL: f64 = 0.95;

impl TierState {
    /// Copies some chunks of a sparse file to another one, if there is too much garbage; after the last of them the
    /// file is removed.
    ///
    /// Returns how long to wait before the next; `None` if there is none.
    pub(super) fn compact(&self, memory: &dyn Memory) -> Option<Duration> {
        let is_full = matches!(*lock_unpoisoned(&self.state), MoverState::Full(_));
        let mut written = lock_unpoisoned(&self.files);
        written.files.remove_unused();
        if written.sparse.is_none() {
            if !is_full && !self.ledger.is_littered() {
                return None;
            }
            let file = written.files.emptiest(if is_full { SPARSE_IF_FULL } else { SPARSE })?;
            let chunks = written.members.get(&file.number).cloned().unwrap_or_default();
            written.sparse = Some((file, chunks));
        }
        let (file, mut chunks) = written.sparse.take()?;
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        while (bytes.len() as u64) < AT_ONCE {
            let Some(chunk) = chunks.pop() else { break };
            let Some(chunk) = chunk.upgrade() else { continue };
            let Some(old) = chunk.stored().filter(|old| old.place().is_in(&file)) else { continue };
            // A chunk that cannot be read keeps its file.
            if let Ok(record) = old.copied(&mut bytes) {
                records.push((chunk, record));
            }
        }
        if !records.is_empty() {
            // Moves leave these bytes free for it.
            match written.files.write(&bytes, 0) {
                Ok((to, at)) => written.store(&to, at, records),
                // Its other chunks stay where they are, and the file is found again later.
                Err(WriteFailure::Full) => return None,
                Err(WriteFailure::Fails(error)) => {
                    self.set(MoverState::Fails(error));
                    return None;
                }
            }
        }
        if chunks.is_empty() {
            Files::exclude_from_compaction(&file);
            drop(file);
            written.files.remove_unused();
        } else {
            written.sparse = Some((file, chunks));
        }
        drop(written);
        self.compacted.fetch_add(bytes.len() as u64, Relaxed);
        memory.freed();
        let rate = self.options.compaction_bytes_per_second;
        Some(if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes.len() as f64 / rate as f64) })
    }
}
