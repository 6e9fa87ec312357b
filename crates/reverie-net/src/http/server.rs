//! The listening socket, and its connections.

use super::connections::{Activity, Connections, HeldBody};
use super::events::Events;
use super::routes::{App, router};
use super::watched_server::WatchedServer;
use super::write_timeout_stream::WriteTimeoutStream;
use crate::grpc::accept::acceptor;
use crate::listen::{self, ListeningSocket, check_safe};
use crate::log_limit::LogLimit;
use crate::own_stream::OwnStream;
use crate::server::ServerTls;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use reverie_core::table::Tables;
use reverie_core::{Error, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tower::Service;

/// Connections at a time; for one more, the longest silent is closed.
pub(super) const MOST_CONNECTIONS: usize = 128;
/// The time for which a connection may be silent between requests.
const IDLE: Duration = Duration::from_secs(30);
/// The time for which a peer may read nothing of a response.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a response that wait in this process for a slow peer, and in the system.
const BUFFER_BYTES: usize = 64 << 10;
const SYSTEM_BYTES: usize = 256 << 10;
/// The pause after an error of accepting, which mostly means too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// The time for which a stop waits for a search of items.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The address, and what readers must show.
pub struct HttpOptions {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Required from every reader. There must be one if the address is not loopback.
    pub token: Option<String>,
    /// There must be TLS if the address is not loopback, unless `insecure`.
    pub tls: Option<ServerTls>,
    /// Allows an address that is not loopback without TLS, but never without the token.
    pub insecure: bool,
}

/// Shows a server to readers. Its thread ends with it.
pub struct HttpServer {
    /// Guards the runtime, which exists until the stop.
    runtime: Mutex<Option<Runtime>>,
    address: SocketAddr,
    watched: Arc<WatchedServer>,
}

impl HttpServer {
    /// Binds, and serves from a thread of its own. `listening`: the server of these tables, if it has one.
    /// `InvalidArgument`: an unsafe address, unreadable certificates, or a port that is in use.
    pub fn start(tables: Arc<Tables>, listening: Option<&listen::Server>, options: &HttpOptions) -> Result<Self> {
        check_safe(options.address, options.token.as_deref(), options.tls.is_some(), options.insecure)?;
        let refuse =
            |error: &dyn std::fmt::Display| Error::InvalidArgument(format!("http: {}: {error}", options.address));
        let tls = options.tls.as_ref().map(|tls| acceptor(tls, b"http/1.1")).transpose()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("reverie-http")
            .enable_all()
            .build()
            .map_err(|error| refuse(&error))?;
        let listener = runtime.block_on(TcpListener::bind(options.address)).map_err(|error| refuse(&error))?;
        let address = listener.local_addr().map_err(|error| refuse(&error))?;
        let watched = Arc::new(WatchedServer::new(tables, listening.map(|of| Arc::clone(of.shared()))));
        let app = App::new(Arc::clone(&watched), options.token.as_deref());
        runtime.spawn(Events::run(Arc::downgrade(&app.events)));
        runtime.spawn(serve(ListeningSocket::of(listener), router(&app), tls));
        if tls_is_missing(options) {
            tracing::warn!(%address, "http without TLS: anybody on the network path can read the token and all figures");
        }
        Ok(Self { runtime: Mutex::new(Some(runtime)), address, watched })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows the figures of a training run, a JSON object, in place of earlier ones. `InvalidArgument` names a field
    /// that is missing, unknown, invalid or too large.
    pub fn publish(&self, figures: &str) -> Result<()> {
        self.watched.publish(figures)
    }

    /// Closes all connections. Blocks for a second at most; idempotent.
    pub fn stop(&self) {
        let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // A thread of another runtime must not block.
        match tokio::runtime::Handle::try_current() {
            Ok(_) => runtime.shutdown_background(),
            Err(_) => runtime.shutdown_timeout(SHUTDOWN_TIMEOUT),
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn tls_is_missing(options: &HttpOptions) -> bool {
    options.tls.is_none() && !options.address.ip().is_loopback()
}

/// Serves the connections of a listener until the runtime ends.
async fn serve(listener: ListeningSocket, router: Router, tls: Option<TlsAcceptor>) {
    let (connections, failures) = (Connections::new(MOST_CONNECTIONS), LogLimit::default());
    loop {
        let (stream, peer) = match listener.socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(more) = failures.allows() {
                    tracing::warn!("an http connection could not be accepted: {error}{more}");
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        let Some((place, evicts)) = connections.admit() else {
            if let Some(more) = failures.allows() {
                tracing::warn!("an http connection of {peer} is closed: {MOST_CONNECTIONS} are in requests{more}");
            }
            continue;
        };
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, router, tls, &place.activity) => {}
                () = place.over() => tracing::debug!("an http connection of {peer} is closed: it was silent"),
            }
        });
        if evicts {
            if let Some(more) = failures.allows() {
                tracing::warn!("{MOST_CONNECTIONS} http connections are open: the longest silent is closed{more}");
            }
            // The new connection reads its request before it may be closed for another one.
            yield_now().await;
        }
    }
}

async fn connection(stream: TcpStream, router: Router, tls: Option<TlsAcceptor>, activity: &Arc<Activity>) {
    // These fail only if the connection is lost already, which reading will report.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SYSTEM_BYTES);
    let io = WriteTimeoutStream::new(OwnStream::new(stream), PATIENCE);
    match tls {
        None => http(io, router, activity).await,
        Some(tls) => match tls.accept(io).await {
            Ok(io) => http(io, router, activity).await,
            Err(error) => tracing::debug!("an http connection ended in its TLS handshake: {error}"),
        },
    }
}

/// Serves the requests of a connection.
pub(super) async fn http<IO>(io: IO, router: Router, activity: &Arc<Activity>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
        let (busy, response) = (activity.begin(), router.clone().call(request));
        async move { response.await.map(|response| response.map(|body| Body::new(HeldBody { body, _busy: busy }))) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(io), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("an http connection ended: {error}");
    }
}
