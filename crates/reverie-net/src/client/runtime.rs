//! The one thread that moves the bytes of all clients of this process.

use reverie_core::{Error, Result};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle, Runtime};

struct OwnedRuntime {
    process: u32,
    runtime: Runtime,
}

/// The longest chain of forked processes in which each has clients of its own.
const FORKS: usize = 64;

/// The runtime of this process.
/// The parent's thread does not exist in a forked child: the child makes another runtime, and leaves the parent's
/// alone.
pub(crate) fn handle() -> Result<Handle> {
    static RUNTIMES: [OnceLock<OwnedRuntime>; FORKS] = [const { OnceLock::new() }; FORKS];
    let process = std::process::id();
    for place in &RUNTIMES {
        if place.get().is_none() {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("reverie-client").enable_all();
            let runtime = builder.build().map_err(|error| {
                Error::Unavailable(format!("the thread for the network cannot be started: {error}"))
            })?;
            if let Err(unused) = place.set(OwnedRuntime { process, runtime }) {
                unused.runtime.shutdown_background();
            }
        }
        if let Some(owned) = place.get().filter(|owned| owned.process == process) {
            return Ok(owned.runtime.handle().clone());
        }
    }
    Err(Error::Unavailable(format!("clients work in a chain of at most {FORKS} forks: start processes with spawn")))
}
