//! How a client reaches its tables: directly, or over a network.

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

/// A network's client answers within its grace after the deadline that it was told. Should it not, nobody waits for it
/// longer than this beyond.
const DEFECT: Duration = Duration::from_secs(1);

/// Where the tables of a client are.
pub enum Reach {
    /// In this process.
    Here(Py<Server>),
    /// Behind a network.
    There(Box<Connection>),
}

/// The tables, as they can be reached right now.
pub enum Way<'a> {
    Here(&'a Arc<Tables>),
    There(Far),
}

/// Tables behind a network.
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

    /// What reports why a request waits.
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

    /// Waits for the answer to a request whose deadline the server knows: the server reports why it is late.
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

/// Waits for the answer to a request that no table holds up: it arrives within the grace after the deadline.
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
    /// Waits for draws; those made by then come back where the wait ended early.
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

    /// The tables; in a forked child those of this process are out of reach (ForkedError), others are connected to
    /// anew. Does not wait.
    #[inline]
    pub fn way<'a>(&'a self, py: Python<'a>) -> PyResult<Way<'a>> {
        match self {
            Reach::Here(server) => server.get().tables(py).map(Way::Here),
            Reach::There(connection) => Ok(Way::There(Far { remote: connection.open(py)?.remote })),
        }
    }

    /// The tables, once it is known what they are: at the first call over a network this waits for the connection.
    #[inline]
    pub fn known<'a>(&'a self, py: Python<'a>, deadline: Deadline) -> PyResult<Way<'a>> {
        if let Reach::There(connection) = self {
            connection.described(py, deadline)?;
        }
        self.way(py)
    }
}

/// A connection to a server, made when it is first used; and made anew in a forked child.
pub struct Connection {
    options: Options,
    /// Locked under the GIL, and never while it is let go.
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

    /// The engine's client, and what it knows of its server.
    fn open(&self, py: Python<'_>) -> PyResult<Session> {
        crate::lines::tell(py)?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !session.here() {
            *session = Session::new(py, &self.options)?;
        }
        session.get(py).cloned()
    }

    /// What the server is; waits for the first connection.
    pub fn described(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Arc<Described>> {
        let Session { remote, described: known } = self.open(py)?;
        if let Some(described) = known.get() {
            return Ok(Arc::clone(described));
        }
        let described = answer(py, "connect", &*remote, remote.describe(), deadline)?;
        let described = described.ok_or_else(|| PyValueError::new_err("a server that does not describe itself"))?;
        Ok(Arc::clone(known.get_or_init(|| described)))
    }

    /// Lets go of the connection, which goes on by itself until what was left to it is done; the next call makes
    /// another one. Idempotent.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::new(py, &self.options)?;
        Ok(())
    }
}

/// What reports why a request waits.
pub struct Reasons(Arc<dyn Replay>);

impl Reasons {
    /// Of this replay.
    pub fn of(replay: Arc<dyn Replay>) -> Self {
        Self(replay)
    }

    /// What waits at a table, and for what. Parks this thread for a moment where a network is between.
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
