//! Time as an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A monotonic clock. The zero point is the clock's own; only differences have a meaning.
pub trait Clock: Send + Sync {
    /// Time since the clock's zero point.
    fn now(&self) -> Duration;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// Nanoseconds by which the clock was moved forward.
    ahead: AtomicU64,
}

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self { start: Instant::now(), ahead: AtomicU64::new(0) }
    }

    /// Moves the clock forward before a checkpoint is restored, so that its items keep their age.
    pub fn forward(&self, by: Duration) {
        self.ahead.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX / 2), Ordering::Relaxed);
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_nanos(self.ahead.load(Ordering::Relaxed))
    }
}

/// A clock that moves only when it is advanced; for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_ahead_is_ahead_and_goes_on() {
        let clock = SystemClock::new();
        clock.forward(Duration::from_secs(1_000_000));
        let first = clock.now();
        assert!(first >= Duration::from_secs(1_000_000) && clock.now() >= first);
    }
}
