//! Access to a client's tables: in this process, or over a network.

use crate::enter::{Deadline, Late, Live, finish, quick};
use crate::server::Server;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::replay::Replay;
use reverie_core::table::{Tables, Ticket};
use reverie_net::client::{Described, Remote};
use reverie_net::reach::{Options, Tls, Transport};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A remote client answers within its grace after the deadline of the request.
/// If a defect prevents that, a call waits at most this much longer.
const DEFECT: Duration = Duration::from_secs(1);

/// The place of a client's tables.
pub enum Reach {
    /// In this process.
    Here(Py<Server>),
    /// Over a network.
    There(Box<Connection>),
}

/// The tables, as they can be reached now.
pub enum Way<'a> {
    Here(&'a Arc<Tables>),
    There(Far),
}

/// Tables over a network.
pub struct Far {
    pub remote: Arc<Remote>,
}

impl Way<'_> {
    /// The replay, for one call.
    pub fn replay(&self) -> &dyn Replay {
        match self {
            Way::Here(tables) => &***tables,
            Way::There(far) => &*far.remote,
        }
    }

    /// The replay, to keep.
    pub fn shared(&self) -> Arc<dyn Replay> {
        match self {
            Way::Here(tables) => Arc::clone(tables) as _,
            Way::There(far) => Arc::clone(&far.remote) as _,
        }
    }

    /// The source of reasons why a request waits.
    pub fn reasons(&self) -> Reasons {
        Reasons::of(self.shared())
    }

    /// See [`answer`].
    pub fn answer<T: Default + Send>(
        &self,
        py: Python<'_>,
        what: &str,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<T> {
        answer(py, what, self.replay(), ticket, deadline)
    }

    /// Waits for the answer to a request whose deadline was sent to the server: the server reports why it is late.
    pub fn reported<T: Default + Send>(
        &self,
        py: Python<'_>,
        what: &str,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<T> {
        self.answer(py, what, ticket, deadline.plus(DEFECT))
    }
}

/// Waits for the answer to a request that waits for no table: it arrives within the grace after the deadline.
pub fn answer<T: Default + Send>(
    py: Python<'_>,
    what: &str,
    replay: &dyn Replay,
    ticket: Ticket<T>,
    deadline: Deadline,
) -> PyResult<T> {
    let since = Instant::now();
    match finish(py, ticket, deadline.plus(replay.grace()), || replay.silence(since.elapsed()))? {
        Ok(answer) => Ok(answer),
        Err(left) => Err(left.raise(py, what, |_, _| Ok(()))),
    }
}

impl Far {
    /// Waits for draws; returns those made so far if the wait ended early.
    pub fn ended<T: Default + Send>(
        &self,
        py: Python<'_>,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<Result<T, Late<T>>> {
        let since = Instant::now();
        let deadline = deadline.plus(self.remote.grace() + DEFECT);
        finish(py, ticket, deadline, || self.remote.silence(since.elapsed()))
    }
}

impl Reach {
    /// True for tables of this process.
    pub fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// The tables. Does not wait.
    /// In a forked child, tables of the parent process raise ForkedError; a client of an address reconnects.
    #[inline]
    pub fn way<'a>(&'a self, py: Python<'a>) -> PyResult<Way<'a>> {
        match self {
            Reach::Here(server) => server.get().tables(py).map(Way::Here),
            Reach::There(connection) => Ok(Way::There(Far { remote: connection.open(py)?.remote })),
        }
    }

    /// The tables, once their description is known: the first call over a network waits for the connection.
    #[inline]
    pub fn known<'a>(&'a self, py: Python<'a>, deadline: Deadline) -> PyResult<Way<'a>> {
        if let Reach::There(connection) = self {
            connection.described(py, deadline)?;
        }
        self.way(py)
    }
}

/// A connection to a server, made when it is first used, and made again in a forked child.
pub struct Connection {
    options: Options,
    /// Locked under the GIL, and never held while the GIL is released.
    session: Mutex<Live<Session>>,
}

#[derive(Clone)]
struct Session {
    remote: Arc<Remote>,
    described: Arc<OnceLock<Arc<Described>>>,
}

impl Session {
    fn new(py: Python<'_>, options: &Options) -> PyResult<Live<Self>> {
        let remote = quick(py, || Remote::new(options.clone()))?;
        Ok(Live::new(Self { remote, described: Arc::default() }, "client"))
    }
}

impl Connection {
    /// Checks the options.
    pub fn new(py: Python<'_>, options: Options) -> PyResult<Self> {
        let session = Mutex::new(Session::new(py, &options)?);
        Ok(Self { options, session })
    }

    /// The engine's client, and its server's description if known.
    fn open(&self, py: Python<'_>) -> PyResult<Session> {
        crate::lines::tell(py)?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !session.here() {
            *session = Session::new(py, &self.options)?;
        }
        session.get(py).cloned()
    }

    /// The server's description; waits for the first connection.
    pub fn described(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Arc<Described>> {
        let Session { remote, described: known } = self.open(py)?;
        if let Some(described) = known.get() {
            return Ok(Arc::clone(described));
        }
        let described = answer(py, "connect", &*remote, remote.describe(), deadline)?;
        let described = described.ok_or_else(|| PyValueError::new_err("a server that does not describe itself"))?;
        Ok(Arc::clone(known.get_or_init(|| described)))
    }

    /// Drops the connection, which goes on in the background until its work is done; the next call makes another one.
    /// Idempotent.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::new(py, &self.options)?;
        Ok(())
    }
}

/// The source of reasons why a request waits.
pub struct Reasons(Arc<dyn Replay>);

impl Reasons {
    /// The reasons of this replay.
    pub fn of(replay: Arc<dyn Replay>) -> Self {
        Self(replay)
    }

    /// The requests that wait at a table, and for what. Parks this thread for a moment if there is a network.
    pub fn why(&self, table: &str) -> String {
        let soon = self.0.grace();
        match self.0.why(table).wait(soon) {
            Some(Ok(why)) => why,
            Some(Err(error)) => error.to_string(),
            None => format!("what table '{table}' waits for is not known; {}", self.0.silence(soon)),
        }
    }
}

/// Authorities, certificate and key, the server's name; see `reverie_net::reach::Tls`.
pub type TlsFiles = (Option<Vec<u8>>, Option<(Vec<u8>, Vec<u8>)>, Option<String>);

/// Reads the options of a client over a network.
pub fn options(
    address: String,
    transport: &str,
    token: Option<String>,
    tls: Option<TlsFiles>,
    (patience, grace): (f64, f64),
) -> PyResult<Options> {
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
    let tls = tls.map(|(ca, identity, server_name)| Tls { ca, identity, server_name });
    Ok(Options { address, transport, token, tls, patience, grace })
}
