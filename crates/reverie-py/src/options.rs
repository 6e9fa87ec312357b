//! A table's options, for Python.

use crate::array::descr;
use crate::nest::PyStructure;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reverie_core::spec::{DType, Signature};
use reverie_core::table::TableOptions;
use std::sync::Arc;

/// The options as a dict; `reverie.tables` makes a Table of it.
pub fn options_dict<'py>(py: Python<'py>, options: &TableOptions) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &options.name)?;
    dict.set_item("sampler", options.sampler.parts())?;
    dict.set_item("remover", options.remover.parts())?;
    dict.set_item("max_size", options.max_size)?;
    let limiter = &options.limiter;
    let (ratio, least) = (limiter.samples_per_insert(), limiter.min_size_to_sample());
    dict.set_item("rate_limiter", (ratio, least, limiter.min_diff(), limiter.max_diff()))?;
    dict.set_item("max_times_sampled", options.max_times_sampled)?;
    dict.set_item("max_bytes", options.max_bytes)?;
    dict.set_item("compression", options.compression.name())?;
    let signature = options.signature.as_ref().map(|signature| signature_parts(py, signature)).transpose()?;
    dict.set_item("signature", signature)?;
    let extensions = options.extensions.iter();
    let extensions = extensions.map(|of| (&of.target, of.timeout.map(|timeout| timeout.as_secs_f64())));
    dict.set_item("extensions", extensions.collect::<Vec<_>>())?;
    Ok(dict)
}

/// The structure, and for each column its path, dtype and shape.
fn signature_parts<'py>(py: Python<'py>, signature: &Signature) -> PyResult<Bound<'py, PyTuple>> {
    let columns = signature.columns.iter().map(|column| {
        let dtype = match column.dtype {
            // Any width.
            DType::Bytes | DType::Str => column.dtype.name().into_pyobject(py)?.into_any(),
            dtype => descr(py, dtype, 0)?,
        };
        Ok((&column.path, dtype, PyTuple::new(py, &column.shape)?))
    });
    let structure = PyStructure(Arc::new(signature.structure.clone()));
    (structure, columns.collect::<PyResult<Vec<_>>>()?).into_pyobject(py)
}
