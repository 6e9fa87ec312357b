//! The reason why a request waits, in words: for a deadline's error, `why()` and logs.
//!
//! No other file of the core writes this reason.

use crate::error::{CountedNoun, Error};
use crate::table::types::blocks::{InsertBlock, SampleBlock};
use crate::table::types::limiter::Counters;
use crate::table::types::wait_report::{
    ByteLimit, ByteShortage, InsertReason, SampleReason, UnmovableBytes, WaitEntry, WaitReport,
};
use std::fmt;

impl fmt::Display for InsertReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertReason::Limiter(block) => block.fmt(f),
            InsertReason::Bytes { held, needed, budget } => {
                write!(
                    f,
                    "the server's tables hold {held} of {budget} bytes (max_bytes) and the next item adds {needed}; samples \
                     that consume items, deletes or a larger max_bytes free it"
                )
            }
            InsertReason::Memory { held, needed, budget, unmovable, stall_reason } => {
                write!(
                    f,
                    "the server's tables hold {held} of {budget} bytes of memory (memory_bytes) and the next item adds \
                     {needed}; "
                )?;
                match (unmovable, stall_reason) {
                    (Some(unmovable), _) => write!(
                        f,
                        "{unmovable}, so moving other chunks makes too little room; samples that consume items or deletes \
                         free some"
                    ),
                    (None, None) => f.write_str("older chunks are moving to the disk"),
                    (None, Some(stall_reason)) => write!(f, "no chunk can move to the disk: {stall_reason}"),
                }
            }
            InsertReason::Journal(error) => write!(
                f,
                "the journal waits for room on the disk ({error}); inserts that are in the table wait for it, too"
            ),
            InsertReason::Turn => f.write_str("others are before it in the queue"),
        }
    }
}

impl fmt::Display for UnmovableBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, open } = self;
        write!(
            f,
            "{index} bytes are the index of chunks on the disk, and {open} belong to chunks that are still being written"
        )
    }
}

impl fmt::Display for SampleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleReason::Limiter(block) => block.fmt(f),
            SampleReason::TooFewItems { size } => {
                write!(
                    f,
                    "without replacement, all {} of the table are in the batch already; more inserts free it",
                    CountedNoun(*size, "item")
                )
            }
            SampleReason::Turn => f.write_str("others are before it in the queue"),
        }
    }
}

impl fmt::Display for WaitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { inserts, samples, deletes } = self.counters;
        write!(
            f,
            "table '{}': {} of {}, {}, {}, {}.",
            self.table,
            self.size,
            CountedNoun(self.max_size, "item"),
            CountedNoun(inserts, "insert"),
            CountedNoun(samples, "sample"),
            CountedNoun(deletes, "delete")
        )?;
        if self.closed {
            return f.write_str(
                " It is closed, as all tables of a stopped server are: every insert and sample is refused.",
            );
        }
        if let Some(error) = &self.journal_error {
            write!(f, " The journal has stopped, and every insert is refused until a server starts again: {error}.")?;
        }
        if self.leased > 0 {
            write!(f, " {} not acknowledged by their clients yet.", CountedNoun(self.leased, "sample"))?;
        }
        if let Some((waiting, unsynced)) = self.waiting_for_disk {
            write!(
                f,
                " {} waiting for the disk: {unsynced} bytes of the journal may not be on it yet.",
                CountedNoun(waiting, "request")
            )?;
        }
        let queue = |f: &mut fmt::Formatter<'_>,
                     name: &'static str,
                     count: u64,
                     queue: &[WaitEntry],
                     reason: Option<&dyn fmt::Display>| match (queue.first(), reason) {
            (Some(first), reason) => {
                write!(
                    f,
                    " {} waiting, the first for {:.1} s with {} of {} done",
                    CountedNoun(count, name),
                    first.since.as_secs_f64(),
                    first.done,
                    first.wanted
                )?;
                reason.map_or(Ok(()), |reason| write!(f, ": {reason}"))?;
                f.write_str(".")
            }
            (None, Some(reason)) => write!(f, " no {name}s waiting; one would: {reason}."),
            (None, None) => write!(f, " {name}s can go on."),
        };
        queue(
            f,
            "insert",
            self.num_inserts,
            &self.inserts,
            self.insert_reason.as_ref().map(|reason| reason as &dyn fmt::Display),
        )?;
        queue(
            f,
            "sample",
            self.num_samples,
            &self.samples,
            self.sample_reason.as_ref().map(|reason| reason as &dyn fmt::Display),
        )?;
        if self.stuck {
            f.write_str(
                " Both sides are held back for ever: only a delete, a reset or other limits (configure) change this.",
            )?;
        }
        Ok(())
    }
}

