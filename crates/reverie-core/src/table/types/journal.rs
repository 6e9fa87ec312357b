//! The figures of a journal.

use std::time::Duration;

/// A journal's figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalInfo {
    /// The policy for waiting for the disk: "os", "interval" or "always".
    pub sync: String,
    /// Groups of requests that were written together.
    pub rounds: u64,
    /// The number of times that the journal waited for the disk.
    pub syncs: u64,
    /// The time for which it waited for the disk, in total.
    pub sync_time: Duration,
    /// The longest of these waits.
    pub longest_sync: Duration,
    /// Bytes written that may not be on the disk.
    pub unsynced_bytes: u64,
    /// Bytes that were written since the newest checkpoint.
    pub log_bytes: u64,
    /// Requests that wait until all that was done before them is on the disk.
    pub waiting: u64,
    /// True if it waits for room on the disk; inserts wait with it.
    pub is_full: bool,
    /// The reason why nothing is written: the journal waits for room, or it has stopped.
    pub error: Option<String>,
}
