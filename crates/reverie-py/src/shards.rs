//! Several tables drawn from as one: requests to all shards at once, and one batch of what they give.

mod gather;
mod requests;

use crate::client::Client;
use crate::enter::{Deadline, quick};
use crate::sampler::{Batcher, Reading};
use crate::server::limiter;
use gather::Source;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use requests::{Asked, Outcome, Request};
use reverie_core::sample::{Shards as Model, Split};
use reverie_core::table::Tally;
use reverie_core::table::limiter::Limiter;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `reverie.ShardedClient` knows of the shards of one table. One thread at a time may make requests.
#[pyclass(frozen, module = "reverie._native")]
pub struct Shards {
    table: String,
    clients: Vec<Py<Client>>,
    /// Taken under the GIL for a decision, and never while it is let go.
    model: Mutex<Model>,
    batcher: Batcher,
}

/// Draws of one shard, and with which probability the shard was chosen; part of a batch.
#[pyclass(frozen, module = "reverie._native")]
pub struct ShardDraws {
    source: Mutex<Option<Source>>,
    len: usize,
    chance: f64,
    /// Items of all shards.
    size: u64,
    /// The smallest probability of any item of all shards.
    smallest: Option<f64>,
}

/// Shards that failed, and how.
type Failures = Vec<(usize, PyErr)>;

#[pymethods]
impl Shards {
    /// `rate_limiter` is that of all shards together; None leaves inserts alone, and waits for the first item.
    #[new]
    #[pyo3(signature = (clients, table, *, rate_limiter, seed))]
    fn new(
        py: Python<'_>,
        clients: Vec<Py<Client>>,
        table: String,
        rate_limiter: Option<&Bound<'_, PyAny>>,
        seed: u64,
    ) -> PyResult<Self> {
        let limiter = match rate_limiter {
            Some(options) => limiter(options)?,
            None => quick(py, || Limiter::min_size(1))?,
        };
        let model = Mutex::new(Model::new(clients.len(), limiter, seed));
        Ok(Self { table, clients, model, batcher: Batcher::default() })
    }

    /// Asks shards what they hold. Those that fail are not counted as lost: the caller decides.
    #[pyo3(signature = (shards, timeout))]
    fn ask(&self, py: Python<'_>, shards: Vec<usize>, timeout: Option<f64>) -> PyResult<Failures> {
        let requests = shards.into_iter().map(|shard| (shard, Request::Tally(None))).collect();
        Ok(self.request(py, requests, None, timeout)?.1)
    }

    /// Hands out rations, and hears what the shards hold. `wants`: inserts about to come, one number per shard.
    #[pyo3(signature = (wants, timeout))]
    fn exchange(&self, py: Python<'_>, wants: Vec<u64>, timeout: Option<f64>) -> PyResult<Failures> {
        let requests = {
            let mut model = self.model();
            let rations = model.rations(&wants);
            let present = rations.into_iter().enumerate().filter(|(shard, _)| model.is_present(*shard));
            present.map(|(shard, grant)| (shard, Request::Tally(grant))).collect()
        };
        Ok(self.request(py, requests, None, timeout)?.1)
    }

    /// Hands out rations to those for whom there are new ones, and waits for no answer: the next draws bring it.
    fn hand_out(&self, py: Python<'_>) -> PyResult<Failures> {
        let rations = {
            let mut model = self.model();
            let wants = vec![0; model.len()];
            model.rations(&wants)
        };
        let mut failures = Failures::new();
        for (shard, grant) in rations.into_iter().enumerate().filter(|(_, grant)| grant.is_some()) {
            match Asked::make(py, self.clients[shard].get(), &self.table, Request::Tally(grant), None, None) {
                Ok(asked) => {
                    if let Some(tally) = asked.let_go() {
                        self.model().heard(shard, tally);
                    }
                }
                Err(error) => failures.push((shard, error)),
            }
        }
        Ok(failures)
    }

