//! A limit on log lines that peers, or a lack of descriptors, could cause without end.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// At most this many lines of a kind are logged within `WINDOW`.
const BURST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Limits lines of one kind: the first few are logged, the others counted.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// Guards the count.
    state: Mutex<LimitState>,
}

#[derive(Debug, Default)]
struct LimitState {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// The number of lines left out before a logged one: to be appended to it.
#[derive(Debug, PartialEq)]
pub(crate) struct SuppressedLines(u64);

impl LogLimit {
    /// `Some` if a line may be logged now.
    pub(crate) fn allows(&self) -> Option<SuppressedLines> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| since.elapsed() >= WINDOW) {
            (state.since, state.lines) = (Some(Instant::now()), 0);
        }
        if state.lines >= BURST {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(SuppressedLines(std::mem::take(&mut state.left_out)))
    }
}

impl fmt::Display for SuppressedLines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(formatter, " ({more} more such lines were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_lines_are_logged_at_once_and_the_next_one_has_the_number_left_out() {
        let limit = LogLimit::default();
        assert_eq!((0..1000).filter(|_| limit.allows().is_some()).count(), BURST as usize);
        tokio::time::advance(WINDOW).await;
        assert_eq!(limit.allows().unwrap().to_string(), " (990 more such lines were left out)");
        assert_eq!(limit.allows(), Some(SuppressedLines(0)));
    }
}
