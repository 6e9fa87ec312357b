//! Figures of a client's tables and of its connection.

use crate::enter::{Deadline, quick};
use crate::handle::Handle;
use crate::options::options_dict;
use crate::replay_backend::answer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reverie_core::chunk::TierInfo;
use reverie_core::replay::{ConnectionInfo, Info, ShardTable, WaitSummary};
use reverie_core::table::{JournalInfo, TableInfo, WaitEntry};

/// `Client._info`. `shards` are the clients of each server, if there are several. `options`: with those of each table.
pub fn info<'py>(
    client: &Handle,
    shards: &[&Handle],
    py: Python<'py>,
    timeout: Option<f64>,
    options: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let deadline = client.deadline(timeout)?;
    let replay = client.backend().replay(py)?;
    let ticket = quick(py, || Ok(replay.info()))?;
    let info = answer(py, "info", &*replay, ticket, deadline)?;
    let (mut errors, mut each) = (errors_of(client, py)?, Vec::new());
    for (shard, client) in info.shards.iter().zip(shards) {
        let own = errors_of(client, py)?;
        errors += own;
        let tables = PyDict::new(py);
        for (table, figures) in &shard.tables {
            tables.set_item(table, shard_dict(py, figures)?)?;
        }
        let figures =
            shard.info.as_ref().map(|info| server_dict(py, info, shard.link.as_ref(), own, options)).transpose()?;
        each.push((shard.present, figures, tables));
    }
    let dict = server_dict(py, &info, replay.link().as_ref(), errors, options)?;
    dict.set_item("shards", each)?;
    Ok(dict)
}

/// The number of requests with `wait=False` that failed.
fn errors_of(client: &Handle, py: Python<'_>) -> PyResult<u64> {
    let alone = client.unawaited(py)?;
    Ok(alone.inserts.errors(py)? + alone.updates.errors(py)?)
}

/// The figures of a server, or the sums of several, as a dict; `reverie.client` makes an Info of it.
fn server_dict<'py>(
    py: Python<'py>,
    info: &Info,
    link: Option<&ConnectionInfo>,
    errors: u64,
    options: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (dict, tables) = (PyDict::new(py), PyDict::new(py));
    for table in &info.tables {
        let figures = info_dict(py, table)?;
        if options {
            figures.set_item("options", options_dict(py, &table.options)?)?;
        }
        tables.set_item(&table.options.name, figures)?;
    }
    dict.set_item("tables", tables)?;
    dict.set_item("size_bytes", info.live_bytes)?;
    dict.set_item("max_bytes", info.max_bytes)?;
    dict.set_item("network_bytes", info.network_bytes)?;
    dict.set_item("max_network_bytes", info.max_network_bytes)?;
    dict.set_item("max_memory", info.max_memory)?;
    dict.set_item("journal", info.journal.as_ref().map(|journal| journal_dict(py, journal)).transpose()?)?;
    dict.set_item("disk", info.disk.as_ref().map(|disk| disk_dict(py, disk)).transpose()?)?;
    dict.set_item("unawaited_errors", errors)?;
    if let Some(link) = link {
        let link = link_dict(py, link)?;
        link.set_item("max_connections", info.max_connections)?;
        dict.set_item("link", link)?;
    }
    Ok(dict)
}

fn journal_dict<'py>(py: Python<'py>, journal: &JournalInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("sync", &journal.sync)?;
    dict.set_item("rounds", journal.rounds)?;
    dict.set_item("syncs", journal.syncs)?;
    dict.set_item("sync_seconds", journal.sync_time.as_secs_f64())?;
    dict.set_item("longest_sync_seconds", journal.longest_sync.as_secs_f64())?;
    dict.set_item("unsynced_bytes", journal.unsynced_bytes)?;
    dict.set_item("log_bytes", journal.log_bytes)?;
    dict.set_item("waiting", journal.waiting)?;
    dict.set_item("is_full", journal.is_full)?;
    dict.set_item("error", &journal.error)?;
    Ok(dict)
}

fn disk_dict<'py>(py: Python<'py>, disk: &TierInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("folder", &disk.folder)?;
    dict.set_item("memory_bytes", disk.memory)?;
    dict.set_item("max_memory_bytes", disk.memory_bytes)?;
    dict.set_item("num_chunks", disk.chunks)?;
    dict.set_item("chunk_bytes", disk.stored)?;
    dict.set_item("shared_bytes", disk.shared)?;
    dict.set_item("file_bytes", disk.used)?;
    dict.set_item("max_file_bytes", disk.disk_bytes)?;
    dict.set_item("num_moved", disk.moved)?;
    dict.set_item("compacted_bytes", disk.compacted)?;
    dict.set_item("error", &disk.error)?;
    Ok(dict)
}

/// The figures of one of several servers for one table, as a dict.
fn shard_dict<'py>(py: Python<'py>, table: &ShardTable) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("mass", table.mass)?;
    dict.set_item("chance", table.chance)?;
    dict.set_item("ration", table.ration)?;
    dict.set_item("num_inserts", table.num_inserts)?;
    dict.set_item("num_samples", table.num_samples)?;
    dict.set_item("waiting_inserts", table.waiting_inserts)?;
    dict.set_item("discarded", table.discarded)?;
    dict.set_item("clock_ahead", table.clock_ahead)?;
    Ok(dict)
}

