//! Queries of items by their metadata in the table.

use crate::array::numbers;
use crate::count::Count;
use crate::enter::{Deadline, detached, quick};
use crate::errors::raise;
use crate::handle::Handle;
use crate::replay_backend::answer;
use crate::undelivered::no_batch;
use crate::updates::update_result;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reverie_core::sample::SampleOutcome;
use reverie_core::table::{Comparison, Condition, Field, MAX_CONDITIONS, Query};

const FIELDS: [(&str, Field); 4] = [
    ("priority", Field::Priority),
    ("times_sampled", Field::TimesSampled),
    ("version", Field::Version),
    ("age", Field::Age),
];

const COMPARISONS: [(&str, Comparison); 6] = [
    ("<", Comparison::Less),
    ("<=", Comparison::AtMost),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    (">=", Comparison::AtLeast),
    (">", Comparison::More),
];

/// The value of one of a few names; otherwise ValueError, which lists them.
fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> PyResult<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let known = all.iter().map(|(known, _)| format!("\"{known}\"")).collect::<Vec<_>>().join(", ");
        PyValueError::new_err(format!("{what} must be one of {known}, got \"{name}\""))
    })
}

fn condition(condition: &Bound<'_, PyAny>) -> PyResult<Condition> {
    let parts = condition.cast::<PyTuple>().ok().and_then(|parts| parts.extract::<(String, String, f64)>().ok());
    let Some((field, comparison, value)) = parts else {
        let shown = condition.repr()?;
        return Err(PyTypeError::new_err(format!("where must have tuples (field, op, number) in it, got {shown}")));
    };
    let (field, comparison) =
        (named("where: the field", &field, &FIELDS)?, named("where: the op", &comparison, &COMPARISONS)?);
    quick(condition.py(), || Condition::new(field, comparison, value))
}

/// Reads `where=`.
fn conditions(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Condition>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let Ok(given) = given.extract::<Vec<Bound<'_, PyAny>>>() else {
        let shown = given.repr()?;
        return Err(PyTypeError::new_err(format!("where must be a list of (field, op, number), got {shown}")));
    };
    if given.len() > MAX_CONDITIONS {
        return Err(PyValueError::new_err(format!("where takes {MAX_CONDITIONS} conditions, got {}", given.len())));
    }
    given.iter().map(condition).collect()
}

/// `Client.query`.
pub fn query<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    given: Option<&Bound<'py, PyAny>>,
    (limit, order): (Option<Count>, Option<&str>),
    deadline: Deadline,
) -> PyResult<Bound<'py, PyAny>> {
    let order = order.map(|order| {
        let by = order.strip_prefix('-').unwrap_or(order);
        named("order", by, &FIELDS).map(|field| (field, by.len() < order.len()))
    });
    let query = Query {
        conditions: conditions(given)?,
        limit: limit.map(|limit| limit.at_least("limit", 1)).transpose()?,
        order: order.transpose()?,
    };
    let replay = client.backend().replay(py)?;
    let ticket = detached(py, || Ok(replay.query(table, &query)))?;
    let SampleOutcome { batches, error } = answer(py, "query", &*replay, ticket, deadline)?;
    match (error, batches.into_iter().next()) {
        (Some(error), _) => Err(raise(py, error)),
        (None, Some(mut found)) => client.batcher.info(py, &mut found),
        (None, None) => Err(raise(py, no_batch())),
    }
}

/// `Client._delete_where`.
pub fn delete_where<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    keys: Option<&Bound<'py, PyAny>>,
    given: &Bound<'py, PyAny>,
    deadline: Deadline,
) -> PyResult<Bound<'py, PyAny>> {
    let conditions = conditions(Some(given))?;
    let keys = keys.map(|keys| numbers::<i64>(keys, "keys")).transpose()?;
    let keys = keys.as_ref().map(|keys| keys.as_slice());
    let replay = client.backend().replay(py)?;
    let ticket = detached(py, || Ok(replay.delete_where(table, keys, &conditions)))?;
    update_result(py, answer(py, "delete", &*replay, ticket, deadline)?)
}
