//! A log without a checkpoint: the segments of a folder from which every manifest was removed.

use super::commit::{Commit, commits_in};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::names;
use crate::checkpoint::retention::scan;
use crate::checkpoint::segment::{PredecessorState, RecordKind, SegmentReader};
use crate::checkpoint::summary::{LogStart, Summary, TableSummary, latest};
use crate::chunk::Compression;
use crate::disk::Disk;
use crate::error::{CountedNoun, Error, Result};
use crate::item::Key;
use crate::table::limiter::{Counters, Limiter};
use crate::table::selector::SelectorOptions;
use crate::table::{Stats, TableOptions};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

/// The acknowledged part of a log without a checkpoint.
struct HeadlessLog {
    /// The first segment of the first server that acknowledged something.
    segment: u64,
    /// The checkpoint with which that server began; 0 if its first segment does not have it.
    checkpoint: u64,
    /// The numbers of all whole commits of servers that acknowledged something.
    commits: BTreeSet<u64>,
}

/// Refuses a folder that has commits of a journal and no checkpoint that they follow: a server that starts there would
/// be empty, and would remove them. `InvalidArgument`, with the number of the commits.
///
/// Does nothing for a folder without a journal, and for one in which a server ended before its first checkpoint was
/// complete: it had acknowledged nothing.
pub fn refuse_headless(disk: &dyn Disk, root: &Path) -> Result<()> {
    if latest(disk, root)?.is_some() {
        return Ok(());
    }
    let Some(log) = HeadlessLog::find(disk, root)? else { return Ok(()) };
    // A server may have completed its first checkpoint meanwhile.
    if latest(disk, root)?.is_some() {
        return Ok(());
    }
    let (first, number, root) = (log.first(), CountedNoun(log.commits.len() as u64, "commit"), root.display());
    let remedy = match first {
        1 => format!("or save what the commits have: reverie checkpoint repair {root} --to NEW"),
        _ => "those before it were in the checkpoint".to_owned(),
    };
    Err(Error::InvalidArgument(format!(
        "{root} has {number} of a journal, from number {first} on, and no checkpoint that they follow: a server that \
         starts there would be empty and remove them. Restore the newest file of the name NUMBER.checkpoint from a \
         copy of the folder; {remedy}. To start an empty server, give it another folder"
    )))
}

/// The empty content that the first commit of a folder's log continues, for a folder without a whole checkpoint; `None`
/// if that commit is gone.
///
/// The tables are those that the commits change. Their options are not in the log: they hold everything.
pub(super) fn before_first_commit(disk: &dyn Disk, root: &Path) -> Result<Option<Manifest>> {
    let Some(log) = HeadlessLog::find(disk, root)?.filter(|log| log.first() == 1) else { return Ok(None) };
    let tables: Vec<TableSummary> = tables_of(disk, root, log.segment)?.into_iter().map(unknown).collect();
    let summary = Summary {
        path: names::manifest(root, log.checkpoint),
        number: log.checkpoint,
        created: Duration::ZERO,
        clock: Duration::ZERO,
        num_chunks: 0,
        chunk_bytes: 0,
        manifest_bytes: 0,
        segments: Vec::new(),
        journal: Some(LogStart { segment: log.segment, commit: 1 }),
        tables,
    };
    let number = summary.tables.len();
    Ok(Some(Manifest {
        summary,
        patterns: Vec::new(),
        chunks: Vec::new(),
        parts: HashMap::new(),
        numbers: Vec::new(),
        spans: Vec::new(),
        episodes: Vec::new(),
        items: vec![Vec::new(); number],
        streams: vec![Vec::new(); number],
        copies: vec![Vec::new(); number],
        sent: vec![Vec::new(); number],
        forgotten: Vec::new(),
    }))
}

impl HeadlessLog {
    /// `None` if the folder has no acknowledged commit.
    fn find(disk: &dyn Disk, root: &Path) -> Result<Option<Self>> {
        let mut numbers: Vec<u64> = scan(disk, root)?.segments.into_iter().collect();
        numbers.sort_unstable();
        let (mut log, mut server): (Option<Self>, Option<Self>) = (None, None);
        for segment in numbers {
            let first = SegmentReader::open_unchecked(disk, root, segment)?.first_record()?;
            if let PredecessorState::Start(checkpoint) = first {
                server = Some(Self { segment, checkpoint, commits: BTreeSet::new() });
            }
            let of = server.get_or_insert(Self { segment, checkpoint: 0, commits: BTreeSet::new() });
            let mut is_acknowledged = log.as_ref().is_some_and(|log| log.segment == of.segment);
            commits_in(disk, root, segment, 0, |number, synced| {
                of.commits.insert(number);
                // Every commit after the first checkpoint of its server records that something was on the disk.
                is_acknowledged |= synced != (0, 0);
                false
            })?;
            if is_acknowledged {
                let log = log.get_or_insert(Self { commits: BTreeSet::new(), ..*of });
                log.commits.append(&mut of.commits);
            }
        }
        Ok(log)
    }

    /// The number of the first commit.
    fn first(&self) -> u64 {
        self.commits.first().copied().unwrap_or(0)
    }
}

/// The names of the tables that the commits from this segment on change, in the order of their first changes.
fn tables_of(disk: &dyn Disk, root: &Path, from: u64) -> Result<Vec<String>> {
    let mut numbers: Vec<u64> = scan(disk, root)?.segments.into_iter().filter(|number| *number >= from).collect();
    numbers.sort_unstable();
    let mut names: Vec<String> = Vec::new();
    for number in numbers {
        let mut reader = SegmentReader::open_unchecked(disk, root, number)?;
        let mut offset = SegmentReader::first();
        while let Some((kind, place, payload)) = reader.record(offset)? {
            offset += place.size();
            let commit = (kind == RecordKind::Commit).then(|| Commit::read(payload));
            for table in commit.into_iter().flatten().flat_map(|commit| commit.tables) {
                if !names.contains(&table.name) {
                    names.push(table.name);
                }
            }
        }
    }
    Ok(names)
}

/// An empty table of which only the name is known: it holds all items, in the order of their inserts.
fn unknown(name: String) -> TableSummary {
    let options = TableOptions {
        name,
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size: (Key::MAX_SLOTS / 2) as u64,
        limiter: Limiter::min_size(1).expect("a size of 1 is valid"),
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 0,
        remover_seed: 0,
        extensions: Vec::new(),
        constructed: None,
    };
    let (counters, stats) = (Counters::default(), Stats::default());
    TableSummary { options, counters, stats, size: 0, order: 0, allocated: 0 }
}
