//! A client of several servers: how it is made of their clients, and the server that a call goes to.

use super::Client;
use crate::array::Slab;
use crate::count::Count;
use crate::enter::Deadline;
use crate::handle::Handle;
use crate::reach::Several;
use crate::server::limiter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_net::sharded::{Options, Shard};
use std::time::Instant;

/// Clients of several servers, the servers' names, the limits over all of them, `among`, and the seed.
pub(super) type ShardsArgument<'py> = (Vec<Py<Client>>, Vec<String>, Option<Bound<'py, PyAny>>, (usize, usize), u64);

/// A server of several, as `insert` and writers choose it: the given one, for rows that go into tables.
pub(super) type Wanted<'a> = (Option<Count>, &'a [&'a str], u64);

impl Client {
    /// Of the clients of each server.
    pub(super) fn several(py: Python<'_>, shards: ShardsArgument<'_>, timeout: Option<f64>) -> PyResult<Several> {
        let (clients, names, limits, among, seed) = shards;
        if clients.iter().any(|client| !client.get().shards.is_empty()) {
            return Err(PyValueError::new_err(
                "a client of several servers cannot be one of several: give its addresses",
            ));
        }
        let limiter = limits.map(|limits| limiter(&limits)).transpose()?;
        let options = Options { limiter, among, seed, allocate: Slab::memory };
        let reach = move |py: Python<'_>| {
            let shard = |(client, address): (&Py<Client>, &String)| {
                Ok(Shard { replay: client.get().handle.reach().replay(py)?.shared(), address: address.clone() })
            };
            clients.iter().zip(&names).map(shard).collect()
        };
        Several::new(py, Box::new(reach), options, Deadline::from_timeout(timeout)?)
    }

    /// Calls this client, or that of the chosen server of several, with a timeout. Takes note of a failure there.
    pub(super) fn at<T>(
        &self,
        py: Python<'_>,
        wanted: Wanted<'_>,
        timeout: Option<f64>,
        call: impl FnOnce(&Handle, Option<f64>) -> PyResult<T>,
    ) -> PyResult<T> {
        let Some(several) = self.handle.reach().several() else {
            self.place(py, wanted, timeout)?;
            return call(&self.handle, timeout);
        };
        let (deadline, since) = (self.handle.deadline(timeout)?, Instant::now());
        let chosen = self.place(py, wanted, timeout)?;
        let client = self.shards[chosen].get();
        // The call has the time that the choice left. A timeout beyond a Duration is passed on as it is.
        let left = deadline.after(since.elapsed()).limit().map(|left| left.as_secs_f64());
        call(&client.handle, left.or(self.handle.timeout_or_default(timeout))).inspect_err(|error| {
            // The caller receives the error of its call.
            let _ = several.failed(py, chosen, error);
        })
    }

    /// The number of the chosen server.
    pub(super) fn place(
        &self,
        py: Python<'_>,
        (shard, tables, rows): Wanted<'_>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let shard = shard.map(|shard| shard.at_least("shard", 0)).transpose()?;
        match self.handle.reach().several() {
            Some(several) => several.place(py, shard, tables, rows, self.handle.deadline(timeout)?),
            None if shard.is_none_or(|shard| shard == 0) => Ok(0),
            None => Err(PyValueError::new_err(format!(
                "shard must be below 1, the number of shards, got {}",
                shard.unwrap_or_default()
            ))),
        }
    }
}
