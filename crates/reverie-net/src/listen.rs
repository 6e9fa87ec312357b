//! The listening server: accepts connections of both transports and passes them to sessions.

use crate::grpc::server::GrpcServices;
use crate::local::Listener;
use crate::open_files::{ConnectionCapacity, make_room};
use crate::own_stream::OwnStream;
use crate::server::spans::Spans;
use crate::server::{Limits, ServerOptions, ServerState};
use crate::token;
use reverie_core::inherited::ListedDescriptor;
use reverie_core::table::Tables;
use reverie_core::{Error, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Threads of a server at most: its work is copying, which memory bandwidth limits.
const MAX_THREADS: usize = 4;

/// The time for which a stop waits for connections whose sessions have ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the connections of a stream, each with its peer's name, on the caller's runtime.
/// Returns when the stream and all its connections have ended. This is for a network of the caller's own: the options
/// of [`ServerOptions`] for listening have no effect.
pub async fn serve<IO>(
    tables: Arc<Tables>,
    options: &ServerOptions,
    incoming: impl futures_util::Stream<Item = std::io::Result<(IO, String)>>,
) -> Result<()>
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let front = GrpcServices::new(ServerState::new(tables, options), options.tls.as_ref())?;
    front.serve(incoming).await;
    Ok(())
}

/// A listening server. Its threads end with it.
pub struct Server {
    /// Guards the runtime, which exists until the stop, and the task that ends with the last connection.
    running: Mutex<Option<(Runtime, JoinHandle<()>)>>,
    shared: Arc<ServerState>,
    address: SocketAddr,
    grace: Duration,
}

