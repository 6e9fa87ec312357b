//! An estimate of how long an answer takes that the server gives at once.
//!
//! It is the round trip as TCP estimates it for its retransmissions (RFC 6298, section 2).

use std::time::Duration;
use tokio::time::Instant;

/// A smoothed round trip and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerTime {
    smoothed: Option<Duration>,
    variation: Duration,
    /// A batch is arriving in parts: answers to requests for draws wait behind it.
    receiving: bool,
}

/// The longest time that a client waits for an answer beyond its deadline.
pub(super) const MOST: Duration = Duration::from_secs(5);

impl AnswerTime {
    /// Adds a measurement: the time until an answer arrived that the server gave at once.
    pub(super) fn measured(&mut self, took: Duration) {
        match &mut self.smoothed {
            None => (self.smoothed, self.variation) = (Some(took), took / 2),
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(took)) / 4;
                *smoothed = (*smoothed * 7 + took) / 8;
            }
        }
    }

    /// Notes whether a batch is arriving; true if that has ended.
    pub(super) fn receiving(&mut self, receiving: bool) -> bool {
        std::mem::replace(&mut self.receiving, receiving) && !receiving
    }

    /// The time within which an answer arrives that the server gives at once; zero before the first measurement.
    pub(super) fn bound(&self) -> Duration {
        if self.receiving {
            return MOST;
        }
        self.smoothed.map_or(Duration::ZERO, |smoothed| (smoothed + self.variation * 4).min(MOST))
    }
}

/// The earlier of two times, where both are set.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_round_trip_and_its_variation_and_ends_at_five_seconds() {
        let ms = Duration::from_millis;
        let mut trip = AnswerTime::default();
        assert_eq!(trip.bound(), Duration::ZERO);
        trip.measured(ms(100));
        assert_eq!(trip.bound(), ms(300));
        (0..100).for_each(|_| trip.measured(ms(100)));
        assert!(trip.bound() >= ms(100) && trip.bound() < ms(101), "{:?}", trip.bound());
        trip.measured(ms(180));
        assert!(trip.bound() > ms(180), "{:?}", trip.bound());
        let before = trip.bound();
        assert!(!trip.receiving(true));
        assert_eq!(trip.bound(), MOST, "behind a batch that arrives");
        assert!(trip.receiving(false) && !trip.receiving(false));
        assert_eq!(trip.bound(), before);
        (0..9).for_each(|_| trip.measured(Duration::from_secs(60)));
        assert_eq!(trip.bound(), MOST);
    }
}
