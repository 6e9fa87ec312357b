//! Changes of items by their keys, and what they came to.

use crate::error::{Error, Result};

/// Neighbours that one decision looks at: some milliseconds of work.
const RAISED_AT_ONCE: usize = 1 << 14;

/// What a batch of changes came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Keys whose item was there, and was changed.
    pub applied: u64,
    /// Keys that were ignored: the item is gone, or was updated since the version that was named.
    pub stale: u64,
}

/// New priorities for items. All slices have one length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Updates<'a> {
    /// Keys that are not here any more are counted and ignored.
    pub keys: &'a [i64],
    /// Where a key occurs twice the last one counts.
    pub priorities: &'a [f64],
    /// Where given, an item is changed only where its version is the one named: the one that it has before the call, also
    /// of a key that occurs twice.
    pub if_version: Option<&'a [u32]>,
    /// Where given, what came in before each is raised, too.
    pub neighbours: Option<Neighbours>,
}

/// How far a priority reaches back: of an item that was given the priority p, the i-th before it gets
/// `max(own, p * decay ** i)`, for i from 1 to `count` (Brittain et al. 2019, prioritized sequence experience replay,
/// section 4). Those before it are of the same stream of steps, and of the same episode where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbours {
    pub(in crate::table) count: u32,
    pub(in crate::table) decay: f64,
}

impl Neighbours {
    /// The most that may be raised for one update: with a decay of 0.995 the last of them by less than a hundredth.
    pub const MOST: u32 = 1024;

    /// Refuses no neighbours, more than [`Neighbours::MOST`], and a decay that is not in (0, 1].
    pub fn new(count: u64, decay: f64) -> Result<Self> {
        let refuse = |reason: String| Err(Error::InvalidArgument(reason));
        match u32::try_from(count) {
            Ok(count @ 1..=Self::MOST) if decay > 0.0 && decay <= 1.0 => Ok(Self { count, decay }),
            Ok(1..=Self::MOST) => refuse(format!("neighbours: decay must be above 0 and at most 1, got {decay}")),
            _ => refuse(format!("neighbours: k must be between 1 and {}, got {count}", Self::MOST)),
        }
    }

    /// Of how many items the neighbours are raised in one decision.
    pub(in crate::table) fn at_once(self) -> usize {
        (RAISED_AT_ONCE / self.count as usize).max(1)
    }

    /// How many, and the decay.
    pub fn parts(self) -> (u32, f64) {
        (self.count, self.decay)
    }
}
