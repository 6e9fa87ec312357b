//! Checkpoints of a server's tables, and information about checkpoints on disk.

use crate::count::Count;
use crate::enter::{Deadline, detached, finish, quick};
use crate::handle::Handle;
use crate::interruptible::{FILES, interruptible, interruptible_at_second, uninterrupted};
use crate::options::options_dict;
use crate::process_local::ProcessLocal;
use crate::server::Server;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use reverie_core::Error;
use reverie_core::checkpoint::{
    Difference, Disk, PeriodicThread, RestoreOutcome, RetentionPolicy, SaveOutcome, Store, Summary, TableSummary,
    describe, latest, list, verify,
};
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::journal::{self, JournalOptions, Loss, Recovery, Saver, SyncPolicy};
use reverie_core::table::Checkpointer;
use reverie_net::open_files::raise_for_files;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The folder of one server's checkpoints.
#[pyclass(frozen, module = "reverie._native")]
pub struct CheckpointFolder {
    store: ProcessLocal<Arc<Store>>,
}

/// Saves the tables of one server in a folder, on request or periodically.
#[pyclass(frozen, module = "reverie._native")]
pub struct Checkpoints {
    parts: ProcessLocal<(Arc<Saver>, Arc<SystemClock>)>,
    periodic: ProcessLocal<OnceLock<PeriodicThread>>,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    let known = Duration::try_from_secs_f64(value).ok().filter(|value| !value.is_zero());
    known.ok_or_else(|| PyValueError::new_err(format!("{name} must be a number of seconds above 0, got {value}")))
}

#[pymethods]
impl CheckpointFolder {
    /// Looks for the newest checkpoint in the folder `path`; the first checkpoint creates it. `hold` creates and locks it
    /// before that. ValueError for a folder with commits of a journal and no checkpoint, unless it is held.
    #[new]
    #[pyo3(signature = (path, *, keep, max_age, hold))]
    fn new(py: Python<'_>, path: PathBuf, keep: Count, max_age: Option<f64>, hold: bool) -> PyResult<Self> {
        let max_age = max_age.map(|age| seconds("max_age", age)).transpose()?;
        let keep = RetentionPolicy { count: keep.at_least("keep", 1)?, max_age };
        // It may wait for commands that read the folder.
        let store = interruptible(py, || {
            let store = Store::new(Arc::new(FILES), path, keep)?;
            store.report_waits(|why| tracing::warn!("{why}"));
            if hold {
                store.hold()?;
            } else {
                // With a journal, its start reads the log and does that.
                journal::refuse_headless(&FILES, store.root())?;
            }
            Ok(store)
        })?;
        Ok(Self { store: ProcessLocal::new(Arc::new(store), "server") })
    }

    /// The newest checkpoint that the folder had; None if there was none.
    #[getter]
    fn newest(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let store = self.store.get(py)?;
        Ok(quick(py, || Ok(store.found()))?.map(|path| path.display().to_string()))
    }

    /// Lets another server save in the folder; for a server that could not be made.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.get(py)?;
        detached(py, || {
            store.release();
            Ok(())
        })
    }
}

#[pymethods]
impl Checkpoints {
    /// Sets the folder of the server's checkpoints.
    #[new]
    fn new(py: Python<'_>, server: &Server, folder: &CheckpointFolder) -> PyResult<Self> {
        let store = Arc::clone(folder.store.get(py)?);
        let saver = Arc::new(Saver::new(Arc::clone(server.tables(py)?), Arc::new(FILES), store, now));
        server.tables(py)?.set_checkpointer(checkpointer(Arc::downgrade(&saver)));
        if server.saver.set(ProcessLocal::new(Arc::clone(&saver), "server")).is_err() {
            return Err(PyRuntimeError::new_err("a server's checkpoints are in one folder"));
        }
        let parts = (saver, Arc::clone(server.clock()));
        Ok(Self { parts: ProcessLocal::new(parts, "server"), periodic: ProcessLocal::new(OnceLock::new(), "server") })
    }

