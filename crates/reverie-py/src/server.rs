//! The tables of a server, made from `reverie.Table` options.

use crate::array::dtype_from;
use crate::count::Count;
use crate::enter::{detached, quick};
use crate::errors::signature;
use crate::nest::Nest;
use crate::process_local::ProcessLocal;
use crate::spans;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reverie_core::Error;
use reverie_core::checkpoint::{Disk, LocalFileSystem};
use reverie_core::chunk::{Compression, TierOptions};
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::journal::Saver;
use reverie_core::spec::{ColumnSignature, Signature};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, InsertOnSample, TableOptions, Tables};
use reverie_net::http;
use reverie_net::listen::Server as Listening;
use reverie_net::open_files::raise_for_files;
use reverie_net::server::{Limits, ServerOptions, ServerTls};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The tables of a server in this process.
#[pyclass(frozen, module = "reverie._native")]
pub struct Server {
    tables: ProcessLocal<Arc<Tables>>,
    clock: Arc<SystemClock>,
    listening: OnceLock<ProcessLocal<Listening>>,
    http: OnceLock<ProcessLocal<http::HttpServer>>,
    /// Takes checkpoints for as long as a client has the tables; set by `_native.Checkpoints`.
    pub saver: OnceLock<ProcessLocal<Arc<Saver>>>,
}

#[pymethods]
impl Server {
    /// `tables` are `reverie.Table`s; `disk` is the folder of the disk tier, with the bytes of memory and of its files;
    /// `seed` makes the keys of different servers differ.
    #[new]
    #[pyo3(signature = (tables, *, max_bytes, disk, seed, shard))]
    fn new(
        py: Python<'_>,
        tables: Vec<Bound<'_, PyAny>>,
        max_bytes: Option<u64>,
        disk: Option<(PathBuf, u64, Option<u64>)>,
        seed: u64,
        shard: u8,
    ) -> PyResult<Self> {
        let options = tables.iter().map(|table| table_options(table, shard)).collect::<PyResult<Vec<_>>>()?;
        let clock = Arc::new(SystemClock::new());
        let as_clock: Arc<dyn Clock> = clock.clone();
        let tier = disk.map(|(folder, memory_bytes, disk_bytes)| {
            let options = TierOptions { folder, memory_bytes, disk_bytes, ..TierOptions::default() };
            (options, Arc::new(LocalFileSystem) as Arc<dyn Disk>)
        });
        let tables = detached(py, || {
            if tier.is_some() {
                raise_for_files();
            }
            Tables::with_disk(options, max_bytes, tier, &as_clock, seed)
        })?;
        Ok(Self::of(tables, clock))
    }

    /// A server without tables, whose page shows runs of other processes.
    #[staticmethod]
    fn of_page(py: Python<'_>) -> PyResult<Self> {
        let clock = Arc::new(SystemClock::new());
        let as_clock: Arc<dyn Clock> = clock.clone();
        let tables = quick(py, || Tables::none(&as_clock))?;
        Ok(Self::of(tables, clock))
    }

    /// Serves clients of other processes, too; call it once.
    #[pyo3(signature = (host, port, *, token, identity, client_ca, insecure, local, grace, memory, max_connections, session_timeout, spans))]
    #[allow(clippy::too_many_arguments)]
    fn listen(
        &self,
        py: Python<'_>,
        host: &str,
        port: Count,
        token: Option<String>,
        identity: Option<(Vec<u8>, Vec<u8>)>,
        client_ca: Option<Vec<u8>>,
        insecure: bool,
        local: bool,
        grace: f64,
        memory: (u64, u64),
        max_connections: Count,
        session_timeout: f64,
        spans: bool,
    ) -> PyResult<()> {
        let tables = Arc::clone(self.tables.get(py)?);
        let port = port.within("port", 0, usize::from(u16::MAX))? as u16;
        let grace = Duration::try_from_secs_f64(grace)
            .map_err(|_| PyValueError::new_err(format!("grace must be at least 0 seconds, got {grace}")))?;
        let linger = Duration::try_from_secs_f64(session_timeout).map_err(|_| {
            PyValueError::new_err(format!("session_timeout must be at least 0 seconds, got {session_timeout}"))
        })?;
        let max_connections = max_connections.at_least("max_connections", 1)?;
        let tls = identity.map(|identity| ServerTls { identity, client_ca });
        let checkpoint = self.tables.get(py)?.checkpointer().cloned();
        let host = host.to_owned();
        let listening = detached(py, move || {
            let address = found_address(&host, port)?;
            let limits = Limits { max_connections, linger, ..Limits::within(memory.0, memory.1) };
            let options = ServerOptions { address, token, tls, insecure, local, grace, limits, checkpoint, spans };
            Listening::start(tables, options)
        })?;
        let set = self.listening.set(ProcessLocal::new(listening, "server"));
        set.map_err(|_| PyValueError::new_err("this server already listens"))
    }

