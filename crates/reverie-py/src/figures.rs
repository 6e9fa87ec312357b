//! Figures of a client's tables and of its connection.

use crate::client::Client;
use crate::enter::{Deadline, quick};
use crate::errors::raise;
use crate::options::options_dict;
use crate::reach::{Way, answer};
use crate::remote::{self, link_dict};
use crate::server::{info_dict, why_dict};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::Error;

/// `Client._info`.
pub fn info<'py>(client: &Client, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
    let (dict, deadline) = (PyDict::new(py), client.deadline(timeout)?);
    let (bytes, memory) = match client.reach().way(py)? {
        Way::Here(tables) => {
            for table in tables.iter() {
                dict.set_item(table.name(), info_dict(py, &quick(py, || Ok(table.info()))?)?)?;
            }
            let (meter, max_bytes) = tables.bytes();
            ((meter.live_bytes(), max_bytes), (0, None, None))
        }
        Way::There(far) => {
            let info = answer(py, "info", &*far.remote, far.remote.info(), deadline)?;
            let info = info.ok_or_else(|| raise(py, Error::Protocol("a server without figures".to_owned())))?;
            for table in &info.tables {
                let figures = info_dict(py, table)?;
                figures.set_item("options", options_dict(py, &table.options)?)?;
                dict.set_item(&table.options.name, figures)?;
            }
            let raw = &info.raw;
            let link = link_dict(py, &far.remote.link())?;
            link.set_item("max_connections", raw.max_connections)?;
            dict.set_item("link", link)?;
            ((raw.live_bytes, raw.max_bytes), (raw.network_bytes, raw.max_network_bytes, raw.max_memory))
        }
    };
    let alone = client.alone(py)?;
    dict.set_item("memory", memory)?;
    dict.set_item("", (bytes.0, bytes.1, alone.inserts.errors(py)? + alone.updates.errors(py)?))?;
    Ok(dict)
}

/// `Client._why`.
pub fn why<'py>(client: &Client, py: Python<'py>, table: &str, deadline: Deadline) -> PyResult<Bound<'py, PyDict>> {
    match client.reach().way(py)? {
        Way::Here(tables) => why_dict(py, &quick(py, || Ok(tables.get(table)?.why()))?),
        Way::There(far) => remote::why_dict(py, &answer(py, "why", &*far.remote, far.remote.why(table), deadline)?),
    }
}

/// `Client.checkpoint` of a server behind a network.
pub fn checkpoint(client: &Client, py: Python<'_>, deadline: Deadline) -> PyResult<String> {
    match client.reach().way(py)? {
        Way::Here(_) => Err(raise(py, Error::InvalidArgument("the server is in this process".to_owned()))),
        Way::There(far) => answer(py, "checkpoint", &*far.remote, far.remote.checkpoint(), deadline),
    }
}
