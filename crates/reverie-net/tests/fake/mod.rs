//! A server that follows a test, reached through memory.

#![allow(dead_code)]

use reverie_core::chunk::Compression;
use reverie_core::table::TableOptions;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_net::client::Remote;
use reverie_net::convert;
use reverie_net::endpoint::{EndpointOptions, KEPT_BYTES, Transport};
use reverie_net::grpc::connector::{Connecting, Connector, Stream};
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::replay_server::{Replay, ReplayServer};
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, ClientMessage, ServerMessage};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

pub const ADDRESS: &str = "replay.test:8000";

/// The fake server, and the network to it.
pub struct FakeServer {
    pub inside: Arc<FakeServerState>,
    sessions: Mutex<mpsc::UnboundedReceiver<FakeSession>>,
}

/// The state that the fake's service shares with its network.
pub struct FakeServerState {
    streams: Mutex<Option<mpsc::UnboundedSender<io::Result<DuplexStream>>>>,
    opened: mpsc::UnboundedSender<FakeSession>,
    pub incarnation: AtomicU64,
    pub protocol: AtomicU64,
    pub refusal: Mutex<Option<Status>>,
    pub attempts: AtomicU64,
    /// The number of its two tables that the server has.
    pub num_tables: AtomicU64,
    /// Milliseconds until it describes itself: as over a long link.
    pub delay_ms: AtomicU64,
    /// True if inserts are on its disk only some time after it confirms them.
    pub durable_later: AtomicBool,
    /// The time for which the server may wait for its journal beyond a deadline.
    pub commit_grace_ms: AtomicU32,
}

/// One connection's session, as the server sees it.
pub struct FakeSession {
    pub hello: proto::ClientHello,
    messages: Streaming<ClientMessage>,
    answers: mpsc::Sender<Result<ServerMessage, Status>>,
    pub received: Vec<proto::Received>,
}

impl FakeServer {
    pub fn start() -> Self {
        let (opened, sessions) = mpsc::unbounded_channel();
        let inside = Arc::new(FakeServerState {
            streams: Mutex::new(None),
            opened,
            incarnation: 7.into(),
            protocol: u64::from(proto::PROTOCOL).into(),
            refusal: Mutex::new(None),
            attempts: 0.into(),
            num_tables: 2.into(),
            delay_ms: 0.into(),
            durable_later: false.into(),
            commit_grace_ms: 0.into(),
        });
        let fake = Self { inside, sessions: Mutex::new(sessions) };
        fake.listen();
        fake
    }

    /// Accepts connections from now on.
    pub fn listen(&self) {
        let (streams, incoming) = mpsc::unbounded_channel();
        *self.inside.streams.lock().unwrap() = Some(streams);
        let service = ReplayServer::new(Service(Arc::clone(&self.inside)));
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(UnboundedReceiverStream::new(incoming)),
        );
    }

    /// Refuses connections from now on.
    pub fn refuse(&self) {
        *self.inside.streams.lock().unwrap() = None;
    }

    /// The next session that a client opens, greeted.
    pub async fn session(&self) -> FakeSession {
        self.session_with(true, false).await
    }

    /// The next session that a client opens. `resumed`: the server remembers the client's session; `forgot`: it reports
    /// that it has forgotten some of its requests.
    pub async fn session_with(&self, resumed: bool, forgot: bool) -> FakeSession {
        let session = std::future::poll_fn(|context| self.sessions.lock().unwrap().poll_recv(context)).await.unwrap();
        let hello = proto::ServerHello {
            durable_later: self.inside.durable_later.load(Ordering::SeqCst),
            commit_grace_ms: self.inside.commit_grace_ms.load(Ordering::SeqCst),
            protocol: proto::PROTOCOL,
            incarnation: self.inside.incarnation.load(Ordering::SeqCst),
            resumed: resumed && session.hello.resume,
            insert_credit_bytes: 1 << 20,
            forgot: forgot && session.hello.resume,
        };
        session.send(Body::Hello(hello)).await;
        session
    }

    pub fn client(&self, patience: Duration) -> Arc<Remote> {
        self.client_with(patience, Duration::from_millis(50))
    }

    pub fn client_with(&self, patience: Duration, grace: Duration) -> Arc<Remote> {
        let (address, transport) = (ADDRESS.to_owned(), Transport::Auto);
        let options =
            EndpointOptions { address, transport, token: None, tls: None, patience, grace, max_kept_bytes: KEPT_BYTES };
        let connect = Arc::new(Wire(Arc::clone(&self.inside)));
        Remote::on(options, &tokio::runtime::Handle::current(), connect, [3; 16]).unwrap()
    }
}

