//! What the clock of a shard shows, beside one's own: only differences of times of one clock mean something.

use std::time::Duration;

/// Between which bounds a shard's clock is ahead of one's own, in seconds: behind them lie all answers so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    bounds: Option<(f64, f64)>,
}

impl Clocks {
    /// It showed `shown` at some moment between `asked` and `answered` of one's own.
    pub(super) fn heard(&mut self, asked: Duration, answered: Duration, shown: Duration) {
        let ahead = |own: Duration| shown.as_secs_f64() - own.as_secs_f64();
        let (least, most) = (ahead(answered), ahead(asked));
        let both = self.bounds.map(|(l, m)| (l.max(least), m.min(most)));
        // Clocks drift: where old answers and new ones do not agree the new one is right.
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
        // 100 s ahead; the answer took 2 s to come, then 1 s to be asked for.
        clocks.heard(at(10.0), at(12.0), at(110.0));
        clocks.heard(at(20.0), at(21.0), at(121.0));
        assert!((clocks.ahead() - 100.0).abs() < 1e-9, "{clocks:?}");
        clocks.heard(at(30.0), at(30.5), at(140.25));
        assert!((clocks.ahead() - 110.0).abs() < 1e-9, "{clocks:?}");
    }
}
