//! **Summary**: the part of a checkpoint that is read without its items, and the checkpoints of a folder.

use super::names::{self, FileKind};
use super::section::{SectionReader, Tag};
use crate::disk::{Disk, names as names_in};
use crate::error::Result;
use crate::table::limiter::Counters;
use crate::table::{Stats, TableCut, TableOptions};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The content of a checkpoint, without its items: the record of the section `head`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The file.
    #[serde(skip)]
    pub path: PathBuf,
    /// The number of the checkpoint; later checkpoints of a folder have larger numbers.
    pub number: u64,
    /// Time since the Unix epoch.
    pub created: Duration,
    /// The reading of the tables' clock.
    pub clock: Duration,
    /// The number of different chunks of all items.
    pub num_chunks: u64,
    /// Bytes of these chunks on the disk.
    pub chunk_bytes: u64,
    /// Bytes of the manifest.
    #[serde(skip)]
    pub manifest_bytes: u64,
    /// Numbers of the segments that the chunks are in.
    pub segments: Vec<u64>,
    /// The place at which the journal continues; `None` without a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<LogStart>,
    /// The tables, in their server's order.
    pub tables: Vec<TableSummary>,
}

/// The place at which the journal continues after a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// The first segment that has commits which are not in the checkpoint.
    pub segment: u64,
    /// The number of the first of these commits.
    pub commit: u64,
}

/// A table of a checkpoint, without its items.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableSummary {
    /// The configuration; without seeds, which are not saved.
    pub options: TableOptions,
    /// The limiter's counters.
    pub counters: Counters,
    /// The other counts; those of present items are 0.
    pub stats: Stats,
    /// Number of items.
    pub size: u64,
    pub(crate) order: u64,
    pub(crate) allocated: u32,
}

impl TableSummary {
    /// The summary of a table's cut.
    pub(super) fn of(table: &TableCut) -> Self {
        let TableCut { options, counters, stats, size, order, allocated, .. } = table;
        let (options, stats) = (options.clone(), stats.clone());
        Self { options, counters: *counters, stats, size: *size, order: *order, allocated: *allocated }
    }
}

/// Reads the first section of a manifest.
pub(super) fn read(from: &mut SectionReader, path: &Path) -> Result<Summary> {
    let summary: Summary = from.section(|tag, from| match tag {
        Tag::Head => from.record(),
        other => Err(format!("section {other:?} is in the place of section {:?}", Tag::Head)),
    })?;
    // The clocks of the tables count nanoseconds in 64 bits.
    if [summary.created, summary.clock].iter().any(|time| u64::try_from(time.as_nanos()).is_err()) {
        return Err(from.damaged("a time is beyond the year 2554"));
    }
    Ok(Summary { path: path.to_owned(), manifest_bytes: from.size(), ..summary })
}

/// Reads the summary of a checkpoint. The items are neither read nor checked.
pub fn describe(disk: &dyn Disk, path: &Path) -> Result<Summary> {
    read(&mut SectionReader::open(disk, path)?, path)
}

/// The newest checkpoint of a folder; `None` if there is none.
pub fn latest(disk: &dyn Disk, root: &Path) -> Result<Option<PathBuf>> {
    Ok(numbers(disk, root)?.last().map(|number| names::manifest(root, *number)))
}

/// The numbers of a folder's checkpoints, ascending.
fn numbers(disk: &dyn Disk, root: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = names_in(disk, root)?
        .iter()
        .filter_map(|name| if let Some(FileKind::Manifest(number)) = names::kind(name) { Some(number) } else { None })
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The checkpoints of a folder, oldest first; each with the result of [`describe`].
pub fn list(disk: &dyn Disk, root: &Path) -> Result<Vec<(PathBuf, Result<Summary>)>> {
    let described = |number| {
        let path = names::manifest(root, number);
        let summary = describe(disk, &path);
        (path, summary)
    };
    Ok(numbers(disk, root)?.into_iter().map(described).collect())
}
