//! Inserts: one step into one or more tables, or rows into one.

use crate::array::column;
use crate::enter::{Deadline, ITEM_BYTES, Request, copying, detached, finish, issue, late, quick};
use crate::handle::Handle;
use crate::insert_outcome::with_means;
use crate::nest::flatten;
use crate::replay_backend::{ReplayRef, why};
use crate::rows::{Priorities, priority};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reverie_core::Result;
use reverie_core::append::{InsertParts, MultiTableInsert, SplitInsert};
use reverie_core::table::{COMMIT_GRACE, Inserts, Priority};
use smallvec::SmallVec;
use std::time::Duration;

/// `Client.insert`.
pub fn step(
    client: &Handle,
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    priorities: &Bound<'_, PyDict>,
    timeout: Option<f64>,
) -> PyResult<()> {
    let deadline = client.deadline(timeout)?;
    let names: SmallVec<[(Bound<'_, PyAny>, Bound<'_, PyAny>); 2]> = priorities.iter().collect();
    let mut targets: SmallVec<[(&str, Priority); 2]> = SmallVec::new();
    for (name, value) in &names {
        let Ok(name) = name.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!("a table's name must be a str, got {}", name.repr()?)));
        };
        targets.push((name.to_str()?, priority(value)?));
    }
    let Some((first, _)) = targets.first() else {
        return Err(PyValueError::new_err("priorities must name at least one table"));
    };
    let replay = client.backend().known(py, deadline)?;
    if targets.len() > 1 {
        let others = targets[1..].iter().map(|(table, _)| *table);
        // The first table's rows refuse it themselves.
        quick(py, || MultiTableInsert::check_tables(&*replay, others))?;
    }
    let item = client.append(py, &replay, first, data)?;
    match quick(py, || MultiTableInsert::send(&*replay, item, &targets))? {
        Some(insert) => every(py, &replay, (insert, targets.len()), deadline),
        None => Ok(()),
    }
}

impl Request for MultiTableInsert<'_> {
    type Done = ();

    fn wait(&mut self, timeout: Duration) -> Option<Result<()>> {
        MultiTableInsert::wait(self, timeout)
    }

    fn withdraw(&mut self, grace: Duration) -> Result<()> {
        self.cancel(grace)
    }

    fn needs_commit(&self) -> bool {
        Self::needs_commit(self)
    }
}

/// Waits until every table has taken the item. The error names the tables that did.
fn every(
    py: Python<'_>,
    replay: &ReplayRef<'_>,
    (insert, num_tables): (MultiTableInsert<'_>, usize),
    deadline: Deadline,
) -> PyResult<()> {
    let mut issued = insert.into();
    let reason =
        |insert: &MultiTableInsert<'_>| insert.waits_for().map_or_else(String::new, |table| why(&**replay, table));
    let ended = finish(py, &mut issued, deadline, reason);
    let mut insert = issued.request;
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(left)) => match left.unless_whole(|()| insert.is_complete()) {
            Ok(()) => Ok(()),
            Err(mut left) => {
                let taken = insert.taken();
                if let Some(why) = insert.not_committed() {
                    // Also the reasons for which the other tables wait.
                    left.why = if taken.len() == num_tables { why.to_owned() } else { format!("{}; {why}", left.why) };
                }
                let what = if taken.is_empty() { "insert".to_owned() } else { format!("insert (done in {taken:?})") };
                Err(left.raise(py, &what, |(), with| with.set_item("partial", taken.to_vec())))
            }
        },
        Err(error) => {
            // Only the error is raised: it is the first.
            let _ = detached(py, || insert.cancel(COMMIT_GRACE));
            Err(with_means(py, replay, error, || insert.taken().to_vec().into_pyobject(py).map(Bound::into_any)))
        }
    }
}

