//! Admission of connections: places for clients, and a few for connections that are pending.
//!
//! A connection starts as pending, and has some seconds to be admitted: it then holds a place from its first session or
//! call until it ends. Pending connections have a limit of their own, and a bound on what they send. One more than the
//! limit ends the oldest pending connection of the host that has the most. So a peer that shows no token takes no
//! client's place, and does not keep others from connecting. Each transport has its own places.

use futures_util::task::AtomicWaker;
use reverie_core::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The time for which a connection may be pending, its TLS handshake included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that a pending connection may make.
const MAX_REQUESTS: u32 = 16;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionTransport {
    /// gRPC.
    Grpc,
    /// The Unix socket.
    Local,
}

/// Admission of connections: places for clients, and a few for connections that are pending.
#[derive(Debug)]
pub struct Admission {
    max_connections: usize,
    max_pending_connections: usize,
    /// The limit of open files, if it bounds the number of places.
    open_files: OnceLock<u64>,
    grpc: Mutex<TransportConnections>,
    local: Mutex<TransportConnections>,
}

/// The connections of one transport. Guarded by a lock that is held for a decision only.
#[derive(Debug, Default)]
struct TransportConnections {
    clients: usize,
    /// Pending connections that have not shown a token.
    unauthenticated: PendingConnections,
    /// Pending connections that have shown it: unauthenticated ones do not end them.
    authenticated: PendingConnections,
    next: u64,
}

/// Pending connections by host and number, the oldest first.
#[derive(Debug, Default)]
struct PendingConnections {
    hosts: HashMap<Arc<str>, BTreeMap<u64, Arc<CloseReason>>>,
    len: usize,
}

/// The reason why a pending connection is to be closed.
#[derive(Debug, Default)]
struct CloseReason {
    reason: OnceLock<&'static str>,
    changed: Notify,
}

impl CloseReason {
    fn set(&self, reason: &'static str) {
        // The first reason counts.
        let _ = self.reason.set(reason);
        self.changed.notify_one();
    }
}

impl PendingConnections {
    fn add(&mut self, host: &Arc<str>, number: u64, close_reason: Arc<CloseReason>, most: usize) {
        self.hosts.entry(Arc::clone(host)).or_default().insert(number, close_reason);
        self.len += 1;
        while self.len > most.max(1) {
            let Some((host, number)) = self.oldest() else { return };
            if let Some(close_reason) = self.remove(&host, number) {
                close_reason.set("it was closed to make room for newer ones");
            }
        }
    }

    /// The oldest pending connection of the host that has the most.
    fn oldest(&self) -> Option<(Arc<str>, u64)> {
        let (host, pending) = self.hosts.iter().max_by_key(|(_, pending)| pending.len())?;
        Some((Arc::clone(host), *pending.first_key_value()?.0))
    }

    fn remove(&mut self, host: &Arc<str>, number: u64) -> Option<Arc<CloseReason>> {
        let pending = self.hosts.get_mut(host)?;
        let removed = pending.remove(&number)?;
        self.len -= 1;
        if pending.is_empty() {
            self.hosts.remove(host);
        }
        Some(removed)
    }
}

impl Admission {
    /// Limits for each transport: clients, and pending connections.
    pub(crate) fn new(max_connections: usize, max_pending_connections: usize) -> Arc<Self> {
        let (open_files, grpc, local) =
            <(OnceLock<u64>, Mutex<TransportConnections>, Mutex<TransportConnections>)>::default();
        Arc::new(Self { max_connections, max_pending_connections, open_files, grpc, local })
    }

    /// Notes that the limit of open files bounds the number of places.
    pub(crate) fn bounded_by_open_files(&self, limit: u64) {
        let _ = self.open_files.set(limit);
    }

