//! The figures of a journal.

use super::table::seconds;
use crate::proto;
use reverie_core::Result;
use reverie_core::table::JournalInfo;

/// Encodes the figures of a journal.
pub fn encode(info: JournalInfo) -> proto::JournalInfo {
    proto::JournalInfo {
        sync: info.sync,
        rounds: info.rounds,
        syncs: info.syncs,
        sync_seconds: info.sync_time.as_secs_f64(),
        longest_sync_seconds: info.longest_sync.as_secs_f64(),
        unsynced_bytes: info.unsynced_bytes,
        log_bytes: info.log_bytes,
        waiting: info.waiting,
        is_full: info.is_full,
        error: info.error,
    }
}

/// Decodes the figures of a journal.
pub fn decode(info: proto::JournalInfo) -> Result<JournalInfo> {
    Ok(JournalInfo {
        sync: info.sync,
        rounds: info.rounds,
        syncs: info.syncs,
        sync_time: seconds(info.sync_seconds)?,
        longest_sync: seconds(info.longest_sync_seconds)?,
        unsynced_bytes: info.unsynced_bytes,
        log_bytes: info.log_bytes,
        waiting: info.waiting,
        is_full: info.is_full,
        error: info.error,
    })
}
