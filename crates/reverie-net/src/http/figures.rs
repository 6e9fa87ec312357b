//! The figures of a server as JSON.

use super::watched_server::WatchedServer;
use crate::server::{ClientView, RequestTransport, ServerState};
use reverie_core::chunk::TierInfo;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{AGE_BUCKETS, Stats, TIMES_BUCKETS, TableInfo, WaitReport};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// `GET /api/info`.
pub(super) fn info(watched: &WatchedServer) -> Value {
    let (meter, max_bytes) = watched.tables.bytes();
    let trouble = watched.not_ready_reason();
    let network = watched.shared.as_ref().map(|shared| shared.network());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "incarnation": watched.incarnation.to_string(),
        "uptime_seconds": watched.uptime(),
        "ready": trouble.is_none(),
        "trouble": trouble,
        "bytes": meter.live_bytes(),
        "max_bytes": max_bytes,
        "network_bytes": network.as_ref().map(|info| info.network_bytes),
        "max_network_bytes": network.as_ref().and_then(|info| info.max_network_bytes),
        "max_memory": network.as_ref().and_then(|info| info.max_memory),
        "clients": network.as_ref().map(|info| json!({
            "grpc": info.grpc_connections,
            "shared_memory": info.local_connections,
            "max": info.max_connections,
        })),
        "received_bytes": watched.shared.as_ref().map(|shared| bytes(shared).0),
        "sent_bytes": watched.shared.as_ref().map(|shared| bytes(shared).1),
        "spans": watched.shared.as_ref().and_then(|shared| shared.spans.counts()).map(|counts| json!({
            "noted": counts.noted,
            "dropped": counts.dropped,
            "invalid": counts.invalid,
        })),
        "checkpoint_age_seconds": watched.tables.checkpoint_age().map(|age| age.as_secs_f64()),
        "journal": watched.journal().map(|journal| json!({
            "sync": journal.sync,
            "rounds": journal.rounds,
            "unsynced_bytes": journal.unsynced_bytes,
            "syncs": journal.syncs,
            "sync_seconds": journal.sync_time.as_secs_f64(),
            "longest_sync_seconds": journal.longest_sync.as_secs_f64(),
            "log_bytes": journal.log_bytes,
            "waiting": journal.waiting,
            "is_full": journal.is_full,
            "error": journal.error.map(|error| error.to_string()),
        })),
        "disk": meter.tier_info().map(disk),
        "tables": watched.tables.iter().map(|of| table(&of.info())).collect::<Vec<_>>(),
    })
}

fn disk(info: TierInfo) -> Value {
    json!({
        "folder": info.folder,
        "memory_bytes": info.memory,
        "max_memory_bytes": info.memory_bytes,
        "num_chunks": info.chunks,
        "chunk_bytes": info.stored,
        "shared_bytes": info.shared,
        "file_bytes": info.used,
        "max_file_bytes": info.disk_bytes,
        "num_moved": info.moved,
        "compacted_bytes": info.compacted,
        "error": info.error,
    })
}

fn table(info: &TableInfo) -> Value {
    let (options, counters, stats) = (&info.options, &info.counters, &info.stats);
    let limiter = &options.limiter;
    let spi = limiter.samples_per_insert();
    json!({
        "name": options.name,
        "size": info.size,
        "max_size": options.max_size,
        "bytes": info.bytes,
        "max_bytes": options.max_bytes,
        "sampler": selector(&options.sampler),
        "remover": selector(&options.remover),
        "max_times_sampled": options.max_times_sampled,
        "inserts": counters.inserts,
        "samples": counters.samples,
        "deletes": counters.deletes,
        "evictions": stats.evicted,
        "priority_updates": stats.updated,
        "stale_updates": stats.stale_updates,
        "episodes": info.num_episodes,
        "unacknowledged_samples": info.leased,
        "max_priority": info.max_priority,
        "limiter": {
            "samples_per_insert": spi,
            "min_size_to_sample": limiter.min_size_to_sample(),
            "min_diff": limit(limiter.min_diff()),
            "max_diff": limit(limiter.max_diff()),
            "diff": counters.inserts as f64 * spi - counters.samples as f64,
        },
        "blocked_seconds": {
            "insert": info.times.inserts_blocked.as_secs_f64(),
            "sample": info.times.samples_blocked.as_secs_f64(),
        },
        "sample_ages": ages(&stats.age_histogram),
        "sample_ages_sum": age_sum(stats),
        "sample_times": times(&stats.times_histogram),
        "sample_times_sum": stats.draws_of_left,
    })
}

