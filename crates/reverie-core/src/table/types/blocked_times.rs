//! The time during which requests waited, by the reason that held the first of them back.

use std::time::Duration;

/// The reason why the first waiting request of a side could not go on when it was last tried.
///
/// It is tried whenever the table changes, and when bytes are freed that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockReason {
    /// The rate limiter.
    Limiter,
    /// The limit of bytes of all tables.
    Bytes,
    /// The limit of bytes in memory, with a disk tier.
    Memory,
    /// Too few items for draws without replacement.
    Items,
    /// The request is served next: the work is done in several holds of the table's lock.
    Turn,
}

impl BlockReason {
    /// The reasons for which inserts wait.
    pub const OF_INSERTS: [Self; 4] = [Self::Limiter, Self::Bytes, Self::Memory, Self::Turn];
    /// The reasons for which samples wait.
    pub const OF_SAMPLES: [Self; 3] = [Self::Limiter, Self::Items, Self::Turn];

    /// The reason's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limiter => "limiter",
            Self::Bytes => "bytes",
            Self::Memory => "memory",
            Self::Items => "items",
            Self::Turn => "turn",
        }
    }
}

/// The time during which at least one request of a side waited, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockedTimes {
    /// Since when the first request waits for this reason.
    since: Option<(Duration, BlockReason)>,
    times: [Duration; 5],
}

impl BlockedTimes {
    /// Notes what holds the first waiting request back from now on; `None` if no request waits.
    pub fn note(&mut self, block: Option<BlockReason>, now: Duration) {
        if self.since.map(|(_, block)| block) != block {
            *self = self.at(now);
            self.since = block.map(|block| (now, block));
        }
    }

    /// The times up to now.
    pub fn at(mut self, now: Duration) -> Self {
        if let Some((since, block)) = &mut self.since {
            self.times[*block as usize] += now.saturating_sub(*since);
            *since = now;
        }
        self
    }

    /// The time during which a request waited for this reason.
    pub fn of(&self, block: BlockReason) -> Duration {
        self.times[block as usize]
    }

    /// The time during which a request waited.
    pub fn total(&self) -> Duration {
        self.times.iter().sum()
    }
}
