//! A server, and a client that sends the messages of a test.

use prost::Message;
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::batch::BatchLayout;
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, SystemClock};
use reverie_core::item::Item;
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Priority, TableOptions, Tables};
use reverie_net::convert::{self, numbers};
use reverie_net::items::Row;
use reverie_net::listen::Server;
use reverie_net::proto::client_message::Body as ClientBody;
use reverie_net::proto::error_detail::Kind;
use reverie_net::proto::replay_client::ReplayClient;
use reverie_net::proto::server_message::Body;
use reverie_net::proto::{self, ClientMessage, reply, request};
use reverie_net::server::{Limits, ServerOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// A table that never waits for more than one item.
pub fn table(name: &str) -> TableOptions {
    TableOptions {
        name: name.to_owned(),
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size: 1 << 20,
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

/// Each item once, in order.
/// Inserts wait while so many items are not sampled yet.
pub fn queue_limiter(size: u64) -> Limiter {
    Limiter::new(1.0, 1, 0.0, size as f64).unwrap()
}

pub fn queue(name: &str, max_size: u64) -> TableOptions {
    TableOptions { max_times_sampled: 1, limiter: queue_limiter(max_size), ..table(name) }
}

pub fn limited(limits: Limits) -> ServerOptions {
    ServerOptions { limits, ..options() }
}

pub fn options() -> ServerOptions {
    ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: None,
        tls: None,
        insecure: false,
        local: false,
        grace: Duration::from_secs(5),
        limits: Limits::default(),
        checkpoint: None,
        spans: false,
    }
}

pub struct Host {
    pub tables: Arc<Tables>,
    pub server: Server,
}

impl Host {
    pub fn new(tables: Vec<TableOptions>) -> Self {
        Self::with(tables, options())
    }

    pub fn with(tables: Vec<TableOptions>, options: ServerOptions) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self::of(Tables::new(tables, None, &clock, 7).unwrap(), options)
    }

    /// A host without tables, as for a page that shows runs of other processes.
    pub fn without_tables() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self::of(Tables::none(&clock).unwrap(), options())
    }

    fn of(tables: Tables, options: ServerOptions) -> Self {
        let tables = Arc::new(tables);
        let server = Server::start(Arc::clone(&tables), options).unwrap();
        Self { tables, server }
    }

    /// A client with a connection of its own.
    pub async fn client(&self) -> ReplayClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.server.address())).unwrap();
        ReplayClient::new(endpoint.connect().await.unwrap()).max_decoding_message_size(proto::MAX_MESSAGE_BYTES)
    }

    /// A session of a connection of its own.
    pub async fn session(&self, name: u8) -> Session {
        Session::open(self.client().await, [name; 16]).await.0
    }

    /// Puts float64 items into a table, past the network.
    pub fn fill(&self, table: &str, values: impl IntoIterator<Item = f64>) {
        let mut rows = Rows::new(&self.tables);
        for value in values {
            let inserts = [(rows.item(&[value]), Priority::Value(1.0))].into_iter().collect();
            assert!(self.tables.insert(table, inserts).unwrap().is_done());
        }
    }

    /// Puts items of so many bytes into the table "a".
    pub fn fill_large(&self, bytes: usize, items: usize) {
        let mut rows = Rows::new(&self.tables);
        for item in 0..items {
            let inserts = [(rows.item(&vec![item as f64; bytes / 8]), Priority::Value(1.0))].into_iter().collect();
            assert!(self.tables.get("a").unwrap().insert(inserts).unwrap().is_done());
        }
    }

    pub fn pending_inserts(&self, table: &str) -> u64 {
        self.tables.get(table).unwrap().info().pending_inserts
    }

    /// Returns when no insert waits for the table.
    pub async fn nothing_waits(&self, table: &str) {
        crate::resume::until(|| self.pending_inserts(table) == 0).await;
    }

    pub fn size(&self, table: &str) -> u64 {
        self.tables.get(table).unwrap().info().size
    }
}

/// Items of one float64 column.
pub struct Rows(RowWriter);

impl Rows {
    pub fn new(tables: &Arc<Tables>) -> Self {
        let sink: Arc<dyn Sink> = tables.clone();
        Self(RowWriter::new(sink, Compression::None, false))
    }

    /// An item whose one cell has these numbers.
    pub fn item(&mut self, values: &[f64]) -> Item {
        let shape = if values.len() == 1 { vec![] } else { vec![values.len()] };
        let columns = vec![ColumnSpec { path: "x".to_owned(), dtype: DType::Float64, shape }];
        let schema = Arc::new(Schema { columns, structure: Structure::Leaf });
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.0.append(&schema, &[ColumnCells { itemsize: 8, bytes: &bytes }], 1).unwrap().remove(0)
    }
}

