//! The server of several that an insert or a writer goes to.

use crate::count::Count;
use crate::handle::Handle;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Instant;

/// The server that a caller chose, if any, for a number of rows that go into these tables.
pub type Placement<'a> = (Option<Count>, &'a [&'a str], u64);

/// Calls with what the client holds, or with what that of the chosen server of several holds (`of`), and a timeout.
/// Takes note of a failure there.
pub fn at<'a, T>(
    client: &'a Handle,
    of: &impl Fn(usize) -> &'a Handle,
    py: Python<'_>,
    wanted: Placement<'_>,
    timeout: Option<f64>,
    call: impl FnOnce(&Handle, Option<f64>) -> PyResult<T>,
) -> PyResult<T> {
    let Some(several) = client.backend().several() else {
        place(client, py, wanted, timeout)?;
        return call(client, timeout);
    };
    let (deadline, since) = (client.deadline(timeout)?, Instant::now());
    let chosen = place(client, py, wanted, timeout)?;
    // The call has the time that the choice left. A timeout beyond a Duration is passed on as it is.
    let left = deadline.after(since.elapsed()).limit().map(|left| left.as_secs_f64());
    call(of(chosen), left.or(client.timeout_or_default(timeout))).inspect_err(|error| {
        // The caller receives the error of its call.
        let _ = several.failed(py, chosen, error);
    })
}

/// The number of the chosen server: 0 if there is one.
pub fn place(
    client: &Handle,
    py: Python<'_>,
    (shard, tables, rows): Placement<'_>,
    timeout: Option<f64>,
) -> PyResult<usize> {
    let shard = shard.map(|shard| shard.at_least("shard", 0)).transpose()?;
    match client.backend().several() {
        Some(several) => several.place(py, shard, tables, rows, client.deadline(timeout)?),
        None if shard.is_none_or(|shard| shard == 0) => Ok(0),
        None => Err(PyValueError::new_err(format!(
            "shard must be below 1, the number of shards, got {}",
            shard.unwrap_or_default()
        ))),
    }
}
