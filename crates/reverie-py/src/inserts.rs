//! Inserts: one step into one or more tables, or rows into one.

use crate::array::column;
use crate::enter::{Deadline, ask, copying, detached, finish, late, quick};
use crate::fate::with_means;
use crate::handle::Handle;
use crate::reach::{Reached, why};
use crate::rows::{Priorities, priority};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reverie_core::table::{Inserts, Keys, Priority, Ticket};
use smallvec::SmallVec;
use std::time::Instant;

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
    let replay = &client.reach().known(py, deadline)?;
    for (table, _) in &targets[1..] {
        // Unknown tables are refused before anything is written; for the first table, its rows do it.
        quick(py, || replay.compression(table))?;
    }
    let item = client.append(py, replay, first, data)?;
    if targets.len() > 1 {
        // All or nothing: an item that one table refuses goes into none.
        for (table, priority) in &targets {
            quick(py, || replay.check(table, &[(item.clone(), *priority)]))?;
        }
    }
    let mut taken: SmallVec<[_; 2]> = SmallVec::new();
    let mut waiting: SmallVec<[_; 2]> = SmallVec::new();
    let mut item = Some(item);
    for (index, (table, priority)) in targets.iter().enumerate() {
        let last = index + 1 == targets.len();
        let item = if last { item.take() } else { item.clone() };
        let inserts = item.map_or_else(Inserts::new, |item| Inserts::from_buf([(item, *priority)]));
        let left = quick(py, || {
            let mut ticket = replay.insert(table, inserts)?;
            ticket.poll().map_or(Ok(Some(ticket)), |done| done.map(|_| None))
        })?;
        match left {
            Some(ticket) => waiting.push((*table, ticket)),
            None => taken.push(*table),
        }
    }
    if waiting.is_empty() { Ok(()) } else { every(py, replay, waiting, taken, deadline) }
}

/// Waits until every table has taken the item.
/// If one does not, the waiting inserts are withdrawn: no table takes the item after the call, and the error names the
/// tables that did.
fn every<'a>(
    py: Python<'_>,
    replay: &Reached<'_>,
    waiting: SmallVec<[(&'a str, Ticket<Keys>); 2]>,
    mut taken: SmallVec<[&'a str; 2]>,
    deadline: Deadline,
) -> PyResult<()> {
    let start = Instant::now();
    let mut waiting = waiting.into_iter();
    while let Some((table, ticket)) = waiting.next() {
        let ended = finish(py, ticket, deadline.after(start.elapsed()), || why(&**replay, table));
        let late = match ended.map(|ended| ended.or_else(|left| left.unless_whole(|keys| !keys.is_empty()))) {
            Ok(Ok(_)) => {
                taken.push(table);
                continue;
            }
            Ok(Err(left)) => Ok(left),
            Err(error) => Err(error),
        };
        for (table, ticket) in waiting {
            if detached(py, || ticket.cancel()).is_ok_and(|keys| !keys.is_empty()) {
                taken.push(table);
            }
        }
        let named = || taken.clone().into_pyobject(py).map(Bound::into_any);
        let late = late.map_err(|error| with_means(py, replay, error, named))?;
        let what = if taken.is_empty() { "insert".to_owned() } else { format!("insert (done in {taken:?})") };
        return Err(late.raise(py, &what, |_, with| with.set_item("partial", taken.to_vec())));
    }
    Ok(())
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
    let replay = &client.reach().known(py, deadline)?;
    if !waits {
        make_room(client, py, replay, timeout)?;
    }
    let rows = client.rows(py, replay, table, true)?;
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
    if count > replay.max_items() {
        return in_parts(client, py, replay, (table, inserts, size_bytes), deadline, waits);
    }
    if !waits {
        let ticket = copying(py, count << 8, || replay.insert(table, inserts))?;
        client.alone(py)?.inserts.leave(py, ticket, table, size_bytes as u64)?;
        return Ok(None);
    }
    let none = || column(py, &[], |key: &i64| *key);
    let asked = ask(py, count << 8, || replay.insert(table, inserts));
    let ended = asked.and_then(|asked| finish(py, asked, deadline, || why(&**replay, table)));
    match ended
        .map_err(|error| with_means(py, replay, error, none))?
        .or_else(|left| left.unless_whole(|keys| keys.len() == count))
    {
        Ok(keys) => column(py, &keys, |key| key.get()).map(Some),
        Err(left) => {
            Err(left
                .raise(py, "insert_batch", |done, with| with.set_item("partial", column(py, &done, |key| key.get())?)))
        }
    }
}

/// Inserts more rows than one request over a network may have: one request after another.
fn in_parts<'py>(
    client: &Handle,
    py: Python<'py>,
    replay: &Reached<'_>,
    (table, rows, size_bytes): (&str, Inserts, usize),
    deadline: Deadline,
    waits: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (start, mut keys, parts) = (Instant::now(), Keys::new(), rows.len().div_ceil(replay.max_items()));
    let mut rows = rows.into_iter();
    for _ in 0..parts {
        let part: Inserts = rows.by_ref().take(replay.max_items()).collect();
        let count = part.len();
        let ticket = detached(py, || replay.insert(table, part))?;
        if !waits {
            client.alone(py)?.inserts.leave(py, ticket, table, (size_bytes / parts) as u64)?;
            continue;
        }
        let before = || column(py, &keys, |key| key.get());
        let ended = finish(py, ticket, deadline.after(start.elapsed()), || why(&**replay, table));
        let ended = ended.map_err(|error| with_means(py, replay, error, before))?;
        match ended.or_else(|left| left.unless_whole(|keys| keys.len() == count)) {
            Ok(more) => keys.extend(more),
            Err(mut left) => {
                keys.extend(std::mem::take(&mut left.done));
                left.done = keys;
                return Err(left.raise(py, "insert_batch", |done, with| {
                    with.set_item("partial", column(py, &done, |key| key.get())?)
                }));
            }
        }
    }
    if waits { column(py, &keys, |key| key.get()).map(Some) } else { Ok(None) }
}

fn make_room(client: &Handle, py: Python<'_>, replay: &Reached<'_>, timeout: Option<f64>) -> PyResult<()> {
    let alone = client.alone(py)?;
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

/// `Client.flush`.
pub fn flush(client: &Handle, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
    let (deadline, replay) = (client.deadline(timeout)?, &client.reach().replay(py)?);
    let alone = client.alone(py)?;
    alone.flush(py, deadline, |table| why(&**replay, table))
}
