//! Several tables sampled as one: requests to all shards at once, and one batch of their draws.

mod asking;
mod bell;
mod figures;
mod gather;
mod requests;

use crate::batch::Batcher;
use crate::client::Client;
use crate::enter::{Deadline, Waited, quick, wait};
use crate::errors::raise;
use crate::reading::{Columns, Reading, WindowsArgument};
use crate::server::limiter;
use asking::plain;
use bell::Bells;
use figures::shard_dict;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use requests::{Asked, Request};
use reverie_core::sample::{Drawn, Kept, SampleRequest, Shards as Model, Split};
use reverie_core::table::limiter::Limiter;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest wait for news of shards before they are asked again, so that a silent one is noticed.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// The state of the shards of one table, for `reverie.ShardedClient`. One thread at a time may make requests.
#[pyclass(frozen, module = "reverie._native")]
pub struct Shards {
    table: String,
    clients: Vec<Py<Client>>,
    /// Locked under the GIL for a decision, and never held while the GIL is released.
    model: Mutex<Model>,
    batcher: Batcher,
    /// No shard is in this process.
    is_remote: bool,
    /// Wakes the threads that wait for news.
    bells: Bells,
    /// The start of this object's clock.
    began: Instant,
}

/// Draws of one shard, and the probability with which the shard was chosen; part of a batch.
#[pyclass(frozen, module = "reverie._native")]
pub struct ShardDraws {
    source: Mutex<Option<Drawn>>,
    /// How many of them are used, from the first.
    len: usize,
    chance: f64,
    /// The number of items of all shards.
    size: u64,
    /// The smallest probability of any item of all shards.
    smallest: Option<f64>,
}

/// Shards that failed, and their errors.
type Failures = Vec<(usize, PyErr)>;

#[pymethods]
impl Shards {
    /// `rate_limiter` is that of all shards together; None never delays inserts, and waits for the first item.
    #[new]
    /// `among_others`: other clients draw by the same limiter.
    #[pyo3(signature = (clients, table, *, rate_limiter, seed, among_others=false))]
    fn new(
        py: Python<'_>,
        clients: Vec<Py<Client>>,
        table: String,
        rate_limiter: Option<&Bound<'_, PyAny>>,
        seed: u64,
        among_others: bool,
    ) -> PyResult<Self> {
        let limiter = match rate_limiter {
            Some(options) => limiter(options)?,
            None => quick(py, || Limiter::min_size(1))?,
        };
        let model = Model::new(clients.len(), limiter, seed);
        let model = Mutex::new(if among_others { model.among_others() } else { model });
        let mut is_remote = true;
        for client in &clients {
            is_remote &= client.get().handle().reach().replay(py)?.round_trip().is_some();
        }
        Ok(Self {
            table,
            clients,
            model,
            batcher: Batcher::default(),
            is_remote,
            bells: Bells::default(),
            began: Instant::now(),
        })
    }

    /// Asks shards for their tallies. Those that fail are not marked as lost: the caller decides.
    #[pyo3(signature = (shards, timeout))]
    fn ask(&self, py: Python<'_>, shards: Vec<usize>, timeout: Option<f64>) -> PyResult<Failures> {
        let requests = shards.into_iter().map(|shard| (shard, Request::Tally(None))).collect();
        Ok(self.request(py, requests, &Reading::default(), timeout)?.1)
    }

    /// Hands out rations, and updates the tallies of the shards. `wants`: inserts about to come, one number per shard.
    #[pyo3(signature = (wants, timeout))]
    fn exchange(&self, py: Python<'_>, wants: Vec<u64>, timeout: Option<f64>) -> PyResult<Failures> {
        let requests = {
            let mut model = self.model();
            let rations = model.rations(&wants);
            let present = rations.into_iter().enumerate().filter(|(shard, _)| model.is_present(*shard));
            present.map(|(shard, grant)| (shard, Request::Tally(grant))).collect()
        };
        Ok(self.request(py, requests, &Reading::default(), timeout)?.1)
    }

    /// Hands out new rations to the shards that have one, without waiting for answers: the next draws bring them.
    fn hand_out(&self, py: Python<'_>) -> PyResult<Failures> {
        let rations = {
            let mut model = self.model();
            let wants = vec![0; model.len()];
            model.rations(&wants)
        };
        let mut failures = Failures::new();
        for (shard, grant) in rations.into_iter().enumerate().filter(|(_, grant)| grant.is_some()) {
            match Asked::make(
                py,
                self.clients[shard].get().handle(),
                &self.table,
                Request::Tally(grant),
                &Reading::default(),
                None,
            ) {
                // An answer that is there already is not used either: a thread that then waits for news would miss it.
                Ok(asked) => drop(asked),
                Err(error) => failures.push((shard, error)),
            }
        }
        Ok(failures)
    }

