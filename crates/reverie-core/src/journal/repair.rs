//! Checks a folder with a journal, and saves what is whole of a damaged one.

use super::headless::{before_first_commit, refuse_headless};
use super::recover::read_log;
use super::replay::ReplayedManifest;
use crate::checkpoint::folder_claim::lock_for_reading;
use crate::checkpoint::load::{damage, load_manifest};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::summary::LogStart;
use crate::checkpoint::{Disk, RetentionPolicy, SaveOutcome, Store, describe, latest, list};
use crate::clock::Clock;
use crate::error::{CountedNoun, Error, Result};
use crate::table::Tables;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The parts that [`verify`] found undamaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedJournal {
    /// The checkpoint that the journal continues.
    pub checkpoint: PathBuf,
    /// Commits after it.
    pub commits: u64,
    /// Items, as of the last commit.
    pub items: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Bytes of these chunks on the disk.
    pub bytes: u64,
    /// The file and the offset where the journal ends within a record: a write that did not finish.
    pub torn: Option<(PathBuf, u64)>,
}

/// Checks every byte that a server which starts in this folder would read; `None` if the folder has no journal.
///
/// Holds one chunk in memory at a time, and the rows of all items. Keeps servers out of the folder meanwhile. `DamagedFile`
/// for the first damage, `Storage` if a server writes the journal.
pub fn verify(disk: &dyn Disk, root: &Path) -> Result<Option<VerifiedJournal>> {
    if !has_journal(disk, root)? {
        return Ok(None);
    }
    let _lock = lock_for_reading(disk, root, "name one checkpoint's file instead, or wait until it has ended")?;
    // Read again: a server may have ended since, and what it left is read under the lock.
    let Some(checkpoint) = latest(disk, root)? else { return Ok(None) };
    let manifest = Manifest::read(disk, &checkpoint)?;
    let Some(start) = manifest.summary.journal else { return Ok(None) };
    let (mut replayed, mut next_commit) = (ReplayedManifest::of(manifest), start.commit);
    let torn = read_log(disk, root, &mut replayed, &mut next_commit)?;
    if let Some((_, error)) = damage(disk, root, &replayed.chunks_in_use())?.into_iter().next() {
        return Err(error);
    }
    let manifest = replayed.into_manifest()?;
    Ok(Some(VerifiedJournal {
        checkpoint,
        commits: next_commit - start.commit,
        items: manifest.items.iter().map(|items| items.len() as u64).sum(),
        chunks: manifest.summary.num_chunks,
        bytes: manifest.summary.chunk_bytes,
        torn,
    }))
}

/// True if the newest checkpoint is continued by a journal.
fn has_journal(disk: &dyn Disk, root: &Path) -> Result<bool> {
    loop {
        let Some(newest) = latest(disk, root)? else { return refuse_headless(disk, root).map(|()| false) };
        match describe(disk, &newest) {
            // A server may have taken another one meanwhile, and removed this one.
            Err(Error::DamagedFile { .. }) if latest(disk, root)?.as_ref() != Some(&newest) => {}
            described => return Ok(described?.journal.is_some()),
        }
    }
}

/// A part that is not in a repaired folder.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// A checkpoint that could not be read.
    Checkpoint(Error),
    /// No checkpoint could be read: the commits were applied to empty tables.
    AllCheckpoints,
    /// The journal could not be read beyond this point.
    Commits(Error),
    /// Items whose bytes could not be read, with the first such place.
    Items {
        /// Their table.
        table: String,
        /// Their number.
        items: u64,
        /// The first damage.
        error: Error,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => write!(f, "a checkpoint is damaged and was not used: {error}"),
            Self::AllCheckpoints => f.write_str(
                "no checkpoint could be read, and the journal was read from its first commit: the options of the tables are \
                 not in it, nor is what a server had restored before it began the journal; start the next server with \
                 the tables of the old one",
            ),
            Self::Commits(error) => write!(f, "the journal is left out from this place on: {error}"),
            Self::Items { table, items, error } => {
                write!(f, "table '{table}': {} left out: {error}", CountedNoun(*items, "item"))
            }
        }
    }
}