    /// Clients that can be connected at a time, for each transport.
    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    fn present(&self, via: ConnectionTransport) -> MutexGuard<'_, TransportConnections> {
        let present = match via {
            ConnectionTransport::Grpc => &self.grpc,
            ConnectionTransport::Local => &self.local,
        };
        present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection of the peer `host:port` or of a process. Hold the guard while the connection lasts.
    pub(crate) fn register(self: &Arc<Self>, via: ConnectionTransport, peer: &str) -> Arc<AdmissionGuard> {
        let host = Arc::from(peer.rsplit_once(':').map_or(peer, |(host, _)| host));
        let close_reason = Arc::<CloseReason>::default();
        let mut present = self.present(via);
        let number = present.next;
        present.next += 1;
        present.unauthenticated.add(&host, number, Arc::clone(&close_reason), self.max_pending_connections);
        drop(present);
        Arc::new(AdmissionGuard {
            admission: Arc::clone(self),
            via,
            host,
            number,
            close_reason,
            admitted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            requests: AtomicU32::new(0),
            deadline: Instant::now() + PATIENCE,
        })
    }

    fn full(&self, via: ConnectionTransport) -> Error {
        let most = self.max_connections;
        let way = match via {
            ConnectionTransport::Grpc => "gRPC",
            ConnectionTransport::Local => "shared memory",
        };
        Error::Unavailable(match self.open_files.get() {
            None => format!(
                "the server is full: {most} clients are connected over {way}, and max_connections={most} allows no \
                 more; start it with a larger max_connections= (reverie serve --max-connections)"
            ),
            Some(files) => format!(
                "the server is full: {most} clients are connected over {way}, and its limit of {files} open files \
                 leaves no room for more; raise that limit (ulimit -n, hard and soft) and start it again"
            ),
        })
    }
}

/// A connection, with or without a place.
#[derive(Debug)]
pub struct AdmissionGuard {
    admission: Arc<Admission>,
    via: ConnectionTransport,
    host: Arc<str>,
    number: u64,
    close_reason: Arc<CloseReason>,
    admitted: AtomicBool,
    /// The reader that waits to read more than a pending connection may send.
    reader: AtomicWaker,
    requests: AtomicU32,
    deadline: Instant,
}