    /// Serves metrics and a page over HTTP, too; call it once, after `listen`.
    #[pyo3(signature = (host, port, *, token, identity, client_ca, insecure))]
    #[allow(clippy::too_many_arguments)]
    fn listen_http(
        &self,
        py: Python<'_>,
        host: &str,
        port: Count,
        token: Option<String>,
        identity: Option<(Vec<u8>, Vec<u8>)>,
        client_ca: Option<Vec<u8>>,
        insecure: bool,
    ) -> PyResult<()> {
        let tables = Arc::clone(self.tables.get(py)?);
        let port = port.within("port", 0, usize::from(u16::MAX))? as u16;
        let tls = identity.map(|identity| ServerTls { identity, client_ca });
        let listening = self.listening.get().map(|listening| listening.get(py)).transpose()?;
        let host = host.to_owned();
        let shown = detached(py, move || {
            let options = http::HttpOptions { address: found_address(&host, port)?, token, tls, insecure };
            http::HttpServer::start(tables, listening, &options)
        })?;
        let set = self.http.set(ProcessLocal::new(shown, "server"));
        set.map_err(|_| PyValueError::new_err("this server already serves HTTP"))
    }

    /// Shows the figures of a training run, as JSON, over HTTP; does nothing without an HTTP port.
    fn publish(&self, py: Python<'_>, figures: &str) -> PyResult<()> {
        match self.http.get() {
            Some(http) => {
                let http = http.get(py)?;
                detached(py, || http.publish(figures))
            }
            None => Ok(()),
        }
    }

    /// Takes the spans of traced requests that are done, the oldest first.
    fn take_spans<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.listening.get().map_or(Ok(Vec::new()), |listening| spans::taken(py, listening.get(py)?))
    }

    /// Counts spans that were taken and could not be exported as dropped.
    fn drop_spans(&self, py: Python<'_>, spans: u64) -> PyResult<()> {
        if let Some(listening) = self.listening.get() {
            listening.get(py)?.spans().not_exported(spans);
        }
        Ok(())
    }

    /// The spans that were noted and dropped, and the requests whose trace was invalid; None if no spans are noted.
    #[getter]
    fn span_counts(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, u64)>> {
        let Some(listening) = self.listening.get() else { return Ok(None) };
        let counts = listening.get(py)?.spans().counts();
        Ok(counts.map(|counts| (counts.noted, counts.dropped, counts.invalid)))
    }

    /// The address of its HTTP port, `host:port`; None if it has none.
    #[getter]
    fn http_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.http.get().map(|shown| Ok(shown.get(py)?.address().to_string())).transpose()
    }

    /// The address it listens on, `host:port`; None if it does not listen.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.listening.get().map(|listening| Ok(listening.get(py)?.address().to_string())).transpose()
    }

    /// Notifies clients, ends every wait, and refuses later requests. Idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let tables = self.tables.get(py)?;
        let listening = self.listening.get().map(|listening| listening.get(py)).transpose()?;
        let http = self.http.get().map(|shown| shown.get(py)).transpose()?;
        detached(py, || {
            if let Some(listening) = listening {
                listening.stop();
            }
            tables.close();
            if let Some(http) = http {
                http.stop();
            }
            Ok(())
        })
    }
}

impl Server {
    fn of(tables: Tables, clock: Arc<SystemClock>) -> Self {
        Self {
            tables: ProcessLocal::new(Arc::new(tables), "server"),
            clock,
            listening: OnceLock::new(),
            http: OnceLock::new(),
            saver: OnceLock::new(),
        }
    }

    /// The tables.
    pub fn tables(&self, py: Python<'_>) -> PyResult<&Arc<Tables>> {
        self.tables.get(py)
    }

    /// The tables' clock.
    pub fn clock(&self) -> &Arc<SystemClock> {
        &self.clock
    }
}

/// The address of a host's name. `InvalidArgument` if it has none.
fn found_address(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let mut found = (host.trim_matches(['[', ']']), port).to_socket_addrs().ok().into_iter().flatten();
    found.next().ok_or_else(|| Error::InvalidArgument(format!("the host '{host}' has no address to listen on")))
}