/// One stream, and the numbers of its requests.
pub struct Session {
    pub send: mpsc::UnboundedSender<ClientMessage>,
    receive: Streaming<proto::ServerMessage>,
    heads: Vec<(u32, proto::BatchHead)>,
    next: u64,
    chunks: u64,
    /// Each report of the server: true if inserts wait for their tables.
    pub held: Vec<bool>,
}

/// A batch whose parts are there.
pub struct Batch {
    pub message: proto::Batch,
    pub outputs: Vec<(String, Vec<u8>)>,
    pub info: Vec<Vec<u8>>,
}

impl Batch {
    pub fn keys(&self) -> Vec<i64> {
        self.info[0].chunks_exact(8).map(|key| i64::from_le_bytes(key.try_into().unwrap())).collect()
    }

    /// The numbers of the first output.
    pub fn values(&self) -> Vec<f64> {
        self.outputs[0].1.chunks_exact(8).map(|value| f64::from_le_bytes(value.try_into().unwrap())).collect()
    }
}

pub fn hello(name: [u8; 16]) -> ClientMessage {
    let hello = proto::ClientHello { protocol: proto::PROTOCOL, session: name.to_vec(), ..Default::default() };
    message(ClientBody::Hello(hello))
}

pub fn message(body: ClientBody) -> ClientMessage {
    ClientMessage { body: Some(body), ..Default::default() }
}

pub fn sample(table: &str, num_samples: u32) -> request::Body {
    let parts = vec![proto::SamplePart { table: table.to_owned(), num_samples }];
    request::Body::Sample(proto::Sample { parts, ..Default::default() })
}

impl Session {
    pub async fn open(client: ReplayClient<Channel>, name: [u8; 16]) -> (Self, proto::ServerHello) {
        let mut session = Self::start(client).await;
        session.send.send(hello(name)).unwrap();
        match session.next().await {
            Some(Body::Hello(hello)) => (session, hello),
            other => panic!("not a hello: {other:?}"),
        }
    }

    /// A stream on which nothing was said.
    pub async fn start(mut client: ReplayClient<Channel>) -> Self {
        let (send, messages) = mpsc::unbounded_channel();
        let receive = client.session(UnboundedReceiverStream::new(messages)).await.unwrap().into_inner();
        Self { send, receive, heads: Vec::new(), next: 1, chunks: 0, held: Vec::new() }
    }