impl AdmissionGuard {
    /// True if it has a place.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Acquire)
    }

    /// Ready when it has a place.
    pub(crate) fn poll_admitted(&self, context: &Context<'_>) -> Poll<()> {
        self.reader.register(context.waker());
        if self.is_admitted() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts a request: a pending connection that makes too many is ended.
    pub(crate) fn count_request(&self) {
        if !self.is_admitted() && self.requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            self.close_reason.set("it made too many requests without a session");
        }
    }

    /// Notes that it has shown what is required: unauthenticated connections do not end it any more.
    pub(crate) fn mark_authenticated(&self) {
        let mut present = self.admission.present(self.via);
        if let Some(close_reason) = present.unauthenticated.remove(&self.host, self.number) {
            present.authenticated.add(&self.host, self.number, close_reason, self.admission.max_pending_connections);
        }
    }

    /// Takes a place until it is dropped. `Unavailable` if there is none, or if it is being ended.
    pub(crate) fn admit(&self) -> Result<()> {
        if self.is_admitted() {
            return Ok(());
        }
        let mut present = self.admission.present(self.via);
        if self.is_admitted() {
            return Ok(());
        }
        if present.clients >= self.admission.max_connections {
            return Err(self.admission.full(self.via));
        }
        let authenticated = present.authenticated.remove(&self.host, self.number);
        if authenticated.or_else(|| present.unauthenticated.remove(&self.host, self.number)).is_none() {
            return Err(Error::Unavailable("the connection was closed to make room for newer ones".to_owned()));
        }
        present.clients += 1;
        self.admitted.store(true, Ordering::Release);
        drop(present);
        self.reader.wake();
        Ok(())
    }

    /// Resolves with the reason when it must end without a place.
    pub(crate) async fn must_close(&self) -> &'static str {
        tokio::select! {
            () = self.close_reason.changed.notified() => {}
            () = tokio::time::sleep_until(self.deadline) => {
                self.close_reason.set("it did not request a session in time");
            }
        }
        match self.is_admitted() {
            false => self.close_reason.reason.get().copied().unwrap_or_default(),
            true => std::future::pending().await,
        }
    }
}

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        let mut present = self.admission.present(self.via);
        if self.is_admitted() {
            present.clients -= 1;
        } else if present.unauthenticated.remove(&self.host, self.number).is_none() {
            present.authenticated.remove(&self.host, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn must_close(connection: &AdmissionGuard) -> bool {
        connection.must_close().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_of_the_host_with_the_most_is_closed_for_one_more() {
        let admission = Admission::new(10, 4);
        let flood = [1, 2, 3].map(|port| admission.register(ConnectionTransport::Grpc, &format!("10.0.0.1:{port}")));
        let other = admission.register(ConnectionTransport::Grpc, "10.0.0.2:1");
        let more = admission.register(ConnectionTransport::Grpc, "10.0.0.3:1");
        assert_eq!(flood.each_ref().map(|connection| must_close(connection)), [true, false, false]);
        assert!(!must_close(&other) && !must_close(&more));
        assert!(flood[0].admit().is_err(), "it is being ended");
        let local = admission.register(ConnectionTransport::Local, "process 1");
        assert!(!must_close(&local), "the other way has a number of its own");
    }

    #[tokio::test]
    async fn unauthenticated_connections_do_not_end_authenticated_ones_and_take_no_place_of_a_client() {
        let admission = Admission::new(1, 2);
        let authenticated = admission.register(ConnectionTransport::Grpc, "10.0.0.1:1");
        authenticated.mark_authenticated();
        let flood: Vec<_> =
            (2..100).map(|port| admission.register(ConnectionTransport::Grpc, &format!("10.0.0.1:{port}"))).collect();
        assert_eq!(flood.iter().filter(|connection| !must_close(connection)).count(), 2);
        assert!(!must_close(&authenticated));
        authenticated.admit().unwrap();
        let full = flood.last().unwrap().admit().unwrap_err().to_string();
        assert!(full.contains("the server is full: 1 clients") && full.contains("max_connections=1"), "{full}");
        let local = admission.register(ConnectionTransport::Local, "process 1");
        local.admit().unwrap();
        drop(authenticated);
        flood.last().unwrap().admit().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pending_connection_has_a_time_and_a_number_of_requests_and_an_admitted_one_has_neither() {
        let admission = Admission::new(10, 10);
        let [silent, eager, client] =
            [1, 2, 3].map(|port| admission.register(ConnectionTransport::Grpc, &format!("10.0.0.1:{port}")));
        (0..MAX_REQUESTS).for_each(|_| eager.count_request());
        assert!(!must_close(&eager));
        eager.count_request();
        assert!(must_close(&eager));
        client.admit().unwrap();
        (0..=MAX_REQUESTS).for_each(|_| client.count_request());
        tokio::time::sleep(PATIENCE).await;
        assert!(must_close(&silent) && !must_close(&client));
    }

    #[test]
    fn a_dropped_connection_frees_its_place_and_its_number() {
        let admission = Admission::new(1, 1);
        for _ in 0..3 {
            let client = admission.register(ConnectionTransport::Grpc, "10.0.0.1:1");
            client.mark_authenticated();
            client.admit().unwrap();
        }
        let (_unauthenticated, authenticated) = (
            admission.register(ConnectionTransport::Grpc, "a:1"),
            admission.register(ConnectionTransport::Local, "b:1"),
        );
        authenticated.mark_authenticated();
        drop((_unauthenticated, authenticated));
        for via in [ConnectionTransport::Grpc, ConnectionTransport::Local] {
            let present = admission.present(via);
            assert_eq!((present.clients, present.unauthenticated.len, present.authenticated.len), (0, 0, 0));
            assert!(present.unauthenticated.hosts.is_empty() && present.authenticated.hosts.is_empty());
        }
    }

    #[test]
    fn a_refusal_for_lack_of_open_files_names_their_limit() {
        let admission = Admission::new(0, 1);
        admission.bounded_by_open_files(1024);
        let full = admission.register(ConnectionTransport::Local, "process 1").admit().unwrap_err().to_string();
        assert!(full.contains("its limit of 1024 open files") && full.contains("over shared memory"), "{full}");
    }
}
