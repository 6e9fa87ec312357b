//! Traces: of the requests that this thread makes, and of those that a server has answered.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_net::listen::Server;
use reverie_net::server::spans::Span;
use reverie_net::trace::TraceContext;
use std::time::Duration;

/// The ids of a trace and of a span, and whether the trace is recorded.
type TraceIds = (u128, u64, bool);

/// Sets the trace of the requests that this thread makes from now on; returns the one before.
#[pyfunction]
#[pyo3(signature = (context))]
pub fn _set_trace(context: Option<TraceIds>) -> PyResult<Option<TraceIds>> {
    if context.is_some_and(|(trace, parent, _)| trace == 0 || parent == 0) {
        return Err(PyValueError::new_err("the ids of a trace and of a span must not be 0"));
    }
    let before = TraceContext::set_current(context.map(read));
    Ok(before.map(ids))
}

/// The trace of the request for the last batch that this thread took; only the first call has it.
#[pyfunction]
pub fn _answered_trace() -> Option<TraceIds> {
    TraceContext::take_answered().map(ids)
}

fn read((trace, parent, sampled): TraceIds) -> TraceContext {
    TraceContext { trace, parent, sampled }
}

fn ids(TraceContext { trace, parent, sampled }: TraceContext) -> TraceIds {
    (trace, parent, sampled)
}

/// `reverie.spans.WriterSpans` of a writer whose client traces: the spans of its waits, and the traces of its inserts.
pub struct WriterSpans(Option<Py<PyAny>>);

impl WriterSpans {
    /// The spans of a writer of this client.
    pub fn of(client: &Bound<'_, PyAny>) -> PyResult<Self> {
        let spans = client.getattr_opt(intern!(client.py(), "_writer_spans"))?;
        Ok(Self(spans.filter(|spans| !spans.is_none()).map(Bound::unbind)))
    }

    /// True if the client traces.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Makes requests that belong to the caller's current span.
    #[inline]
    pub fn of_caller<T>(&self, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let Some(spans) = &self.0 else { return make() };
        let context: Option<TraceIds> = spans.call_method0(py, intern!(py, "current"))?.extract(py)?;
        TraceContext::within(context.map(read), make)
    }

    /// Runs a wait within a span of its own.
    pub fn during<T>(&self, py: Python<'_>, verb: &str, wait: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let Some(spans) = &self.0 else { return wait() };
        let span = spans.bind(py).call_method1(intern!(py, "during"), (verb,))?;
        span.call_method0(intern!(py, "__enter__"))?;
        let done = wait();
        let error = done.as_ref().err();
        let of = (
            error.map(|error| error.get_type(py)),
            error.map(|error| error.value(py)),
            error.and_then(|error| error.traceback(py)),
        );
        span.call_method1(intern!(py, "__exit__"), of)?;
        done
    }
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
