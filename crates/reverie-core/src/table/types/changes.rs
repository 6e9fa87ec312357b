//! Changes of items by their keys, and their outcome.

use crate::error::{Error, Result};

/// Neighbours that one decision visits: some milliseconds of work.
const RAISED_AT_ONCE: usize = 1 << 14;

/// The outcome of a batch of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Keys whose item was present and was changed.
    pub applied: u64,
    /// Keys that were ignored: the item is gone, or was updated since the version that was given.
    pub stale: u64,
}

/// New priorities for items. All slices have one length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Updates<'a> {
    /// Keys that are no longer present are counted and ignored.
    pub keys: &'a [i64],
    /// If a key occurs twice, the last priority counts.
    pub priorities: &'a [f64],
    /// If given, changes an item only if its version before the call is the given one.
    ///
    /// This also applies to each occurrence of a repeated key.
    pub if_version: Option<&'a [u32]>,
    /// If given, also raises the priorities of earlier items of the same stream.
    pub neighbours: Option<Neighbours>,
}

/// The reach of a new priority back to earlier items.
///
/// When an item gets the priority p, the i-th item before it gets `max(own, p * decay ** i)`, for i from 1 to `count`
/// (Brittain et al. 2019, prioritized sequence experience replay, section 4). Earlier items are those of the same
/// stream of steps, and of the same episode where the item has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbours {
    pub(in crate::table) count: u32,
    pub(in crate::table) decay: f64,
}

impl Neighbours {
    /// The largest `count`: with a decay of 0.995 the last neighbour gets less than a hundredth of it.
    pub const MOST: u32 = 1024;

    /// Refuses a count of 0 or above [`Neighbours::MOST`], and a decay outside (0, 1].
    pub fn new(count: u64, decay: f64) -> Result<Self> {
        let refuse = |reason: String| Err(Error::InvalidArgument(reason));
        match u32::try_from(count) {
            Ok(count @ 1..=Self::MOST) if decay > 0.0 && decay <= 1.0 => Ok(Self { count, decay }),
            Ok(1..=Self::MOST) => refuse(format!("neighbours: decay must be above 0 and at most 1, got {decay}")),
            _ => refuse(format!("neighbours: k must be between 1 and {}, got {count}", Self::MOST)),
        }
    }

    /// The number of items whose neighbours are raised in one decision.
    pub(in crate::table) fn at_once(self) -> usize {
        (RAISED_AT_ONCE / self.count as usize).max(1)
    }

    /// The count and the decay.
    pub fn parts(self) -> (u32, f64) {
        (self.count, self.decay)
    }
}
