//! Log lines of the network and of files on their way to Python's logging, such as a refused transport or a reconnect.
//!
//! The threads of both never ask for the GIL: they leave the line here, and the next call delivers it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Waiting lines at most; the oldest are dropped first.
const MOST: usize = 256;

static WAITING: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<VecDeque<Line>> = Mutex::new(VecDeque::new());

/// This crate, as the targets of its lines name it: its library has the name of the Python module.
const OWN: &str = env!("CARGO_CRATE_NAME");

/// A line, and when it was written.
struct Line {
    level: u8,
    target: &'static str,
    time: SystemTime,
    text: Text,
}

struct LineSubscriber;

impl Subscriber for LineSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = ["reverie", OWN].iter().any(|crates| metadata.target().starts_with(crates));
        metadata.is_event() && *metadata.level() <= Level::INFO && is_ours
    }

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MOST {
            lines.pop_front();
        }
        lines.push_back(Line { level, target: event.metadata().target(), time: SystemTime::now(), text });
        WAITING.store(true, Ordering::Release);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Collects the lines of this process from now on, unless another subscriber does.
pub fn gather() {
    let _ = tracing::subscriber::set_global_default(LineSubscriber);
}

/// Passes the waiting lines to Python's logger "reverie". A log line's parts are attributes of its record, too, for
/// formatters: `target`, `happened` (seconds since 1970), `sentence` (without the fields) and `fields`.
#[inline]
pub fn deliver(py: Python<'_>) -> PyResult<()> {
    if WAITING.load(Ordering::Acquire) { deliver_waiting(py) } else { Ok(()) }
}

#[cold]
fn deliver_waiting(py: Python<'_>) -> PyResult<()> {
    // No thread holds it for long; a fork may have left it locked.
    let Ok(mut lines) = LINES.try_lock() else { return Ok(()) };
    WAITING.store(false, Ordering::Release);
    let taken = std::mem::take(&mut *lines);
    drop(lines);
    let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
    for Line { level, target, time, text: Text { message, fields } } in taken {
        let mut line = message.clone();
        for (name, value) in &fields {
            // Writing to a String cannot fail.
            let _ = write!(line, "; {name} {value}");
        }
        let parts = PyDict::new(py);
        parts.set_item("target", target)?;
        parts.set_item("happened", time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())?;
        parts.set_item("sentence", message)?;
        parts.set_item("fields", fields.into_iter().collect::<std::collections::BTreeMap<_, _>>())?;
        let options = PyDict::new(py);
        options.set_item("extra", parts)?;
        logger.call_method("log", (level, "%s", line), Some(&options))?;
    }
    Ok(())
}

/// Delivers waiting lines; for threads that wait outside the engine.
#[pyfunction]
pub fn _deliver_logs(py: Python<'_>) -> PyResult<()> {
    deliver(py)
}
