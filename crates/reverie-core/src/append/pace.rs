//! The number of unconfirmed bytes that a sender may have.

use std::time::Duration;

/// An adaptive bound on unconfirmed bytes, for senders in other processes: a sender beyond it pauses for a moment.
///
/// Many senders may share a few processors with the server, which then gets one share of many. Without pauses the
/// senders fill memory with items that wait, touch new pages for every step, and keep the server from taking any of
/// them. A short pause means that the server keeps up and the bound was too small: it doubles. A long pause means that
/// more unconfirmed bytes gain nothing: it halves. No item is confirmed sooner than a round trip after it was sent, so
/// both limits add round trips: over a long distance the bound grows to a few times bandwidth times delay, and the
/// connection is never idle.
///
/// A pause is all that it asks for: the sender continues after it in any case, and each pause without progress doubles
/// the distance to the next. Items that a limiter holds, or that wait for a connection, are not confirmed by any pause:
/// the sender does not pause for them.
#[derive(Clone, Debug)]
pub struct Pace {
    bound: u64,
    /// The number of unconfirmed bytes at which the next pause is due.
    next: u64,
    /// Consecutive pauses without progress.
    fruitless: u32,
    /// Bytes of the last request, for senders with large requests: a request is confirmed as a whole.
    request: u64,
}

/// The smallest bound: about as much as is worth a wake-up.
const LEAST: u64 = 256 << 10;
/// The largest bound; a writer's own limit is usually smaller.
const MOST: u64 = 1 << 30;
/// A pause of at most this and two round trips is short.
///
/// One round trip until the items in flight are confirmed, and one for packets that were lost and sent again.
const SHORT: Duration = Duration::from_millis(2);
/// A pause of at least this and four round trips is long.
const LONG: Duration = Duration::from_millis(8);

impl Default for Pace {
    fn default() -> Self {
        Self { bound: LEAST, next: LEAST, fruitless: 0, request: 0 }
    }
}

impl Pace {
    /// No pause is longer than this and a round trip: many times what a server needs to serve each of many senders.
    pub const PAUSE: Duration = Duration::from_secs(1);

    /// Notes that a request of this many bytes is sent.
    ///
    /// The bound is at least two requests, so that one is in flight while the other is confirmed.
    pub fn sent(&mut self, bytes: u64) {
        self.request = bytes;
        if self.bound < self.least() {
            self.bound = self.least();
            self.next = self.next.max(self.bound);
        }
    }

    fn least(&self) -> u64 {
        LEAST.max(self.request.saturating_mul(2)).min(MOST)
    }

    /// True if a sender with this many unconfirmed bytes should pause.
    pub fn is_due(&mut self, bytes: u64) -> bool {
        if bytes < self.bound {
            (self.next, self.fruitless) = (self.bound, 0);
        }
        bytes >= self.next
    }

    /// A pause ends when at most this many bytes are unconfirmed.
    pub fn aim(&self) -> u64 {
        self.bound / 2
    }

    /// Skips a pause that was due but would not help: the next is due after another bound of bytes.
    pub fn passed(&mut self, bytes: u64) {
        self.next = bytes.saturating_add(self.bound);
    }

