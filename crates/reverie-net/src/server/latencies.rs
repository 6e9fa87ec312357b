//! Histograms of the time from a request's arrival to its response, recorded without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Insert,
    Sample,
    Get,
    Query,
    Mutate,
    Delete,
    Checkpoint,
    Other,
}

/// The transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTransport {
    Grpc,
    SharedMemory,
}

impl RequestKind {
    /// Every verb, in declaration order.
    pub(crate) const ALL: [RequestKind; 8] = [
        RequestKind::Insert,
        RequestKind::Sample,
        RequestKind::Get,
        RequestKind::Query,
        RequestKind::Mutate,
        RequestKind::Delete,
        RequestKind::Checkpoint,
        RequestKind::Other,
    ];

    /// The name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestKind::Insert => "insert",
            RequestKind::Sample => "sample",
            RequestKind::Get => "get",
            RequestKind::Query => "query",
            RequestKind::Mutate => "mutate",
            RequestKind::Delete => "delete",
            RequestKind::Checkpoint => "checkpoint",
            RequestKind::Other => "other",
        }
    }
}

impl RequestTransport {
    /// Every transport, in declaration order.
    pub(crate) const ALL: [RequestTransport; 2] = [RequestTransport::Grpc, RequestTransport::SharedMemory];

    /// The name, as [`ServerConnection::transport`](crate::transport::server::ServerConnection::transport) returns it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestTransport::Grpc => "grpc",
            RequestTransport::SharedMemory => "shared-memory",
        }
    }

    /// The transport with this name.
    pub(crate) fn of(name: &str) -> Self {
        if name == "grpc" { RequestTransport::Grpc } else { RequestTransport::SharedMemory }
    }
}

/// A request that has arrived and has no response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    verb: RequestKind,
    at: Instant,
}

impl Stopwatch {
    /// A request that arrives now.
    pub(crate) fn now(verb: RequestKind) -> Self {
        Self { verb, at: Instant::now() }
    }
}

/// Finite buckets: the first has times up to 8 microseconds, and each next one twice the time.
pub(crate) const FINITE: usize = 24;
const FIRST_MICROS: u64 = 8;

/// One histogram.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; FINITE + 1],
    nanos: AtomicU64,
}

impl Histogram {
    /// The upper bound of a finite bucket in seconds, itself included.
    pub(crate) fn bound(bucket: usize) -> f64 {
        (FIRST_MICROS << bucket) as f64 * 1e-6
    }

    /// Counts `n` requests that took this long.
    fn observe(&self, took: Duration, n: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // A bound is in its own bucket.
        let units = nanos.div_ceil(FIRST_MICROS * 1000).max(1);
        let bucket = (u64::BITS - (units - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(FINITE)].fetch_add(n, Relaxed);
        self.nanos.fetch_add(nanos.saturating_mul(n), Relaxed);
    }

    /// The counts of the buckets, the last for all longer times, and the sum of the times in seconds.
    pub(crate) fn read(&self) -> ([u64; FINITE + 1], f64) {
        (self.buckets.each_ref().map(|bucket| bucket.load(Relaxed)), self.nanos.load(Relaxed) as f64 * 1e-9)
    }
}

/// The histograms of a server.
#[derive(Debug, Default)]
pub(crate) struct Latencies([[Histogram; RequestKind::ALL.len()]; RequestTransport::ALL.len()]);

impl Latencies {
    /// Counts `n` requests that get their response now.
    pub(crate) fn done(&self, stopwatch: Stopwatch, transport: RequestTransport, n: u64) {
        self.of(transport, stopwatch.verb).observe(stopwatch.at.elapsed(), n);
    }

    /// The histogram of a kind of requests.
    pub(crate) fn of(&self, transport: RequestTransport, verb: RequestKind) -> &Histogram {
        &self.0[transport as usize][verb as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_first_bucket_whose_bound_is_not_below_it() {
        let micros = Duration::from_micros;
        let longest = micros(FIRST_MICROS << (FINITE - 1));
        let cases = [
            (Duration::ZERO, 0),
            (micros(8), 0),
            (micros(8) + Duration::from_nanos(1), 1),
            (micros(16), 1),
            (micros(17), 2),
            (longest, FINITE - 1),
            (longest + Duration::from_nanos(1), FINITE),
            (Duration::MAX, FINITE),
        ];
        for (took, bucket) in cases {
            let histogram = Histogram::default();
            histogram.observe(took, 3);
            let (counts, _) = histogram.read();
            assert_eq!((counts[bucket], counts.iter().sum::<u64>()), (3, 3), "{took:?}");
            assert!(bucket == FINITE || took.as_secs_f64() <= Histogram::bound(bucket), "{took:?}");
        }
    }

    #[test]
    fn the_sum_is_in_seconds_and_counts_each_request() {
        let latencies = Latencies::default();
        latencies.of(RequestTransport::Grpc, RequestKind::Get).observe(Duration::from_millis(250), 4);
        assert_eq!(latencies.of(RequestTransport::Grpc, RequestKind::Get).read().1, 1.0);
        assert_eq!(latencies.of(RequestTransport::SharedMemory, RequestKind::Get).read().1, 0.0);
    }
}
