//! The figures of a server as OpenMetrics. Labels are tables, sides, verbs, transports and kinds of memory only.

use super::figures::{age_bound, age_sum, times_bound};
use super::run::RunFigures;
use super::watched_server::WatchedServer;
use crate::proto::ServerInfo;
use crate::server::spans::SpanCounts;
use crate::server::{FINITE, Histogram, Latencies, RequestKind, RequestTransport, ServerState};
use crate::transport::ByteCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use reverie_core::chunk::TierInfo;
use reverie_core::table::{AGE_BUCKETS, BlockReason, BlockedTimes, JournalInfo, Stats, TableInfo};
use std::fmt::{Debug, Error, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The ages that are shown, a microsecond to three days: younger ones are in the first bucket.
const SHOWN_AGES: Range<usize> = 10..AGE_BUCKETS;

type Label = (&'static str, String);

/// `GET /metrics`, as OpenMetrics.
pub(super) fn exposition(watched: &WatchedServer) -> Result<String, Error> {
    let tables: Vec<TableSeries> = watched.tables.iter().map(|table| TableSeries::new(table.info(), table)).collect();
    let mut out = String::new();
    let ((meter, max_bytes), journal) = (watched.tables.bytes(), watched.journal());
    let disk = meter.tier_info();
    let scrape = Scrape {
        tables,
        bytes: (meter.memory_bytes(), disk.as_ref().map(|disk| disk.memory_bytes).or(max_bytes)),
        disk,
        checkpoint_age: watched.tables.checkpoint_age(),
        journal_unsynced: journal.as_ref().map(|journal| journal.unsynced_bytes),
        ready: watched.not_ready_reason().is_none(),
        network: watched.shared.as_ref().map(|shared| (shared.network(), Arc::clone(shared))),
        run: watched.run(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    text::encode_registry(&mut out, &registry)?;
    if let Some(journal) = &journal {
        syncs(&mut out, journal)?;
    }
    text::encode_eof(&mut out)?;
    Ok(out)
}

/// The crate writes label values as they are.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The figures of one table.
struct TableSeries {
    label: String,
    info: TableInfo,
    waiting_inserts: u64,
    waiting_samples: u64,
    /// The times for inserts and for samples.
    blocked: (BlockedTimes, BlockedTimes),
}

impl TableSeries {
    fn new(info: TableInfo, table: &reverie_core::table::SharedTable) -> Self {
        let why = table.why();
        let (waiting_inserts, waiting_samples) = (why.num_inserts, why.num_samples);
        let (label, blocked) = (escaped(&info.options.name), table.blocked());
        Self { label, info, waiting_inserts, waiting_samples, blocked }
    }

    fn labels(&self) -> Vec<Label> {
        vec![("table", self.label.clone())]
    }

    fn sides<T>(&self, insert: T, sample: T) -> [(Vec<Label>, T); 2] {
        [("insert", insert), ("sample", sample)].map(|(side, value)| {
            let mut labels = self.labels();
            labels.push(("side", side.to_owned()));
            (labels, value)
        })
    }
}

/// The figures of a server at one moment.
struct Scrape {
    tables: Vec<TableSeries>,
    bytes: (u64, Option<u64>),
    disk: Option<TierInfo>,
    checkpoint_age: Option<Duration>,
    journal_unsynced: Option<u64>,
    ready: bool,
    network: Option<(ServerInfo, Arc<ServerState>)>,
    run: Option<Arc<RunFigures>>,
}

impl Debug for Scrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_server(&mut to)?;
        self.encode_tables(&mut to)?;
        if let Some(run) = &self.run {
            training(&mut to, run)?;
        }
        match &self.network {
            None => Ok(()),
            Some((info, shared)) => {
                let clients = [
                    (RequestTransport::Grpc, info.grpc_connections),
                    (RequestTransport::SharedMemory, info.local_connections),
                ];
                let clients = clients.map(|(of, count)| (vec![("transport", of.name().to_owned())], count));
                gauges(&mut to, "reverie_clients", "Connected clients", clients)?;
                bytes(&mut to, "reverie_bytes_received", "Bytes that clients sent", shared, |of| &of.received)?;
                bytes(&mut to, "reverie_bytes_sent", "Bytes that were sent to clients", shared, |of| &of.sent)?;
                if let Some(counts) = shared.spans.counts() {
                    spans(&mut to, counts)?;
                }
                requests(&mut to, &shared.latencies)
            }
        }
    }
}

impl Scrape {
    fn encode_server(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        to.encode_descriptor("reverie_build", "The version of the server", None, MetricType::Info)?
            .encode_info(&labels)?;
        let ready = u64::from(self.ready);
        gauges(to, "reverie_ready", "1 if the server accepts requests and its journal works", [(vec![], ready)])?;
        let kind = |kind: &str| vec![("kind", kind.to_owned())];
        let network = self.network.as_ref().map(|(info, _)| info);
        let mut used = vec![(kind("tables"), self.bytes.0)];
        used.extend(network.map(|info| (kind("network"), info.network_bytes)));
        gauges(to, "reverie_memory_bytes", "Bytes in use: chunks of the tables, and connections", used)?;
        let limits = [("tables", self.bytes.1), ("network", network.and_then(|info| info.max_network_bytes))];
        let limits = limits.into_iter().filter_map(|(of, limit)| Some((kind(of), limit?)));
        gauges(to, "reverie_memory_limit_bytes", "Bytes that may be in use, where there is a limit", limits)?;
        let disk = self.disk.iter().flat_map(|disk| [(kind("chunks"), disk.stored), (kind("files"), disk.used)]);
        gauges(to, "reverie_disk_bytes", "Bytes of chunks on the disk, and of the files that have them", disk)?;
        let age = self.checkpoint_age.map(|age| (vec![], age.as_secs_f64()));
        gauges(to, "reverie_checkpoint_age_seconds", "Seconds since the newest checkpoint", age)?;
        let unsynced = self.journal_unsynced.map(|bytes| (vec![], bytes));
        gauges(to, "reverie_journal_unsynced_bytes", "Bytes of the journal that may not be on the disk", unsynced)
    }

    fn encode_tables(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let of = |value: fn(&TableInfo) -> u64| self.tables.iter().map(move |of| (of.labels(), value(&of.info)));
        gauges(to, "reverie_table_items", "Items in the table", of(|info| info.size))?;
        gauges(to, "reverie_table_max_items", "The largest number of items", of(|info| info.options.max_size))?;
        gauges(to, "reverie_table_bytes", "Bytes of chunks that the table holds", of(|info| info.bytes))?;
        counters(to, "reverie_inserts", "Items inserted", of(|info| info.counters.inserts))?;
        counters(to, "reverie_samples", "Draws made", of(|info| info.counters.samples))?;
        counters(to, "reverie_deletes", "Items that left, for any reason", of(|info| info.counters.deletes))?;
        counters(to, "reverie_evictions", "Items that the remover evicted", of(|info| info.stats.evicted))?;
        counters(to, "reverie_priority_updates", "Priorities set", of(|info| info.stats.updated))?;
        let help = "Updates of items that were gone, or updated meanwhile";
        counters(to, "reverie_stale_updates", help, of(|info| info.stats.stale_updates))?;
        let waiting = self.tables.iter().flat_map(|of| of.sides(of.waiting_inserts, of.waiting_samples));
        gauges(to, "reverie_waiting_requests", "Requests that wait at the table", waiting)?;
        let blocked = self.tables.iter().flat_map(|of| {
            let (inserts, samples) = (&of.blocked.0, &of.blocked.1);
            let [(insert, ()), (sample, ())] = of.sides((), ());
            let inserts = BlockReason::OF_INSERTS.map(|block| (insert.clone(), block, inserts.of(block)));
            let samples = BlockReason::OF_SAMPLES.map(|block| (sample.clone(), block, samples.of(block)));
            inserts.into_iter().chain(samples)
        });
        let help = "Seconds during which at least one request waited, by what held back the first";
        let mut family = to.encode_descriptor("reverie_limiter_blocked_seconds", help, None, MetricType::Counter)?;
        for (mut labels, block, time) in blocked {
            let seconds = time.as_secs_f64();
            labels.push(("reason", block.name().to_owned()));
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
        }
        let help = "Seconds between an item's insert and a draw of it";
        self.encode_histograms(to, "reverie_sample_age_seconds", help, ages)?;
        let help = "Draws of an item before it left the table";
        self.encode_histograms(to, "reverie_sample_times", help, times)
    }
}

/// The counts of a histogram by upper bound, `f64::MAX` for the last, and the sum of what is counted.
type Buckets = (Vec<(f64, u64)>, f64);

impl Scrape {
    fn encode_histograms(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &'static str,
        help: &str,
        of: fn(&Stats) -> Buckets,
    ) -> Result<(), Error> {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for table in &self.tables {
            let (buckets, sum) = of(&table.info.stats);
            let count = buckets.iter().map(|(_, count)| count).sum();
            family.encode_family(&table.labels())?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// The series of a training run: one of each.
fn training(to: &mut DescriptorEncoder<'_>, run: &RunFigures) -> Result<(), Error> {
    let labels = || vec![("agent", escaped(&run.agent)), ("env", escaped(&run.env))];
    counters(to, "reverie_env_steps", "Environment steps of the training run", [(labels(), run.env_steps)])?;
    counters(to, "reverie_updates", "Updates of the learner", [(labels(), run.updates)])?;
    let known = |value: Option<f64>| value.map(|value| (labels(), value));
    gauges(to, "reverie_greedy_return", "Mean return of the last greedy evaluation", known(run.greedy_return))?;
    let help = "Updates by which the acting policies are behind the learner's";
    gauges(to, "reverie_policy_age_updates", help, known(run.policy_age))
}

fn ages(stats: &Stats) -> Buckets {
    let mut counts = stats.age_histogram[SHOWN_AGES].to_vec();
    counts[0] += stats.age_histogram[..SHOWN_AGES.start].iter().sum::<u64>();
    let bounds = SHOWN_AGES.map(|bucket| age_bound(bucket).unwrap_or(f64::MAX));
    (bounds.zip(counts).collect(), age_sum(stats))
}

fn times(stats: &Stats) -> Buckets {
    let bound = |bucket| times_bound(bucket).map_or(f64::MAX, |bound| bound as f64);
    let counts = stats.times_histogram.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count));
    (counts.collect(), stats.draws_of_left as f64)
}

fn gauges<T: EncodeGaugeValue>(
    to: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    series: impl IntoIterator<Item = (Vec<Label>, T)>,
) -> Result<(), Error> {
    let mut series = series.into_iter().peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// The names end in `_total`, which the crate appends.
fn counters(
    to: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    series: impl IntoIterator<Item = (Vec<Label>, u64)>,
) -> Result<(), Error> {
    let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in series {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    Ok(())
}

/// The spans of traced requests.
fn spans(to: &mut DescriptorEncoder<'_>, counts: SpanCounts) -> Result<(), Error> {
    let outcomes = [("noted", counts.noted), ("dropped", counts.dropped), ("invalid", counts.invalid)];
    let series = outcomes.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], count));
    counters(to, "reverie_spans", "Spans of traced requests", series)
}

fn requests(to: &mut DescriptorEncoder<'_>, latencies: &Latencies) -> Result<(), Error> {
    let help = "Seconds from a request's arrival to its response, waiting for the table included";
    let mut family = to.encode_descriptor("reverie_request_seconds", help, None, MetricType::Histogram)?;
    for transport in RequestTransport::ALL {
        for verb in RequestKind::ALL {
            let (counts, sum) = latencies.of(transport, verb).read();
            let bound = |bucket| if bucket < FINITE { Histogram::bound(bucket) } else { f64::MAX };
            let buckets: Vec<_> = counts.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count)).collect();
            let labels = vec![("verb", verb.name().to_owned()), ("transport", transport.name().to_owned())];
            let mut of = family.encode_family(&labels)?;
            of.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)?;
        }
    }
    Ok(())
}

fn bytes(
    to: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    shared: &ServerState,
    of: fn(&ByteCounts) -> &AtomicU64,
) -> Result<(), Error> {
    let series = RequestTransport::ALL.map(|transport| {
        let bytes = of(shared.bytes(transport)).load(Ordering::Relaxed);
        (vec![("transport", transport.name().to_owned())], bytes)
    });
    counters(to, name, help, series)
}

/// The times for which a journal waited for the disk. The crate has no summaries.
fn syncs(out: &mut String, journal: &JournalInfo) -> Result<(), Error> {
    let name = "reverie_journal_sync_seconds";
    writeln!(out, "# HELP {name} Seconds for which the journal waited for the disk\n# TYPE {name} summary")?;
    writeln!(out, "{name}_sum {:?}\n{name}_count {}", journal.sync_time.as_secs_f64(), journal.syncs)
}
