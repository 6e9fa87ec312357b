//! What a table tells of itself: figures, and who waits for what.

use crate::error::Counted;
use crate::table::copies::Copied;
use crate::table::limiter::{Counters, InsertBlock, SampleBlock};
use crate::table::options::TableOptions;
use std::fmt;
use std::time::Duration;

/// Buckets of [`Stats::age_histogram`].
pub const AGE_BUCKETS: usize = 48;

/// Counts since the start or the last reset of a table.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Items that the remover chose.
    pub evicted: u64,
    /// Present items that were sampled at least once.
    pub sampled_present: u64,
    /// Items that were sampled at least once, those that left included.
    pub sampled_unique: u64,
    /// Priorities that were set.
    pub updated: u64,
    /// Updates of items that are gone or were updated since.
    pub stale_updates: u64,
    /// Deletions of items that are gone.
    pub stale_deletes: u64,
    /// Present items that are an episode of their own.
    pub single_steps: u64,
    /// Episodes of which no item is left.
    pub deleted_episodes: u64,
    /// Draws by the age of the item in nanoseconds: bucket `b` counts ages in `[2^(b-1), 2^b)`, the first
    /// age zero, the last everything older.
    pub age_histogram: [u64; AGE_BUCKETS],
}

impl Stats {
    /// A draw of an item of that age, in nanoseconds, for the `times`-th time.
    #[inline]
    pub(in crate::table) fn note_draw(&mut self, times: u32, age: u64) {
        self.sampled_present += u64::from(times == 1);
        self.sampled_unique += u64::from(times == 1);
        self.age_histogram[Self::age_bucket(age)] += 1;
    }

    /// The bucket of an age in nanoseconds.
    #[inline]
    pub(in crate::table) fn age_bucket(age: u64) -> usize {
        (64 - age.leading_zeros() as usize).min(AGE_BUCKETS - 1)
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            evicted: 0,
            sampled_present: 0,
            sampled_unique: 0,
            updated: 0,
            stale_updates: 0,
            stale_deletes: 0,
            single_steps: 0,
            deleted_episodes: 0,
            age_histogram: [0; AGE_BUCKETS],
        }
    }
}

/// Where the table's time went. Work is measured on one operation in 64 and scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Spent taking items in.
    pub inserting: Duration,
    /// Spent drawing.
    pub sampling: Duration,
    /// For how long at least one insert waited.
    pub inserts_blocked: Duration,
    /// For how long at least one sample waited.
    pub samples_blocked: Duration,
    /// Since the table was made.
    pub alive: Duration,
}

/// A table's figures at one moment.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The configuration as it is now.
    pub options: TableOptions,
    /// The limiter's counters.
    pub counters: Counters,
    /// Number of items.
    pub size: u64,
    /// Bytes of chunks that the items hold alive, each chunk once.
    pub bytes: u64,
    /// Episodes of the present items.
    pub num_episodes: u64,
    /// The other counts.
    pub stats: Stats,
    /// Where the time went.
    pub times: Times,
    /// Inserts that wait.
    pub pending_inserts: u64,
    /// Draws that wait.
    pub pending_samples: u64,
    /// Draws that clients have not acknowledged yet: they come back where their client does not get them.
    pub leased: u64,
    /// The largest priority of a present item, 1 without items.
    pub max_priority: f64,
    /// What became of the copies, for each of the extensions.
    pub copies: Vec<Copied>,
}

/// Why an insert waits.
#[derive(Clone, Debug, PartialEq)]
pub enum InsertReason {
    /// The rate limiter.
    Limiter(InsertBlock),
    /// The tables of the server hold as many bytes as they may.
    Bytes {
        /// Bytes of the chunks that tables hold, each chunk counted once.
        held: u64,
        /// Bytes that the first waiting item would add.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// It stands behind others in the queue and nothing else holds it.
    Turn,
}

/// Why a sample waits.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleReason {
    /// The rate limiter.
    Limiter(SampleBlock),
    /// There are too few items that the request did not get already (without replacement).
    TooFewItems {
        /// Items in the table.
        size: u64,
    },
    /// It stands behind others in the queue and nothing else holds it.
    Turn,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For how long it has waited.
    pub since: Duration,
    /// Items or draws that it asked for.
    pub wanted: u64,
    /// How many of them are done.
    pub done: u64,
}

/// Requests of a queue that are reported one by one: listing all of very many would hold a table's lock for long.
pub const MOST_REPORTED: usize = 1000;

/// Who waits at a table, since when, for what, and what would free them.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// The table.
    pub table: String,
    /// Number of items.
    pub size: u64,
    /// Its bound.
    pub max_size: u64,
    /// It takes and gives nothing any more.
    pub closed: bool,
    /// Draws that clients have not acknowledged yet; those that do not reach their client come back.
    pub leased: u64,
    /// The limiter's counters.
    pub counters: Counters,
    /// Inserts that wait, as requests.
    pub num_inserts: u64,
    /// Samples that wait, as requests.
    pub num_samples: u64,
    /// The first of the inserts, in order of arrival, at most [`MOST_REPORTED`].
    pub inserts: Vec<Waiting>,
    /// The first of the samples, likewise.
    pub samples: Vec<Waiting>,
    /// What holds a single insert back now; `None` where one could go on.
    pub insert_reason: Option<InsertReason>,
    /// What holds a single draw back now; `None` where one could go on.
    pub sample_reason: Option<SampleReason>,
    /// Both sides are held back, and nothing that is asked for now can change it.
    pub stuck: bool,
}

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
            InsertReason::Turn => f.write_str("others are before it in the queue"),
        }
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
                    Counted(*size, "item")
                )
            }
            SampleReason::Turn => f.write_str("others are before it in the queue"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { inserts, samples, deletes } = self.counters;
        write!(
            f,
            "table '{}': {} of {}, {}, {}, {}.",
            self.table,
            self.size,
            Counted(self.max_size, "item"),
            Counted(inserts, "insert"),
            Counted(samples, "sample"),
            Counted(deletes, "delete")
        )?;
        if self.closed {
            return f.write_str(
                " It is closed, as all tables of a stopped server are: every insert and sample is refused.",
            );
        }
        if self.leased > 0 {
            write!(f, " {} not acknowledged by their clients yet.", Counted(self.leased, "sample"))?;
        }
        let queue = |f: &mut fmt::Formatter<'_>,
                     name: &'static str,
                     count: u64,
                     queue: &[Waiting],
                     reason: Option<&dyn fmt::Display>| match (queue.first(), reason) {
            (Some(first), reason) => {
                write!(
                    f,
                    " {} waiting, the first for {:.1} s with {} of {} done",
                    Counted(count, name),
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
