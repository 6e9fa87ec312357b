//! How many batches are asked for ahead of their reader.

use std::time::Duration;

/// A number of requests in flight: the caller's own, or one that follows the way to the server.
///
/// A reader that waits for its batches is held up by the way where answers take about a round trip: more are asked for,
/// half as many again once in each round trip. Where they take much longer, they wait for each other, or for the table:
/// being further ahead gains nothing, and draws would only be older. A reader that finds its batches ready wants fewer.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    ahead: usize,
    least: usize,
    /// Bytes that may be asked for ahead; `None`: the number stays.
    budget: Option<u64>,
    shortest: Duration,
    /// Batches that were taken since the number changed: as many as were asked for then have gone round by then.
    taken: usize,
    /// Batches that were ready in a row.
    ready: usize,
}

/// More requests than this are not asked ahead, however small they are.
const MOST: usize = 1024;

impl ReadAhead {
    /// Always so many.
    pub fn fixed(ahead: usize) -> Self {
        Self::new(ahead, None)
    }

    /// So many at least, and more where the way is long, as long as they have no more bytes than that.
    pub fn within(least: usize, budget: u64) -> Self {
        Self::new(least, Some(budget))
    }

    fn new(least: usize, budget: Option<u64>) -> Self {
        let least = least.max(1);
        Self { ahead: least, least, budget, shortest: Duration::MAX, taken: usize::MAX, ready: 0 }
    }

    /// How many are to be in flight.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// A batch of so many bytes came that the reader had waited for, so long after it was asked for.
    pub(super) fn waited(&mut self, took: Duration, bytes: u64, round_trip: Duration) {
        let Some(budget) = self.budget else { return };
        self.ready = 0;
        self.shortest = self.shortest.min(took);
        self.taken = self.taken.saturating_add(1);
        if self.taken <= self.ahead {
            return;
        }
        // Where a batch takes longer than two round trips, it is the server's work or the line's that takes long, and
        // with two in flight there is always some. The rest of the factor is for what is lost and sent again.
        let way = self.shortest.min(2 * round_trip);
        if took <= way * 5 / 2 {
            let most = usize::try_from(budget / bytes.max(1)).unwrap_or(MOST).min(MOST);
            self.set((self.ahead + self.ahead.div_ceil(2)).min(most));
        } else if took > way * 4 {
            self.set(self.ahead - self.ahead.div_ceil(4));
        }
    }

    /// A batch was ready when the reader wanted it.
    pub(super) fn was_ready(&mut self) {
        (self.ready, self.taken) = (self.ready + 1, self.taken.saturating_add(1));
        if self.ready >= 2 * self.ahead {
            self.ready = 0;
            self.set(self.ahead - self.ahead.div_ceil(4));
        }
    }

    fn set(&mut self, ahead: usize) {
        self.ahead = ahead.max(self.least);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A reader that only a way of `round_trip` holds up, which carries a batch in `each`, for so many batches; what is
    /// asked for ahead then.
    fn read(ahead: &mut ReadAhead, (round_trip, each): (Duration, Duration), bytes: u64, batches: u32) -> usize {
        for _ in 0..batches {
            let queue = each * ahead.ahead() as u32;
            ahead.waited(queue.max(round_trip + each), bytes, round_trip);
        }
        ahead.ahead()
    }

    #[test]
    fn as_many_are_asked_for_as_fill_the_way_and_not_many_more() {
        for (round_trip, each) in [(100 * MS, 5 * MS), (40 * MS, MS), (MS, 2 * MS)] {
            let held = (round_trip + each).div_duration_f64(each);
            let ahead = read(&mut ReadAhead::within(2, 1 << 40), (round_trip, each), 1, 1000) as f64;
            assert!(ahead >= held && ahead <= 4.0 * held + 2.0, "{ahead} where {held} fill it");
        }
    }

    #[test]
    fn the_budget_bounds_what_is_asked_for_and_the_least_is_always_asked_for() {
        for (budget, bytes, most) in [(1000, 100, 10), (1000, 400, 2), (10, 100, 2), (u64::MAX, 0, MOST)] {
            let ahead = read(&mut ReadAhead::within(2, budget), (1000 * MS, Duration::ZERO), bytes, 10_000);
            assert_eq!(ahead, most, "{bytes} bytes of {budget}");
        }
        assert_eq!(read(&mut ReadAhead::fixed(3), (1000 * MS, Duration::ZERO), 1, 3000), 3);
    }

    #[test]
    fn a_table_that_holds_draws_back_is_not_taken_for_a_long_way() {
        let mut ahead = ReadAhead::within(2, 1 << 30);
        for _ in 0..1000 {
            // From the first batch on, and however many are asked for.
            ahead.waited(10_000 * MS, 1, 100 * MS);
        }
        assert_eq!(ahead.ahead(), 2);
        assert!(read(&mut ahead, (100 * MS, MS), 1, 1000) > 50);
        for _ in 0..1000 {
            ahead.waited(10_000 * MS, 1, 100 * MS);
        }
        assert_eq!(ahead.ahead(), 2);
    }

    #[test]
    fn a_reader_that_is_slower_than_the_way_has_fewer_ahead() {
        let mut ahead = ReadAhead::within(2, 1 << 30);
        assert!(read(&mut ahead, (100 * MS, MS), 1, 1000) > 50);
        for _ in 0..5000 {
            ahead.was_ready();
        }
        assert_eq!(ahead.ahead(), 2);
    }
}
