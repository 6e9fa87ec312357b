//! The state that all connections of a server share.

use super::charges::{Charge, Charges};
use super::checkpoints::Checkpoints;
use super::clients::{self, ClientFigures, ClientView};
use super::gathering::GatherLimits;
use super::latencies::{Latencies, RequestTransport};
use super::pool::BlockPool;
use super::spans::Spans;
use super::{Limits, ServerOptions};
use crate::admission::Admission;
use crate::deadline::FAR;
use crate::log_limit::LogLimit;
use crate::proto::{self, PROTOCOL};
use crate::token::Token;
use crate::transport::ByteCounts;
use crate::transport::server::ServerConnection;
use reverie_core::table::{Arrivals, Sender, Tables};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The name that a client gave its session.
pub(super) type SessionId = Sender;

/// The sessions by name.
pub(super) type Sessions = HashMap<SessionId, OpenSession>;

/// A session, as others see it.
pub(super) struct OpenSession {
    /// The channel for a new connection of it.
    pub(super) connections: mpsc::Sender<Box<dyn ServerConnection>>,
    pub(super) figures: Arc<ClientFigures>,
}

/// The state that all connections of a server share.
pub struct ServerState {
    pub(super) tables: Arc<Tables>,
    pub(super) limits: Limits,
    pub(super) checkpoints: Option<Arc<Checkpoints>>,
    pub(super) token: Option<Token>,
    /// The places for connections.
    pub(crate) admission: Arc<Admission>,
    /// Connections that are refused, or ended without a session.
    pub(crate) refusals: LogLimit,
    /// Connections that could not be accepted.
    pub(crate) failures: LogLimit,
    /// Connections of sessions that the server ended.
    pub(super) endings: LogLimit,
    /// The memory of batches that are being sent.
    pub(super) pool: BlockPool,
    /// The memory that sessions use in addition to the tables.
    pub(super) charges: Arc<Charges>,
    /// The turns of batches whose chunks are packed.
    pub(super) turns: GatherLimits,
    /// The times that requests take.
    pub(crate) latencies: Latencies,
    /// The spans of traced requests.
    pub(crate) spans: Arc<Spans>,
    /// The bytes of each transport.
    bytes: [Arc<ByteCounts>; RequestTransport::ALL.len()],
    incarnation: u64,
    started: Instant,
    /// True once the clients known from a checkpoint that did not reconnect were dropped.
    expired: AtomicBool,
    /// Guards the connected or remembered sessions.
    sessions: Mutex<Sessions>,
    /// The total insert credit granted.
    credit: AtomicU64,
    grpc: AtomicU64,
    local: AtomicU64,
    local_socket: OnceLock<String>,
    stopping: watch::Sender<bool>,
    busy: watch::Sender<usize>,
    /// Sessions that may still have messages which arrived before a stop.
    undrained: watch::Sender<usize>,
}

impl ServerState {
    /// The state of one server, before it listens.
    pub fn new(tables: Arc<Tables>, options: &ServerOptions) -> Arc<Self> {
        Arc::new(Self {
            tables,
            limits: options.limits,
            checkpoints: options.checkpoint.clone().map(Checkpoints::new),
            token: options.token.as_deref().map(Token::new),
            admission: Admission::new(options.limits.max_connections, options.limits.max_pending_connections),
            refusals: LogLimit::default(),
            failures: LogLimit::default(),
            endings: LogLimit::default(),
            pool: BlockPool::new(options.limits.total_batch_bytes),
            charges: Charges::new(options.limits.total_session_bytes),
            turns: GatherLimits::new(),
            latencies: Latencies::default(),
            spans: Arc::new(Spans::new(options.spans)),
            bytes: Default::default(),
            // Never 0, the value of an absent field.
            incarnation: RandomState::new().hash_one("incarnation") | 1,
            started: Instant::now(),
            expired: false.into(),
            sessions: Mutex::default(),
            credit: AtomicU64::new(0),
            grpc: AtomicU64::new(0),
            local: AtomicU64::new(0),
            local_socket: OnceLock::new(),
            stopping: watch::Sender::new(false),
            busy: watch::Sender::new(0),
            undrained: watch::Sender::new(0),
        })
    }

    /// Sets the Unix socket's path, for descriptions. Call it once, before any client connects.
    pub fn set_local_socket(&self, path: String) {
        let _ = self.local_socket.set(path);
    }

    /// The Unix socket's path.
    pub fn local_socket(&self) -> Option<&str> {
        self.local_socket.get().map(String::as_str)
    }