    /// Loads a checkpoint's items into the server's tables, which must be unused.
    fn restore<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        let (saver, clock) = self.parts.get(py)?;
        let restore = || {
            raise_for_files();
            saver.restore(&path, |by| clock.forward(by))
        };
        let (summary, restored) = interruptible(py, restore)?;
        restored_dict(py, &summary, &restored)
    }

    /// Loads the newest checkpoint of the folder and the journal after it; None if the folder has no checkpoint.
    /// `holds_leases`: draws that clients had not acknowledged wait for these clients.
    #[pyo3(signature = (*, saved_limits, holds_leases))]
    fn recover<'py>(
        &self,
        py: Python<'py>,
        saved_limits: bool,
        holds_leases: bool,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (saver, clock) = self.parts.get(py)?;
        let recover = || {
            raise_for_files();
            saver.recover(saved_limits, holds_leases, |by| clock.forward(by))
        };
        interruptible(py, recover)?.map(|found| recovered_dict(py, found)).transpose()
    }

    /// Loads the newest checkpoint of another folder and the journal after it, and changes nothing there.
    #[pyo3(signature = (path, *, saved_limits))]
    fn recover_copy<'py>(&self, py: Python<'py>, path: PathBuf, saved_limits: bool) -> PyResult<Bound<'py, PyDict>> {
        let (saver, clock) = self.parts.get(py)?;
        let recover = || {
            raise_for_files();
            saver.recover_copy(&path, saved_limits, |by| clock.forward(by))
        };
        let found = interruptible(py, recover)?;
        recovered_dict(py, found)
    }

    /// Begins a journal in the folder. The content of the folder must have been loaded by `recover` before.
    #[pyo3(signature = (sync, interval, max_unsynced_bytes))]
    fn begin_journal(&self, py: Python<'_>, sync: &str, interval: f64, max_unsynced_bytes: Count) -> PyResult<()> {
        let (saver, _) = self.parts.get(py)?;
        let interval = seconds("interval", interval)?;
        let syncs = match sync {
            "os" => SyncPolicy::Os,
            "interval" => SyncPolicy::Interval(interval),
            "always" => SyncPolicy::Always,
            other => {
                let reason = format!("sync must be \"os\", \"interval\" or \"always\", got {other:?}");
                return Err(PyValueError::new_err(reason));
            }
        };
        let max_unsynced_bytes = max_unsynced_bytes.at_least("max_unsynced_bytes", 1)? as u64;
        interruptible(py, || {
            raise_for_files();
            saver.begin_journal(JournalOptions { syncs, interval, max_unsynced_bytes })
        })
    }

    /// Writes what is left of the journal, waits for the disk, and ends it. Ctrl-C ends the wait, and not the journal.
    fn end_journal(&self, py: Python<'_>) -> PyResult<()> {
        let saver = Arc::clone(&self.parts.get(py)?.0);
        let keeps = Arc::new(saver.keep_folder());
        uninterrupted(py, move || {
            let _keeps = keeps;
            saver.end_journal()
        })
    }

    /// Takes a checkpoint; returns its path and a summary.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (saver, _) = self.parts.get(py)?;
        let save = || saver.save();
        // With a journal, what a file lacks after Ctrl-C, the journal would lack.
        saved_dict(py, &if saver.has_journal() { detached(py, save)? } else { interruptible(py, save)? })
    }

    /// Takes the last checkpoint of a closed server. Without it all is lost: Ctrl-C ends it only if it comes twice. With a
    /// journal it does not end it at all, as in `save`.
    fn save_last<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (saver, _) = self.parts.get(py)?;
        let save = || saver.save_last();
        let saved = match saver.has_journal() {
            true => detached(py, save)?,
            false => interruptible_at_second(py, "the last checkpoint of the server", save)?,
        };
        saved_dict(py, &saved)
    }

    /// Takes a checkpoint every `period` seconds, and after `log_bytes` bytes of a journal, in a thread of its own, until
    /// `stop`. Failures are logged.
    #[pyo3(signature = (*, period=None, log_bytes=None))]
    fn start(&self, py: Python<'_>, period: Option<f64>, log_bytes: Option<Count>) -> PyResult<()> {
        let (saver, _) = self.parts.get(py)?;
        let theirs = Arc::clone(saver);
        let period = period.map_or(Ok(Duration::MAX), |period| seconds("period", period))?;
        let periodic = quick(py, || PeriodicThread::start(period, move || act(&theirs)))?;
        if let Some(bytes) = log_bytes {
            saver.checkpoint_by(bytes.at_least("checkpoint_bytes", 1)? as u64, periodic.waker());
        }
        // It was just created, and only once.
        let _ = self.periodic.get(py)?.set(periodic);
        Ok(())
    }

    /// Lets another server save in the folder, once the journal has ended; for a closed server.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let (saver, _) = self.parts.get(py)?;
        detached(py, || {
            saver.release();
            Ok(())
        })
    }

    /// Ends the thread, after the checkpoint that it is taking. Idempotent.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        match self.periodic.get(py)?.get() {
            Some(periodic) => detached(py, || {
                periodic.stop();
                Ok(())
            }),
            None => Ok(()),
        }
    }
}

