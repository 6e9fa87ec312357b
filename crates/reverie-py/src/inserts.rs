//! Inserting rows.

use crate::array::column;
use crate::client::Client;
use crate::enter::{copying, finish, late};
use crate::reach::Way;
use crate::rows::Priorities;
use pyo3::prelude::*;
use reverie_core::table::{Inserts, Priority};

/// `Client.insert_batch`.
pub fn batch<'py>(
    client: &Client,
    py: Python<'py>,
    table: &str,
    (data, priorities): (&Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
    timeout: Option<f64>,
    waits: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let deadline = client.deadline(timeout)?;
    let way = client.reach().known(py, deadline)?;
    if !waits {
        make_room(client, py, &way, timeout)?;
    }
    let sink = way.sink();
    let rows = client.rows(py, &way, table, true)?;
    let (items, count, size_bytes) = rows.append(py, data)?;
    let inserts: Inserts = match Priorities::read(priorities, count)? {
        Priorities::Same(priority) => items.into_iter().map(|item| (item, priority)).collect(),
        Priorities::Each(values) => {
            let values = values.as_slice().iter().map(|value| Priority::Value(*value));
            items.into_iter().zip(values).collect()
        }
    };
    let ticket = copying(py, count << 8, || sink.insert(table, inserts))?;
    if !waits {
        client.alone(py)?.inserts.leave(ticket, table, size_bytes as u64);
        return Ok(None);
    }
    match finish(py, ticket, deadline, || way.reasons().why(table))? {
        Ok(keys) => column(py, &keys, |key| key.get()).map(Some),
        Err(left) => Err(late(py, "insert_batch", &left.why, |with| {
            with.set_item("partial", column(py, &left.done, |key| key.get())?)
        })),
    }
}

fn make_room(client: &Client, py: Python<'_>, way: &Way<'_>, timeout: Option<f64>) -> PyResult<()> {
    let (alone, reasons) = (client.alone(py)?, way.reasons());
    match alone.inserts.make_room(py, client.deadline(timeout)?, |table| reasons.why(table))? {
        true => Ok(()),
        false => {
            let why = alone.inserts.waits_for().map_or_else(String::new, |table| reasons.why(&table));
            let why = format!("earlier ones with wait=False are not answered, and nothing was inserted; {why}");
            Err(late(py, "insert_batch", &why, |with| with.set_item("partial", column(py, &[], |key: &i64| *key)?)))
        }
    }
}

/// `Client.flush`.
pub fn flush(client: &Client, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
    let (deadline, way) = (client.deadline(timeout)?, client.reach().way(py)?);
    let (alone, reasons) = (client.alone(py)?, way.reasons());
    for kind in [&alone.inserts, &alone.updates] {
        if !kind.flush(py, deadline, |table| reasons.why(table))? {
            let why = kind.waits_for().map_or_else(String::new, |table| reasons.why(&table));
            return Err(late(py, "flush", &why, |_| Ok(())));
        }
    }
    Ok(())
}
