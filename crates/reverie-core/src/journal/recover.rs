//! The content that a starting server finds: the newest manifest, and the commits after it.

use super::commit::{Commit, commits_in};
use super::headless::refuse_headless;
use super::replay::{HeldLease, ReplayedManifest};
use crate::checkpoint::bytes::Reader;
use crate::checkpoint::load::{Checkpoint, load_manifest};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::names;
use crate::checkpoint::retention::{FolderContents, scan};
use crate::checkpoint::segment::{PredecessorState, RecordKind, SegmentReader};
use crate::checkpoint::summary::{LogStart, describe, latest};
use crate::chunk::Meter;
use crate::disk::{Disk, damaged, folder_of};
use crate::error::{CountedNoun, Error, Result};
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The content of a journal.
#[derive(Debug)]
pub struct RecoveredJournal {
    /// The tables' content as of the last commit.
    pub checkpoint: Checkpoint,
    /// The number of commits that were applied to the newest checkpoint.
    pub commits: u64,
    /// The draws that clients held and had not acknowledged. The checkpoint has them undone.
    pub leases: Vec<HeldLease>,
    /// The file and the offset where the journal ends within a record: a write that did not finish.
    pub torn: Option<(PathBuf, u64)>,
    /// The place at which a journal with this content continues.
    pub end: JournalEnd,
}

/// The numbers with which a journal continues. Those of the journal before are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    pub(super) commit: u64,
    pub(super) chunk: u64,
}

impl Default for JournalEnd {
    /// The start of a journal.
    fn default() -> Self {
        Self { commit: 1, chunk: 1 }
    }
}

/// Reads the newest checkpoint of a folder and the commits after it; `None` if there is no checkpoint and no commit.
///
/// Everything that was acknowledged is in it. A record at the end that is not whole was never acknowledged and is left
/// out, and so is everything after it that was not on the disk yet. `DamagedFile` for damage before that.
/// With a disk tier, chunks stay where they are: damage in one is found by the first read of it. No other process may
/// change the folder then.
pub fn recover(disk: &dyn Disk, root: &Path, meter: &Arc<Meter>) -> Result<Option<RecoveredJournal>> {
    let Some(path) = latest(disk, root)? else { return refuse_headless(disk, root).map(|()| None) };
    recover_from(disk, &path, meter, true).map(Some)
}

/// Like [`recover`], from a checkpoint and the commits after it. `left`: chunks may stay where they are.
pub(super) fn recover_from(disk: &dyn Disk, path: &Path, meter: &Arc<Meter>, left: bool) -> Result<RecoveredJournal> {
    let root = &folder_of(path);
    let manifest = Manifest::read(disk, path)?;
    let start = manifest.summary.journal;
    let mut replayed = ReplayedManifest::of(manifest);
    let first = start.map_or(1, |start| start.commit);
    let mut next_commit = first;
    let torn = read_log(disk, root, &mut replayed, &mut next_commit)?;
    let end = JournalEnd { commit: next_commit, chunk: replayed.next_chunk() };
    let leases = replayed.leases();
    let checkpoint = load_manifest(disk, replayed.into_manifest()?, meter, left)?;
    Ok(RecoveredJournal { checkpoint, commits: next_commit - first, leases, torn, end })
}

/// The number of commits after this checkpoint without which the tables would have other items, priorities or limits.
pub(super) fn changes_after(disk: &dyn Disk, root: &Path, path: &Path) -> Result<u64> {
    let mut replayed = ReplayedManifest::of(Manifest::read(disk, path)?);
    let (_, start) = replayed.start();
    read_log(disk, root, &mut replayed, &mut start.map_or(1, |start| start.commit))?;
    Ok(replayed.changes())
}

/// Applies all commits after the manifest; returns where the journal ends within a record.
///
/// On an error, what was before the damage is applied. `InvalidArgument` if nothing is damaged, but files with
/// commits after the checkpoint were removed.
pub(super) fn read_log(
    disk: &dyn Disk,
    root: &Path,
    replayed: &mut ReplayedManifest,
    next_commit: &mut u64,
) -> Result<Option<(PathBuf, u64)>> {
    let (checkpoint, start) = replayed.start();
    let Some(start) = start else { return Ok(None) };
    let found = scan(disk, root)?;
    let segments = segments_of_log(disk, root, checkpoint, start.segment, &found)?;
    let mut reads = LogPosition { from: start.segment, segment: start.segment, next: *next_commit };
    read_segments(disk, root, &segments, replayed, next_commit, &mut reads).or_else(|error| {
        let LogPosition { from, segment, next } = reads;
        let is_behind_a_gap = (from..segment).any(|number| !found.segments.contains(&number));
        if !matches!(error, Error::DamagedFile { .. }) || !is_behind_a_gap || *next_commit != next {
            return Err(error);
        }
        let rest: Vec<_> = segments.into_iter().filter(|(number, _)| *number >= segment).collect();
        let first = first_commit(disk, root, segment)?.filter(|first| *first > next);
        match first {
            Some(first) if has_newer(disk, root, checkpoint, start, &found, &rest)? => {
                Err(removed(root, checkpoint, next..first))
            }
            _ => Err(error),
        }
    })
}

