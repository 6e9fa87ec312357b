//! Who may reach the tables, how, and what they may make the server hold.

use reverie_core::Result;
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
    /// Clients that are connected at a time: so many over gRPC, and so many over shared memory. Fewer where the limit of
    /// open files leaves no room for them.
    pub max_connections: usize,
    /// Connections at a time, of each way, that have not begun a session or a call; they have some seconds for it.
    pub max_newcomers: usize,
    /// Bytes of inserts in flight: of one session, and of all together.
    pub session_insert_bytes: u64,
    /// See `session_insert_bytes`.
    pub total_insert_bytes: u64,
    /// Requests of one session that wait.
    pub max_pending_requests: usize,
    /// Bytes of batches that were gathered and are not sent yet (or of slots in shared memory): of one session, and of all.
    pub session_batch_bytes: u64,
    /// See `session_batch_bytes`.
    pub total_batch_bytes: u64,
    /// Bytes that all sessions together hold beside the tables: cells that no item has, inserts that wait, draws on
    /// their way, outcomes that were not received, messages of which a part has come.
    pub total_session_bytes: u64,
    /// Bytes that the packed chunks of one batch may come to.
    pub batch_unpacked_bytes: u64,
    /// For how long a session whose connection was lost is remembered.
    pub linger: Duration,
    /// What the other bounds were made of, see [`Limits::within`]: bytes of the server, and of these for connections.
    pub memory: Option<(u64, u64)>,
}

impl Limits {
    /// Bounds that keep connections to `network` bytes of the `memory` that the server may use: a quarter each for
    /// batches as parts, for slots, and for what sessions hold; the rest is for blocks that wait to be used again and for
    /// chunks while they are unpacked.
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

/// Certificates of the server. PEM.
pub struct Tls {
    /// Certificate chain and key.
    pub identity: (Vec<u8>, Vec<u8>),
    /// Clients must show a certificate that these authorities signed.
    pub client_ca: Option<Vec<u8>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_newcomers: 256,
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
