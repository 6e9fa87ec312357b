//! The server: tables, and the connections that reach them.

mod way;

pub use way::{Lent, Way};

use reverie_core::Result;
use reverie_core::table::Tables;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Who may reach the tables, and how.
pub struct Options {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Asked of every client. Off loopback there must be one.
    pub token: Option<String>,
    /// Off loopback there must be one, unless `insecure`.
    pub tls: Option<Tls>,
    /// Gives up TLS off loopback, never the token.
    pub insecure: bool,
    /// Listen on a Unix socket, too, for clients of the same host and user.
    pub local: bool,
    /// For how long a stop waits for what is being done.
    pub grace: Duration,
    /// What connections may make the server hold.
    pub limits: Limits,
    /// Takes a checkpoint and tells its path; `None` where the server has no checkpointer.
    pub checkpoint: Option<Arc<dyn Fn() -> Result<String> + Send + Sync>>,
}

/// What connections may make the server hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub max_connections: usize,
    /// Bytes of inserts in flight: of one session, and of all together.
    pub session_insert_bytes: u64,
    /// See `session_insert_bytes`.
    pub total_insert_bytes: u64,
    /// Requests of one session that wait.
    pub max_pending_requests: usize,
    /// Bytes of batches that were gathered and are not sent yet (or of batch slots): of one session, and of all.
    pub session_batch_bytes: u64,
    /// See `session_batch_bytes`.
    pub total_batch_bytes: u64,
    /// For how long a session whose connection was lost is remembered.
    pub linger: Duration,
}

/// Certificates of the server. PEM.
pub struct Tls {
    /// Certificate chain and key.
    pub identity: (Vec<u8>, Vec<u8>),
    /// Clients must show a certificate that these authorities signed.
    pub client_ca: Option<Vec<u8>>,
}

/// A server that listens. Its threads end with it.
pub struct Server;

impl Server {
    /// Binds, and serves from threads of its own. `InvalidArgument`: an address that is not safe, certificates that
    /// cannot be read, a port that is taken.
    pub fn start(_tables: Arc<Tables>, _options: Options) -> Result<Self> {
        todo!()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// The Unix socket's path.
    pub fn local_socket(&self) -> Option<&str> {
        todo!()
    }

    /// Takes no more connections, tells the clients, ends what waits, lets what is being done finish within the grace
    /// time, and closes the tables. Blocks for that long; idempotent.
    pub fn stop(&self) {
        todo!()
    }
}