    /// Makes draws, none of which waits for a table.
    /// There are fewer if a shard fails or lost its items, or if items are too short for a window.
    #[pyo3(signature = (num_draws, *, timeout, columns, ragged, windows=None))]
    fn draw(
        &self,
        py: Python<'_>,
        num_draws: u64,
        timeout: Option<f64>,
        columns: Option<Columns>,
        ragged: Option<&str>,
        windows: Option<WindowsArgument>,
    ) -> PyResult<(Vec<ShardDraws>, Failures)> {
        let (reading, windows) = (Reading::new(columns, ragged)?, windows.map(|windows| windows.0));
        let Some(Split { counts, mut chances }) = self.model().split(num_draws) else {
            return Ok((Vec::new(), Failures::new()));
        };
        let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let request = |count: u64| SampleRequest { windows, ..plain(count) };
        let requests = some.map(|(shard, count)| (shard, Request::Draws(request(*count)))).collect();
        let (drawn, failures) = self.request(py, requests, &reading, timeout)?;
        // A draw that met an empty or failed shard is repeated, so the others were chosen among themselves.
        for (shard, chance) in chances.iter_mut().enumerate() {
            let gave = drawn.iter().any(|(of, source)| *of == shard && !source.is_empty());
            // A shard that gives no window may still have items.
            let empty = counts[shard] > 0 && !gave && windows.is_none();
            if failures.iter().any(|(failed, _)| *failed == shard) || empty {
                *chance = 0.0;
            }
        }
        let left: f64 = chances.iter().sum();
        chances.iter_mut().for_each(|chance| *chance /= left);
        let drawn = drawn.into_iter().map(|(shard, source)| (shard, source.len(), source)).collect();
        Ok((self.made(drawn, &chances), failures))
    }

    /// As `draw`, spread by the last known tallies, in one round trip for nearly all draws.
    /// If masses have changed since, some of the draws are repeated, so that all are spread by the current masses. None
    /// if the shards must be asked first. Not for tables whose draws depend on each other.
    #[pyo3(signature = (num_draws, *, timeout, columns))]
    fn guess(
        &self,
        py: Python<'_>,
        num_draws: u64,
        timeout: Option<f64>,
        columns: Option<Columns>,
    ) -> PyResult<Option<(Vec<ShardDraws>, Failures)>> {
        let reading = Reading::new(columns, None)?;
        let Some(split) = self.known(num_draws) else { return Ok(None) };
        let request = |count: u64| if count > 0 { Request::Draws(plain(count)) } else { Request::Tally(None) };
        let present: Vec<usize> = (0..split.counts.len()).filter(|shard| self.is_present(*shard)).collect();
        let requests = present.iter().map(|shard| (*shard, request(split.counts[*shard]))).collect();
        let (mut drawn, failures) = self.request(py, requests, &reading, timeout)?;
        let gave =
            |shard: usize| drawn.iter().find(|(of, _)| *of == shard).map_or(0, |(_, source)| source.len() as u64);
        let wanting = present.iter().any(|shard| gave(*shard) < split.counts[*shard]);
        let kept = if failures.is_empty() && !wanting { self.model().keep(&split) } else { None };
        let Some(Kept { mut counts, again, chances }) = kept else {
            // A shard is gone, or empty by now: drop the draws; the caller draws again from the shards that are left.
            drawn.iter().for_each(|(shard, source)| self.model().discard(*shard, source.len() as u64));
            return Ok(Some((Vec::new(), failures)));
        };
        for (shard, source) in &drawn {
            self.model().discard(*shard, source.len() as u64 - counts[*shard]);
        }
        let some = again.iter().enumerate().filter(|(_, count)| **count > 0);
        let requests = some.map(|(shard, count)| (shard, Request::Draws(plain(*count)))).collect();
        let (more, failures) = self.request(py, requests, &reading, timeout)?;
        let first = drawn.drain(..).map(|(shard, source)| (shard, std::mem::take(&mut counts[shard]) as usize, source));
        let all = first.chain(more.into_iter().map(|(shard, source)| (shard, source.len(), source))).collect();
        Ok(Some((self.made(all, &chances), failures)))
    }

    /// Draws without replacement, as from one table: all of them, or none if items are too few or a shard fails.
    /// Each shard draws as many as it may be asked for, and the draws that come first over all shards are used.
    #[pyo3(signature = (num_draws, *, timeout, columns, ragged))]
    fn draw_distinct(
        &self,
        py: Python<'_>,
        num_draws: u64,
        timeout: Option<f64>,
        columns: Option<Columns>,
        ragged: Option<&str>,
    ) -> PyResult<(Vec<ShardDraws>, Failures)> {
        let reading = Reading::new(columns, ragged)?;
        let requests = {
            let model = self.model();
            if model.size() < num_draws {
                return Ok((Vec::new(), Failures::new()));
            }
            let sizes = (0..model.len()).filter(|shard| model.is_present(*shard)).filter_map(|shard| {
                let most = model.tally(shard)?.size.min(num_draws);
                let request = SampleRequest { without_replacement: true, ..plain(most) };
                (most > 0).then_some((shard, Request::Draws(request)))
            });
            sizes.collect()
        };
        let (drawn, failures) = self.request(py, requests, &reading, timeout)?;
        let mut offered = vec![Vec::new(); self.clients.len()];
        drawn.iter().for_each(|(shard, source)| offered[*shard] = gather::probabilities(source));
        let raced = if failures.is_empty() { self.model().race(&offered, num_draws) } else { None };
        let (counts, chances) = match raced {
            Some(Split { counts, chances }) => (counts, chances),
            None => (vec![0; offered.len()], vec![0.0; offered.len()]),
        };
        for (shard, source) in &drawn {
            self.model().discard(*shard, source.len() as u64 - counts[*shard]);
        }
        let drawn = drawn.into_iter().map(|(shard, source)| (shard, counts[shard] as usize, source)).collect();
        Ok((self.made(drawn, &chances), failures))
    }

