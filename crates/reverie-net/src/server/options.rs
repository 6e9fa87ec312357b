//! Options of a server: access to the tables, and limits on the memory that connections use.

use reverie_core::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Access to the tables, and limits on connections.
pub struct ServerOptions {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Required from every client. There must be one if the address is not loopback.
    pub token: Option<String>,
    /// There must be TLS if the address is not loopback, unless `insecure`.
    pub tls: Option<ServerTls>,
    /// Allows an address that is not loopback without TLS, but never without the token.
    pub insecure: bool,
    /// The server also listens on a Unix socket, for clients of the same host and user.
    pub local: bool,
    /// The time for which a stop waits for work in progress.
    pub grace: Duration,
    /// Limits on the memory that connections use.
    pub limits: Limits,
    /// Takes a checkpoint and returns its path; `None` if the server has no checkpointer.
    pub checkpoint: Option<Arc<dyn Fn() -> Result<String> + Send + Sync>>,
    /// Note the spans of traced requests from the first one on, for [`Server::spans`](crate::listen::Server::spans).
    pub spans: bool,
}

/// Limits on the memory that connections use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients connected at a time: this many over gRPC, and this many over shared memory.
    /// Fewer if the limit of open files leaves no room for them.
    pub max_connections: usize,
    /// Connections of each transport at a time without a session or a call; they have some seconds to begin one.
    pub max_pending_connections: usize,
    /// Bytes of inserts in flight of one session.
    pub session_insert_bytes: u64,
    /// Bytes of inserts in flight of all sessions together.
    pub total_insert_bytes: u64,
    /// Waiting requests of one session.
    pub max_pending_requests: usize,
    /// Bytes of batches of one session that are gathered and not sent yet, or of its slots in shared memory.
    pub session_batch_bytes: u64,
    /// Bytes of batches of all sessions together that are gathered and not sent yet, or of their slots.
    pub total_batch_bytes: u64,
    /// Bytes that all sessions together use in addition to the tables.
    /// These are cells that no item has, waiting inserts, draws that are being sent, outcomes that were not received,
    /// and incomplete messages.
    pub total_session_bytes: u64,
    /// Unpacked bytes of the packed chunks of one batch.
    pub batch_unpacked_bytes: u64,
    /// The time for which a session is remembered after its connection was lost.
    pub linger: Duration,
    /// The server's memory, and its part for connections, in bytes: the other limits come from them.
    /// See [`Limits::within`].
    pub memory: Option<(u64, u64)>,
}

impl Limits {
    /// Limits that keep connections to `network` bytes of the `memory` that the server may use.
    /// A quarter each is for batches sent as parts, for slots, and for the memory of sessions; the rest is for idle
    /// blocks and for chunks while they are unpacked.
    pub fn within(memory: u64, network: u64) -> Self {
        let Self { session_insert_bytes, total_insert_bytes, session_batch_bytes, .. } = Self::default();
        let Self { total_batch_bytes, total_session_bytes, batch_unpacked_bytes, .. } = Self::default();
        let part = |eighths: u64, most: u64| (network / 8 * eighths).clamp(1, most);
        Self {
            session_insert_bytes: part(1, session_insert_bytes),
            total_insert_bytes: part(2, total_insert_bytes),
            session_batch_bytes: part(2, session_batch_bytes),
            total_batch_bytes: part(2, total_batch_bytes),
            total_session_bytes: part(2, total_session_bytes),
            batch_unpacked_bytes: part(8, batch_unpacked_bytes),
            memory: Some((memory, network)),
            ..Self::default()
        }
    }
}

/// The server's certificates, as PEM.
pub struct ServerTls {
    /// Certificate chain and key.
    pub identity: (Vec<u8>, Vec<u8>),
    /// Clients must show a certificate that these authorities signed.
    pub client_ca: Option<Vec<u8>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_pending_connections: 256,
            session_insert_bytes: 64 << 20,
            total_insert_bytes: 1 << 30,
            max_pending_requests: 4096,
            session_batch_bytes: 512 << 20,
            total_batch_bytes: 2 << 30,
            total_session_bytes: 4 << 30,
            batch_unpacked_bytes: 2 << 30,
            linger: Duration::from_secs(60),
            memory: None,
        }
    }
}
