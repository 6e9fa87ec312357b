//! The settings of a journal.

use crate::error::{Error, Result};
use std::time::Duration;

/// The policy of a journal for waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Never: what was acknowledged survives the end of the process, not that of the machine.
    Os,
    /// After each interval: acknowledged changes survive the end of the process, and those older than the interval that
    /// of the machine.
    Interval(Duration),
    /// Before anything is acknowledged.
    Always,
}

impl SyncPolicy {
    /// The name that users know it by.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Interval(_) => "interval",
            Self::Always => "always",
        }
    }
}

/// The settings of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The policy for waiting for the disk.
    pub syncs: SyncPolicy,
    /// The time between writes of priorities and counts of draws.
    pub interval: Duration,
    /// Bytes that may be written and not on the disk yet: the next commit then waits for the disk.
    pub max_unsynced_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        let interval = Duration::from_secs(1);
        Self { syncs: SyncPolicy::Interval(interval), interval, max_unsynced_bytes: 256 << 20 }
    }
}

impl JournalOptions {
    /// Refuses settings without a meaning.
    pub fn validate(&self) -> Result<()> {
        let zero = |what: &str| Err(Error::InvalidArgument(format!("a journal's {what} must be above 0")));
        if self.interval.is_zero() || self.syncs == SyncPolicy::Interval(Duration::ZERO) {
            return zero("interval");
        }
        if self.max_unsynced_bytes == 0 {
            return zero("max_unsynced_bytes");
        }
        Ok(())
    }
}