fn table_options(table: &Bound<'_, PyAny>, shard: u8) -> PyResult<TableOptions> {
    let py = table.py();
    let (sampler, sampler_seed) = selector(&table.getattr("sampler")?)?;
    let (remover, remover_seed) = selector(&table.getattr("remover")?)?;
    let promised = table.getattr("signature")?;
    let max_times_sampled = table.getattr("max_times_sampled")?.extract::<Count>()?;
    let max_times_sampled = max_times_sampled.within("max_times_sampled", 0, u32::MAX as usize)?;
    Ok(TableOptions {
        name: table.getattr("name")?.extract()?,
        sampler,
        remover,
        max_size: table.getattr("max_size")?.extract::<Count>()?.at_least("max_size", 1)? as u64,
        limiter: limiter(&table.getattr("rate_limiter")?)?,
        max_times_sampled: max_times_sampled as u32,
        signature: if promised.is_none() { None } else { Some(table_signature(&promised)?) },
        max_bytes: table.getattr("max_bytes")?.extract()?,
        compression: compression(&table.getattr("compression")?.extract::<String>()?)?,
        shard,
        sampler_seed: sampler_seed.map_or_else(|| fresh_seed(py), Ok)?,
        constructed: None,
        remover_seed: remover_seed.map_or_else(|| fresh_seed(py), Ok)?,
        extensions: table.getattr("extensions")?.try_iter()?.map(|of| extension(&of?)).collect::<PyResult<_>>()?,
    })
}

fn extension(options: &Bound<'_, PyAny>) -> PyResult<InsertOnSample> {
    let timeout: Option<f64> = options.getattr("timeout")?.extract()?;
    let seconds = |timeout: f64| {
        Duration::try_from_secs_f64(timeout)
            .map_err(|_| PyValueError::new_err(format!("timeout must be a number of seconds, got {timeout}")))
    };
    Ok(InsertOnSample { target: options.getattr("target")?.extract()?, timeout: timeout.map(seconds).transpose()? })
}

fn fresh_seed(py: Python<'_>) -> PyResult<u64> {
    let bytes: [u8; 8] = PyModule::import(py, "os")?.call_method1("urandom", (8,))?.extract()?;
    Ok(u64::from_ne_bytes(bytes))
}

fn selector(options: &Bound<'_, PyAny>) -> PyResult<(SelectorOptions, Option<u64>)> {
    let seed = options.getattr("seed")?.extract()?;
    let (number, exponent) = options.call_method0("_for_engine")?.extract()?;
    let kind = SelectorOptions::from_parts(number, exponent)
        .ok_or_else(|| PyValueError::new_err(format!("no selector has the number {number}")))?;
    Ok((kind, seed))
}

/// The limiter of a `reverie.rate_limiters.RateLimiter`.
pub fn limiter(options: &Bound<'_, PyAny>) -> PyResult<Limiter> {
    if !options.hasattr("min_size_to_sample")? {
        let got = options.repr()?;
        return Err(PyTypeError::new_err(format!("rate_limiter must be one of reverie.rate_limiters, got {got}")));
    }
    let number = |name: &str| options.getattr(name)?.extract::<f64>();
    let min_size = options.getattr("min_size_to_sample")?.extract()?;
    let (spi, min_diff, max_diff) = (number("samples_per_insert")?, number("min_diff")?, number("max_diff")?);
    quick(options.py(), || Limiter::new(spi, min_size, min_diff, max_diff))
}

/// The compression of chunks, by its name.
pub fn compression(name: &str) -> PyResult<Compression> {
    name.parse().map_err(PyValueError::new_err)
}

/// The signature of a nest of `reverie.TensorSpec`s.
fn table_signature(nest: &Bound<'_, PyAny>) -> PyResult<Signature> {
    let py = nest.py();
    let form = Nest::of(nest)?;
    let leaves = form.leaves(nest)?;
    let mut columns = Vec::with_capacity(leaves.len());
    for (path, leaf) in form.structure.paths().into_iter().zip(leaves.iter()) {
        let dtype = leaf.getattr(intern!(py, "dtype"))?;
        let Some(dtype) = dtype_from(&dtype)? else {
            return Err(signature(py, &path, &dtype.str()?.to_string(), "a dtype that columns can hold"));
        };
        columns.push(ColumnSignature { path, dtype, shape: leaf.getattr(intern!(py, "shape"))?.extract()? });
    }
    Ok(Signature { columns, structure: (*form.structure).clone() })
}

/// Reads the arguments of `configure`.
pub fn change(
    max_size: Option<Count>,
    rate_limiter: Option<&Bound<'_, PyAny>>,
    max_times_sampled: Option<Count>,
) -> PyResult<Change> {
    let max_size = max_size.map(|count| count.at_least("max_size", 1)).transpose()?;
    let times = max_times_sampled.map(|count| count.within("max_times_sampled", 0, u32::MAX as usize)).transpose()?;
    Ok(Change {
        max_size: max_size.map(|count| count as u64),
        limiter: rate_limiter.map(limiter).transpose()?,
        max_times_sampled: times.map(|count| count as u32),
    })
}
