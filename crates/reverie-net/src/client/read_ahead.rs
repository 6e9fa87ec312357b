//! The number of batches that are requested ahead of their reader.

use std::time::Duration;

/// A number of requests in flight: the caller's own, or one that follows the round trip.
///
/// If a reader waits and answers take about a round trip, the network holds it up: the number grows by half once in
/// each round trip. If answers take much longer, they wait for each other or for the table: more requests would gain
/// nothing, and draws would only be older. If the reader finds its batches ready, the number shrinks.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    ahead: usize,
    least: usize,
    /// Bytes that may be requested ahead; `None` if the number is fixed.
    budget: Option<u64>,
    shortest: Duration,
    /// Batches taken since the number changed. `waited` changes it only after more were taken than are in flight.
    taken: usize,
    /// Consecutive batches that were ready.
    ready: usize,
}

/// The largest number of requests in flight, however small the batches are.
const MOST: usize = 1024;

impl ReadAhead {
    /// A fixed number.
    pub fn fixed(ahead: usize) -> Self {
        Self::new(ahead, None)
    }

    /// At least `least`, and more for a long round trip while the batches have at most `budget` bytes.
    pub fn within(least: usize, budget: u64) -> Self {
        Self::new(least, Some(budget))
    }

    fn new(least: usize, budget: Option<u64>) -> Self {
        let least = least.max(1);
        Self { ahead: least, least, budget, shortest: Duration::MAX, taken: usize::MAX, ready: 0 }
    }

    /// The number of requests to keep in flight.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Notes a batch of `bytes` that the reader waited for, `took` after its request.
    pub(super) fn waited(&mut self, took: Duration, bytes: u64, round_trip: Duration) {
        let Some(budget) = self.budget else { return };
        self.ready = 0;
        self.shortest = self.shortest.min(took);
        self.taken = self.taken.saturating_add(1);
        if self.taken <= self.ahead {
            return;
        }
        // If a batch takes longer than two round trips, the server's work or the bandwidth is the limit, and with two
        // in flight there is always some. The rest of the factor is for packets that are lost and sent again.
        let way = self.shortest.min(2 * round_trip);
        if took <= way * 5 / 2 {
            let most = usize::try_from(budget / bytes.max(1)).unwrap_or(MOST).min(MOST);
            self.set((self.ahead + self.ahead.div_ceil(2)).min(most));
        } else if took > way * 4 {
            self.set(self.ahead - self.ahead.div_ceil(4));
        }
    }

    /// Notes a batch that was ready when the reader wanted it.
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

    /// Reads `batches` batches over a network that takes `round_trip`, and `each` per batch; returns the number ahead.
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
            // From the first batch on, whatever the number in flight.
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
