//! The files of a folder that are kept, and those that are removed.

use super::names::{self, FileKind};
use super::summary::describe;
use crate::disk::{Disk, names as names_in, storage};
use crate::error::Result;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// The checkpoints of a folder that are kept. The newest always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The number of the newest checkpoints to keep, at least 1.
    pub count: usize,
    /// The largest age of these; `None` for any age.
    pub max_age: Option<Duration>,
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(crate) struct FolderContents {
    pub(crate) manifests: Vec<u64>,
    pub(crate) segments: HashSet<u64>,
    /// Left by a process that ended while it wrote them.
    pub(crate) unfinished: Vec<u64>,
}

/// The checkpoint that was just taken.
pub(crate) struct NewestCheckpoint {
    pub(crate) number: u64,
    pub(crate) segments: Vec<u64>,
    /// The segment that is still written.
    pub(crate) open: Option<u64>,
}

impl FolderContents {
    pub(crate) fn next_manifest(&self) -> u64 {
        self.manifests.iter().chain(&self.unfinished).max().map_or(1, |number| number + 1)
    }

    pub(crate) fn next_segment(&self) -> u64 {
        self.segments.iter().max().map_or(1, |number| number + 1)
    }
}

pub(crate) fn scan(disk: &dyn Disk, root: &Path) -> Result<FolderContents> {
    let mut found = FolderContents::default();
    for name in names_in(disk, root)? {
        match names::kind(&name) {
            Some(FileKind::Manifest(number)) => found.manifests.push(number),
            Some(FileKind::Segment(number)) => _ = found.segments.insert(number),
            Some(FileKind::Unfinished(number)) => found.unfinished.push(number),
            None => {}
        }
    }
    found.manifests.sort_unstable();
    Ok(found)
}

/// Removes the checkpoints that need not be kept, and then the segments that no other checkpoint refers to.
///
/// A kept checkpoint that cannot be read is an error, and then all segments are kept: some may belong to it.
pub(crate) fn retain(
    disk: &dyn Disk,
    root: &Path,
    keep: &RetentionPolicy,
    before: &FolderContents,
    newest: NewestCheckpoint,
    now: Duration,
) -> Result<()> {
    let mut used: HashSet<u64> = newest.segments.into_iter().chain(newest.open).collect();
    let mut is_any_removed = false;
    let mut unread = Ok(());
    let earlier = before.manifests.iter().rev().filter(|number| **number != newest.number);
    for (index, number) in earlier.enumerate() {
        let path = names::manifest(root, *number);
        // The newest checkpoint counts as one of those that are kept.
        let mut stays = index + 1 < keep.count;
        if stays {
            match describe(disk, &path) {
                Ok(summary) => {
                    let age = now.saturating_sub(summary.created);
                    stays = keep.max_age.is_none_or(|most| age <= most);
                    if stays {
                        used.extend(summary.segments);
                    }
                }
                Err(error) => unread = Err(error),
            }
        }
        if !stays {
            disk.remove(&path).map_err(storage("remove", &path))?;
            is_any_removed = true;
        }
    }
    unread?;
    if is_any_removed {
        // A checkpoint must not come back without its segments.
        disk.sync_folder(root).map_err(storage("sync", root))?;
    }
    for segment in before.segments.difference(&used) {
        let path = names::segment(root, *segment);
        disk.remove(&path).map_err(storage("remove", &path))?;
    }
    Ok(())
}

/// Removes the files of a failed checkpoint, as far as possible.
///
/// These are its manifest if that was not renamed, segments that no checkpoint refers to, and the new bytes of the
/// segment that existed before (`kept`: its number and end). Does nothing if the manifest may be in its place, and
/// reports no error: the files do no harm, and the next checkpoint removes those that are left.
pub(crate) fn clean_up(disk: &dyn Disk, root: &Path, before: &FolderContents, kept: Option<(u64, u64)>) {
    let Ok(now) = scan(disk, root) else { return };
    if now.manifests.last() > before.manifests.last() {
        return;
    }
    now.unfinished.iter().for_each(|number| _ = disk.remove(&names::unfinished(root, *number)));
    let segments = |number: &u64| describe(disk, &names::manifest(root, *number)).map(|summary| summary.segments);
    let used = now.manifests.iter().map(segments).collect::<Result<Vec<_>>>();
    // The segments of a checkpoint that cannot be read are unknown: all are kept.
    let used = used.map_or_else(|_| before.segments.clone(), |used| used.into_iter().flatten().collect());
    for segment in now.segments.difference(&used) {
        let _ = disk.remove(&names::segment(root, *segment));
    }
    if let Some((number, end)) = kept {
        let _ = disk.shorten(&names::segment(root, number), end);
    }
}
