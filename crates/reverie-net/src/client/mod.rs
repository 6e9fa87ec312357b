//! The remote client: what a server's tables offer, over a network, with the same tickets as in-process.
//!
//! No call here blocks; waiting is the tickets' (`Ticket::wait`), done outside by the caller's gate. One background
//! runtime for all clients of the process moves the bytes.

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
    /// Windows of the items.
    pub windows: Option<Windows>,
    /// What can be drawn at once.
    pub at_once: bool,
    /// Nothing is waited for.
    pub only_now: bool,
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
    /// See `Draws::tally`.
    pub tally: Option<Tally>,
    /// Where the arrays are in the block.
    pub layout: BatchLayout,
    /// Their memory: writable, and nobody else's while it lives.
    pub block: Arc<Block>,
}

/// The figures of a server.
pub struct ServerInfo {
    /// Of every table, in the server's order.
    pub tables: Vec<TableInfo>,
    /// The rest.
    pub raw: proto::ServerInfo,
}

/// A client of one server: a [`Replay`](reverie_core::replay::Replay).
///
/// Dropped, it goes on in the background until what was left to it is done; [`Remote::close`] ends it at once.
pub struct Remote {
    outbox: Arc<Outbox>,
    meter: Arc<Meter>,
    traffic: Arc<Traffic>,
    options: Options,
    process: u32,
}

impl Remote {
    /// Checks the options; connects at the first request, or when `describe` is called.
    pub fn new(options: Options) -> Result<Arc<Self>> {
        let mut session = [0; 16];
        // A process without random numbers cannot tell its sessions from others'.
        rustix::rand::getrandom(&mut session, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::Unavailable(format!("the system gives no random numbers: {error}")))?;
        let runtime = runtime::handle()?;
        Self::on(options, &runtime, Arc::new(Tcp), session)
    }

    /// The same on another runtime, network and source of randomness: for simulations. `session` names the client,
    /// unlike any other.
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

    /// True in a child that was forked since this was made: the thread that moves its bytes is not there, and nothing
    /// may be asked of it any more, not even to be dropped. Make another one of [`Remote::options`].
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// What it was made of.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What the server is: connects where there was no connection yet. `Unavailable`, `Unauthenticated`, `Protocol`.
    pub fn describe(self: &Arc<Self>) -> Ticket<Option<Arc<Described>>> {
        match self.outbox.described() {
            Some(described) => Ticket::done(Ok(Some(described))),
            None => self.outbox.request(None, None, (false, false), Answer::Described),
        }
    }

    /// The way that is taken.
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

    /// Why there is no connection, and since when, in a few words; `None` where there is one.
    pub fn outage(&self) -> Option<String> {
        self.outbox.outage()
    }

    /// Draws, gathered by the server. The server answers at the deadline with what was drawn and why not more; where
    /// it is silent, the ticket is filled a little later (`Deadline`). Errors are told in [`Sampled::error`], the
    /// ticket has none. Dropping the ticket withdraws.
    pub fn sample(self: &Arc<Self>, request: SampleRequest, timeout: Option<Duration>) -> Ticket<Sampled> {
        let SampleRequest { parts, columns, ragged, without_replacement, windows, at_once, only_now } = request;
        let part = |(table, draws): (String, usize)| {
            // No request may ask for so many: the server refuses it.
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

    /// Reads items by key. Errors are told in [`Sampled::error`].
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

    /// Looks for items by what the table knows of them: one batch without arrays. Errors are told in
    /// [`Sampled::error`].
    pub fn query(self: &Arc<Self>, table: &str, query: &Query) -> Ticket<Sampled> {
        self.request(Body::Query(encode_query(table, query)), None, true, Answer::Sampled)
    }

    /// All figures.
    pub fn info(self: &Arc<Self>) -> Ticket<Option<ServerInfo>> {
        self.request(Body::Info(proto::InfoRequest {}), None, false, Answer::Info)
    }

    /// Who waits for what.
    pub fn why(self: &Arc<Self>, table: &str) -> Ticket<proto::Why> {
        self.request(Body::Why(table.to_owned()), None, false, Answer::Why)
    }

    /// Asks the server for a checkpoint; its path there.
    pub fn checkpoint(self: &Arc<Self>) -> Ticket<String> {
        self.request(Body::Checkpoint(proto::CheckpointRequest {}), None, false, Answer::Checkpoint)
    }

    /// Ends the connection; what waits, and what comes, ends with `ClientClosed`. Idempotent.
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
