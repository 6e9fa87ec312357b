//! The remote client: the operations of a server's tables over a network, with the same tickets as in-process.
//!
//! No call here blocks: tickets wait (`Ticket::wait`), outside, in the caller's gate. One background runtime moves the
//! bytes of all clients of the process.

mod answer;
mod answer_time;
mod arriving;
mod connection;
mod dial;
mod engine;
mod incoming;
mod insert_queue;
mod inserts;
mod outbox;
mod pipeline;
mod read_ahead;
mod replay;
mod requests;
mod round_trip;
mod runtime;
mod task;

pub use pipeline::Pipeline;
pub use read_ahead::ReadAhead;

use crate::block::Block;
use crate::bulk::{BatchLayout, Head};
use crate::convert::batch::{encode_reading, encode_windows};
use crate::convert::query::encode_query;
use crate::grpc::connector::{Connect, Tcp};
use crate::local::LocalOutlet;
use crate::proto::{self, request::Body};
use crate::reach::Options;
use crate::way::Traffic;
use crate::way::client::Outlet as _;
use answer::Answer;
use dial::Dial;
use engine::Engine;
use outbox::{Ending, Outbox};
use reverie_core::batch::Ragged;
use reverie_core::chunk::Meter;
use reverie_core::sample::Windows;
use reverie_core::table::{Promise, Query, TableInfo, TableOptions, Tally, Ticket};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The state of the connection, for display.
#[derive(Clone, Debug)]
pub struct Link {
    /// "shared-memory" or "grpc"; `None` before the first connection.
    pub transport: Option<&'static str>,
    /// Why this transport was chosen.
    pub reason: String,
    /// True while connected.
    pub connected: bool,
    /// How often the client reconnected.
    pub reconnects: u64,
    /// How often the server was found restarted; unsaved data is lost each time.
    pub server_restarts: u64,
    /// Bytes sent, messages included.
    pub bytes_sent: u64,
    /// Bytes received, messages included.
    pub bytes_received: u64,
}

/// The server's description at the first connection.
#[derive(Clone, Debug)]
pub struct Described {
    /// The version of its package.
    pub version: String,
    /// Its tables.
    pub tables: Vec<TableOptions>,
}

/// A request for draws; see `Sample` in the proto.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    /// Tables, and the number of draws from each.
    pub parts: Vec<(String, usize)>,
    /// Paths of the columns; `None` for all.
    pub columns: Option<Vec<String>>,
    /// How columns of unequal lengths are returned.
    pub ragged: Ragged,
    /// No item is drawn twice.
    pub without_replacement: bool,
    /// Windows of the items.
    pub windows: Option<Windows>,
    /// Returns the draws that can be made at once: at least one, at most as many as requested.
    pub at_once: bool,
    /// Returns only the draws that can be made now, and waits for none.
    pub only_now: bool,
}

/// The outcome of a request for draws. `batches` is also filled where an error ended the request.
#[derive(Default)]
pub struct Sampled {
    /// One batch, or with `at_once` one for each run of items of the same form.
    pub batches: Vec<RemoteBatch>,
    /// The error that ended the request early.
    pub error: Option<reverie_core::Error>,
}

/// A batch that was received.
pub struct RemoteBatch {
    /// The description of the arrays.
    pub head: Arc<Head>,
    /// The number of draws.
    pub num_draws: usize,
    /// See `Draws::smallest_probability`.
    pub smallest_probability: Option<f64>,
    /// See `Draws::tally`.
    pub tally: Option<Tally>,
    /// The places of the arrays in the block.
    pub layout: BatchLayout,
    /// The memory of the arrays: writable, and used by nothing else while it lives.
    pub block: Arc<Block>,
}

/// The figures of a server.
pub struct ServerInfo {
    /// The tables, in the server's order.
    pub tables: Vec<TableInfo>,
    /// The other figures.
    pub raw: proto::ServerInfo,
}

/// A client of one server: a [`Replay`](reverie_core::replay::Replay).
///
/// When dropped, it goes on in the background until its work is done; [`Remote::close`] ends it at once.
pub struct Remote {
    outbox: Arc<Outbox>,
    meter: Arc<Meter>,
    traffic: Arc<Traffic>,
    options: Options,
    process: u32,
}

impl Remote {
    /// Checks the options. It connects at the first request, or when `describe` is called.
    pub fn new(options: Options) -> Result<Arc<Self>> {
        let mut session = [0; 16];
        // Without random numbers, sessions of different processes could have the same name.
        rustix::rand::getrandom(&mut session, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::Unavailable(format!("the system gives no random numbers: {error}")))?;
        let runtime = runtime::handle()?;
        Self::on(options, &runtime, Arc::new(Tcp), session)
    }

