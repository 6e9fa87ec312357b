//! How a client reaches a server.

use std::time::Duration;

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port`.
    pub address: String,
    /// Which way to travel.
    pub transport: Transport,
    /// What the server asks for, off loopback.
    pub token: Option<String>,
    /// `None`: plain text.
    pub tls: Option<Tls>,
    /// For how long a connection may take to be made, and how long a lost one is tried again before requests fail.
    pub patience: Duration,
    /// How much longer than its timeout a request may take whose answer is on its way: more than a round trip.
    pub grace: Duration,
}

/// Which way to travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where the server is on this host and lets us, else gRPC; the reason is logged once.
    Auto,
    /// Shared memory, or an error.
    SharedMemory,
    /// gRPC.
    Grpc,
}

/// Whom to trust, and who we are. PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates of the authorities that may sign the server's; `None`: those of the system.
    pub ca: Option<Vec<u8>>,
    /// Our certificate chain and key, where the server asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the server's certificate must have, where it is not the address's host.
    pub server_name: Option<String>,
}
