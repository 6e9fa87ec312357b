//! Access to a client's tables: in this process, over a network, or over several servers.

use crate::count::Count;
use crate::enter::{Deadline, ExpiredRequest, IssuedRequest, WaitOutcome, detached, finish, late, quick, wait};
use crate::errors::of_connection;
use crate::process_local::ProcessLocal;
use crate::server::Server;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::replay::Replay;
use reverie_core::sample::SampleOutcome;
use reverie_core::table::Ticket;
use reverie_net::client::Remote;
use reverie_net::endpoint::{ClientTls, EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::sharded::{self, Shard, Sharded};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A remote client answers within its grace after the deadline of the request. If it does not, which is a defect, a
/// call waits at most this much longer.
const EXTRA_WAIT: Duration = Duration::from_secs(1);

/// The place of a client's tables.
pub enum ReplayBackend {
    /// In this process.
    Local { server: Py<Server>, tables: Arc<dyn Replay> },
    /// Over a network.
    Remote(Box<Connection>),
    /// On several servers.
    Several(Box<ShardedConnection>),
}

/// Waits for the answer to a request that waits for no table: it arrives within the grace after the deadline.
pub fn answer<T: Default + Send + Sync>(
    py: Python<'_>,
    what: &str,
    replay: &dyn Replay,
    asked: impl Into<IssuedRequest<Ticket<T>>>,
    deadline: Deadline,
) -> PyResult<T> {
    let since = Instant::now();
    match finish(py, &mut asked.into(), deadline.plus(replay.grace()), |_| replay.no_response_reason(since.elapsed()))?
    {
        Ok(answer) => Ok(answer),
        Err(left) => Err(left.raise(py, what, |_, _| Ok(()))),
    }
}

/// Waits until everything that was done before is on the disk.
pub fn durable(py: Python<'_>, replay: &dyn Replay, deadline: Deadline) -> PyResult<()> {
    let mut ticket = quick(py, || Ok(replay.durable()))?;
    // Every table reports why its journal waits.
    let why = || replay.tables().first().map_or_else(String::new, |table| why(replay, &table.name));
    match wait(py, deadline, |slice| ticket.wait(slice), why)? {
        WaitOutcome::Done(()) => Ok(()),
        WaitOutcome::Expired => {
            let why = detached(py, || Ok(why()))?;
            Err(late(py, "flush(durable=True)", &why, |_| Ok(())))
        }
    }
}

/// Waits for draws; returns those made so far if the wait ended early.
pub fn drawn(
    py: Python<'_>,
    replay: &dyn Replay,
    table: &str,
    asked: impl Into<IssuedRequest<Ticket<SampleOutcome>>>,
    deadline: Deadline,
) -> PyResult<Result<SampleOutcome, ExpiredRequest<SampleOutcome>>> {
    let deadline = deadline.plus(replay.grace() + extra_wait(replay));
    finish(py, &mut asked.into(), deadline, |_| why(replay, table))
}

/// The time beyond its grace for which a call waits for a replay whose server ends late requests itself.
fn extra_wait(replay: &dyn Replay) -> Duration {
    if replay.grace().is_zero() { Duration::ZERO } else { EXTRA_WAIT }
}

/// The tables for one call. Tables of this process are borrowed: counting a reference takes longer than a small insert
/// can afford.
pub enum ReplayRef<'a> {
    /// The client keeps them.
    Borrowed(&'a Arc<dyn Replay>),
    /// Another thread may replace the client's connection during the call.
    Owned(Arc<dyn Replay>),
}

impl ReplayRef<'_> {
    /// The tables, for longer than the call.
    pub fn shared(&self) -> Arc<dyn Replay> {
        match self {
            Self::Borrowed(replay) => Arc::clone(replay),
            Self::Owned(replay) => Arc::clone(replay),
        }
    }
}

impl Deref for ReplayRef<'_> {
    type Target = dyn Replay;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Borrowed(replay) => &***replay,
            Self::Owned(replay) => &**replay,
        }
    }
}

impl ReplayBackend {
    /// Tables of this process.
    pub fn local(py: Python<'_>, server: Py<Server>) -> PyResult<Self> {
        let tables = Arc::clone(server.get().tables(py)?) as _;
        Ok(Self::Local { server, tables })
    }

