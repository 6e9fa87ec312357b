//! A transport whose client follows the test, and a server with one table.

use super::super::{Limits, ServerOptions, ServerState};
use crate::bulk::BulkSource;
use crate::proto::client_message::Body as ClientBody;
use crate::proto::server_message::Body;
use crate::proto::{self, Bulk, ClientMessage, ServerMessage, request};
use crate::token::NONCE_BYTES;
use crate::transport::server::ServerConnection;
use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::spec::{ColumnSpec, DType, Schema, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Inserts, Priority, TableOptions, Tables};
use reverie_core::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A transport whose client reads when the test lets it.
#[derive(Clone, Default)]
pub(super) struct ScriptedConnection(Arc<Mutex<Script>>);

#[derive(Default)]
pub(super) struct Script {
    pub(super) messages: VecDeque<ClientMessage>,
    pub(super) queued: VecDeque<ServerMessage>,
    /// The first of these, which overtook the others.
    pub(super) ahead: usize,
    pub(super) bytes: u64,
    pub(super) most: u64,
    pub(super) panics: bool,
    pub(super) unfinished: u64,
    pub(super) closed: bool,
    pub(super) waker: Option<Waker>,
}

pub(super) fn size(message: &ServerMessage) -> u64 {
    if let Some(Body::Part(part)) = &message.body { part.data.len() as u64 } else { 1 }
}

impl ScriptedConnection {
    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    pub(super) fn send(&self, body: ClientBody) {
        let mut script = self.script();
        script.messages.push_back(ClientMessage { body: Some(body), ..Default::default() });
        script.waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn ask(&self, id: u64, num_samples: u32) {
        let parts = vec![proto::SamplePart { table: "a".to_owned(), num_samples }];
        let body = Some(request::Body::Sample(proto::Sample { parts, ..Default::default() }));
        self.send(ClientBody::Request(proto::Request { id, timeout: None, body }));
    }

    pub(super) fn read(&self) -> Option<ServerMessage> {
        let mut script = self.script();
        let message = script.queued.pop_front()?;
        script.ahead = script.ahead.saturating_sub(1);
        script.bytes -= size(&message);
        script.waker.take().into_iter().for_each(Waker::wake);
        Some(message)
    }

    pub(super) fn hello(&self) {
        let hello = proto::ClientHello {
            protocol: proto::PROTOCOL,
            session: vec![3; 16],
            nonce: vec![5; NONCE_BYTES],
            ..Default::default()
        };
        self.send(ClientBody::Hello(hello));
    }
}

impl ServerConnection for ScriptedConnection {
    fn transport(&self) -> &'static str {
        "shared-memory"
    }

    fn peer(&self) -> String {
        "a test".to_owned()
    }

    fn authenticated(&self) -> bool {
        false
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ClientMessage>>> {
        let mut script = self.script();
        assert!(!script.panics, "a panic on request");
        script.waker = Some(context.waker().clone());
        script.messages.pop_front().map_or(Poll::Pending, |message| Poll::Ready(Some(Ok(message))))
    }

    fn unfinished_bytes(&self) -> u64 {
        self.script().unfinished
    }

    fn send(&mut self, message: ServerMessage) {
        let mut script = self.script();
        script.bytes += size(&message);
        script.most = script.most.max(script.bytes);
        script.queued.push_back(message);
    }

    fn send_ahead(&mut self, message: ServerMessage) {
        let mut script = self.script();
        script.bytes += size(&message);
        let at = script.ahead;
        script.queued.insert(at, message);
        script.ahead += 1;
    }

    fn queued_bytes(&self) -> u64 {
        self.script().bytes
    }

    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        let mut script = self.script();
        script.waker = Some(context.waker().clone());
        if script.bytes < below { Poll::Ready(()) } else { Poll::Pending }
    }

    fn close(self: Box<Self>) {
        self.script().closed = true;
    }

    fn freed(&mut self, _slots: &[u32]) -> Result<()> {
        Ok(())
    }

    fn slot_wanted(&mut self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn bulk<'a>(&'a mut self, _bulk: &'a Bulk) -> Result<Box<dyn BulkSource + 'a>> {
        Err(Error::Protocol("no bulk bytes here".to_owned()))
    }
}

/// A server with one table, and an item of `item_bytes` in it.
pub(super) fn shared(item_bytes: usize, limits: Limits, token: Option<&str>) -> Arc<ServerState> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let table = TableOptions {
        name: "a".to_owned(),
        sampler: SelectorOptions::Fifo,
        remover: SelectorOptions::Fifo,
        max_size: 10,
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
    };
    let tables = Arc::new(Tables::new(vec![table], None, &clock, 7).unwrap());
    assert!(tables.get("a").unwrap().insert(row(&tables, item_bytes)).unwrap().is_done());
    let options = ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: token.map(str::to_owned),
        tls: None,
        insecure: false,
        local: false,
        grace: Duration::ZERO,
        limits,
        checkpoint: None,
        spans: false,
    };
    ServerState::new(tables, &options)
}

pub(super) fn row(tables: &Arc<Tables>, item_bytes: usize) -> Inserts {
    let sink: Arc<dyn Sink> = tables.clone();
    let columns = vec![ColumnSpec { path: "x".to_owned(), dtype: DType::UInt8, shape: vec![item_bytes] }];
    let schema = Arc::new(Schema { columns, structure: Structure::Leaf });
    let cells = [ColumnCells { itemsize: 1, bytes: &vec![1; item_bytes] }];
    let items = RowWriter::new(sink, Compression::None, false).append(&schema, &cells, 1).unwrap();
    items.into_iter().map(|item| (item, Priority::Value(1.0))).collect()
}

/// Connects the session of that name; returns whether the hello reports that its outcomes are lost.
pub(super) async fn connect_as(shared: &Arc<ServerState>, name: u8) -> (ScriptedConnection, bool) {
    let connection = ScriptedConnection::default();
    connection.hello();
    if let Some(ClientBody::Hello(hello)) = &mut connection.script().messages[0].body {
        hello.session = vec![name; 16];
    }
    Arc::clone(shared).handshake(Box::new(connection.clone())).await;
    settle().await;
    let Some(Body::Hello(hello)) = connection.read().unwrap().body else { panic!("no hello") };
    (connection, hello.forgot)
}

pub(super) async fn connect(shared: &Arc<ServerState>, connection: &ScriptedConnection) {
    connection.hello();
    Arc::clone(shared).handshake(Box::new(connection.clone())).await;
    settle().await;
}

/// Lets the sessions work, on the test's one thread.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