    /// True if no token is required, or this is the one.
    pub fn admits(&self, shown: Option<&[u8]>) -> bool {
        self.token.as_ref().is_none_or(|token| shown.is_some_and(|shown| token.admits(shown)))
    }

    /// The bytes that this transport's connections sent and received.
    pub(crate) fn bytes(&self, transport: RequestTransport) -> &Arc<ByteCounts> {
        &self.bytes[transport as usize]
    }

    /// The charge of a connection for a message that is assembled elsewhere.
    pub(crate) fn charge(&self) -> Charge {
        Charge::new(&self.charges)
    }

    /// A random number of this start of the server.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Resolves when the server stops.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.stopping.subscribe();
        async move {
            // `self` owns the sender: an error means that the server is gone.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }

    /// True as soon as a stop begins.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Stops the server.
    /// Sessions take the messages that have arrived; then everything that waits at the tables ends, sessions are
    /// notified, and the stop waits for what they still have to send. All of it takes at most `grace`.
    pub async fn stop(&self, grace: std::time::Duration) {
        let deadline = Instant::now() + grace.min(FAR);
        self.stopping.send_replace(true);
        let mut undrained = self.undrained.subscribe();
        let _ = tokio::time::timeout_at(deadline, undrained.wait_for(|undrained| *undrained == 0)).await;
        self.tables.close();
        let mut busy = self.busy.subscribe();
        let _ = tokio::time::timeout_at(deadline, busy.wait_for(|busy| *busy == 0)).await;
    }

    /// The description of this server.
    pub fn describe(&self) -> proto::Description {
        proto::Description {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: self.incarnation,
            tables: self
                .tables
                .iter()
                .map(|table| crate::convert::table::encode_options(&table.info().options))
                .collect(),
            local_socket: self.local_socket.get().cloned().unwrap_or_default(),
            max_message_bytes: proto::MAX_MESSAGE_BYTES as u64,
            wants_token: self.token.is_some(),
        }
    }

    pub(super) fn info(&self) -> proto::ServerInfo {
        let tables = self.tables.iter().map(|table| crate::convert::table::encode_info(&table.info())).collect();
        proto::ServerInfo { tables, ..self.network() }
    }

    /// The figures of the connections and of memory, without those of the tables.
    pub(crate) fn network(&self) -> proto::ServerInfo {
        let (meter, max_bytes) = self.tables.bytes();
        proto::ServerInfo {
            tables: Vec::new(),
            live_bytes: meter.live_bytes(),
            max_bytes,
            grpc_connections: self.grpc.load(Ordering::Relaxed),
            local_connections: self.local.load(Ordering::Relaxed),
            uptime: self.started.elapsed().as_secs_f64(),
            network_bytes: self.charges.used() + self.pool.taken_bytes(),
            max_network_bytes: self.limits.memory.map(|(_, network)| network),
            max_memory: self.limits.memory.map(|(memory, _)| memory),
            max_connections: self.admission.max_connections() as u64,
            journal: self.tables.journal().map(crate::convert::journal::encode),
            disk: meter.tier_info().map(crate::convert::disk::encode),
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of clients, and the figures of `most` of them at most: those with most bytes in flight first.
    pub(crate) fn clients(&self, most: usize) -> (usize, Vec<ClientView>) {
        let known: Vec<(SessionId, Arc<ClientFigures>)> =
            self.sessions().iter().map(|(id, known)| (*id, Arc::clone(&known.figures))).collect();
        (known.len(), clients::views(known.iter().map(|(id, figures)| (&id[..], &**figures)), most))
    }

    /// Undoes the draws that clients held before the start and that no client claims within the time for which a session
    /// is remembered. Ends when the server stops.
    pub(crate) async fn end_held_leases(self: Arc<Self>) {
        if !self.tables.holds_leases() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(self.limits.linger) => {}
            () = self.stopping() => return,
        }
        let draws = self.tables.end_held_leases();
        if draws > 0 {
            tracing::warn!(
                "{draws} draws that clients held before the restart were returned to their tables: the clients did not reconnect"
            );
        }
    }

    /// The keys of a client's inserts from before the checkpoint that this server was restored from.
    /// A client that has not reconnected within the time for which a session is remembered is dropped, as usual.
    pub(super) fn returned(&self, id: &SessionId, sessions: &Sessions) -> Arrivals {
        if self.started.elapsed() > self.limits.linger && !self.expired.swap(true, Ordering::Relaxed) {
            for table in self.tables.iter() {
                let known = |sender: &SessionId| sender != id && sessions.contains_key(sender);
                for sender in table.senders().into_iter().filter(|sender| !known(sender)) {
                    self.tables.forgotten().add(sender);
                    table.forget_sender(&sender);
                }
            }
        }
        self.tables.iter().flat_map(|table| table.arrivals(id)).collect()
    }

    /// Notes that a session ends with outcomes that its client may not have received.
    pub(super) fn forget_outcomes(&self, id: SessionId) {
        self.tables.forgotten().add(id);
    }

    /// Notes that a session's client was notified of the lost outcomes.
    pub(super) fn notified(&self, id: &SessionId) {
        self.tables.forgotten().remove(id);
    }

    /// Removes a session that ends, unless a connection for it arrived just now. Its inserts that wait, if there are any,
    /// are withdrawn: no session counts them any more.
    pub(super) fn leave(
        &self,
        id: SessionId,
        arrivals: &mut mpsc::Receiver<Box<dyn ServerConnection>>,
        waits: bool,
    ) -> Option<Box<dyn ServerConnection>> {
        let mut sessions = self.sessions();
        if let Ok(connection) = arrivals.try_recv() {
            return Some(connection);
        }
        arrivals.close();
        sessions.remove(&id);
        // A server that stops may take a last checkpoint.
        if !self.is_stopping() {
            for table in self.tables.iter() {
                if waits {
                    table.withdraw_sender(&id);
                }
                table.forget_sender(&id);
            }
        }
        None
    }

    /// Removes a session.
    pub(super) fn forget(&self, id: SessionId) {
        self.sessions().remove(&id);
    }

    pub(super) fn counter(&self, transport: &str) -> &AtomicU64 {
        if transport == "grpc" { &self.grpc } else { &self.local }
    }

    pub(super) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.busy.send_modify(|busy| *busy += 1);
        BusyGuard(Arc::clone(self))
    }
}

/// Exists while a session may have messages that arrived before a stop.
pub(super) struct UndrainedGuard(Arc<ServerState>);

impl UndrainedGuard {
    pub(super) fn new(shared: &Arc<ServerState>) -> Self {
        shared.undrained.send_modify(|undrained| *undrained += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for UndrainedGuard {
    fn drop(&mut self) {
        self.0.undrained.send_modify(|undrained| *undrained -= 1);
    }
}

/// Exists while a stop has to wait for a session.
pub(super) struct BusyGuard(Arc<ServerState>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}

/// The bytes of inserts that a session may have in flight.
/// More is granted as it is used, while all sessions together stay below the server's bound.
pub(super) struct Credit {
    shared: Arc<ServerState>,
    granted: u64,
}

/// The first credit of a session at most.
const FIRST_CREDIT: u64 = 1 << 20;
/// The bytes of memory that a waiting insert takes at most for each byte that it counts for against the credit, if its
/// items are small. Every session is granted so much that its guaranteed bytes suffice for it.
const WAITING_COST: u64 = 24;

impl Credit {
    pub(super) fn new(shared: &Arc<ServerState>) -> Self {
        let Limits { session_insert_bytes, total_insert_bytes, .. } = shared.limits;
        let left = total_insert_bytes.saturating_sub(shared.credit.load(Ordering::Relaxed));
        let certain = shared.charges.guaranteed() / WAITING_COST;
        let fits = shared.charges.free() / WAITING_COST;
        let granted = (left / 2).min(fits).max(certain).min(FIRST_CREDIT).min(session_insert_bytes);
        shared.credit.fetch_add(granted, Ordering::Relaxed);
        Self { shared: Arc::clone(shared), granted }
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// Grants more, if the bytes in flight show that it would be used and some is left. `room`: the bytes of memory that
    /// the session may use in addition.
    pub(super) fn raise(&mut self, in_flight: u64, room: u64) -> Option<u64> {
        let Limits { session_insert_bytes, total_insert_bytes, .. } = self.shared.limits;
        if in_flight < self.granted / 2 || self.granted >= session_insert_bytes {
            return None;
        }
        let more = self.granted.min(session_insert_bytes - self.granted);
        if more.saturating_mul(WAITING_COST) > room {
            return None;
        }
        let taken = self.shared.credit.fetch_add(more, Ordering::Relaxed);
        if taken + more > total_insert_bytes {
            self.shared.credit.fetch_sub(more, Ordering::Relaxed);
            return None;
        }
        self.granted += more;
        Some(self.granted)
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.shared.credit.fetch_sub(self.granted, Ordering::Relaxed);
    }
}