impl Server {
    /// Binds, and serves from threads of its own.
    /// `InvalidArgument`: an unsafe address, unreadable certificates, or a port that is in use.
    pub fn start(tables: Arc<Tables>, mut options: ServerOptions) -> Result<Self> {
        check_safe(options.address, options.token.as_deref(), options.tls.is_some(), options.insecure)?;
        let room = fit_open_files(&mut options.limits);
        let refuse = |what: &str, error: &dyn std::fmt::Display| {
            Error::InvalidArgument(format!("{}: {what}: {error}", options.address))
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("reverie-server")
            .enable_all()
            .build()
            .map_err(|error| refuse("the server's threads", &error))?;
        let listener = std::net::TcpListener::bind(options.address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| refuse("cannot listen there", &error))?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).map_err(|error| refuse("cannot listen there", &error))?;
        let address = listener.local_addr().map_err(|error| refuse("cannot listen there", &error))?;
        let shared = ServerState::new(tables, &options);
        if let Some(limit) = room.bounded_by {
            shared.admission.bounded_by_open_files(limit);
        }
        let front = GrpcServices::new(Arc::clone(&shared), options.tls.as_ref())?;
        let mut local = None;
        if options.local {
            match Listener::bind(address.port(), &options.limits) {
                Ok(listener) => {
                    shared.set_local_socket(listener.path().to_owned());
                    local = Some(crate::local::serve(listener, Arc::clone(&shared)));
                }
                Err(error) => tracing::warn!("shared memory is not available; clients on this host use gRPC: {error}"),
            }
        }
        let local = local.map(|serving| runtime.spawn(serving));
        runtime.spawn(Arc::clone(&shared).end_held_leases());
        let remote = runtime.spawn(front.serve(incoming(ListeningSocket::of(listener))));
        let serving = runtime.spawn(async move {
            let _ = remote.await;
            if let Some(local) = local {
                // Waited for so that the socket's file is gone when the server has stopped.
                let _ = local.await;
            }
        });
        drop(entered);
        if options.tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "no TLS: anybody on the network path can read and change the token and all data");
        }
        Ok(Self { running: Mutex::new(Some((runtime, serving))), shared, address, grace: options.grace })
    }

    /// The state of its connections.
    pub(crate) fn shared(&self) -> &Arc<ServerState> {
        &self.shared
    }

    /// The spans of its traced requests.
    pub fn spans(&self) -> &Spans {
        &self.shared.spans
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The Unix socket's path.
    pub fn local_socket(&self) -> Option<&str> {
        self.shared.local_socket()
    }

    /// Stops the server: accepts no more connections, notifies the clients, and ends waiting requests.
    /// Work in progress may finish within the grace time; then the tables are closed. Blocks for that long; idempotent.
    pub fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((runtime, serving)) = running else { return };
        let (sender, done) = std::sync::mpsc::channel();
        let (shared, grace) = (Arc::clone(&self.shared), self.grace);
        runtime.spawn(async move {
            shared.stop(grace).await;
            // The remaining bytes go at once to clients that read; for the others there is no use in waiting.
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT.min(grace), serving).await;
            // The receiver waits until then.
            let _ = sender.send(());
        });
        let _ = done.recv();
        // A thread of another runtime must not block.
        match tokio::runtime::Handle::try_current() {
            Ok(_) => runtime.shutdown_background(),
            Err(_) => runtime.shutdown_timeout(Duration::from_secs(1)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lowers the number of connections to what the limit of open files allows, and logs it.
fn fit_open_files(limits: &mut Limits) -> ConnectionCapacity {
    let room = make_room(limits.max_connections, limits.max_pending_connections);
    let (wanted, most) = (limits.max_connections, room.max_connections);
    match room.bounded_by {
        None => tracing::info!("takes {most} clients at a time over gRPC, and as many over shared memory"),
        Some(limit) => tracing::warn!(
            "takes {most} clients at a time over gRPC, and as many over shared memory, of max_connections={wanted}: the \
             limit of {limit} open files leaves no room for more; raise it (ulimit -n, hard and soft)"
        ),
    }
    (limits.max_connections, limits.max_pending_connections) = (most, room.max_pending_connections);
    room
}

/// Refuses an address that other machines can reach without a token, or without TLS unless `insecure`.
pub(crate) fn check_safe(address: SocketAddr, token: Option<&str>, has_tls: bool, insecure: bool) -> Result<()> {
    token.map_or(Ok(()), token::check)?;
    if address.ip().is_loopback() {
        return Ok(());
    }
    let need = |what: &str| {
        Err(Error::InvalidArgument(format!("{address} can be reached from other machines and needs {what}")))
    };
    if token.is_none() {
        return need("token=, which every client must show; or listen on 127.0.0.1");
    }
    if !has_tls && !insecure {
        return need("tls= (a certificate and its key), or insecure=True, which sends all in the clear");
    }
    Ok(())
}

/// A listening socket that frees its port when it is dropped, and when this process ends.
///
/// A forked child has a descriptor of the same socket until it closes it: to close ours does not end the listening. For
/// the same reason the child must not end it.
pub(crate) struct ListeningSocket {
    /// The listed descriptor of the socket. It is declared before the socket, which is closed after it.
    _listed: ListedDescriptor,
    pub(crate) socket: TcpListener,
    process: u32,
}

impl ListeningSocket {
    pub(crate) fn of(socket: TcpListener) -> Self {
        Self { _listed: ListedDescriptor::of(&socket), socket, process: std::process::id() }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // If the system cannot, closing the socket frees the port, unless another process has it.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }
}

/// The connections of a listener, each with its peer's name.
fn incoming(listener: ListeningSocket) -> impl futures_util::Stream<Item = std::io::Result<(OwnStream, String)>> {
    futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.socket.accept().await.map(|(stream, peer)| {
            // Fails only if the connection is lost already, which reading will report.
            let _ = stream.set_nodelay(true);
            (OwnStream::new(stream), peer.to_string())
        });
        Some((accepted, listener))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_free_when_its_listener_is_dropped_though_a_forked_process_has_the_socket_open() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        // As a forked child has it.
        let duplicate = socket.try_clone().unwrap();
        let address = socket.local_addr().unwrap();
        let mut of_child = listening(duplicate.try_clone().unwrap());
        of_child.process += 1;
        drop(of_child);
        let held = listening(socket);
        assert!(std::net::TcpStream::connect(address).is_ok(), "the child does not end it");
        drop(held);
        assert!(std::net::TcpListener::bind(address).is_ok());
        drop(duplicate);
    }

    fn listening(socket: std::net::TcpListener) -> ListeningSocket {
        ListeningSocket::of(TcpListener::from_std(socket).unwrap())
    }
}
