//! Log lines of the network on their way to Python's logging, such as a refused transport or a reconnect.
//!
//! The network's threads never ask for the GIL: they leave the line here, and the next call delivers it.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Waiting lines at most; the oldest are dropped first.
const MOST: usize = 256;

static WAITING: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<VecDeque<(u8, String)>> = Mutex::new(VecDeque::new());

struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("reverie")
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
        lines.push_back((level, text.message + &text.fields));
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
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name} {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Collects the lines of this process from now on, unless another subscriber does.
pub fn gather() {
    let _ = tracing::subscriber::set_global_default(Lines);
}

/// Passes the waiting lines to Python's logger "reverie".
#[inline]
pub fn tell(py: Python<'_>) -> PyResult<()> {
    if WAITING.load(Ordering::Acquire) { deliver(py) } else { Ok(()) }
}

#[cold]
fn deliver(py: Python<'_>) -> PyResult<()> {
    // No thread holds it for long; a fork may have left it locked.
    let Ok(mut lines) = LINES.try_lock() else { return Ok(()) };
    WAITING.store(false, Ordering::Release);
    let taken = std::mem::take(&mut *lines);
    drop(lines);
    let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("reverie",))?;
    for (level, line) in taken {
        logger.call_method1("log", (level, "%s", line))?;
    }
    Ok(())
}

/// Delivers waiting lines; for threads that wait outside the engine.
#[pyfunction]
pub fn _tell(py: Python<'_>) -> PyResult<()> {
    tell(py)
}