/// Takes one checkpoint of the periodic thread. Enters the interpreter only to report a failure.
fn act(saver: &Saver) {
    let error = match catch_unwind(AssertUnwindSafe(|| saver.save())) {
        Ok(Ok(SaveOutcome { left_behind, .. })) => left_behind.map(|error| error.to_string()),
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("a defect in reverie's engine, please report it".to_owned()),
    };
    let Some(error) = error else { return };
    Python::try_attach(|py| {
        let text = format!("the periodic checkpoint: {error}");
        // If logging fails, nothing more can be done.
        let _ = warn(py, &text);
    });
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
    logger.call_method1("warning", ("%s", text)).map(drop)
}

/// `Client.checkpoint`: the path at each server.
pub fn take(client: &Handle, py: Python<'_>, deadline: Deadline) -> PyResult<Vec<String>> {
    let (replay, since) = (client.backend().replay(py)?, Instant::now());
    let ticket = quick(py, || Ok(replay.checkpoint()))?;
    let why = |_: &_| match replay.link() {
        Some(_) => format!("{}; a checkpoint that has begun continues", replay.no_response_reason(since.elapsed())),
        None => "the checkpoint is still being written, or waits for another one; it continues".to_owned(),
    };
    let taken = finish(py, &mut ticket.into(), deadline.plus(replay.grace()), why)?;
    // The checkpoint may have left a warning.
    crate::log_bridge::deliver(py)?;
    match taken {
        Ok(paths) => Ok(paths),
        Err(left) => Err(left.raise(py, "checkpoint", |_, _| Ok(()))),
    }
}

/// Takes a checkpoint for a client: without the interpreter, in a thread of its own.
fn checkpointer(saver: Weak<Saver>) -> Checkpointer {
    Arc::new(move || {
        let saver =
            saver.upgrade().ok_or_else(|| Error::Unavailable("the server of these tables has ended".to_owned()))?;
        let saved = saver.save()?;
        if let Some(error) = saved.left_behind {
            tracing::warn!("checkpoint {}: obsolete files could not be removed: {error}", saved.path.display());
        }
        Ok(saved.path.display().to_string())
    })
}

fn saved_dict<'py>(py: Python<'py>, saved: &SaveOutcome) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", saved.path.display().to_string())?;
    dict.set_item("num_items", saved.items)?;
    dict.set_item("num_chunks", saved.chunks)?;
    dict.set_item("num_new_chunks", saved.new_chunks)?;
    dict.set_item("bytes_written", saved.written)?;
    dict.set_item("pause", saved.pause.as_secs_f64())?;
    dict.set_item("spare_bytes", saved.spare)?;
    dict.set_item("spare_bytes_used", saved.spare_used)?;
    Ok(dict)
}

fn restored_dict<'py>(py: Python<'py>, summary: &Summary, restored: &RestoreOutcome) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", summary.path.display().to_string())?;
    dict.set_item("created", summary.created.as_secs_f64())?;
    dict.set_item("tables", PyList::new(py, &restored.tables)?)?;
    dict.set_item("differences", restored.differences.iter().map(Difference::to_string).collect::<Vec<_>>())?;
    Ok(dict)
}

