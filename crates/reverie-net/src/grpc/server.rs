//! The server's end: accepts connections, and passes calls to sessions.

use super::accept::acceptor;
use super::body::HttpResponseBody;
use super::bounded::BoundedStream;
use super::counted::CountedBody;
use super::metered_stream::MeteredStream;
use super::peeked_stream::PeekedStream;
use super::service::{Peer, ReplyBody, RequestBody, SESSION, Service};
use super::status::status;
use crate::admission::{AdmissionGuard, ConnectionTransport};
use crate::proto::replay_server::ReplayServer;
use crate::proto::{DESCRIPTORS, MAX_MESSAGE_BYTES, PART_BYTES};
use crate::server::{RequestTransport, ServerState, ServerTls};
use crate::token;
use futures_util::{Stream, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reverie_core::{Error, Result};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service as _;

/// The largest frame that a client may send.
const FRAME_BYTES: u32 = 2 << 20;
/// The bytes that may be in flight to the server, of a stream and of a connection.
const WINDOW_BYTES: u32 = 32 << 20;
/// Sessions and calls of one connection at a time.
const MAX_STREAMS: u32 = 256;
/// Bytes of a request's headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// A connection idle for this long is pinged, and closed if no answer arrives within the timeout.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a health request, which is answered without a token.
const MAX_HEALTH_BYTES: usize = 1 << 10;
/// The pause after an error of accepting, which mostly means too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The error for a client without TLS, if the server requires it.
const TLS_REQUIRED: &str =
    "the server asks for TLS; pass tls=, as ClientTLS(ca=) with the authority that signed its certificate";

/// The health service, open to all; every other call requires the token.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// The call that takes no place: a client on the same host makes no other, and continues through the Unix socket.
const DESCRIBE: &str = "/reverie.v1.Replay/Describe";

/// The services of a server, ready to serve.
#[derive(Clone)]
pub struct GrpcServices {
    shared: Arc<ServerState>,
    routes: Routes,
    tls: Option<TlsAcceptor>,
}

impl GrpcServices {
    /// Reads the certificates. `InvalidArgument` if they cannot be read. Must be called on a runtime.
    pub fn new(shared: Arc<ServerState>, tls: Option<&ServerTls>) -> Result<Self> {
        let replay = ReplayServer::new(Service(Arc::clone(&shared))).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (reporter, health) = tonic_health::server::health_reporter();
        let health = health.max_decoding_message_size(MAX_HEALTH_BYTES);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| Error::InvalidArgument(format!("reflection: {error}")))?;
        let routes = Routes::new(replay).add_service(health).add_service(reflection).prepare();
        let stopping = shared.stopping();
        tokio::spawn(async move {
            reporter.set_serving::<ReplayServer<Service>>().await;
            stopping.await;
            reporter.set_not_serving::<ReplayServer<Service>>().await;
            reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        });
        Ok(Self { shared, routes, tls: tls.map(|tls| acceptor(tls, b"h2")).transpose()? })
    }

    /// Serves connections, each with its peer's name, until the stream ends or the server stops.
    /// Then it waits until the open connections have ended.
    pub async fn serve<IO>(self, incoming: impl Stream<Item = io::Result<(IO, String)>>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut incoming, mut stopping) = (pin!(incoming), pin!(self.shared.stopping()));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut stopping => break,
                Some(_) = connections.join_next() => {}
                next = incoming.next() => match next {
                    None => break,
                    Some(Ok((io, peer))) => {
                        connections.spawn(self.clone().connection(io, peer));
                    }
                    Some(Err(error)) => {
                        if let Some(more) = self.shared.failures.allows() {
                            tracing::warn!("a connection could not be accepted: {error}{more}");
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
        while connections.join_next().await.is_some() {}
    }

    /// Serves a connection, which must be admitted in time.
    async fn connection<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, io: IO, peer: String) {
        let admission = self.shared.admission.register(ConnectionTransport::Grpc, &peer);
        let shared = Arc::clone(&self.shared);
        let io = MeteredStream::new(io, Arc::clone(shared.bytes(RequestTransport::Grpc)));
        let io = BoundedStream::new(io, Arc::clone(&admission));
        tokio::select! {
            () = self.serve_io(io, &peer, &admission) => {}
            why = admission.must_close() => if let Some(more) = shared.refusals.allows() {
                tracing::info!("a connection of {peer} was ended: {why}{more}");
            }
        }
    }

    async fn serve_io<IO>(self, io: IO, peer: &str, admission: &Arc<AdmissionGuard>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &self.tls else { return self.http2(io, peer, admission, false).await };
        let io = match PeekedStream::read(io).await {
            Ok(io) => io,
            Err(error) => return tracing::debug!(peer, %error, "a connection closed before it sent any data"),
        };
        if io.is_http2() {
            self.log_refusal(peer, TLS_REQUIRED);
            return self.http2(io, peer, admission, true).await;
        }
        match tls.accept(io).into_fallible().await {
            Ok(io) => self.http2(io, peer, admission, false).await,
            Err((error, io)) => {
                if let Some(more) = self.shared.refusals.allows() {
                    tracing::info!("a TLS handshake with {peer} failed: {error}{more}");
                }
                let _ = drain(io).await;
            }
        }
    }

    fn log_refusal(&self, peer: &str, why: impl std::fmt::Display) {
        if let Some(more) = self.shared.refusals.allows() {
            tracing::warn!("{peer} was refused: {why}{more}");
        }
    }

    /// Serves HTTP/2. `in_the_clear`: the peer does not use the required TLS, and gets only this error.
    async fn http2<IO>(self, io: IO, peer: &str, admission: &Arc<AdmissionGuard>, in_the_clear: bool)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (front, admission, name) = (self.clone(), Arc::clone(admission), Arc::<str>::from(peer));
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            admission.count_request();
            request.extensions_mut().insert(Peer(Arc::clone(&name)));
            let (front, admission) = (front.clone(), Arc::clone(&admission));
            async move { if in_the_clear { Ok(Self::tls_required()) } else { front.answer(request, &admission).await } }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buf_size(2 * PART_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        let (mut stopping, mut stops) = (pin!(self.shared.stopping()), false);
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(peer, %error, "a connection ended");
                    }
                    return;
                }
                () = &mut stopping, if !stops => {
                    stops = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    fn tls_required() -> Response<HttpResponseBody> {
        status(&Error::Unauthenticated(TLS_REQUIRED.to_owned())).into_http().map(HttpResponseBody::Routed)
    }

    /// Charges the bytes of a call whose message is assembled before it reaches a session.
    fn counted(&self, request: Request<Incoming>) -> Request<Body> {
        request.map(|body| Body::new(CountedBody::new(body, self.shared.charge())))
    }

    async fn answer(
        mut self,
        request: Request<Incoming>,
        admission: &AdmissionGuard,
    ) -> Result<Response<HttpResponseBody>, Infallible> {
        if let Err(error) = self.admit(&request, admission) {
            let peer = request.extensions().get::<Peer>().map_or("", |peer| &peer.0);
            self.log_refusal(peer, &error);
            return Ok(status(&error).into_http().map(HttpResponseBody::Routed));
        }
        let request =
            if request.uri().path() == SESSION { RequestBody::set_aside(request) } else { self.counted(request) };
        Ok(ReplyBody::fill(self.routes.call(request).await?))
    }

    /// Checks a call: none for health, the token for all others, and a place for those that last.
    fn admit(&self, request: &Request<Incoming>, admission: &AdmissionGuard) -> Result<()> {
        let path = request.uri().path();
        if path.starts_with(HEALTH) {
            return Ok(());
        }
        let shown = request.headers().get(http::header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        if !self.shared.admits(shown.and_then(|shown| shown.strip_prefix(b"Bearer "))) {
            return Err(Error::Unauthenticated(token::wrong(shown.is_some())));
        }
        admission.mark_authenticated();
        if path == DESCRIBE { Ok(()) } else { admission.admit() }
    }
}

/// Waits until the peer has read the error: closing a connection with unread bytes may lose what was sent.
async fn drain<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) -> io::Result<()> {
    io.shutdown().await?;
    let mut unread = [0; 4096];
    while io.read(&mut unread).await? > 0 {}
    Ok(())
}
