//! The offset of a shard's clock from the client's: only differences of times of one clock have a meaning.

use std::time::Duration;

/// The bounds of the offset of a shard's clock, in seconds, from all responses so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    bounds: Option<(f64, f64)>,
}

impl Clocks {
    /// The shard's clock read `shown` at some time between `asked` and `answered` of the client's clock.
    pub(super) fn add(&mut self, asked: Duration, answered: Duration, shown: Duration) {
        let ahead = |own: Duration| shown.as_secs_f64() - own.as_secs_f64();
        let (least, most) = (ahead(answered), ahead(asked));
        let both = self.bounds.map(|(l, m)| (l.max(least), m.min(most)));
        // Clocks drift: if old responses contradict the new one, the new one is right.
        self.bounds = Some(both.filter(|(l, m)| l <= m).unwrap_or((least, most)));
    }

    pub(super) fn ahead(&self) -> f64 {
        self.bounds.map_or(0.0, |(least, most)| (least + most) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_shortest_round_trips_say_what_a_clock_shows_until_it_has_drifted() {
        let mut clocks = Clocks::default();
        // 100 s ahead; first the response takes 2 s, then the request takes 1 s.
        clocks.add(at(10.0), at(12.0), at(110.0));
        clocks.add(at(20.0), at(21.0), at(121.0));
        assert!((clocks.ahead() - 100.0).abs() < 1e-9, "{clocks:?}");
        clocks.add(at(30.0), at(30.5), at(140.25));
        assert!((clocks.ahead() - 110.0).abs() < 1e-9, "{clocks:?}");
    }
}
