//! The figures of each client: its connection, and the memory that the server holds for it.

use super::latencies::RequestTransport;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The figures of one session, written by its task and read by others at any time.
pub(crate) struct ClientFigures {
    since: Instant,
    /// Guards the present connection. It is only replaced or copied under the lock.
    connection: Mutex<Connection>,
    /// Connections so far.
    connections: AtomicU64,
    /// The time when its last message arrived, in microseconds since `since`.
    seen: AtomicU64,
    /// Bytes that it holds of the server's memory, and of shared memory.
    held: AtomicU64,
    /// Bytes that wait for the client to read them.
    queued: AtomicU64,
    /// Requests that have no response yet.
    requests: AtomicU64,
}

#[derive(Clone, Default)]
struct Connection {
    /// `None` while the connection is lost.
    transport: Option<RequestTransport>,
    /// The last peer, while it is lost.
    peer: String,
}

/// The figures of one client at one moment.
pub(crate) struct ClientView {
    /// The first bytes of the session's name, in hexadecimal.
    pub(crate) name: String,
    /// `None` while the connection is lost, and the session waits for the client.
    pub(crate) transport: Option<RequestTransport>,
    pub(crate) peer: String,
    /// The time since the session began.
    pub(crate) age: Duration,
    /// The time since the client's last message.
    pub(crate) silent: Duration,
    pub(crate) reconnects: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_in_flight: u64,
}

impl ClientFigures {
    /// The figures of a session that begins now.
    pub(super) fn new() -> Self {
        let none = || AtomicU64::new(0);
        let (connections, seen, held, queued, requests) = (none(), none(), none(), none(), none());
        Self { since: Instant::now(), connection: Mutex::default(), connections, seen, held, queued, requests }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connected(&self, transport: RequestTransport, peer: String) {
        *self.connection() = Connection { transport: Some(transport), peer };
        self.connections.fetch_add(1, Relaxed);
        self.received();
    }

    pub(super) fn lost(&self) {
        self.connection().transport = None;
        self.queued.store(0, Relaxed);
    }

    /// Notes that a message has arrived.
    pub(super) fn received(&self) {
        self.seen.store(self.since.elapsed().as_micros() as u64, Relaxed);
    }

    pub(super) fn holds(&self, bytes: u64, requests: usize) {
        self.held.store(bytes, Relaxed);
        self.requests.store(requests as u64, Relaxed);
    }

    pub(super) fn queues(&self, bytes: u64) {
        self.queued.store(bytes, Relaxed);
    }

    fn view(&self, id: &[u8]) -> ClientView {
        let Connection { transport, peer } = self.connection().clone();
        let age = self.since.elapsed();
        ClientView {
            name: id.iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
            transport,
            peer,
            age,
            silent: age.saturating_sub(Duration::from_micros(self.seen.load(Relaxed))),
            reconnects: self.connections.load(Relaxed).saturating_sub(1),
            requests: self.requests.load(Relaxed),
            bytes_in_flight: self.held.load(Relaxed).saturating_add(self.queued.load(Relaxed)),
        }
    }
}

/// The views of `most` clients at most: those with most bytes in flight, and of equal ones those seen last.
pub(super) fn views<'a>(clients: impl Iterator<Item = (&'a [u8], &'a ClientFigures)>, most: usize) -> Vec<ClientView> {
    let mut views: Vec<ClientView> = clients.map(|(id, figures)| figures.view(id)).collect();
    views.sort_by_key(|view| (Reverse(view.bytes_in_flight), view.silent));
    views.truncate(most);
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_clients_with_most_bytes_are_listed_and_of_equal_ones_those_seen_last() {
        let all: Vec<ClientFigures> = (0..4).map(|_| ClientFigures::new()).collect();
        for (figures, bytes) in all.iter().zip([5, 0, 7, 0]) {
            figures.connected(RequestTransport::Grpc, "here".to_owned());
            figures.queues(bytes);
        }
        advance(Duration::from_secs(3)).await;
        all[3].received();
        all[2].lost();
        all[2].holds(6, 2);
        advance(Duration::from_secs(1)).await;
        let ids = [[0xa0; 16], [0xb1; 16], [0xc2; 16], [0xd3; 16]];
        let views = views(ids.iter().map(|id| &id[..]).zip(&all), 3);
        let shown = views.iter().map(|view| (&*view.name, view.bytes_in_flight, view.silent.as_secs(), view.transport));
        let grpc = Some(RequestTransport::Grpc);
        let expected = [("c2c2c2c2", 6, 4, None), ("a0a0a0a0", 5, 4, grpc), ("d3d3d3d3", 0, 1, grpc)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!((views[0].requests, &*views[0].peer, views[0].age.as_secs()), (2, "here", 4));
    }
}