/// `Client.insert_batch`.
pub fn batch<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    (data, priorities): (&Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
    timeout: Option<f64>,
    waits: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let deadline = client.deadline(timeout)?;
    let replay = client.backend().known(py, deadline)?;
    if !waits {
        make_room(client, py, &replay, timeout)?;
    }
    let rows = client.rows(py, &replay, table, true)?;
    let (items, count, size_bytes) = rows.append(py, data)?;
    let inserts: Inserts = match Priorities::read(priorities, count)? {
        Priorities::Same(priority) => items.into_iter().map(|item| (item, priority)).collect(),
        Priorities::Each(values) => {
            let values = values.as_slice().iter().map(|value| Priority::Value(*value));
            items.into_iter().zip(values).collect()
        }
    };
    if count == 0 {
        // There is nothing to insert, over either transport.
        return if waits { column(py, &[], |key: &i64| *key).map(Some) } else { Ok(None) };
    }
    if !waits {
        let parts = InsertParts::of(inserts, replay.max_items());
        let bytes = (size_bytes / parts.len()) as u64;
        for part in parts {
            let ticket = copying(py, part.len() * ITEM_BYTES, || replay.insert(table, part))?;
            client.unawaited(py)?.inserts.add(py, ticket, table, bytes)?;
        }
        return Ok(None);
    }
    let send = || SplitInsert::send(&*replay, table, inserts, replay.max_items());
    let mut issued = issue(py, count * ITEM_BYTES, send)?;
    let ended = finish(py, &mut issued, deadline, |_| why(&*replay, table));
    let insert = issued.request;
    let keys = || column(py, insert.keys(), |key| key.get());
    match ended.map_err(|error| with_means(py, &replay, error, keys))? {
        Ok(()) => keys().map(Some),
        Err(left) => match left.unless_whole(|()| insert.is_complete()) {
            Ok(()) => keys().map(Some),
            Err(mut left) => {
                if let Some(why) = insert.not_committed() {
                    // Also the reasons for which the other items wait.
                    left.why =
                        if insert.keys().len() == count { why.to_owned() } else { format!("{}; {why}", left.why) };
                }
                Err(left.raise(py, "insert_batch", |(), with| with.set_item("partial", keys()?)))
            }
        },
    }
}

impl Request for SplitInsert<'_> {
    type Done = ();

    fn wait(&mut self, timeout: Duration) -> Option<Result<()>> {
        SplitInsert::wait(self, timeout)
    }

    fn withdraw(&mut self, grace: Duration) -> Result<()> {
        self.cancel(grace)
    }

    fn needs_commit(&self) -> bool {
        Self::needs_commit(self)
    }
}

fn make_room(client: &Handle, py: Python<'_>, replay: &ReplayRef<'_>, timeout: Option<f64>) -> PyResult<()> {
    let alone = client.unawaited(py)?;
    let round_trip = replay.round_trip();
    match alone.inserts.make_room(py, client.deadline(timeout)?, round_trip, |table| why(&**replay, table))? {
        true => Ok(()),
        false => {
            let why = alone.inserts.waits_for().map_or_else(String::new, |table| why(&**replay, &table));
            let why = format!("earlier ones with wait=False are not answered, and nothing was inserted; {why}");
            Err(late(py, "insert_batch", &why, |with| with.set_item("partial", column(py, &[], |key: &i64| *key)?)))
        }
    }
}

/// The tables that are named; the insert itself refuses other names.
#[cold]
pub fn tables(priorities: &Bound<'_, PyDict>) -> Vec<String> {
    priorities.keys().iter().filter_map(|table| table.extract().ok()).collect()
}

/// The number of rows of a nest: those of its first array. The insert itself refuses a nest without rows.
pub fn num_rows(data: &Bound<'_, PyAny>) -> PyResult<u64> {
    let (leaves, _) = flatten(data)?;
    Ok(leaves.get_item(0).and_then(|leaf| leaf.len()).unwrap_or(0) as u64)
}

/// `Client.flush`.
pub fn flush(client: &Handle, py: Python<'_>, deadline: Deadline) -> PyResult<()> {
    let replay = &client.backend().replay(py)?;
    let alone = client.unawaited(py)?;
    alone.flush(py, deadline, |table| why(&**replay, table))
}