/// "3 more inserts are needed", or that more would not help.
fn needed(f: &mut fmt::Formatter<'_>, count: Option<u64>, what: &str, other: &str) -> fmt::Result {
    match count {
        Some(1) => write!(f, "1 more {what} is needed: "),
        Some(count) => write!(f, "{count} more {what}s are needed: "),
        None => write!(f, "{what}s alone cannot help, they would wait for {other}s (or for new limits): "),
    }
}

impl fmt::Display for SampleBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BelowMinSize { size, min_size_to_sample, inserts_needed } => {
                needed(f, inserts_needed, "insert", "sample")?;
                write!(f, "{size} of {} (min_size_to_sample)", CountedNoun(min_size_to_sample, "item"))?;
                if inserts_needed != Some(min_size_to_sample - size) {
                    f.write_str(", and the ratio of samples to inserts asks for more (min_diff)")?;
                }
                Ok(())
            }
            Self::RatioTooLow { inserts, samples, samples_per_insert, diff, min_diff, inserts_needed } => {
                needed(f, inserts_needed, "insert", "sample")?;
                write!(
                    f,
                    "{} * {samples_per_insert} (samples_per_insert) - {} - 1 is {diff}, below {min_diff} (min_diff)",
                    CountedNoun(inserts, "insert"),
                    CountedNoun(samples, "sample")
                )
            }
        }
    }
}

impl fmt::Display for InsertBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RatioTooHigh { inserts, samples, samples_per_insert, diff, max_diff, samples_needed } => {
                needed(f, samples_needed, "sample", "insert")?;
                write!(
                    f,
                    "({} + 1) * {samples_per_insert} (samples_per_insert) - {} is {diff}, above {max_diff} (max_diff)",
                    CountedNoun(inserts, "insert"),
                    CountedNoun(samples, "sample")
                )
            }
            Self::RationUsedUp { inserts, ration: 0 } => write!(
                f,
                "this table is a shard (rate_limiters.Rationed) and was admitted no insert yet, it has {inserts}: the \
                 client with the rate_limiter of all shards has to reach it, and hands out more as it samples"
            ),
            Self::RationUsedUp { inserts, ration } => write!(
                f,
                "this table is a shard (rate_limiters.Rationed) and its ration is used up, {} of {ration} admitted: \
                 the client with the rate_limiter of all shards hands out more as it samples",
                CountedNoun(inserts, "insert")
            ),
        }
    }
}

/// The refusal of an insert that waits for bytes that no table can free.
pub(super) fn refusal(table: &str, starved: &ByteShortage) -> Error {
    let hint = match (starved.of, starved.unmovable) {
        (ByteLimit::Total, _) => {
            "no table gives bytes back by being sampled: raise the server's max_bytes, lower max_size, or give the tables \
             a max_bytes of their own"
                .to_owned()
        }
        (ByteLimit::Memory, Some(unmovable)) => {
            let length = if unmovable.index > unmovable.open { "longer" } else { "shorter" };
            format!(
                "{unmovable}, and no table gives bytes back by being sampled: raise the server's memory_bytes, lower max_size, \
                 or write {length} chunks"
            )
        }
        (ByteLimit::Memory, None) => {
            "no chunk can move to the disk and no table gives bytes back by being sampled: raise the server's \
             memory_bytes or disk_bytes, lower max_size, or write shorter chunks"
                .to_owned()
        }
    };
    Error::ResourceExhausted {
        what: format!("an insert of {} bytes into table '{table}' of this server", starved.needed),
        needed: starved.held + starved.needed,
        budget: starved.budget,
        hint,
    }
}