impl FakeSession {
    pub async fn send(&self, body: Body) {
        // A client that is gone receives nothing.
        let _ = self.answers.send(Ok(ServerMessage { body: Some(body) })).await;
    }

    pub async fn reply(&self, id: u64, body: proto::reply::Body) {
        self.send(Body::Reply(proto::Reply { id, body: Some(body) })).await;
    }

    /// The next thing that is asked for; `None` at the end of the connection.
    pub async fn receive(&mut self) -> Option<ClientBody> {
        loop {
            let message = self.messages.message().await.ok()??;
            self.received.extend(message.received);
            if message.body.is_some() {
                return message.body;
            }
        }
    }

    pub async fn request(&mut self) -> proto::Request {
        match self.receive().await {
            Some(ClientBody::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }
}

struct Wire(Arc<FakeServerState>);

impl Connector for Wire {
    fn connect(&self, _address: &str) -> Connecting {
        let inside = Arc::clone(&self.0);
        Box::pin(async move {
            inside.attempts.fetch_add(1, Ordering::SeqCst);
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let streams = inside.streams.lock().unwrap();
            streams.as_ref().ok_or_else(refused)?.send(Ok(theirs)).map_err(|_| refused())?;
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

struct Service(Arc<FakeServerState>);

type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<ServerMessage, Status>> + Send>>;

#[tonic::async_trait]
impl Replay for Service {
    async fn describe(&self, _: Request<proto::DescribeRequest>) -> Result<Response<proto::Description>, Status> {
        if let Some(status) = self.0.refusal.lock().unwrap().clone() {
            return Err(status);
        }
        tokio::time::sleep(Duration::from_millis(self.0.delay_ms.load(Ordering::SeqCst))).await;
        let names = ["replay", "other"].iter().take(self.0.num_tables.load(Ordering::SeqCst) as usize);
        Ok(Response::new(proto::Description {
            protocol: self.0.protocol.load(Ordering::SeqCst) as u32,
            version: "1.2.3".to_owned(),
            incarnation: self.0.incarnation.load(Ordering::SeqCst),
            tables: names.map(|name| convert::table::encode_options(&table(name))).collect(),
            ..Default::default()
        }))
    }

    type SessionStream = ResponseStream;

    async fn session(&self, request: Request<Streaming<ClientMessage>>) -> Result<Response<ResponseStream>, Status> {
        let mut messages = request.into_inner();
        let Some(ClientMessage { body: Some(ClientBody::Hello(hello)), .. }) = messages.message().await? else {
            return Err(Status::invalid_argument("no hello"));
        };
        let (answers, stream) = mpsc::channel(64);
        let session = FakeSession { hello, messages, answers, received: Vec::new() };
        self.0.opened.send(session).map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    type CallStream = ResponseStream;

    async fn call(&self, _: Request<ClientMessage>) -> Result<Response<ResponseStream>, Status> {
        Err(Status::unimplemented("only sessions"))
    }
}

pub fn table(name: &str) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Uniform,
        remover: SelectorOptions::Fifo,
        max_size: 1000,
        limiter: Limiter::min_size(1).unwrap(),
        max_times_sampled: 0,
        signature: None,
        max_bytes: None,
        compression: Compression::None,
        shard: 0,
        sampler_seed: 1,
        constructed: None,
        remover_seed: 2,
        extensions: Vec::new(),
    }
}
