//! Traces: of the requests that this thread makes, and of those that a server has answered.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_net::listen::Server;
use reverie_net::server::spans::Span;
use reverie_net::trace::TraceContext;
use std::time::Duration;

/// The ids of a trace and of a span, and whether the trace is recorded.
type Context = (u128, u64, bool);

/// Sets the trace of the requests that this thread makes from now on; returns the one before.
#[pyfunction]
#[pyo3(signature = (context))]
pub fn _set_trace(context: Option<Context>) -> PyResult<Option<Context>> {
    if context.is_some_and(|(trace, parent, _)| trace == 0 || parent == 0) {
        return Err(PyValueError::new_err("the ids of a trace and of a span must not be 0"));
    }
    let context = context.map(|(trace, parent, sampled)| TraceContext { trace, parent, sampled });
    let before = TraceContext::set_current(context);
    Ok(before.map(|TraceContext { trace, parent, sampled }| (trace, parent, sampled)))
}

/// Takes the finished spans of a server as dicts, with the nanoseconds since they began and ended.
pub fn taken<'py>(py: Python<'py>, server: &Server) -> PyResult<Vec<Bound<'py, PyDict>>> {
    server.spans().take().iter().map(|span| described(py, span)).collect()
}

fn described<'py>(py: Python<'py>, span: &Span) -> PyResult<Bound<'py, PyDict>> {
    let nanos = |age: Duration| age.as_nanos() as u64;
    let dict = PyDict::new(py);
    dict.set_item("trace", span.context.trace)?;
    dict.set_item("parent", span.context.parent)?;
    dict.set_item("verb", span.verb)?;
    dict.set_item("tables", &span.tables)?;
    dict.set_item("transport", span.transport)?;
    // From one reading of the clock, so that their difference is the span's duration.
    let age = span.began.elapsed();
    dict.set_item("began", nanos(age))?;
    dict.set_item("ended", nanos(age.saturating_sub(span.ended - span.began)))?;
    let wait = span.wait.as_ref().map(|wait| (wait.reason, &wait.text, wait.took.as_secs_f64()));
    dict.set_item("wait", wait)?;
    dict.set_item("error", span.error.clone())?;
    Ok(dict)
}
