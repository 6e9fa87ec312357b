//! The Python module `reverie._native`: argument parsing and one gate.

/// The docstring of a method in the stub: `#[doc = stub!("Class.method")]`.
macro_rules! stub {
    ($method:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/", $method))
    };
}

mod array;
mod batch;
mod batches;
mod checkpoint;
mod client;
mod column;
mod count;
mod drawing;
mod enter;
mod errors;
mod insert_outcome;
mod figures;
mod handle;
mod index;
mod info;
mod inserts;
mod intake;
mod interruptible;
mod log_bridge;
mod process_local;
mod nest;
mod notes;
mod options;
mod placing;
mod query;
mod replay_backend;
mod read_options;
mod rows;
mod sending;
mod server;
mod spans;
mod structured;
mod trajectory;
mod transition;
mod unawaited;
mod undelivered;
mod updates;

use pyo3::prelude::*;

/// The engine of Reverie; see `_native.pyi`.
// Short calls keep Python's lock and rely on it: a free-threaded interpreter turns it on at the import.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    array::load(module.py())?;
    process_local::register(module)?;
    log_bridge::gather();
    module.add_function(wrap_pyfunction!(enter::_entries, module)?)?;
    module.add_function(wrap_pyfunction!(enter::_panic, module)?)?;
    module.add_function(wrap_pyfunction!(log_bridge::_deliver_logs, module)?)?;
    module.add_function(wrap_pyfunction!(spans::_set_trace, module)?)?;
    module.add_function(wrap_pyfunction!(spans::_answered_trace, module)?)?;
    module.add_class::<nest::PyStructure>()?;
    module.add_function(wrap_pyfunction!(nest::flatten, module)?)?;
    module.add_function(wrap_pyfunction!(array::describe, module)?)?;
    module.add_class::<server::Server>()?;
    module.add_class::<checkpoint::CheckpointFolder>()?;
    module.add_class::<checkpoint::Checkpoints>()?;
    module.add_function(wrap_pyfunction!(checkpoint::latest_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::list_checkpoints, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::describe_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::verify_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::verify_journal, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::repair_checkpoint, module)?)?;
    module.add_class::<client::Client>()?;
    module.add_class::<info::DrawInfo>()?;
    module.add_class::<insert_outcome::InsertOutcome>()?;
    module.add_class::<batches::Prefetch>()?;
    module.add_class::<trajectory::TrajectoryWriter>()?;
    module.add_class::<column::HistoryColumn>()?;
    module.add_class::<column::TrajectoryColumn>()?;
    module.add_class::<transition::TransitionWriter>()?;
    module.add_class::<structured::StructuredWriter>()?;
    module.add_class::<structured::Patterns>()?;
    Ok(())
}