    /// The number of draws and the chance of each shard, and the number of items; None if there are no items.
    fn split(&self, num_draws: u64) -> Option<(Vec<u64>, Vec<f64>, u64)> {
        let mut model = self.model();
        let Split { counts, chances } = model.split(num_draws)?;
        Some((counts, chances, model.size()))
    }

    /// A number that changes whenever `ring` is called.
    fn rung(&self) -> u64 {
        self.bells.rung()
    }

    /// Ends all waits for news.
    fn ring(&self) {
        self.bells.ring();
    }

    /// Waits until a reachable shard has changed since its last tally, so that a draw might succeed.
    /// The wait also ends if `ring` was called since `rung` was read, or after `timeout` seconds, ten at most. Returns
    /// the shards that failed.
    #[pyo3(signature = (rung, timeout))]
    fn look(&self, py: Python<'_>, rung: u64, timeout: Option<f64>) -> PyResult<Failures> {
        let limit = Deadline::from_timeout(timeout)?.limit().map_or(LONGEST_LOOK, |limit| limit.min(LONGEST_LOOK));
        let seen: Vec<_> = {
            let model = self.model();
            let more = model.patience();
            let present = (0..model.len()).filter(|shard| model.is_present(*shard));
            present.filter_map(|shard| Some((shard, model.tally(shard)?.seen(more)))).collect()
        };
        let (mut looks, mut failures) = (Vec::new(), Failures::new());
        for (shard, seen) in seen {
            match requests::look(py, self.clients[shard].get().handle(), &self.table, seen, limit) {
                Ok(ticket) => looks.push((shard, ticket)),
                Err(error) => failures.push((shard, error)),
            }
        }
        if failures.is_empty()
            && let Some(bell) = self.bells.hang(rung)
        {
            let (waker, mut first) = (bell.clone().into(), true);
            let _: Waited<()> = wait(
                py,
                Deadline::from_timeout(Some(limit.as_secs_f64()))?,
                |slice| {
                    let done = looks.iter().any(|(_, ticket)| ticket.is_done_or_wakes(&waker));
                    if done || (!std::mem::take(&mut first) && bell.has_rung(slice)) { Some(Ok(())) } else { None }
                },
                String::new,
            )?;
        }
        for (shard, mut ticket) in looks {
            // The caller asks these shards again and leaves out concurrent draws, so that no older state is stored.
            if let Some(Err(error)) = ticket.poll() {
                failures.push((shard, raise(py, error)));
            }
        }
        Ok(failures)
    }

    /// Sets another limiter of all shards; the counts go on.
    fn limit(&self, rate_limiter: &Bound<'_, PyAny>) -> PyResult<()> {
        self.model().set_limiter(limiter(rate_limiter)?);
        Ok(())
    }

    /// One batch of draws, shard by shard. The draws are taken.
    #[pyo3(signature = (drawn, *, columns, ragged))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        drawn: Vec<Bound<'py, ShardDraws>>,
        columns: Option<Columns>,
        ragged: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        gather::whole(py, &self.batcher, &drawn, &Reading::new(columns, ragged)?)
    }

    /// How many of `num_draws` draws may be made now.
    fn allowed(&self, num_draws: u64) -> u64 {
        self.model().allowed(num_draws)
    }

    /// How many inserts all shards may admit now; None for no limit.
    fn inserts_left(&self) -> Option<u64> {
        self.model().inserts_left()
    }

    /// Marks a shard as unreachable.
    fn lost(&self, shard: usize) {
        self.model().lost(shard);
    }

    /// True while the shard is reachable.
    fn is_present(&self, shard: usize) -> bool {
        self.model().is_present(shard)
    }

    /// Resets the counts, after all tables were reset.
    fn reset(&self) {
        self.model().reset();
    }

    /// The figures of all shards together, and of each.
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
        for (index, (shard, chance)) in shards.iter().zip(chances).enumerate() {
            shard.set_item("chance", chance)?;
            shard.set_item("discarded", model.discarded(index))?;
            shard.set_item("clock_ahead", model.clock_ahead(index))?;
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
