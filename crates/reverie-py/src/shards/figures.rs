//! The figures of a shard, for Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::table::Tally;

/// The figures of one shard.
pub(super) fn shard_dict<'py>(py: Python<'py>, present: bool, tally: Option<&Tally>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let tally = tally.copied().unwrap_or_default();
    dict.set_item("present", present)?;
    dict.set_item("shard", tally.shard)?;
    dict.set_item("size", tally.size)?;
    dict.set_item("mass", tally.mass.total)?;
    dict.set_item("num_inserts", tally.counters.inserts)?;
    dict.set_item("num_samples", tally.counters.samples)?;
    dict.set_item("ration", tally.ration)?;
    dict.set_item("waiting_inserts", tally.waiting_inserts)?;
    Ok(dict)
}