fn recovered_dict(py: Python<'_>, found: Recovery) -> PyResult<Bound<'_, PyDict>> {
    let dict = restored_dict(py, &found.summary, &found.restored)?;
    dict.set_item("commits", found.commits)?;
    dict.set_item("torn", found.torn.map(|(path, offset)| (path.display().to_string(), offset)))?;
    Ok(dict)
}

/// The newest checkpoint in a folder; None if there is none.
#[pyfunction]
pub fn latest_checkpoint(py: Python<'_>, root: PathBuf) -> PyResult<Option<String>> {
    Ok(interruptible(py, || latest(&FILES, &root))?.map(|path| path.display().to_string()))
}

/// The paths of the checkpoints in a folder, oldest first.
#[pyfunction]
pub fn list_checkpoints(py: Python<'_>, root: PathBuf) -> PyResult<Vec<String>> {
    let found = interruptible(py, || list(&FILES, &root))?;
    Ok(found.into_iter().map(|(path, _)| path.display().to_string()).collect())
}

/// The contents of a checkpoint, without its items.
#[pyfunction]
pub fn describe_checkpoint<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    summary_dict(py, &interruptible(py, || describe(&FILES, &path))?)
}

/// Checks every byte of a checkpoint; returns its numbers of items, chunks and bytes.
#[pyfunction]
pub fn verify_checkpoint(py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64, u64)> {
    let verified = interruptible(py, || verify(&FILES, &path))?;
    Ok((verified.items, verified.chunks, verified.bytes))
}

/// Checks every byte that a server which starts with a journal's folder reads; None if the folder has no journal.
#[pyfunction]
pub fn verify_journal<'py>(py: Python<'py>, root: PathBuf) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(found) = interruptible(py, || journal::verify(&FILES, &root))? else { return Ok(None) };
    let dict = PyDict::new(py);
    dict.set_item("checkpoint", found.checkpoint.display().to_string())?;
    dict.set_item("num_commits", found.commits)?;
    dict.set_item("num_items", found.items)?;
    dict.set_item("num_chunks", found.chunks)?;
    dict.set_item("size_bytes", found.bytes)?;
    dict.set_item("torn", found.torn.map(|(path, offset)| (path.display().to_string(), offset)))?;
    Ok(Some(dict))
}

/// Saves what is whole of a folder as a checkpoint in another; returns that, and what was left out.
#[pyfunction]
pub fn repair_checkpoint<'py>(py: Python<'py>, root: PathBuf, to: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let clock = Arc::new(SystemClock::new());
    let (forwarded, theirs): (_, Arc<dyn Clock>) = (Arc::clone(&clock), clock);
    let repaired = interruptible(py, || {
        let disk: Arc<dyn Disk> = Arc::new(FILES);
        journal::repair(&disk, &root, to, &theirs, |by| forwarded.forward(by), now())
    })?;
    let dict = saved_dict(py, &repaired.saved)?;
    dict.set_item("losses", repaired.losses.iter().map(Loss::to_string).collect::<Vec<_>>())?;
    Ok(dict)
}

fn summary_dict<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", summary.path.display().to_string())?;
    dict.set_item("number", summary.number)?;
    dict.set_item("created", summary.created.as_secs_f64())?;
    dict.set_item("num_chunks", summary.num_chunks)?;
    dict.set_item("chunk_bytes", summary.chunk_bytes)?;
    dict.set_item("manifest_bytes", summary.manifest_bytes)?;
    dict.set_item("segments", &summary.segments)?;
    dict.set_item("journal", summary.journal.map(|start| (start.segment, start.commit)))?;
    let tables = summary.tables.iter().map(|table| table_dict(py, table)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("tables", tables)?;
    Ok(dict)
}

fn table_dict<'py>(py: Python<'py>, table: &TableSummary) -> PyResult<Bound<'py, PyDict>> {
    let dict = options_dict(py, &table.options)?;
    dict.set_item("size", table.size)?;
    dict.set_item("num_inserts", table.counters.inserts)?;
    dict.set_item("num_samples", table.counters.samples)?;
    dict.set_item("num_deletes", table.counters.deletes)?;
    Ok(dict)
}
