//! Options of a connection to a server.

use std::time::Duration;

/// Options of a connection to a server.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// `host:port`.
    pub address: String,
    /// The transport.
    pub transport: Transport,
    /// The token, which a server requires off loopback.
    pub token: Option<String>,
    /// `None` for plain text.
    pub tls: Option<ClientTls>,
    /// The time that making a connection may take, and for which a lost one is retried before requests fail.
    pub patience: Duration,
    /// The time that a request may take beyond its timeout while its answer is in flight: more than a round trip.
    pub grace: Duration,
    /// Bytes of confirmed inserts that are kept until a server with a journal has them on the disk.
    pub max_kept_bytes: u64,
}

/// The default of [`EndpointOptions::max_kept_bytes`].
pub const KEPT_BYTES: u64 = 32 << 20;

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory if the server is on this host and admits us, else gRPC; the reason is logged once.
    Auto,
    /// Shared memory, or an error.
    SharedMemory,
    /// gRPC.
    Grpc,
}

/// TLS options: trusted authorities, and the client's certificate. PEM.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Certificates of the authorities that may sign the server's; `None` for those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate chain and key, if the server requires one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the server's certificate must have, if not the address's host.
    pub server_name: Option<String>,
}
