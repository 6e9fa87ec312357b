//! The figures of a table.

use super::copies::CopyStats;
use super::limiter::Counters;
use super::options::TableOptions;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Buckets of [`Stats::age_histogram`].
pub const AGE_BUCKETS: usize = 48;
/// Buckets of [`Stats::times_histogram`].
pub const TIMES_BUCKETS: usize = 18;

/// Counts since the start or the last reset of a table.
///
/// Files have no counts of present items: these are computed from the items.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Items that the remover evicted.
    pub evicted: u64,
    /// Present items that were sampled at least once.
    #[serde(skip)]
    pub sampled_present: u64,
    /// Items that were sampled at least once, those that left included.
    pub sampled_unique: u64,
    /// Priorities that were set.
    pub updated: u64,
    /// Updates of items that are gone or were updated since the given version.
    pub stale_updates: u64,
    /// Deletions of items that are gone.
    pub stale_deletes: u64,
    /// Present items that are an episode of their own.
    #[serde(skip)]
    pub single_steps: u64,
    /// Episodes of which no item remains.
    pub deleted_episodes: u64,
    /// Draws by the age of the item in nanoseconds.
    ///
    /// Bucket `b` counts ages in `[2^(b-1), 2^b)`, the first bucket age zero, the last bucket all larger ages.
    #[serde(with = "ages")]
    pub age_histogram: [u64; AGE_BUCKETS],
    /// The sum of the ages of all draws in nanoseconds. Older files have none.
    #[serde(default, with = "nanos", skip_serializing_if = "is_zero")]
    pub age_sum: u128,
    /// Items that left, for any reason but a reset, by the number of their draws. Older files have none.
    ///
    /// The first bucket counts items that were never drawn, bucket `b` those with up to `2^(b-1)` draws that are in no
    /// bucket before, the last bucket all others.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub times_histogram: [u64; TIMES_BUCKETS],
    /// The draws of all items that left. Older files have none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub draws_of_left: u64,
}

fn is_zero(sum: &u128) -> bool {
    *sum == 0
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn is_empty(histogram: &[u64; TIMES_BUCKETS]) -> bool {
    histogram.iter().all(is_none)
}

/// The histogram in files: serde has no arrays of this length.
mod ages {
    use super::AGE_BUCKETS;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(ages: &[u64; AGE_BUCKETS], to: S) -> Result<S::Ok, S::Error> {
        ages.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; AGE_BUCKETS], D::Error> {
        let wrong = |_| D::Error::custom(format_args!("the histogram of ages must have {AGE_BUCKETS} entries"));
        Vec::deserialize(from)?.try_into().map_err(wrong)
    }
}

/// A sum in files, as a float: MessagePack has no integers of this size.
mod nanos {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(sum: &u128, to: S) -> Result<S::Ok, S::Error> {
        (*sum as f64).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        f64::deserialize(from).map(|sum| sum as u128)
    }
}

impl Stats {
    /// Adds the counts of a part of the same table, on another server.
    pub fn add(&mut self, other: &Self) {
        self.evicted += other.evicted;
        self.sampled_present += other.sampled_present;
        self.sampled_unique += other.sampled_unique;
        self.updated += other.updated;
        self.stale_updates += other.stale_updates;
        self.stale_deletes += other.stale_deletes;
        self.single_steps += other.single_steps;
        self.deleted_episodes += other.deleted_episodes;
        self.age_histogram.iter_mut().zip(&other.age_histogram).for_each(|(own, more)| *own += more);
        self.age_sum += other.age_sum;
        self.times_histogram.iter_mut().zip(&other.times_histogram).for_each(|(own, more)| *own += more);
        self.draws_of_left += other.draws_of_left;
    }

    /// Counts a draw of an item of the given age in nanoseconds, drawn for the `times`-th time.
    #[inline]
    pub(in crate::table) fn note_draw(&mut self, times: u32, age: u64) {
        self.sampled_present += u64::from(times == 1);
        self.sampled_unique += u64::from(times == 1);
        self.age_histogram[Self::age_bucket(age)] += 1;
        self.age_sum += u128::from(age);
    }

    /// Like [`Stats::note_draw`] for each of many `(times, age)`. The sums stay in registers.
    #[inline(always)]
    pub(in crate::table) fn note_draws(&mut self, draws: impl Iterator<Item = (u32, u64)>) {
        let (mut first, mut sum) = (0, 0_u128);
        for (times, age) in draws {
            first += u64::from(times == 1);
            sum += u128::from(age);
            self.age_histogram[Self::age_bucket(age)] += 1;
        }
        self.sampled_present += first;
        self.sampled_unique += first;
        self.age_sum += sum;
    }

    /// Undoes the count of the age of a draw.
    pub(in crate::table) fn forget_age(&mut self, age: u64) {
        self.age_histogram[Self::age_bucket(age)] -= 1;
        self.age_sum -= u128::from(age);
    }

    /// Counts an item that leaves after `times` draws.
    #[inline]
    pub(in crate::table) fn note_left(&mut self, times: u32) {
        self.times_histogram[Self::times_bucket(times)] += 1;
        self.draws_of_left += u64::from(times);
    }

    /// Undoes the count of an item that comes back.
    pub(in crate::table) fn forget_left(&mut self, times: u32) {
        self.times_histogram[Self::times_bucket(times)] -= 1;
        self.draws_of_left -= u64::from(times);
    }

    /// The bucket of an age in nanoseconds.
    #[inline]
    fn age_bucket(age: u64) -> usize {
        (64 - age.leading_zeros() as usize).min(AGE_BUCKETS - 1)
    }

    /// The bucket of a number of draws.
    #[inline]
    fn times_bucket(times: u32) -> usize {
        match times.checked_sub(1) {
            None => 0,
            Some(more) => (33 - more.leading_zeros() as usize).min(TIMES_BUCKETS - 1),
        }
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
            age_sum: 0,
            times_histogram: [0; TIMES_BUCKETS],
            draws_of_left: 0,
        }
    }
}

