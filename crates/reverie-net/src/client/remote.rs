//! A client of one server: it leaves requests for the task that holds the connection.

use super::answer::RequestPromise;
use super::dial::SessionDialer;
use super::engine::Engine;
use super::outbox::{ClientEnding, Outbox};
use super::server_description::ServerDescription;
use super::work::Handling;
use super::{runtime, task};
use crate::convert::batch::{encode_read_options, encode_windows};
use crate::endpoint::EndpointOptions;
use crate::grpc::connector::{Connector, Tcp};
use crate::local::LocalOutlet;
use crate::proto::{self, request::Body};
use crate::transport::Traffic;
use crate::transport::client::Outlet as _;
use reverie_core::batch::Ragged;
use reverie_core::chunk::Meter;
use reverie_core::replay::ConnectionInfo;
use reverie_core::sample::{SampleOutcome, Windows};
use reverie_core::table::{Promise, Ticket};
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request for draws; see `Sample` in the proto.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    /// Tables, and the number of draws from each.
    pub parts: Vec<(String, usize)>,
    /// Paths of the columns; `None` for all.
    pub columns: Option<Vec<String>>,
    /// The form in which columns of unequal lengths are returned.
    pub ragged: Ragged,
    /// No item is drawn twice.
    pub without_replacement: bool,
    /// Windows of the items.
    pub windows: Option<Windows>,
    /// Returns the draws that can be made at once: at least one, at most as many as requested.
    pub at_once: bool,
    /// Returns only the draws that can be made now, and waits for none.
    pub only_now: bool,
    /// The program acknowledges the draws, see [`Draws::lease`](reverie_core::sample::Draws::lease). Otherwise the
    /// client does, when they arrive.
    pub leases: bool,
}

/// A client of one server: a [`Replay`](reverie_core::replay::Replay).
///
/// When dropped, it goes on in the background until its work is done; [`Remote::close`] ends it at once.
pub struct Remote {
    pub(super) outbox: Arc<Outbox>,
    pub(super) meter: Arc<Meter>,
    traffic: Arc<Traffic>,
    pub(super) options: EndpointOptions,
    process: u32,
}

/// Fails the work of a client whose task ends before it, by a panic or with its runtime: no call waits for ever.
struct TaskGuard(Arc<Outbox>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.task_ended(std::thread::panicking());
    }
}

impl Remote {
    /// Checks the options. It connects at the first request, or when `describe` is called.
    pub fn new(options: EndpointOptions) -> Result<Arc<Self>> {
        let mut session = [0; 16];
        // Without random numbers, sessions of different processes could have the same name.
        getrandom::fill(&mut session)
            .map_err(|error| Error::Unavailable(format!("the system returned no random numbers: {error}")))?;
        let runtime = runtime::handle()?;
        Self::on(options, &runtime, Arc::new(Tcp), session)
    }

    /// Like [`Remote::new`], with another runtime, network and source of randomness: for simulations.
    /// `session` names the client, and must be unique.
    pub fn on(
        options: EndpointOptions,
        runtime: &tokio::runtime::Handle,
        connector: Arc<dyn Connector>,
        session: [u8; 16],
    ) -> Result<Arc<Self>> {
        let traffic = Arc::new(Traffic::default());
        let dial = SessionDialer::new(&options, connector, Arc::clone(&traffic), session)?;
        let outbox = Outbox::new(&options.address);
        let (held, patience, grace) = (Arc::clone(&outbox), options.patience, options.grace);
        let max_kept_bytes = options.max_kept_bytes;
        let seed = session.iter().fold(0u64, |seed, byte| seed.rotate_left(7) ^ u64::from(*byte));
        let guard = TaskGuard(Arc::clone(&outbox));
        runtime.spawn(async move {
            let _guard = guard;
            task::run(Engine::new(held, (patience, grace), max_kept_bytes), dial, seed).await;
        });
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
    pub fn options(&self) -> &EndpointOptions {
        &self.options
    }

    /// The server's description; connects if there was no connection yet.
    /// Errors: `Unavailable`, `Unauthenticated`, `Protocol`.
    pub fn describe(&self) -> Ticket<Option<Arc<ServerDescription>>> {
        match self.outbox.described() {
            Some(described) => Ticket::done(Ok(Some(described))),
            None => self.outbox.request(None, None, Handling::default(), RequestPromise::Described),
        }
    }

    /// The state of the connection.
    pub fn link(&self) -> ConnectionInfo {
        let mut link = self.outbox.link();
        (link.kept_bytes, link.max_kept_bytes) = (self.outbox.kept(), self.options.max_kept_bytes);
        link.bytes_sent = self.traffic.bytes.sent.load(Ordering::Relaxed);
        link.bytes_received = self.traffic.bytes.received.load(Ordering::Relaxed);
        if link.transport.as_deref() == Some(LocalOutlet::TRANSPORT) {
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

    /// The reason why there is no connection, and since when, as a short text; `None` while connected.
    pub fn outage(&self) -> Option<String> {
        self.outbox.outage()
    }

    /// Draws items; the server gathers the batch.
    /// At the deadline the server answers with the draws so far and the reason why there are no more; if it is silent,
    /// the ticket ends a little later (`Deadline`). Errors are in [`SampleOutcome::error`]; the ticket has none.
    /// Dropping the ticket withdraws the request.
    pub fn draw(&self, request: SampleRequest, timeout: Option<Duration>) -> Ticket<SampleOutcome> {
        let SampleRequest { parts, columns, ragged, without_replacement, windows, at_once, only_now, leases } = request;
        let part = |(table, draws): (String, usize)| {
            // The server refuses this number in any case.
            proto::SamplePart { table, num_samples: u32::try_from(draws).unwrap_or(u32::MAX) }
        };
        let sample = proto::Sample {
            parts: parts.into_iter().map(part).collect(),
            reading: Some(encode_read_options(columns.as_deref(), ragged)),
            without_replacement,
            at_once,
            only_now,
            windows: windows.as_ref().map(encode_windows),
        };
        let handling = Handling { withdraw_on_drop: true, leases, ..Handling::default() };
        self.outbox.request(Some(Body::Sample(sample)), timeout, handling, RequestPromise::Sampled)
    }

    /// Ends the connection; current and later requests fail with `ClientClosed`. Idempotent.
    pub fn close(&self) {
        self.outbox.end(ClientEnding::Now);
    }

    pub(super) fn request<T: 'static>(
        &self,
        body: Body,
        timeout: Option<Duration>,
        withdraw_on_drop: bool,
        answer: fn(Promise<T>) -> RequestPromise,
    ) -> Ticket<T> {
        self.outbox.request(Some(body), timeout, Handling { withdraw_on_drop, ..Handling::default() }, answer)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.outbox.end(ClientEnding::Idle);
        }
    }
}