/// The sum of the ages of all draws, in seconds.
pub(super) fn age_sum(stats: &Stats) -> f64 {
    stats.age_sum as f64 * 1e-9
}

/// A difference that limits nothing is null.
fn limit(diff: f64) -> Option<f64> {
    (diff.abs() < f64::MAX).then_some(diff)
}

fn selector(options: &SelectorOptions) -> String {
    match options {
        SelectorOptions::Fifo => "fifo".to_owned(),
        SelectorOptions::Lifo => "lifo".to_owned(),
        SelectorOptions::Uniform => "uniform".to_owned(),
        SelectorOptions::MaxHeap => "max_heap".to_owned(),
        SelectorOptions::MinHeap => "min_heap".to_owned(),
        SelectorOptions::Prioritized { exponent } => format!("prioritized, exponent {exponent}"),
        SelectorOptions::Stratified { exponent } => format!("prioritized, stratified, exponent {exponent}"),
    }
}

/// The upper bound of a bucket of ages in seconds; `None` for the last one.
pub(super) fn age_bound(bucket: usize) -> Option<f64> {
    (bucket + 1 < AGE_BUCKETS).then(|| (1_u64 << bucket) as f64 * 1e-9)
}

/// Draws by the age of their item: the upper bound in seconds (null: any) and the count, without empty buckets.
fn ages(histogram: &[u64; AGE_BUCKETS]) -> Vec<Value> {
    let filled = histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    filled.map(|(bucket, count)| json!([age_bound(bucket), count])).collect()
}

/// `GET /api/run`: null before a training run has published anything.
pub(super) fn run(watched: &WatchedServer) -> Value {
    watched.run().map_or(Value::Null, |run| run.document.clone())
}

/// The upper bound of a bucket of numbers of draws; `None` for the last one.
pub(super) fn times_bound(bucket: usize) -> Option<u64> {
    (bucket + 1 < TIMES_BUCKETS).then(|| bucket.checked_sub(1).map_or(0, |more| 1 << more))
}

/// Items that left by their draws: the upper bound (null: any) and the count, without empty buckets.
fn times(histogram: &[u64; TIMES_BUCKETS]) -> Vec<Value> {
    let filled = histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    filled.map(|(bucket, count)| json!([times_bound(bucket), count])).collect()
}

/// The bytes received and sent over each transport.
fn bytes(shared: &ServerState) -> (Value, Value) {
    let [grpc, local] = RequestTransport::ALL.map(|transport| {
        let counts = shared.bytes(transport);
        (counts.received.load(Ordering::Relaxed), counts.sent.load(Ordering::Relaxed))
    });
    let both = |grpc, local| json!({ "grpc": grpc, "shared_memory": local });
    (both(grpc.0, local.0), both(grpc.1, local.1))
}

/// Clients that are listed at most.
pub(super) const MOST_CLIENTS: usize = 100;

/// `GET /api/clients`.
pub(super) fn clients(watched: &WatchedServer) -> Value {
    let (total, listed) = watched.shared.as_ref().map_or((0, Vec::new()), |shared| shared.clients(MOST_CLIENTS));
    json!({ "total": total, "clients": listed.iter().map(client).collect::<Vec<_>>() })
}

fn client(client: &ClientView) -> Value {
    json!({
        "name": client.name,
        "peer": client.peer,
        "transport": client.transport.map(RequestTransport::name),
        "bytes_in_flight": client.bytes_in_flight,
        "requests": client.requests,
        "seconds": client.age.as_secs_f64(),
        "silent_seconds": client.silent.as_secs_f64(),
        "reconnects": client.reconnects,
    })
}

/// `GET /api/why`.
pub(super) fn why(watched: &WatchedServer) -> Value {
    json!({ "tables": watched.tables.iter().map(|table| waits(&table.why())).collect::<Vec<_>>() })
}

fn waits(why: &WaitReport) -> Value {
    let side = |count: u64, first: Option<f64>, reason: Option<String>| json!({ "waiting": count, "first_seconds": first, "reason": reason });
    json!({
        "table": why.table,
        "text": why.to_string(),
        "stuck": why.stuck,
        "closed": why.closed,
        "insert": side(
            why.num_inserts,
            why.inserts.first().map(|first| first.since.as_secs_f64()),
            why.insert_reason.as_ref().map(ToString::to_string),
        ),
        "sample": side(
            why.num_samples,
            why.samples.first().map(|first| first.since.as_secs_f64()),
            why.sample_reason.as_ref().map(ToString::to_string),
        ),
    })
}
