//! The client's end of a gRPC stream.

use super::connector::{Connector, CountedStream, TlsRefusal};
use super::download::{Download, DownloadFailure};
use super::service::SESSION;
use super::trust::TlsConfig;
use super::turns::TurnStream;
use super::upload::Upload;
use crate::bulk::BulkSink;
use crate::convert;
use crate::endpoint::EndpointOptions;
use crate::proto::replay_client::ReplayClient;
use crate::proto::{self, ClientMessage, MAX_MESSAGE_BYTES, PART_BYTES};
use crate::token;
use crate::transport::Traffic;
use crate::transport::client::{ArrivedMessage, Inlet, Outlet};
use bytes::BytesMut;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use reverie_core::{Error, Result};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

/// The largest frame that the server may send: room for one of its parts with its head.
const FRAME_BYTES: u32 = 2 << 20;
/// The bytes that may be in flight to the client.
const WINDOW_BYTES: u32 = 64 << 20;
/// A connection idle for this long is pinged, and closed if no answer arrives within the timeout.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that wait for the connection's task.
const QUEUED: usize = 4;

/// Everything that is needed to connect, checked.
pub struct Dialer {
    address: String,
    origin: http::Uri,
    token: Option<MetadataValue<Ascii>>,
    private: Option<TlsConfig>,
    connector: Arc<dyn Connector>,
    traffic: Arc<Traffic>,
}

impl Dialer {
    /// Checks the options. `InvalidArgument` names the invalid one.
    pub fn new(options: &EndpointOptions, connector: Arc<dyn Connector>, traffic: Arc<Traffic>) -> Result<Self> {
        let address = options.address.clone();
        let refuse =
            || Error::InvalidArgument(format!("the address '{address}' is not HOST:PORT, for instance 127.0.0.1:8000"));
        let parts = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
        let port = parts.ok_or_else(refuse)?.1;
        port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(refuse)?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{address}").parse().map_err(|_| refuse())?;
        let token = options.token.as_ref().map(|token| {
            token::check(token)?;
            let value = MetadataValue::try_from(format!("Bearer {token}"));
            value.map_err(|error| Error::InvalidArgument(format!("the token: {error}")))
        });
        let private = options.tls.as_ref().map(|tls| TlsConfig::new(tls, &address)).transpose()?;
        Ok(Self { address, origin, token: token.transpose()?, private, connector, traffic })
    }

    /// Connects and does the TLS handshake. `Unavailable`, or `Unauthenticated` if TLS finds no trust.
    pub async fn dial(&self) -> Result<GrpcConnection> {
        let address = &self.address;
        let unreachable =
            |error: &dyn std::fmt::Display| Error::Unavailable(format!("{address} cannot be reached: {error}"));
        let stream = self.connector.connect(address).await.map_err(|error| unreachable(&error))?;
        let stream = match &self.private {
            Some(private) => private.wrap(stream, address).await?,
            None => stream,
        };
        let tls_refusal = TlsRefusal::default();
        let counted = CountedStream::new(stream, &self.traffic, address.clone(), Arc::clone(&tls_refusal));
        let stream = TurnStream::new(counted);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_send_buf_size(2 * PART_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| tls_refusal.get().cloned().unwrap_or_else(|| unreachable(&error)))?;
        // Ends with the connection: when all senders are dropped, or the peer is gone.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
        });
        let (channel, origin) = (Channel(sender), self.origin.clone());
        let client =
            ReplayClient::with_origin(channel.clone(), origin.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let possible_cause = match &self.private {
            None => " (or does it ask for TLS? then pass tls=)",
            Some(private) if !private.has_identity => {
                " (or does it ask for a certificate? then pass ClientTLS(cert=, key=))"
            }
            Some(_) => " (or does it not trust the certificate given as ClientTLS(cert=)?)",
        };
        Ok(GrpcConnection {
            client,
            channel,
            origin,
            address: self.address.clone(),
            token: self.token.clone(),
            tls_refusal,
            possible_cause,
        })
    }
}

/// A connection on which calls can be made.
pub struct GrpcConnection {
    client: ReplayClient<Channel>,
    channel: Channel,
    origin: http::Uri,
    address: String,
    token: Option<MetadataValue<Ascii>>,
    tls_refusal: TlsRefusal,
    /// A possible cause, for the error of a connection that ends without a reason.
    possible_cause: &'static str,
}

impl GrpcConnection {
    /// Asks for the server's description.
    pub async fn describe(&mut self) -> Result<proto::Description> {
        let request = self.authorized(proto::DescribeRequest { protocol: proto::PROTOCOL });
        let answer = self.client.describe(request).await.map_err(|status| self.first(status))?;
        Ok(answer.into_inner())
    }

    /// The error for a failed first call on a connection.
    /// If the other end gave no reason, it may require TLS or a certificate, which it cannot report.
    fn first(&self, status: Status) -> Error {
        match (error(&self.address, status), self.tls_refusal.get()) {
            (Error::Unavailable(_), Some(tls_refusal)) => tls_refusal.clone(),
            (Error::Unavailable(what), None) => Error::Unavailable(format!("{what}{}", self.possible_cause)),
            (other, _) => other,
        }
    }