    /// Makes draws, none of which waits for a table: fewer where a shard fails or lost its items.
    #[pyo3(signature = (num_draws, *, timeout, columns, ragged))]
    fn draw(
        &self,
        py: Python<'_>,
        num_draws: u64,
        timeout: Option<f64>,
        columns: Option<Vec<String>>,
        ragged: Option<&str>,
    ) -> PyResult<(Vec<ShardDraws>, Failures)> {
        let reading = Reading::new(columns, ragged)?;
        let Some(Split { counts, mut chances }) = self.model().split(num_draws) else {
            return Ok((Vec::new(), Failures::new()));
        };
        let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let requests = some.map(|(shard, count)| (shard, Request::Draws(*count as usize))).collect();
        let (drawn, failures) = self.request(py, requests, Some(&reading), timeout)?;
        // A draw that met a shard which gives none is made again: so the others were chosen among themselves.
        for (shard, chance) in chances.iter_mut().enumerate() {
            let gave = drawn.iter().any(|(of, source)| *of == shard && source.len() > 0);
            if failures.iter().any(|(failed, _)| *failed == shard) || (counts[shard] > 0 && !gave) {
                *chance = 0.0;
            }
        }
        let left: f64 = chances.iter().sum();
        chances.iter_mut().for_each(|chance| *chance /= left);
        let model = self.model();
        let (size, smallest) = (model.size(), model.smallest_probability(&chances));
        let drawn = drawn.into_iter().filter(|(_, source)| source.len() > 0).map(|(shard, source)| {
            let (len, chance) = (source.len(), chances[shard]);
            ShardDraws { source: Mutex::new(Some(source)), len, chance, size, smallest }
        });
        Ok((drawn.collect(), failures))
    }

    /// One batch of draws, shard by shard; it takes them.
    #[pyo3(signature = (drawn, *, columns, ragged))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        drawn: Vec<Bound<'py, ShardDraws>>,
        columns: Option<Vec<String>>,
        ragged: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        gather::whole(py, &self.batcher, &drawn, &Reading::new(columns, ragged)?)
    }

    /// How many of so many draws may be made now.
    fn allowed(&self, num_draws: u64) -> u64 {
        self.model().allowed(num_draws)
    }

    /// Inserts that may come in now, over all shards; None: no end.
    fn inserts_left(&self) -> Option<u64> {
        self.model().inserts_left()
    }

    /// The shard cannot be reached.
    fn lost(&self, shard: usize) {
        self.model().lost(shard);
    }

    /// True while the shard can be reached.
    fn is_present(&self, shard: usize) -> bool {
        self.model().is_present(shard)
    }

    /// Counts anew, after all tables were reset.
    fn reset(&self) {
        self.model().reset();
    }

    /// What is known of all shards together, and of each.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = self.model();
        let (dict, counters) = (PyDict::new(py), model.counters());
        dict.set_item("num_inserts", counters.inserts)?;
        dict.set_item("num_samples", counters.samples)?;
        dict.set_item("num_deletes", counters.deletes)?;
        dict.set_item("size", model.size())?;
        dict.set_item("sample_reason", model.blocked_sample().map(|block| block.to_string()))?;
        dict.set_item("insert_reason", model.limiter().blocked_insert(&counters).map(|block| block.to_string()))?;
        let chances = model.chances().unwrap_or_else(|| vec![0.0; model.len()]);
        let shards = (0..model.len()).map(|shard| shard_dict(py, model.is_present(shard), model.tally(shard)));
        let shards = shards.collect::<PyResult<Vec<_>>>()?;
        for (shard, chance) in shards.iter().zip(chances) {
            shard.set_item("chance", chance)?;
        }
        dict.set_item("shards", shards)?;
        Ok(dict)
    }
}

#[pymethods]
impl ShardDraws {
    fn __len__(&self) -> usize {
        self.len
    }
}

impl Shards {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all requests, then waits for each; what the shards hold is heard.
    fn request(
        &self,
        py: Python<'_>,
        requests: Vec<(usize, Request)>,
        reading: Option<&Reading>,
        timeout: Option<f64>,
    ) -> PyResult<(Vec<(usize, Source)>, Failures)> {
        let deadline = Deadline::from_timeout(timeout)?;
        let (mut waiting, mut drawn, mut failures) = (Vec::new(), Vec::new(), Failures::new());
        for (shard, request) in requests {
            match Asked::make(py, self.clients[shard].get(), &self.table, request, reading, deadline.limit()) {
                Ok(asked) => waiting.push((shard, asked)),
                Err(error) => failures.push((shard, error)),
            }
        }
        for (shard, asked) in waiting {
            let Outcome { source, tally, error } = asked.wait(py, self.clients[shard].get(), deadline)?;
            if let Some(tally) = tally {
                self.model().heard(shard, tally);
            }
            drawn.extend(source.map(|source| (shard, source)));
            failures.extend(error.map(|error| (shard, error)));
        }
        Ok((drawn, failures))
    }
}

fn shard_dict<'py>(py: Python<'py>, present: bool, tally: Option<&Tally>) -> PyResult<Bound<'py, PyDict>> {
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