/// `Client._why`.
pub fn why<'py>(client: &Handle, py: Python<'py>, table: &str, deadline: Deadline) -> PyResult<Bound<'py, PyDict>> {
    let replay = client.backend().replay(py)?;
    let ticket = quick(py, || Ok(replay.why(table)))?;
    waits_dict(py, &answer(py, "why", &*replay, ticket, deadline)?)
}

/// `Client._describe`: the options of the tables.
pub fn tables<'py>(client: &Handle, py: Python<'py>, deadline: Deadline) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let tables = client.backend().known(py, deadline)?.tables();
    tables.iter().map(|options| options_dict(py, options)).collect()
}

/// The state of the connection, as a dict.
fn link_dict<'py>(py: Python<'py>, link: &ConnectionInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("transport", link.transport.as_deref())?;
    dict.set_item("reason", &link.reason)?;
    dict.set_item("connected", link.connected)?;
    dict.set_item("reconnects", link.reconnects)?;
    dict.set_item("server_restarts", link.server_restarts)?;
    dict.set_item("bytes_sent", link.bytes_sent)?;
    dict.set_item("bytes_received", link.bytes_received)?;
    dict.set_item("kept_bytes", link.kept_bytes)?;
    dict.set_item("max_kept_bytes", link.max_kept_bytes)?;
    Ok(dict)
}

/// A table's figures as a dict; `reverie.client` makes a TableInfo of them.
fn info_dict<'py>(py: Python<'py>, info: &TableInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let TableInfo { options, counters, size, bytes, num_episodes, stats, times, .. } = info;
    let limiter = &options.limiter;
    dict.set_item("shard", options.shard)?;
    dict.set_item("max_size", options.max_size)?;
    dict.set_item("max_times_sampled", options.max_times_sampled)?;
    dict.set_item("samples_per_insert", limiter.samples_per_insert())?;
    dict.set_item("min_size_to_sample", limiter.min_size_to_sample())?;
    dict.set_item("min_diff", limiter.min_diff())?;
    dict.set_item("max_diff", limiter.max_diff())?;
    dict.set_item("num_inserts", counters.inserts)?;
    dict.set_item("num_samples", counters.samples)?;
    dict.set_item("num_deletes", counters.deletes)?;
    dict.set_item("current_size", size)?;
    dict.set_item("size_bytes", bytes)?;
    dict.set_item("num_episodes", num_episodes)?;
    dict.set_item("num_deleted_episodes", stats.deleted_episodes)?;
    dict.set_item("num_unique_samples", stats.sampled_unique)?;
    dict.set_item("num_evicted", stats.evicted)?;
    dict.set_item("num_updates", stats.updated)?;
    dict.set_item("num_stale_updates", stats.stale_updates)?;
    dict.set_item("pending_inserts", info.pending_inserts)?;
    dict.set_item("pending_samples", info.pending_samples)?;
    dict.set_item("num_leased", info.leased)?;
    dict.set_item("max_priority", info.max_priority)?;
    dict.set_item("max_bytes", options.max_bytes)?;
    let copies = options.extensions.iter().zip(&info.copies).map(|(extension, copied)| {
        let timeout = extension.timeout.map(|timeout| timeout.as_secs_f64());
        (&extension.target, timeout, copied.inserted, copied.dropped, copied.waiting)
    });
    dict.set_item("copies", copies.collect::<Vec<_>>())?;
    dict.set_item("age_histogram", PyTuple::new(py, stats.age_histogram)?)?;
    dict.set_item("age_sum", stats.age_sum as f64 * 1e-9)?;
    dict.set_item("sample_times", PyTuple::new(py, stats.times_histogram)?)?;
    dict.set_item("sample_times_sum", stats.draws_of_left)?;
    for (name, time) in [
        ("inserting", times.inserting),
        ("sampling", times.sampling),
        ("inserts_blocked", times.inserts_blocked),
        ("samples_blocked", times.samples_blocked),
        ("alive", times.alive),
    ] {
        dict.set_item(name, time.as_secs_f64())?;
    }
    Ok(dict)
}

/// The requests that wait at a table, as a dict; `reverie.client` makes a Why of it.
fn waits_dict<'py>(py: Python<'py>, waits: &WaitSummary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let waiting = |queue: &[WaitEntry]| -> Vec<(f64, u64, u64)> {
        queue.iter().map(|waiting| (waiting.since.as_secs_f64(), waiting.wanted, waiting.done)).collect()
    };
    dict.set_item("table", &waits.table)?;
    dict.set_item("size", waits.size)?;
    dict.set_item("max_size", waits.max_size)?;
    dict.set_item("num_inserts", waits.counters.inserts)?;
    dict.set_item("num_samples", waits.counters.samples)?;
    dict.set_item("num_deletes", waits.counters.deletes)?;
    dict.set_item("num_leased", waits.leased)?;
    dict.set_item("inserts", waiting(&waits.inserts))?;
    dict.set_item("samples", waiting(&waits.samples))?;
    dict.set_item("num_waiting_inserts", waits.num_inserts)?;
    dict.set_item("num_waiting_samples", waits.num_samples)?;
    dict.set_item("insert_reason", &waits.insert_reason)?;
    dict.set_item("sample_reason", &waits.sample_reason)?;
    dict.set_item("stuck", waits.stuck)?;
    dict.set_item("text", &waits.text)?;
    Ok(dict)
}
