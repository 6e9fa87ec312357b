//! How a client reaches its tables: directly, or over a network.

use crate::enter::{Deadline, Late, Live, finish, quick};
use crate::server::Server;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::append::Sink;
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
    There(Far<'a>),
}

/// Tables behind a network.
pub struct Far<'a> {
    pub remote: Arc<Remote>,
    connection: &'a Connection,
}

impl Way<'_> {
    /// Where items go.
    pub fn sink(&self) -> &dyn Sink {
        match self {
            Way::Here(tables) => &***tables,
            Way::There(far) => &*far.remote,
        }
    }

    /// Who can say why something waits.
    pub fn reasons(&self) -> Reasons {
        let (soon, address) = match self {
            Way::Here(_) => (Duration::ZERO, String::new()),
            Way::There(far) => (far.remote.grace(), far.connection.address().to_owned()),
        };
        Reasons { sink: self.shared_sink(), soon, address }
    }

    /// The same, to keep.
    pub fn shared_sink(&self) -> Arc<dyn Sink> {
        match self {
            Way::Here(tables) => Arc::clone(tables) as _,
            Way::There(far) => Arc::clone(&far.remote) as _,
        }
    }
}

impl Far<'_> {
    /// As [`Far::told`]; what was done by then comes back where the wait ended early.
    pub fn ended<T: Default + Send>(
        &self,
        py: Python<'_>,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<Result<T, Late<T>>> {
        let since = Instant::now();
        finish(py, ticket, deadline.plus(self.remote.grace() + DEFECT), || self.silence(since))
    }

    /// How much later than its deadline an answer may come in.
    pub fn grace(&self) -> Duration {
        self.remote.grace()
    }

    /// What is waited for where no table holds it up.
    pub fn silence(&self, since: Instant) -> String {
        self.connection.silence(&self.remote, since)
    }

    /// Waits for the answer to a request of which the server knows no deadline: it comes in within the grace after it.
    pub fn answer<T: Default + Send>(
        &self,
        py: Python<'_>,
        what: &str,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<T> {
        self.connection.answer(py, what, &self.remote, ticket, deadline.plus(self.remote.grace()))
    }

    /// Waits for the answer to a request whose deadline the server knows: it says itself why it is late.
    pub fn told<T: Default + Send>(
        &self,
        py: Python<'_>,
        what: &str,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<T> {
        self.answer(py, what, ticket, deadline.plus(DEFECT))
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
            Reach::There(connection) => Ok(Way::There(Far { remote: connection.open(py)?.remote, connection })),
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

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.options.address
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
        let described = self.answer(py, "connect", &remote, remote.describe(), deadline)?;
        let described = described.ok_or_else(|| PyValueError::new_err("a server that does not describe itself"))?;
        Ok(Arc::clone(known.get_or_init(|| described)))
    }

    /// Waits for the answer to a request that no table holds up.
    fn answer<T: Default + Send>(
        &self,
        py: Python<'_>,
        what: &str,
        remote: &Remote,
        ticket: Ticket<T>,
        deadline: Deadline,
    ) -> PyResult<T> {
        let since = Instant::now();
        match finish(py, ticket, deadline, || self.silence(remote, since))? {
            Ok(answer) => Ok(answer),
            Err(left) => Err(left.raise(py, what, |_, _| Ok(()))),
        }
    }

    /// What is waited for where no table holds it up.
    fn silence(&self, remote: &Remote, since: Instant) -> String {
        match remote.outage() {
            Some(outage) => format!("{outage}; does a server run there?"),
            None => {
                let (address, waited) = (&self.options.address, since.elapsed().as_secs_f64());
                format!("{address} has not answered for {waited:.1} s; does the server still run?")
            }
        }
    }

    /// Lets go of the connection, which goes on by itself until what was left to it is done; the next call makes
    /// another one. Idempotent.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::new(py, &self.options)?;
        Ok(())
    }
}

/// Who can say why something waits.
pub struct Reasons {
    sink: Arc<dyn Sink>,
    /// For how long a network is asked.
    soon: Duration,
    address: String,
}

impl Reasons {
    /// Who waits at a table for what. Parks this thread for a moment where a network is between.
    pub fn why(&self, table: &str) -> String {
        match self.sink.why(table).wait(self.soon) {
            Some(Ok(why)) => why,
            Some(Err(error)) => error.to_string(),
            None => format!(
                "{} does not answer, nor say what table '{table}' waits for; does the server still run?",
                self.address
            ),
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
