//! Data that arrives from a server over a network, for Python.

use crate::array::Lent;
use crate::enter::Deadline;
use crate::errors::raise;
use crate::nest::Unflattener;
use crate::options::options_dict;
use crate::reach::Connection;
use crate::sampler::{Reading, assemble, made};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use reverie_core::Error;
use reverie_core::sample::{SampleRequest as Request, Windows};
use reverie_core::spec::DType;
use reverie_net::client::{Link, RemoteBatch, SampleRequest, Sampled};
use reverie_net::proto;
use std::sync::{Arc, Mutex};

/// A request for draws from one table.
pub fn request(table: &str, reading: &Reading, request: &Request) -> SampleRequest {
    let Request { num_samples, without_replacement, windows, .. } = *request;
    let parts = vec![(table.to_owned(), num_samples)];
    SampleRequest { parts, ..form(reading, without_replacement, windows) }
}

/// The read options, as a request without tables.
pub fn form(reading: &Reading, without_replacement: bool, windows: Option<Windows>) -> SampleRequest {
    let (columns, ragged) = (reading.columns.clone(), reading.ragged);
    SampleRequest { parts: Vec::new(), columns, ragged, without_replacement, windows, at_once: false, only_now: false }
}

/// Makes batches of data that arrived.
#[derive(Default)]
pub struct Wrapper(Mutex<Unflattener>);

impl Wrapper {
    /// The `reverie.Batch`: its arrays, including those of the info, are views of the memory in which it arrived.
    pub fn batch<'py>(&self, py: Python<'py>, batch: &RemoteBatch) -> PyResult<Bound<'py, PyAny>> {
        let lent = Lent::new(py, Arc::clone(&batch.block))?;
        let mut arrays = Vec::with_capacity(batch.head.outputs.len());
        for (output, bytes) in batch.head.outputs.iter().zip(&batch.layout.outputs) {
            arrays.push(lent.array(output.dtype, output.itemsize, &output.shape, bytes.clone())?);
        }
        // Another thread may be inside, as building a structure may run Python code: then use a new unflattener.
        let (mut kept, mut fresh) = (self.0.try_lock(), Unflattener::default());
        let unflattener = kept.as_deref_mut().unwrap_or(&mut fresh);
        let head = &batch.head;
        let parts = assemble(py, unflattener, &head.structure, head.num_columns, &head.outputs, arrays.into_iter())?;
        drop(kept);
        made(infos(py, &lent, batch)?, parts, batch.smallest_probability)
    }

    /// The `reverie.BatchInfo` of a batch without arrays.
    pub fn info<'py>(&self, py: Python<'py>, batch: &RemoteBatch) -> PyResult<Bound<'py, PyAny>> {
        infos(py, &Lent::new(py, Arc::clone(&batch.block))?, batch)
    }

    /// All batches.
    pub fn batches<'py>(&self, py: Python<'py>, batches: &[RemoteBatch]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        batches.iter().map(|batch| self.batch(py, batch)).collect()
    }

    /// The one requested batch, or the error with the draws that were made.
    /// They are in `partial` for a deadline, and in `drawn` for draws that cannot be one batch.
    pub fn whole<'py>(&self, py: Python<'py>, what: &str, sampled: Sampled) -> PyResult<Bound<'py, PyAny>> {
        let Sampled { batches, error } = sampled;
        let Some(error) = error else {
            let batch =
                batches.first().ok_or_else(|| raise(py, Error::Protocol("an answer without a batch".into())))?;
            return self.batch(py, batch);
        };
        Err(self.failed(py, what, &batches, error)?)
    }

    /// Adds what arrived of a request that ended early: `partial`, or `drawn` if it is more than one batch.
    pub fn partial(&self, py: Python<'_>, batches: &[RemoteBatch], with: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut drawn = self.batches(py, batches)?;
        if drawn.len() > 1 {
            return with.set_item("drawn", drawn);
        }
        with.set_item("partial", drawn.pop())
    }

    /// The exception for an error, with the draws that were made before it.
    pub fn failed(&self, py: Python<'_>, what: &str, batches: &[RemoteBatch], error: Error) -> PyResult<PyErr> {
        let mut drawn = self.batches(py, batches)?;
        if let Error::Deadline(why) = error {
            let late = crate::enter::late(py, what, &why, |with| match drawn.len() {
                0 | 1 => with.set_item("partial", drawn.pop()),
                _ => Ok(()),
            });
            if !drawn.is_empty() {
                late.value(py).setattr("drawn", drawn)?;
            }
            return Ok(late);
        }
        let raised = raise(py, error);
        if !drawn.is_empty() {
            raised.value(py).setattr("drawn", drawn)?;
        }
        Ok(raised)
    }
}

/// The `reverie.BatchInfo` of a batch: views of the memory in which it arrived.
fn infos<'py>(py: Python<'py>, lent: &Lent<'py>, batch: &RemoteBatch) -> PyResult<Bound<'py, PyAny>> {
    const INFO: [DType; 7] = {
        use DType::{Float64, Int64};
        [Int64, Float64, Float64, Int64, Int64, Int64, Float64]
    };
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let mut info = Vec::with_capacity(INFO.len());
    for (dtype, bytes) in INFO.into_iter().zip(&batch.layout.info) {
        info.push(lent.array(dtype, 8, &[batch.num_draws], bytes.clone())?);
    }
    let [key, probability, priority, table_size, times_sampled, version, inserted_at] =
        <[_; 7]>::try_from(info).expect("seven arrays were made");
    CLASS.import(py, "reverie.types", "BatchInfo")?.call1((
        key,
        probability,
        priority,
        table_size,
        times_sampled,
        version,
        inserted_at,
    ))
}

/// The tables of a server, as dicts; `reverie.client` makes `Table`s of them.
pub fn tables<'py>(py: Python<'py>, connection: &Connection, deadline: Deadline) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let described = connection.described(py, deadline)?;
    described.tables.iter().map(|options| options_dict(py, options)).collect()
}

/// The state of the connection, as a dict.
pub fn link_dict<'py>(py: Python<'py>, link: &Link) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("transport", link.transport)?;
    dict.set_item("reason", &link.reason)?;
    dict.set_item("connected", link.connected)?;
    dict.set_item("reconnects", link.reconnects)?;
    dict.set_item("server_restarts", link.server_restarts)?;
    dict.set_item("bytes_sent", link.bytes_sent)?;
    dict.set_item("bytes_received", link.bytes_received)?;
    Ok(dict)
}

/// The requests that wait at a table, as a dict; `reverie.client` makes a Why of it.
pub fn why_dict<'py>(py: Python<'py>, why: &proto::Why) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let waiting = |queue: &[proto::Waiting]| -> Vec<(f64, u64, u64)> {
        queue.iter().map(|waiting| (waiting.since, waiting.wanted, waiting.done)).collect()
    };
    let reason = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    dict.set_item("table", &why.table)?;
    dict.set_item("size", why.size)?;
    dict.set_item("max_size", why.max_size)?;
    dict.set_item("num_inserts", why.inserts)?;
    dict.set_item("num_samples", why.samples)?;
    dict.set_item("num_deletes", why.deletes)?;
    dict.set_item("num_leased", why.leased)?;
    dict.set_item("inserts", waiting(&why.waiting_inserts))?;
    dict.set_item("samples", waiting(&why.waiting_samples))?;
    dict.set_item("insert_reason", reason(&why.insert_reason))?;
    dict.set_item("sample_reason", reason(&why.sample_reason))?;
    dict.set_item("stuck", why.stuck)?;
    dict.set_item("text", &why.text)?;
    Ok(dict)
}
