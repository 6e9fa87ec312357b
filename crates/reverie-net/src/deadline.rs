//! Deadlines of waits that callers may make as long as they like.

use std::time::Duration;
use tokio::time::Instant;

/// A longer wait has no deadline: 136 years, a few of which an [`Instant`] can still hold.
pub(crate) const FAR: Duration = Duration::from_secs(u32::MAX as u64);

/// The end of a wait that begins at `start`; `None` if the wait is longer than [`FAR`].
pub(crate) fn after(start: Instant, wait: Duration) -> Option<Instant> {
    (wait <= FAR).then(|| start + wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_beyond_the_range_of_the_clock_has_no_deadline() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(1)), Some(now + Duration::from_secs(1)));
        let far = after(now, FAR).unwrap();
        assert!(far + FAR + FAR > far, "what is added to a deadline does not overflow");
        assert_eq!(after(now, FAR + Duration::from_nanos(1)), None);
        assert_eq!(after(now, Duration::MAX), None);
    }
}