/// The times that a table spent on its work and its waits. Work is measured on one operation in 64 and scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time spent inserting items.
    pub inserting: Duration,
    /// Time spent drawing.
    pub sampling: Duration,
    /// Time during which at least one insert waited.
    pub inserts_blocked: Duration,
    /// Time during which at least one sample waited.
    pub samples_blocked: Duration,
    /// Time since the table was created.
    pub alive: Duration,
}

impl Times {
    /// Adds the times of a part of the same table, on another server.
    pub fn add(&mut self, other: &Self) {
        self.inserting += other.inserting;
        self.sampling += other.sampling;
        self.inserts_blocked += other.inserts_blocked;
        self.samples_blocked += other.samples_blocked;
        self.alive += other.alive;
    }
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
    /// The times spent on work and waits.
    pub times: Times,
    /// Inserts that wait.
    pub pending_inserts: u64,
    /// Draws that wait.
    pub pending_samples: u64,
    /// Draws that clients have not acknowledged yet; a draw that does not reach its client is returned to the table.
    pub leased: u64,
    /// The largest priority of a present item; 1 if the table is empty.
    pub max_priority: f64,
    /// Counts of the copies, one entry for each extension.
    pub copies: Vec<CopyStats>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_draws_is_counted_in_the_first_bucket_whose_bound_is_not_below_it() {
        let last = TIMES_BUCKETS - 1;
        let cases =
            [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (1 << 16, last), (1 << 15, last - 1), (u32::MAX, last)];
        for (times, bucket) in cases {
            let mut stats = Stats::default();
            stats.note_left(times);
            assert_eq!((stats.times_histogram[bucket], stats.draws_of_left), (1, u64::from(times)), "{times}");
            stats.forget_left(times);
            assert_eq!((stats.times_histogram, stats.draws_of_left), ([0; TIMES_BUCKETS], 0));
        }
    }

    #[test]
    fn draws_that_are_counted_together_count_as_one_after_another() {
        let draws = [(1, 0), (2, 1), (1, u64::MAX), (3, u64::MAX), (1, 1_000)];
        let (mut together, mut alone) = (Stats::default(), Stats::default());
        together.note_draws(draws.into_iter());
        draws.into_iter().for_each(|(times, age)| alone.note_draw(times, age));
        assert_eq!(together.age_histogram, alone.age_histogram);
        assert_eq!(together.age_sum, 2 * u128::from(u64::MAX) + 1_001);
        assert_eq!((together.sampled_present, together.sampled_unique, alone.age_sum), (3, 3, together.age_sum));
    }

    #[test]
    fn counts_that_are_new_come_back_from_a_file_and_are_left_out_where_there_are_none() {
        let mut stats = Stats::default();
        let before = rmp_serde::to_vec_named(&stats).unwrap();
        stats.note_draw(1, u64::MAX);
        stats.note_draw(2, 5);
        stats.note_left(2);
        let bytes = rmp_serde::to_vec_named(&stats).unwrap();
        let back: Stats = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(rmp_serde::to_vec_named(&back).unwrap(), bytes);
        assert_eq!((back.times_histogram, back.draws_of_left), (stats.times_histogram, 2));
        assert!(back.age_sum.abs_diff(u128::from(u64::MAX) + 5) < 1 << 12, "{}", back.age_sum);
        let names = |bytes: &[u8]| ["age_sum", "times_histogram", "draws_of_left"].map(|name| has(bytes, name));
        assert_eq!((names(&before), names(&bytes)), ([false; 3], [true; 3]));
    }

    fn has(bytes: &[u8], name: &str) -> bool {
        bytes.windows(name.len()).any(|window| window == name.as_bytes())
    }
}