    /// Opens a session with its first message.
    /// The call does not use the generated client, which would copy each message once more.
    pub async fn session(self, hello: proto::ClientHello) -> Result<(GrpcOutlet, GrpcInlet)> {
        let (queue, messages) = mpsc::channel(QUEUED);
        let hello = ClientMessage { body: Some(proto::client_message::Body::Hello(hello)), ..Default::default() };
        queue.try_send(hello).expect("a new channel has room");
        let body = self.open(Upload::new(messages)).await?;
        let sending = GrpcOutlet { queue, bulk: InlineBytes::default(), address: self.address.clone() };
        Ok((sending, GrpcInlet { messages: Download::new(body), address: self.address }))
    }

    /// Opens the call of a session, and returns the body of the response.
    async fn open(&self, upload: Upload) -> Result<Incoming> {
        let address = &self.address;
        let lost = |error: hyper::Error| Error::Unavailable(format!("{address}: {error}"));
        let mut request = http::Request::new(Body::new(upload));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = format!("{}{}", self.origin, &SESSION[1..]).parse().expect("an origin and a path");
        let headers = request.headers_mut();
        headers.insert(http::header::TE, http::HeaderValue::from_static("trailers"));
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        if let Some(token) = &self.token {
            let mut token = http::HeaderValue::from_bytes(token.as_bytes()).expect("it was checked to be one");
            token.set_sensitive(true);
            headers.insert(http::header::AUTHORIZATION, token);
        }
        let mut sender = self.channel.0.clone();
        poll_fn(|context| sender.poll_ready(context)).await.map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        if let Some(status) = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok) {
            return Err(error(address, status));
        }
        match response.status() {
            http::StatusCode::OK => Ok(response.into_body()),
            // A proxy that does not use gRPC answered.
            http::StatusCode::UNAUTHORIZED | http::StatusCode::FORBIDDEN => {
                Err(Error::Unauthenticated(format!("{address} answered with HTTP {}", response.status())))
            }
            other => Err(Error::Unavailable(format!("{address} answered with HTTP {other}"))),
        }
    }

    fn authorized<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }
}

/// The error for a failed call: from the detail if there is one, else from the code. No text is parsed.
fn error(address: &str, status: Status) -> Error {
    if let Ok(detail) = proto::ErrorDetail::decode(status.details())
        && detail.kind.is_some()
    {
        return match convert::error::decode(detail) {
            Error::Unauthenticated(reason) => Error::Unauthenticated(format!("{address}: {reason}")),
            other => other,
        };
    }
    let mut text = format!("{address}: {}", status.message());
    let mut source = std::error::Error::source(&status).and_then(std::error::Error::source);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Error::Unauthenticated(text),
        Code::Unimplemented | Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
            Error::Protocol(format!("{text}; does a server of reverie listen there?"))
        }
        _ => Error::Unavailable(text),
    }
}

/// The HTTP/2 connection, as the service that the generated client needs.
#[derive(Clone)]
struct Channel(http2::SendRequest<Body>);

impl tower::Service<http::Request<Body>> for Channel {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The sending half.
pub struct GrpcOutlet {
    queue: mpsc::Sender<ClientMessage>,
    bulk: InlineBytes,
    address: String,
}

/// Bulk bytes that are sent in their message.
#[derive(Default)]
struct InlineBytes(BytesMut);

impl BulkSink for InlineBytes {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl GrpcOutlet {
    fn connection_lost(&self) -> Error {
        Error::Unavailable(format!("the connection to {} was lost", self.address))
    }
}

impl Outlet for GrpcOutlet {
    const TRANSPORT: &'static str = "grpc";
    const MESSAGE_BYTES: u64 = 128 << 10;

    async fn ready(&mut self, bulk_bytes: u64) -> Result<()> {
        let room = self.queue.reserve().await.map(drop);
        room.map_err(|_| self.connection_lost())?;
        // The memory of earlier messages is reused after they were sent.
        self.bulk.0.reserve((bulk_bytes as usize).min(MAX_MESSAGE_BYTES));
        Ok(())
    }

    fn bulk(&mut self) -> &mut dyn BulkSink {
        &mut self.bulk
    }

    fn send(&mut self, mut message: ClientMessage) -> Result<()> {
        if let Some(proto::client_message::Body::Insert(insert)) = &mut message.body {
            let inline = proto::bulk::Place::Inline(self.bulk.0.split().freeze());
            insert.bulk = Some(proto::Bulk { place: Some(inline) });
        }
        self.queue.try_send(message).map_err(|_| self.connection_lost())
    }
}

/// The receiving half.
pub struct GrpcInlet {
    messages: Download<Incoming>,
    address: String,
}

impl Inlet for GrpcInlet {
    async fn receive(&mut self) -> Result<Option<ArrivedMessage>> {
        let (address, messages) = (&self.address, &mut self.messages);
        match poll_fn(|context| messages.poll_next(context)).await {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(ArrivedMessage::from(message))),
            Some(Err(DownloadFailure::Broken(why))) => Err(Error::Protocol(format!("{address}: {why}"))),
            Some(Err(DownloadFailure::Lost(why))) => Err(Error::Unavailable(format!("{address}: {why}"))),
            Some(Err(DownloadFailure::Trailers(trailers))) => match Status::from_header_map(&trailers) {
                Some(status) if status.code() != Code::Ok => Err(error(address, status)),
                _ => Ok(None),
            },
        }
    }
}