/// The outcome of a [`repair`].
#[derive(Debug)]
pub struct RepairOutcome {
    /// The checkpoint in the new folder.
    pub saved: SaveOutcome,
    /// The parts that are not in it.
    pub losses: Vec<Loss>,
}

/// Saves what is whole of the folder `root` as a checkpoint in the folder `to`, which must be empty or missing.
///
/// Reads `root`, keeps servers out of it meanwhile, and changes nothing there. Takes as much memory as the items. `clock` is that
/// of new tables and not used elsewhere, and `forward` moves it. `now` is the time since the Unix epoch. Without any
/// checkpoint, the log is applied to empty tables if it has its first commit. Fails if none of the checkpoints that are
/// there is whole; `Storage` if a server uses `root`.
pub fn repair(
    disk: &Arc<dyn Disk>,
    root: &Path,
    to: PathBuf,
    clock: &Arc<dyn Clock>,
    forward: impl FnOnce(Duration),
    now: Duration,
) -> Result<RepairOutcome> {
    // Before anything is read, so that no other repair saves there meanwhile.
    let store = Store::new(Arc::clone(disk), to.clone(), RetentionPolicy { count: 1, max_age: None })?;
    if store.found().is_some() {
        return Err(Error::InvalidArgument(format!("{} has checkpoints already: name an empty folder", to.display())));
    }
    let _lock = lock_for_reading(&**disk, root, "wait until it has ended")?;
    let mut losses = Vec::new();
    let manifest = newest_whole(&**disk, root, &mut losses)?;
    let start = manifest.summary.journal;
    let mut replayed = ReplayedManifest::of(manifest);
    let mut next_commit = start.map_or(1, |start: LogStart| start.commit);
    match read_log(&**disk, root, &mut replayed, &mut next_commit) {
        Ok(_) => {}
        // Damage, or commits that were removed.
        Err(error @ (Error::DamagedFile { .. } | Error::InvalidArgument(_))) => losses.push(Loss::Commits(error)),
        Err(other) => return Err(other),
    }
    let damaged = damage(&**disk, root, &replayed.chunks_in_use())?;
    if let Some((_, error)) = damaged.first() {
        let chunks: BTreeSet<u32> = damaged.iter().map(|(chunk, _)| *chunk).collect();
        let left_out = replayed.leave_out(&chunks).into_iter();
        losses.extend(left_out.map(|(table, items)| Loss::Items { table, items, error: error.clone() }));
    }
    let manifest = replayed.into_manifest()?;
    let options = manifest.summary.tables.iter().map(|table| table.options.clone()).collect();
    let tables = Tables::new(options, None, clock, now.as_nanos() as u64)?;
    let checkpoint = load_manifest(&**disk, manifest, tables.bytes().0, false)?;
    forward(checkpoint.clock_at(now));
    checkpoint.restore(&tables, now)?;
    let saved = store.save(&tables, now)?;
    store.release();
    Ok(RepairOutcome { saved, losses })
}

fn newest_whole(disk: &dyn Disk, root: &Path, losses: &mut Vec<Loss>) -> Result<Manifest> {
    let mut first = None;
    for (path, _) in list(disk, root)?.into_iter().rev() {
        match Manifest::read(disk, &path) {
            Ok(manifest) => return Ok(manifest),
            Err(error @ Error::DamagedFile { .. }) => {
                first.get_or_insert(error.clone());
                losses.push(Loss::Checkpoint(error));
            }
            Err(other) => return Err(other),
        }
    }
    if let Some(empty) = before_first_commit(disk, root)? {
        losses.push(Loss::AllCheckpoints);
        return Ok(empty);
    }
    if let Some(error) = first {
        return Err(error);
    }
    refuse_headless(disk, root)?;
    Err(Error::InvalidArgument(format!("there is no checkpoint in {}", root.display())))
}