    /// Adapts to a pause: the unconfirmed bytes before and after it, its length, and the shortest round trip.
    pub fn paused(&mut self, before: u64, after: u64, took: Duration, round_trip: Duration) {
        if after >= before {
            self.fruitless = (self.fruitless + 1).min(MOST.ilog2());
        } else {
            self.fruitless = 0;
            if after <= self.aim() && took <= SHORT + 2 * round_trip {
                self.bound = (self.bound * 2).min(MOST);
            } else if took >= LONG + 4 * round_trip {
                self.bound = (self.bound / 2).max(self.least());
            }
        }
        self.next = after.saturating_add((self.bound << self.fruitless).min(MOST)).max(self.bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::ZERO;

    #[test]
    fn over_a_long_distance_the_bound_grows_until_the_connection_is_full() {
        for (round_trip, bytes_per_second) in [(0.1, 50e6), (0.04, 12e6), (0.004, 1e9)] {
            let mut pace = Pace::default();
            for _ in 0..40 {
                let bound = pace.bound as f64;
                // Half of the bound was confirmed: a round trip after its first byte was sent if the connection is not
                // full, at the connection's bandwidth if it is.
                let took = f64::max(round_trip, bound / 2.0 / bytes_per_second);
                let (took, round_trip) = (Duration::from_secs_f64(took), Duration::from_secs_f64(round_trip));
                pace.paused(pace.bound, pace.aim(), took, round_trip);
            }
            let bound = pace.bound as f64;
            let (way, slack) = (round_trip * bytes_per_second, SHORT.as_secs_f64() * bytes_per_second);
            assert!((2.0 * way..=8.0 * way + 4.0 * slack).contains(&bound), "{bound} bytes over a way of {way}");
        }
    }

    #[test]
    fn short_pauses_widen_the_bound_and_long_ones_narrow_it_down_to_the_least() {
        let mut pace = Pace::default();
        assert!(!pace.is_due(LEAST - 1) && pace.is_due(LEAST));
        for _ in 0..3 {
            pace.paused(pace.bound, pace.aim(), SHORT, NEAR);
        }
        assert!(!pace.is_due(8 * LEAST - 1) && pace.is_due(8 * LEAST));
        // Neither short nor long: it stays.
        pace.paused(8 * LEAST, 4 * LEAST, (SHORT + LONG) / 2, NEAR);
        assert_eq!(pace.aim(), 4 * LEAST);
        for _ in 0..9 {
            pace.paused(pace.bound, pace.aim(), LONG, NEAR);
        }
        assert_eq!(pace.aim(), LEAST / 2);
    }

    #[test]
    fn one_large_request_is_on_its_way_while_another_is_confirmed() {
        let (mut pace, request) = (Pace::default(), 4 * LEAST);
        pace.sent(request);
        assert!(!pace.is_due(request), "a single request is no reason to pause");
        assert!(pace.is_due(2 * request) && pace.aim() == request);
        for _ in 0..9 {
            pace.paused(2 * request, request, LONG, NEAR);
        }
        assert_eq!(pace.aim(), request, "the bound never falls below two requests");
        pace.sent(LEAST / 4);
        pace.paused(2 * request, request, LONG, NEAR);
        assert_eq!(pace.aim(), request / 2, "smaller requests need less");
    }

    #[test]
    fn items_that_are_not_confirmed_cause_a_few_pauses_only() {
        let (mut pace, mut pauses) = (Pace::default(), 0);
        for bytes in (0..64 << 20).step_by(4096) {
            if pace.is_due(bytes) {
                pauses += 1;
                pace.paused(bytes, bytes, Pace::PAUSE, NEAR);
            }
        }
        assert!((6..=8).contains(&pauses), "{pauses} pauses over 64 MiB");
        // The server was not slow: once items are confirmed, the bound is what it was.
        assert!(!pace.is_due(0) && pace.is_due(LEAST));
    }

    #[test]
    fn a_pause_that_would_not_help_is_skipped_and_the_next_is_due_after_as_much_again() {
        let mut pace = Pace::default();
        for bytes in [LEAST, 2 * LEAST, 3 * LEAST] {
            assert!(!pace.is_due(bytes - 1) && pace.is_due(bytes));
            pace.passed(bytes);
        }
        // There was no pause: the bound did not adapt.
        assert!(pace.aim() == LEAST / 2 && !pace.is_due(0) && pace.is_due(LEAST));
    }

    #[test]
    fn after_a_pause_that_left_much_the_next_is_not_due_before_as_much_again_came() {
        let mut pace = Pace::default();
        pace.paused(4 * LEAST, 3 * LEAST, Pace::PAUSE, NEAR);
        assert!(!pace.is_due(4 * LEAST - 1) && pace.is_due(4 * LEAST));
        // A sender without unconfirmed bytes starts again.
        assert!(!pace.is_due(0) && pace.is_due(LEAST));
    }
}