/// True if a newer checkpoint than this one, with this start of its log, is there or was: a server begins with one, or
/// the first commit after one records that all before it was on the disk.
fn has_newer(
    disk: &dyn Disk,
    root: &Path,
    checkpoint: u64,
    start: LogStart,
    found: &FolderContents,
    segments: &[(u64, PredecessorState)],
) -> Result<bool> {
    let begins = |first: &PredecessorState| matches!(first, PredecessorState::Start(of) if *of > checkpoint);
    if found.manifests.last().is_some_and(|newest| *newest > checkpoint) || segments.iter().any(|(_, of)| begins(of)) {
        return Ok(true);
    }
    for (number, _) in segments {
        if records_sync(disk, root, *number, 0, |synced| synced.1 == 0 && synced.0 > start.segment)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The refusal of a checkpoint after which these commits were removed.
fn removed(root: &Path, checkpoint: u64, commits: Range<u64>) -> Error {
    let path = names::manifest(root, checkpoint);
    let (path, missing, root) = (path.display(), CountedNoun(commits.end - commits.start, "commit"), root.display());
    Error::InvalidArgument(format!(
        "{path} cannot be continued: the files with {missing} of the journal after it, from number {} on, are not in {root}. A \
         server removes them when it has taken a newer checkpoint. Restore that; or, to go on without what came after this \
         one, give the journal and the checkpoints another folder and fallback_checkpoint_path='{path}' (reverie checkpoint \
         repair {root} --to NEW saves all that is left)",
        commits.start
    ))
}

/// The number of the first commit of a segment; `None` if what is before it is damaged.
fn first_commit(disk: &dyn Disk, root: &Path, segment: u64) -> Result<Option<u64>> {
    let mut reader = match SegmentReader::open(disk, root, segment) {
        Err(Error::DamagedFile { .. }) => return Ok(None),
        opened => opened?,
    };
    let mut offset = SegmentReader::first();
    while let Some((kind, place, payload)) = reader.record(offset)? {
        if kind == RecordKind::Commit {
            return Ok(Commit::head(&mut Reader::new(payload)).map(|(number, _)| number).ok());
        }
        offset += place.size();
    }
    Ok(None)
}

/// The position at which a log is read.
struct LogPosition {
    /// The number behind the last segment that had a commit.
    from: u64,
    /// The number of the segment.
    segment: u64,
    /// The number of the next commit before it.
    next: u64,
}

/// Applies the commits of these segments, as [`read_log`].
fn read_segments(
    disk: &dyn Disk,
    root: &Path,
    segments: &[(u64, PredecessorState)],
    replayed: &mut ReplayedManifest,
    next_commit: &mut u64,
    reads: &mut LogPosition,
) -> Result<Option<(PathBuf, u64)>> {
    let mut last = (0, 0);
    for (at, (number, first)) in segments.iter().enumerate() {
        if *next_commit > reads.next {
            reads.from = reads.segment + 1;
        }
        (reads.segment, reads.next) = (*number, *next_commit);
        // The end of a segment, all of it or its name may be lost with the machine, and the next one not.
        if let PredecessorState::After(after) = *first
            && after != last
        {
            let end = if after.0 == last.0 { last } else { (after.0, 0) };
            let path = names::segment(root, end.0);
            refuse_synced(disk, root, end, &segments[at..], &path)?;
            return Ok(Some((path, end.1)));
        }
        let Some(end) = read_segment(disk, root, *number, replayed, next_commit, &mut last)? else { continue };
        // A record that is not whole: the end of the journal, unless a later commit records that it was on the disk.
        refuse_synced(disk, root, (*number, end.1), &segments[at..], &end.0)?;
        return Ok(Some(end));
    }
    Ok(None)
}

/// The segments of the journal from this one on, in order, each with its first record.
fn segments_of_log(
    disk: &dyn Disk,
    root: &Path,
    checkpoint: u64,
    from: u64,
    found: &FolderContents,
) -> Result<Vec<(u64, PredecessorState)>> {
    let mut numbers: Vec<u64> = found.segments.iter().copied().filter(|of| *of >= from).collect();
    numbers.sort_unstable();
    let segments = numbers.into_iter().map(|number| Ok((number, first_record(disk, root, number)?)));
    without_failed_starts(disk, root, checkpoint, segments.collect::<Result<_>>()?)
}

/// The segments that no start from a checkpoint of the folder reads: those of servers that ended before their first
/// checkpoint was there, and those of checkpoints that were removed.
///
/// None if a checkpoint cannot be read: some may belong to it.
pub(super) fn unneeded(disk: &dyn Disk, root: &Path, found: &FolderContents) -> Result<Vec<u64>> {
    let (mut needed, mut newest, mut first) = (HashSet::new(), None, u64::MAX);
    for number in &found.manifests {
        let summary = match describe(disk, &names::manifest(root, *number)) {
            Err(Error::DamagedFile { .. }) => return Ok(Vec::new()),
            described => described?,
        };
        needed.extend(summary.segments);
        newest = summary.journal.map(|start| (*number, start.segment));
        first = first.min(newest.map_or(u64::MAX, |(_, segment)| segment));
    }
    // An older checkpoint is continued by everything after it, too.
    let after_newest = newest.map_or(u64::MAX, |(_, segment)| segment);
    needed.extend(found.segments.iter().filter(|segment| (first..after_newest).contains(segment)));
    if let Some((checkpoint, segment)) = newest {
        let log = segments_of_log(disk, root, checkpoint, segment, found)?;
        needed.extend(log.into_iter().map(|(segment, _)| segment));
    }
    Ok(found.segments.difference(&needed).copied().collect())
}

/// See [`SegmentReader::first_record`]; nothing if the head of the segment is damaged.
fn first_record(disk: &dyn Disk, root: &Path, number: u64) -> Result<PredecessorState> {
    match SegmentReader::open(disk, root, number) {
        Ok(mut reader) => reader.first_record(),
        Err(Error::DamagedFile { .. }) => Ok(PredecessorState::Nothing),
        Err(other) => Err(other),
    }
}

/// The segments but for those of servers that ended before their first checkpoint was there.
///
/// Such a server has acknowledged nothing. Its tables may have been other ones, and the journal that it had read may
/// since have lost its end with the machine: its commit does not continue that.
fn without_failed_starts(
    disk: &dyn Disk,
    root: &Path,
    checkpoint: u64,
    segments: Vec<(u64, PredecessorState)>,
) -> Result<Vec<(u64, PredecessorState)>> {
    let is_start = |first: &PredecessorState| matches!(first, PredecessorState::Start(of) if *of != checkpoint);
    let mut left = Vec::with_capacity(segments.len());
    for server in segments.chunk_by(|_, (_, first)| !is_start(first)) {
        if !is_start(&server[0].1) || was_there(disk, root, server)? {
            left.extend_from_slice(server);
        }
    }
    Ok(left)
}

/// True if these segments have a commit after the first checkpoint of the server that wrote them: one that records that
/// something was on the disk.
fn was_there(disk: &dyn Disk, root: &Path, segments: &[(u64, PredecessorState)]) -> Result<bool> {
    for (number, _) in segments {
        if records_sync(disk, root, *number, 0, |synced| synced != (0, 0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies the records of a segment; returns the offset of the first that is not whole. `last` is then its end.
fn read_segment(
    disk: &dyn Disk,
    root: &Path,
    number: u64,
    replayed: &mut ReplayedManifest,
    next_commit: &mut u64,
    last: &mut (u64, u64),
) -> Result<Option<(PathBuf, u64)>> {
    let mut reader = match SegmentReader::open(disk, root, number) {
        Ok(reader) => reader,
        Err(Error::DamagedFile { path, .. }) => {
            // Without a record it is the rest of a creation that failed: the journal goes on in the next one.
            let is_empty = SegmentReader::open_unchecked(disk, root, number)?.is_empty();
            return Ok((!is_empty).then(|| (path.into(), 0)));
        }
        Err(other) => return Err(other),
    };
    let path = reader.path().to_owned();
    let mut offset = SegmentReader::first();
    while offset < reader.size() {
        let is_empty = reader.is_empty();
        let Some((kind, place, payload)) = reader.record(offset)? else {
            return Ok((!is_empty).then_some((path, offset)));
        };
        match kind {
            RecordKind::Chunk | RecordKind::After | RecordKind::Start => {}
            RecordKind::Part => replayed.part(payload, place).map_err(|what| damaged(&path, what, offset))?,
            RecordKind::Commit => {
                let commit = Commit::read(payload).map_err(|what| damaged(&path, what, offset))?;
                if commit.number != *next_commit {
                    let what = format!("commit {} is in the place of commit {next_commit}", commit.number);
                    return Err(damaged(&path, what, offset));
                }
                *next_commit += 1;
                replayed.apply(commit).map_err(|what| damaged(&path, what, offset))?;
            }
        }
        offset += place.size();
    }
    if !reader.is_empty() {
        *last = (number, offset);
    }
    Ok(None)
}

/// Fails if a whole commit of these segments records that more than `end` was on the disk.
fn refuse_synced(
    disk: &dyn Disk,
    root: &Path,
    end: (u64, u64),
    segments: &[(u64, PredecessorState)],
    path: &Path,
) -> Result<()> {
    for (number, _) in segments {
        let from = if *number == end.0 { end.1 } else { 0 };
        if records_sync(disk, root, *number, from, |synced| synced > end)? {
            return Err(damaged(path, "a record is not what was written", end.1));
        }
    }
    Ok(())
}

/// True if a whole commit of a segment from this offset on records a position on the disk for which `is_it` is true.
fn records_sync(
    disk: &dyn Disk,
    root: &Path,
    number: u64,
    from: u64,
    is_it: impl Fn((u64, u64)) -> bool,
) -> Result<bool> {
    commits_in(disk, root, number, from, |_, synced| is_it(synced))
}