    /// The next message of the server, `held` excepted; `None` if it ended the stream.
    pub async fn next(&mut self) -> Option<Body> {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(200), self.receive.message());
            match next.await.expect("the server is silent").ok().flatten().map(|message| message.body.unwrap()) {
                Some(Body::Held(held)) => self.held.push(held.held),
                body => return body,
            }
        }
    }

    pub fn ask(&mut self, body: request::Body, timeout: Option<f64>) -> u64 {
        let id = self.take_id(1);
        self.ask_again(id, body, timeout);
        id
    }

    pub fn ask_again(&mut self, id: u64, body: request::Body, timeout: Option<f64>) {
        let request = proto::Request { id, timeout, body: Some(body) };
        self.send.send(message(ClientBody::Request(request))).unwrap();
    }

    pub fn take_id(&mut self, n: u64) -> u64 {
        self.next += n;
        self.next - n
    }

    /// Sends an insert for each value; the number of the first.
    pub fn insert(&mut self, table: u32, values: &[f64]) -> u64 {
        let first = self.take_id(values.len() as u64);
        self.insert_again(first, table, values);
        first
    }

    pub fn insert_again(&mut self, first: u64, table: u32, values: &[f64]) {
        self.chunks += 1;
        let insert = insert(first, table, values, self.chunks);
        self.send.send(message(ClientBody::Insert(insert))).unwrap();
    }

    /// Sends an insert, unless the connection is ended.
    pub fn send_insert(&self, insert: proto::Insert) {
        let _ = self.send.send(message(ClientBody::Insert(insert)));
    }

    pub fn received(&self, below: u64, ids: &[u64]) {
        let received = Some(proto::Received { below, ids: numbers::encode(ids), ..Default::default() });
        self.send.send(ClientMessage { received, ..Default::default() }).unwrap();
    }

    /// Returns when the server has handled all that was sent before.
    pub async fn settle(&mut self) {
        let id = self.ask(request::Body::Info(proto::InfoRequest {}), None);
        loop {
            match self.next().await.expect("the connection ended") {
                Body::Reply(reply) if reply.id == id => return,
                Body::Goodbye(goodbye) => panic!("{goodbye:?}"),
                _ => {}
            }
        }
    }

    /// The reply to a request.
    pub async fn reply(&mut self, id: u64) -> reply::Body {
        match self.next().await {
            Some(Body::Reply(reply)) if reply.id == id => reply.body.unwrap(),
            other => panic!("not a reply to {id}: {other:?}"),
        }
    }

    pub async fn refusal(&mut self, id: u64) -> Kind {
        match self.reply(id).await {
            reply::Body::Error(error) => error.kind.unwrap(),
            other => panic!("not an error: {other:?}"),
        }
    }

    /// The keys of inserts that are confirmed as one.
    pub async fn inserted(&mut self, first_id: u64, requests: u32) -> Vec<i64> {
        match self.next().await {
            Some(Body::Inserted(inserted)) if (inserted.first_id, inserted.requests) == (first_id, requests) => {
                inserted.keys
            }
            other => panic!("not {requests} inserts from {first_id} on: {other:?}"),
        }
    }

    pub async fn goodbye(&mut self) -> proto::Goodbye {
        loop {
            match self.next().await {
                Some(Body::Goodbye(goodbye)) => {
                    assert!(self.next().await.is_none(), "nothing comes behind a goodbye");
                    return goodbye;
                }
                Some(_) => {}
                None => panic!("the stream ended without a goodbye"),
            }
        }
    }

    /// The rule that was broken.
    pub async fn violation(&mut self) -> String {
        match self.goodbye().await.reason.unwrap().kind.unwrap() {
            Kind::Violation(rule) => rule,
            other => panic!("not a violation: {other:?}"),
        }
    }

    pub async fn batch(&mut self, id: u64) -> Batch {
        let mut batch = match self.next().await {
            Some(Body::Batch(batch)) if batch.id == id => batch,
            other => panic!("not a batch for {id}: {other:?}"),
        };
        if let Some(head) = batch.new_head.take() {
            self.heads.push((batch.head, head));
        }
        let head = self.heads.iter().rev().find(|(number, _)| *number == batch.head).expect("a head that was given");
        let head = convert::batch::decode_head(head.1.clone()).unwrap();
        let layout = BatchLayout::new(batch.num_draws as usize, &head.outputs).unwrap();
        assert_eq!(layout.size_bytes as u64, batch.bulk_bytes);
        let mut bulk = Vec::new();
        while bulk.len() < layout.size_bytes {
            match self.next().await {
                Some(Body::Part(part)) => {
                    assert_eq!((part.id, part.offset), (id, bulk.len() as u64));
                    assert!(!part.data.is_empty() && part.data.len() <= proto::PART_BYTES);
                    bulk.extend_from_slice(&part.data);
                }
                other => panic!("not a part for {id}: {other:?}"),
            }
        }
        assert_eq!(bulk.len(), layout.size_bytes);
        let outputs = head.outputs.iter().zip(&layout.outputs);
        Batch {
            outputs: outputs.map(|(output, range)| (output.path.clone(), bulk[range.clone()].to_vec())).collect(),
            info: layout.info.iter().map(|range| bulk[range.clone()].to_vec()).collect(),
            message: batch,
        }
    }

    /// A batch that is the whole answer.
    pub async fn whole(&mut self, id: u64) -> Batch {
        let batch = self.batch(id).await;
        assert!(batch.message.last, "more comes");
        batch
    }

    /// Drops the connection as a lost one is: the server sees it end.
    pub fn lose(self) {}
}

/// One request for each value, all cells in one chunk of this number.
pub fn insert(first_id: u64, table: u32, values: &[f64], chunk: u64) -> proto::Insert {
    let n = values.len() as u32;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let item = Rows::new(&Arc::new(Tables::new(vec![self::table("any")], None, &clock, 1).unwrap())).item(&[0.0]);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut items = Vec::new();
    for anchor in 0..n {
        Row { pattern: chunk as u32, anchor, body: chunk, priority: 1.0, episode: 0, stream: 0 }.put(&mut items);
    }
    let layout = proto::ChunkLayout { widths: vec![8], itemsizes: vec![8], capacity: n, ..Default::default() };
    proto::Insert {
        first_id,
        runs: vec![proto::InsertRun { table, requests: n, items: 1, skipped: 0 }],
        // The server has it already but for the first message of a connection, and does not mind.
        patterns: vec![convert::item::encode_pattern(chunk as u32, &item.pattern)],
        chunks: vec![proto::ChunkCells { chunk, layout: Some(Box::new(layout)), cells: n, ..Default::default() }],
        items: items.into(),
        bulk: Some(proto::Bulk { place: Some(proto::bulk::Place::Inline(bytes.into())) }),
        ..Default::default()
    }
}

/// Items as in a message.
pub fn rows(rows: &[Row]) -> bytes::Bytes {
    let mut bytes = Vec::new();
    rows.iter().for_each(|row| row.put(&mut bytes));
    bytes.into()
}

/// The error of a call that failed, from its details.
pub fn detail(status: &tonic::Status) -> Kind {
    proto::ErrorDetail::decode(status.details()).unwrap().kind.expect("a typed error")
}