    /// The tables. Does not wait.
    /// In a forked child, tables of the parent process raise ForkedError; a client of an address reconnects.
    #[inline]
    pub fn replay(&self, py: Python<'_>) -> PyResult<ReplayRef<'_>> {
        match self {
            ReplayBackend::Local { server, tables } => server.get().tables(py).map(|_| ReplayRef::Borrowed(tables)),
            ReplayBackend::Remote(connection) => Ok(ReplayRef::Owned(connection.open(py)?.remote)),
            ReplayBackend::Several(several) => Ok(ReplayRef::Owned(several.open(py)?)),
        }
    }

    /// The tables, once their description is known: the first call over a network waits for the connection.
    #[inline]
    pub fn known(&self, py: Python<'_>, deadline: Deadline) -> PyResult<ReplayRef<'_>> {
        match self {
            ReplayBackend::Local { .. } => self.replay(py),
            ReplayBackend::Remote(connection) => Ok(ReplayRef::Owned(connection.known(py, deadline)?)),
            ReplayBackend::Several(several) => Ok(ReplayRef::Owned(several.known(py, deadline)?)),
        }
    }

    /// The servers, if there are several.
    #[inline]
    pub fn several(&self) -> Option<&ShardedConnection> {
        match self {
            ReplayBackend::Several(several) => Some(several),
            ReplayBackend::Local { .. } | ReplayBackend::Remote(_) => None,
        }
    }
}

impl From<Connection> for ReplayBackend {
    fn from(connection: Connection) -> Self {
        ReplayBackend::Remote(Box::new(connection))
    }
}

impl From<ShardedConnection> for ReplayBackend {
    fn from(several: ShardedConnection) -> Self {
        ReplayBackend::Several(Box::new(several))
    }
}

/// A connection to a server, made when it is first used, and made again in a forked child.
pub struct Connection {
    options: EndpointOptions,
    /// Locked under the GIL, and never held while the GIL is released.
    session: Mutex<ProcessLocal<Session>>,
}

#[derive(Clone)]
struct Session {
    remote: Arc<dyn Replay>,
    /// True once the server's description has arrived.
    known: Arc<AtomicBool>,
}

impl Session {
    fn new(py: Python<'_>, options: &EndpointOptions) -> PyResult<ProcessLocal<Self>> {
        let remote = quick(py, || Remote::new(options.clone()))?;
        Ok(ProcessLocal::new(Self { remote, known: Arc::default() }, "client"))
    }
}

impl Connection {
    /// Checks the options.
    pub fn new(py: Python<'_>, options: EndpointOptions) -> PyResult<Self> {
        let session = Mutex::new(Session::new(py, &options)?);
        Ok(Self { options, session })
    }

    fn open(&self, py: Python<'_>) -> PyResult<Session> {
        crate::log_bridge::deliver(py)?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !session.here() {
            *session = Session::new(py, &self.options)?;
        }
        session.get(py).cloned()
    }

    /// The tables; waits for the first connection.
    fn known(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Arc<dyn Replay>> {
        let Session { remote, known } = self.open(py)?;
        if !known.load(Ordering::Relaxed) {
            answer(py, "connect", &*remote, remote.ready(), deadline)?;
            known.store(true, Ordering::Relaxed);
        }
        Ok(remote)
    }

    /// Leaves the connection, which ends in the background when its work is done; the next call makes another one.
    /// Idempotent.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::new(py, &self.options)?;
        Ok(())
    }
}

/// Returns the servers, each reached from the current process.
pub type ShardsFactory = Box<dyn Fn(Python<'_>) -> PyResult<Vec<Shard>> + Send + Sync>;

/// Several servers as one replay, made again in a forked child.
pub struct ShardedConnection {
    shards: ShardsFactory,
    options: sharded::ShardedOptions,
    /// `None` once closed. Locked under the GIL, and never held while the GIL is released.
    session: Mutex<Option<ProcessLocal<Arc<Sharded>>>>,
}

impl ShardedConnection {
    /// Connects to the servers, and checks that they can be one replay.
    pub fn new(
        py: Python<'_>,
        shards: ShardsFactory,
        options: sharded::ShardedOptions,
        deadline: Deadline,
    ) -> PyResult<Self> {
        let session = Mutex::new(Some(Self::session(py, &shards, &options)?));
        let several = Self { shards, options, session };
        several.known(py, deadline)?;
        Ok(several)
    }

    fn session(
        py: Python<'_>,
        shards: &ShardsFactory,
        options: &sharded::ShardedOptions,
    ) -> PyResult<ProcessLocal<Arc<Sharded>>> {
        let shards = shards(py)?;
        Ok(ProcessLocal::new(quick(py, || Sharded::new(shards, options.clone()))?, "client"))
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<Sharded>> {
        crate::log_bridge::deliver(py)?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *session {
            Some(session) => {
                if !session.here() {
                    *session = Self::session(py, &self.shards, &self.options)?;
                }
                session.get(py).cloned()
            }
            None => quick(py, || Err(Error::ClientClosed { address: "several shards".to_owned() })),
        }
    }

    fn known(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Arc<dyn Replay>> {
        let sharded = self.open(py)?;
        answer(py, "connect", &*sharded, sharded.ready(), deadline)?;
        Ok(sharded)
    }

    /// Chooses the server of an insert of this many rows, or of a writer; see [`Sharded::place`].
    pub fn place(
        &self,
        py: Python<'_>,
        shard: Option<usize>,
        tables: &[&str],
        rows: u64,
        deadline: Deadline,
    ) -> PyResult<usize> {
        let sharded = self.open(py)?;
        let ticket = quick(py, || Ok(sharded.place(shard, tables, rows, deadline.limit())))?;
        answer(py, "insert", &*sharded, ticket, deadline)
    }

    /// Takes note of an exception of an insert or a writer at a server.
    pub fn failed(&self, py: Python<'_>, shard: usize, error: &PyErr) -> PyResult<()> {
        let Some(error) = of_connection(py, error)? else { return Ok(()) };
        let sharded = self.open(py)?;
        quick(py, || {
            sharded.failed(shard, &error);
            Ok(())
        })
    }

    /// Fails requests that wait, and all later ones. Idempotent.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        match session.filter(ProcessLocal::here) {
            Some(session) => {
                let sharded = Arc::clone(session.get(py)?);
                quick(py, || {
                    sharded.close();
                    Ok(())
                })
            }
            None => Ok(()),
        }
    }
}

/// The requests that wait at a table, and for what. Parks this thread for a moment if there is a network.
pub fn why(replay: &dyn Replay, table: &str) -> String {
    let since = Instant::now();
    match replay.wait_reason(table).wait(replay.grace()) {
        Some(Ok(why)) => why,
        Some(Err(error)) => error.to_string(),
        None => {
            let silence = replay.no_response_reason(since.elapsed());
            format!("the reason why table '{table}' waits is unknown; {silence}")
        }
    }
}

/// Authorities, certificate and key, the server's name; see `reverie_net::endpoint::ClientTls`.
pub type TlsFiles = (Option<Vec<u8>>, Option<(Vec<u8>, Vec<u8>)>, Option<String>);

/// Reads the options of a client over a network.
pub fn options(
    address: String,
    transport: &str,
    token: Option<String>,
    tls: Option<TlsFiles>,
    (patience, grace): (f64, f64),
    max_kept_bytes: Option<Count>,
) -> PyResult<EndpointOptions> {
    let transport = match transport {
        "auto" => Transport::Auto,
        "shared-memory" => Transport::SharedMemory,
        "grpc" => Transport::Grpc,
        other => {
            return Err(PyValueError::new_err(format!(
                "transport must be \"auto\", \"in-process\", \"shared-memory\" or \"grpc\", got {other:?}"
            )));
        }
    };
    let patience = Duration::try_from_secs_f64(patience).ok().filter(|patience| !patience.is_zero());
    let patience = patience.ok_or_else(|| PyValueError::new_err("patience must be a positive number of seconds"))?;
    let grace = Duration::try_from_secs_f64(grace).ok().filter(|grace| !grace.is_zero());
    let grace = grace.ok_or_else(|| PyValueError::new_err("grace must be a positive number of seconds"))?;
    let tls = tls.map(|(ca, identity, server_name)| ClientTls { ca, identity, server_name });
    let kept = max_kept_bytes.map(|count| count.at_least("max_kept_bytes", 0)).transpose()?;
    let max_kept_bytes = kept.map_or(KEPT_BYTES, |kept| kept as u64);
    Ok(EndpointOptions { address, transport, token, tls, patience, grace, max_kept_bytes })
}
