//! Data about a replay: figures, connection, waiting requests.

use crate::chunk::TierInfo;
use crate::table::limiter::Counters;
use crate::table::{JournalInfo, TableInfo, WaitEntry, WaitReport};
use std::borrow::Cow;

/// The figures of a replay. Those of a network are zero or `None` for tables of this process.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// The tables, in the server's order.
    pub tables: Vec<TableInfo>,
    /// Bytes of the chunks that the tables hold, each chunk counted once.
    pub live_bytes: u64,
    /// Bytes that the chunks may have.
    pub max_bytes: Option<u64>,
    /// Bytes that the server holds for its connections.
    pub network_bytes: u64,
    /// Bytes that it may hold for its connections.
    pub max_network_bytes: Option<u64>,
    /// Bytes that the server may use in all.
    pub max_memory: Option<u64>,
    /// Connections over gRPC.
    pub num_grpc_connections: u64,
    /// Connections through shared memory.
    pub num_local_connections: u64,
    /// Connections that the server accepts; `None` without a server.
    pub max_connections: Option<u64>,
    /// The journal; `None` without one, and of several servers, each of which has its own.
    pub journal: Option<JournalInfo>,
    /// The disk tier; `None` without one, and of several servers.
    pub disk: Option<TierInfo>,
    /// The servers, if the replay is spread over several; their figures are summed above.
    pub shards: Vec<ShardInfo>,
}

/// The figures of one of several servers.
#[derive(Clone, Debug, Default)]
pub struct ShardInfo {
    /// False while it cannot be reached.
    pub present: bool,
    /// The server's own figures; `None` while it cannot be reached.
    pub info: Option<Info>,
    /// The state of its connection; `None` for tables of this process.
    pub link: Option<ConnectionInfo>,
    /// The figures that the client of all servers has of each table that it uses, by its last response.
    pub tables: Vec<(String, ShardTable)>,
}

/// The figures that decide on the draws and inserts of one of several servers, for one table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardTable {
    /// The sum of the weights of its items.
    pub mass: f64,
    /// The probability that a draw uses this server.
    pub chance: f64,
    /// The number of inserts granted to it in total; `None` if its own limiter decides.
    pub ration: Option<u64>,
    /// The number of inserts that it counts.
    pub num_inserts: u64,
    /// The number of draws that it counts.
    pub num_samples: u64,
    /// Inserts that wait there.
    pub waiting_inserts: u64,
    /// Draws that it counts and no caller received: they were made again at other servers.
    pub discarded: u64,
    /// Seconds by which its clock is ahead of the client's.
    pub clock_ahead: f64,
}

/// The state of a connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionInfo {
    /// "shared-memory" or "grpc"; `None` before the first connection.
    pub transport: Option<Cow<'static, str>>,
    /// The reason why this transport was chosen.
    pub reason: String,
    /// True while connected.
    pub connected: bool,
    /// The number of times that the client reconnected.
    pub reconnects: u64,
    /// The number of times that the server was found restarted; unsaved data is lost each time.
    pub server_restarts: u64,
    /// Bytes sent, messages included.
    pub bytes_sent: u64,
    /// Bytes received, messages included.
    pub bytes_received: u64,
    /// Bytes of confirmed inserts that are kept until they are on the server's disk.
    pub kept_bytes: u64,
    /// The bytes that are kept at most.
    pub max_kept_bytes: u64,
}

/// The requests that wait at a table, with the reasons as text. See [`WaitReport`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitSummary {
    /// The table.
    pub table: String,
    /// Number of items.
    pub size: u64,
    /// The largest number of items.
    pub max_size: u64,
    /// The table is closed: it accepts no inserts or samples.
    pub closed: bool,
    /// Draws that clients have not acknowledged yet.
    pub leased: u64,
    /// The limiter's counters.
    pub counters: Counters,
    /// The first of the inserts, in order of arrival.
    pub inserts: Vec<WaitEntry>,
    /// The first of the samples, likewise.
    pub samples: Vec<WaitEntry>,
    /// The number of inserts that wait.
    pub num_inserts: u64,
    /// The number of requests for samples that wait.
    pub num_samples: u64,
    /// The reason why a single insert would wait now.
    pub insert_reason: Option<String>,
    /// The reason why a single draw would wait now.
    pub sample_reason: Option<String>,
    /// Both sides are blocked, and no request that waits can change that.
    pub stuck: bool,
    /// All of it as sentences.
    pub text: String,
}

impl From<&WaitReport> for WaitSummary {
    fn from(why: &WaitReport) -> Self {
        Self {
            table: why.table.clone(),
            size: why.size,
            max_size: why.max_size,
            closed: why.closed,
            leased: why.leased,
            counters: why.counters,
            inserts: why.inserts.clone(),
            samples: why.samples.clone(),
            num_inserts: why.num_inserts,
            num_samples: why.num_samples,
            insert_reason: why.insert_reason.as_ref().map(ToString::to_string),
            sample_reason: why.sample_reason.as_ref().map(ToString::to_string),
            stuck: why.stuck,
            text: why.to_string(),
        }
    }
}