    /// As [`Remote::new`], with another runtime, network and source of randomness: for simulations.
    /// `session` names the client, and must be unique.
    pub fn on(
        options: Options,
        runtime: &tokio::runtime::Handle,
        connect: Arc<dyn Connect>,
        session: [u8; 16],
    ) -> Result<Arc<Self>> {
        let traffic = Arc::new(Traffic::default());
        let dial = Dial::new(&options, connect, Arc::clone(&traffic), session)?;
        let outbox = Outbox::new(&options.address);
        let (held, patience, grace) = (Arc::clone(&outbox), options.patience, options.grace);
        let seed = session.iter().fold(0u64, |seed, byte| seed.rotate_left(7) ^ u64::from(*byte));
        runtime.spawn(async move { task::run(Engine::new(held, patience, grace), dial, seed).await });
        let process = std::process::id();
        Ok(Arc::new(Self { outbox, meter: Arc::new(Meter::default()), traffic, options, process }))
    }

    /// True in a child process that was forked after this client was made.
    /// The thread that moves its bytes does not exist there: the child must not use the client, nor drop it. Make
    /// another one from [`Remote::options`].
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The options of this client.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The server's description; connects if there was no connection yet.
    /// Errors: `Unavailable`, `Unauthenticated`, `Protocol`.
    pub fn describe(self: &Arc<Self>) -> Ticket<Option<Arc<Described>>> {
        match self.outbox.described() {
            Some(described) => Ticket::done(Ok(Some(described))),
            None => self.outbox.request(None, None, (false, false), Answer::Described),
        }
    }

    /// The state of the connection.
    pub fn link(&self) -> Link {
        let mut link = self.outbox.link();
        link.bytes_sent = self.traffic.sent.load(Ordering::Relaxed);
        link.bytes_received = self.traffic.received.load(Ordering::Relaxed);
        if link.transport == Some(LocalOutlet::TRANSPORT) {
            for (without, what) in
                [(&self.traffic.without_insert_slot, "inserts"), (&self.traffic.without_batch_slot, "batches")]
            {
                if without.load(Ordering::Relaxed) {
                    link.reason += &format!("; it has no shared memory left for {what}, which go through the socket");
                }
            }
        }
        link
    }

    /// Why there is no connection, and since when, as a short text; `None` while connected.
    pub fn outage(&self) -> Option<String> {
        self.outbox.outage()
    }

    /// Draws items; the server gathers the batch.
    /// At the deadline the server answers with the draws so far and the reason why there are no more; if it is silent,
    /// the ticket ends a little later (`Deadline`). Errors are in [`Sampled::error`]; the ticket has none. Dropping the
    /// ticket withdraws the request.
    pub fn sample(self: &Arc<Self>, request: SampleRequest, timeout: Option<Duration>) -> Ticket<Sampled> {
        let SampleRequest { parts, columns, ragged, without_replacement, windows, at_once, only_now } = request;
        let part = |(table, draws): (String, usize)| {
            // The server refuses this number in any case.
            proto::SamplePart { table, num_samples: u32::try_from(draws).unwrap_or(u32::MAX) }
        };
        let sample = proto::Sample {
            parts: parts.into_iter().map(part).collect(),
            reading: Some(encode_reading(columns.as_deref(), ragged)),
            without_replacement,
            at_once,
            only_now,
            windows: windows.as_ref().map(encode_windows),
        };
        self.request(Body::Sample(sample), timeout, true, Answer::Sampled)
    }

    /// Reads items by key. Errors are in [`Sampled::error`].
    pub fn get(
        self: &Arc<Self>,
        table: &str,
        keys: &[i64],
        columns: Option<Vec<String>>,
        ragged: Ragged,
    ) -> Ticket<Sampled> {
        let reading = Some(encode_reading(columns.as_deref(), ragged));
        let get = proto::Get { table: table.to_owned(), keys: keys.to_vec(), reading };
        self.request(Body::Get(get), None, true, Answer::Sampled)
    }

    /// Finds items by their metadata in the table; returns one batch without arrays. Errors are in [`Sampled::error`].
    pub fn query(self: &Arc<Self>, table: &str, query: &Query) -> Ticket<Sampled> {
        self.request(Body::Query(encode_query(table, query)), None, true, Answer::Sampled)
    }

    /// All figures.
    pub fn info(self: &Arc<Self>) -> Ticket<Option<ServerInfo>> {
        self.request(Body::Info(proto::InfoRequest {}), None, false, Answer::Info)
    }

    /// Which requests wait, and for what.
    pub fn why(self: &Arc<Self>, table: &str) -> Ticket<proto::Why> {
        self.request(Body::Why(table.to_owned()), None, false, Answer::Why)
    }

    /// Asks the server for a checkpoint; returns its path on the server.
    pub fn checkpoint(self: &Arc<Self>) -> Ticket<String> {
        self.request(Body::Checkpoint(proto::CheckpointRequest {}), None, false, Answer::Checkpoint)
    }

    /// Ends the connection; current and later requests fail with `ClientClosed`. Idempotent.
    pub fn close(&self) {
        self.outbox.end(Ending::Now);
    }

    fn request<T: 'static>(
        &self,
        body: Body,
        timeout: Option<Duration>,
        withdraw_on_drop: bool,
        answer: fn(Promise<T>) -> Answer,
    ) -> Ticket<T> {
        self.outbox.request(Some(body), timeout, (withdraw_on_drop, false), answer)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.outbox.end(Ending::Idle);
        }
    }
}
