//! The remote client: what a server's tables offer, over a network, with the same tickets as in-process.
//!
//! No call here blocks; waiting is the tickets' (`Ticket::wait`), done outside by the caller's gate. One background
//! runtime for all clients of the process moves the bytes.

#[allow(dead_code)]
mod block;
pub mod way;

pub use block::{Block, Lent};

use crate::bulk::BatchLayout;
use crate::proto;
use reverie_core::Result;
use reverie_core::batch::{Output, Ragged};
use reverie_core::spec::Structure;
use reverie_core::table::{Change, TableInfo, TableOptions, Ticket, Updated};
use std::sync::Arc;
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

/// The way that is taken, for people.
#[derive(Clone, Debug)]
pub struct Link {
    /// "shared-memory" or "grpc"; `None` before the first connection.
    pub transport: Option<&'static str>,
    /// Why this way.
    pub reason: String,
    /// True while a connection stands.
    pub connected: bool,
    /// Connections that were made again.
    pub reconnects: u64,
    /// How often the server was found to be another one: what its predecessor held is gone.
    pub server_restarts: u64,
    /// Bytes sent and received, messages included.
    pub bytes_sent: u64,
    /// See `bytes_sent`.
    pub bytes_received: u64,
}

/// What a server is, as it was at the first connection.
#[derive(Clone, Debug)]
pub struct Described {
    /// The version of its package.
    pub version: String,
    /// Its tables.
    pub tables: Vec<TableOptions>,
}

/// What is asked for; see `Sample` in the proto.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    /// Tables and draws.
    pub parts: Vec<(String, usize)>,
    /// Paths; `None`: all.
    pub columns: Option<Vec<String>>,
    /// Unequal lengths.
    pub ragged: Ragged,
    /// No item twice.
    pub without_replacement: bool,
    /// What can be drawn at once.
    pub at_once: bool,
}

/// What came of a request for draws: `batches` also where an error ended it (its draws, or those until the deadline).
#[derive(Default)]
pub struct Sampled {
    /// One, or for `at_once` one for each run of items that look alike.
    pub batches: Vec<RemoteBatch>,
    /// What ended it early.
    pub error: Option<reverie_core::Error>,
}

/// A batch that arrived.
pub struct RemoteBatch {
    /// What the arrays are.
    pub head: Arc<Head>,
    /// Draws.
    pub num_draws: usize,
    /// See `Draws::smallest_probability`.
    pub smallest_probability: Option<f64>,
    /// Where the arrays are in the block.
    pub layout: BatchLayout,
    /// Their memory: writable, and nobody else's while it lives.
    pub block: Arc<Block>,
}

/// What the arrays of batches that look alike are.
#[derive(Debug)]
pub struct Head {
    /// The arrays.
    pub outputs: Vec<Output>,
    /// What the columns fill.
    pub structure: Structure,
    /// How many of the outputs are columns.
    pub num_columns: usize,
    /// The items are steps inserted alone.
    pub timestep: bool,
}

/// The figures of a server.
pub struct ServerInfo {
    /// Of every table, in the server's order.
    pub tables: Vec<TableInfo>,
    /// The rest.
    pub raw: proto::ServerInfo,
}

/// A client of one server. Implements `Sink` for writers.
pub struct Remote;

impl Remote {
    /// Checks the options; connects at the first request, or when `describe` is called.
    pub fn new(_options: Options) -> Result<Arc<Self>> {
        todo!()
    }

    /// What the server is: connects where there was no connection yet. `Unavailable`, `Unauthenticated`, `Protocol`.
    pub fn describe(self: &Arc<Self>) -> Ticket<Option<Arc<Described>>> {
        todo!()
    }

    /// The way that is taken.
    pub fn link(&self) -> Link {
        todo!()
    }

    /// Draws, gathered by the server. The server answers at the deadline with what was drawn and why not more; should
    /// it be silent, the ticket is filled a little later (`Unavailable`). Dropping the ticket withdraws.
    pub fn sample(self: &Arc<Self>, _request: SampleRequest, _timeout: Option<Duration>) -> Ticket<Sampled> {
        todo!()
    }

    /// Reads items by key.
    pub fn get(
        self: &Arc<Self>,
        _table: &str,
        _keys: &[i64],
        _columns: Option<Vec<String>>,
        _ragged: Ragged,
    ) -> Ticket<Sampled> {
        todo!()
    }

    /// Deletes, then updates: (updates, deletes).
    pub fn mutate(
        self: &Arc<Self>,
        _table: &str,
        _updates: (&[i64], &[f64]),
        _if_version: Option<&[u32]>,
        _deletes: &[i64],
    ) -> Ticket<(Updated, Updated)> {
        todo!()
    }

    /// Whether so many inserts (or else samples) could go on now.
    pub fn can(self: &Arc<Self>, _table: &str, _count: u64, _insert: bool) -> Ticket<bool> {
        todo!()
    }

    /// Drops all items.
    pub fn reset(self: &Arc<Self>, _table: &str) -> Ticket<()> {
        todo!()
    }

    /// Changes limits.
    pub fn configure(self: &Arc<Self>, _table: &str, _change: Change) -> Ticket<()> {
        todo!()
    }

    /// All figures.
    pub fn info(self: &Arc<Self>) -> Ticket<Option<ServerInfo>> {
        todo!()
    }

    /// Who waits for what.
    pub fn why(self: &Arc<Self>, _table: &str) -> Ticket<proto::Why> {
        todo!()
    }

    /// Asks the server for a checkpoint; its path there.
    pub fn checkpoint(self: &Arc<Self>) -> Ticket<String> {
        todo!()
    }

    /// Ends the connection; what waits ends with `Closed`. Idempotent.
    pub fn close(&self) {
        todo!()
    }
}
