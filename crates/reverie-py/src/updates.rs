//! Priority updates and deletes.

use crate::array::numbers;
use crate::count::Count;
use crate::enter::{Deadline, copying, issue, late, quick};
use crate::handle::Handle;
use crate::replay_backend::answer;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverie_core::table::{ChangeCounts, Neighbours, Updates};
use std::time::Instant;

/// `Client.update_priorities`.
pub fn update<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    (keys, priorities): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    (if_version, neighbours): (Option<&Bound<'py, PyAny>>, Option<(Count, f64)>),
    deadline: Deadline,
    wait: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let replay = client.backend().replay(py)?;
    let (keys, priorities) = (numbers::<i64>(keys, "keys")?, numbers::<f64>(priorities, "priorities")?);
    let (keys, priorities) = (keys.as_slice(), priorities.as_slice());
    let versions: Option<Vec<u32>> = match if_version {
        None => None,
        Some(versions) => {
            // A version that no item can have stays one that no item has.
            let versions = numbers::<i64>(versions, "if_version")?;
            Some(versions.as_slice().iter().map(|v| u32::try_from(*v).unwrap_or(u32::MAX)).collect())
        }
    };
    let neighbours = neighbours.map(|(count, decay)| {
        let count = count.at_least("neighbours: k", 1)? as u64;
        quick(py, || Neighbours::new(count, decay))
    });
    let neighbours = neighbours.transpose()?;
    let updates = Updates { keys, priorities, if_version: versions.as_deref(), neighbours };
    let alone = client.unawaited(py)?;
    if !wait {
        // A replay answers updates without waiting for a table.
        let since = Instant::now();
        let why = || replay.no_response_reason(since.elapsed());
        if !alone.updates.make_room(py, deadline.plus(replay.grace()), replay.round_trip(), |_| why())? {
            let why = format!("earlier ones with wait=False are not answered; {}", why());
            return Err(late(py, "update_priorities", &why, |_| Ok(())));
        }
    }
    let reach = neighbours.map_or(1, |neighbours| neighbours.parts().0 as usize + 1);
    let bytes = (keys.len() << 6).saturating_mul(reach);
    let request = || Ok(replay.mutate(table, &updates, &[], wait));
    if wait {
        let (updated, _) = answer(py, "update_priorities", &*replay, issue(py, bytes, request)?, deadline)?;
        return update_result(py, updated).map(Some);
    }
    let ticket = copying(py, bytes, request)?;
    alone.updates.add(py, ticket, table, (keys.len() as u64) << 4)?;
    Ok(None)
}

/// `Client._mutate`.
pub fn mutate<'py>(
    client: &Handle,
    py: Python<'py>,
    table: &str,
    (keys, priorities): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    deletes: &Bound<'py, PyAny>,
    deadline: Deadline,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let replay = client.backend().replay(py)?;
    let (keys, priorities) = (numbers::<i64>(keys, "updates")?, numbers::<f64>(priorities, "updates")?);
    let deletes = numbers::<i64>(deletes, "deletes")?;
    let (keys, priorities, deletes) = (keys.as_slice(), priorities.as_slice(), deletes.as_slice());
    let updates = Updates { keys, priorities, ..Updates::default() };
    let bytes = (keys.len() + deletes.len()) << 6;
    let issued = issue(py, bytes, || Ok(replay.mutate(table, &updates, deletes, true)))?;
    let (updated, deleted) = answer(py, "mutate_priorities", &*replay, issued, deadline)?;
    Ok((update_result(py, updated)?, update_result(py, deleted)?))
}

/// `reverie.UpdateResult`.
pub fn update_result(py: Python<'_>, updated: ChangeCounts) -> PyResult<Bound<'_, PyAny>> {
    static RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    RESULT.import(py, "reverie.types", "UpdateResult")?.call1((updated.applied, updated.stale))
}
