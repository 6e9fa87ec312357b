//! The server's end: the listening socket, and the transport of one connection.

use super::directory::SocketDirectory;
use super::ring::Intake;
use super::slots::{Budget, Lease, ServerSlots};
use super::socket::{DescriptorPolicy, SocketReader, Writer, split};
use super::trusted;
use crate::admission::{AdmissionGuard, ConnectionTransport};
use crate::bulk::BulkSource;
use crate::log_limit::LogLimit;
use crate::proto::server_message::Body;
use crate::proto::{Bulk, ClientMessage, Consumed, MAX_MESSAGE_BYTES, ServerMessage, Slot, bulk};
use crate::server::{Limits, RequestTransport, ServerState};
use crate::transport::ByteCounts;
use crate::transport::server::{ServerConnection, WritableSlot};
use bytes::Bytes;
use reverie_core::inherited::ListedDescriptor;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::UnixListener;

/// The time that a closing connection may take to send the queued messages.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Queued bytes wait for more up to this size, unless they include a batch of `LARGE_BATCH` bytes.
const TOGETHER: u64 = 16 << 10;
const LARGE_BATCH: u64 = 64 << 10;
/// Bytes of a message before the client is admitted.
const GREETING_BYTES: usize = 4 << 10;
/// Messages of a client that never pauses, after which its answers are sent nevertheless.
const PATIENCE: u32 = 32;
/// The pause in accepting connections after the system refused one (mostly when descriptors run out).
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The listening socket. Its file is removed when it is dropped.
pub struct Listener {
    /// The listed descriptor of the socket. It is declared before the socket, which is closed after it.
    _listed: ListedDescriptor,
    socket: UnixListener,
    place: SocketDirectory,
    limits: Limits,
    budget: Arc<Budget>,
    /// Connections that were refused, or could not be accepted.
    failures: LogLimit,
    /// Slots that could not be created.
    shortages: Arc<LogLimit>,
}

impl Listener {
    /// Listens in this user's directory for a server on `port`; needs a tokio runtime.
    /// `InvalidArgument` if other users can use the directory, if it cannot be created or written, or if a process
    /// that is stopped has its lock.
    pub fn bind(port: u16, limits: &Limits) -> Result<Self> {
        Self::bind_at(SocketDirectory::choose()?, port, limits)
    }

    pub(super) fn bind_at(mut place: SocketDirectory, port: u16, limits: &Limits) -> Result<Self> {
        let socket = place.bind(port)?;
        let failed = |error| Error::InvalidArgument(format!("cannot listen on {}: {error}", place.path()));
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = UnixListener::from_std(socket).map_err(failed)?;
        let budget = Budget::new(limits.total_batch_bytes);
        Ok(Self {
            _listed: ListedDescriptor::of(&socket),
            socket,
            place,
            limits: *limits,
            budget,
            failures: LogLimit::default(),
            shortages: Arc::default(),
        })
    }

    /// The socket's path.
    pub fn path(&self) -> &str {
        self.place.path()
    }

    /// Bytes of shared memory in use by connections.
    pub fn shared_bytes(&self) -> u64 {
        self.budget.taken()
    }

    /// The next connection of a process of our user or root. Others are refused. Cancel safe.
    pub async fn accept(&self) -> LocalServerConnection {
        loop {
            match self.socket.accept().await.map(|(stream, _)| self.connection(stream)) {
                Ok(Ok(connection)) => return connection,
                Ok(Err(why)) => {
                    if let Some(more) = self.failures.allows() {
                        tracing::warn!("a connection to {} was refused: {why}{more}", self.path());
                    }
                }
                Err(error) => {
                    if let Some(more) = self.failures.allows() {
                        tracing::warn!("a connection to {} could not be accepted: {error}{more}", self.path());
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(&self, stream: tokio::net::UnixStream) -> Result<LocalServerConnection, String> {
        let peer = trusted(&stream)?;
        let halves = stream.into_std().and_then(|stream| split(stream, DescriptorPolicy::Refused));
        let (reader, writer) = halves.map_err(|error| error.to_string())?;
        Ok(LocalServerConnection {
            reader,
            writer,
            slots: ServerSlots::new(self.limits.session_batch_bytes, Arc::clone(&self.budget)),
            intake: Intake::new(self.limits.session_insert_bytes, Arc::clone(&self.budget)),
            consumed: None,
            lost: false,
            urgent: false,
            unanswered: 0,
            admission: None,
            shortages: Arc::clone(&self.shortages),
            counts: Arc::default(),
            counted: (0, 0),
            peer: format!("process {peer}"),
        })
    }
}

/// Accepts connections until the server stops; then removes the socket.
pub async fn serve(listener: Listener, shared: Arc<ServerState>) {
    let stopping = shared.stopping();
    tokio::pin!(stopping);
    loop {
        let mut connection = tokio::select! {
            connection = listener.accept() => connection,
            () = &mut stopping => return,
        };
        connection.admission = Some(shared.admission.register(ConnectionTransport::Local, &connection.peer));
        connection.reader.set_longest(GREETING_BYTES);
        connection.counts = Arc::clone(shared.bytes(RequestTransport::SharedMemory));
        tokio::spawn(Arc::clone(&shared).handshake(Box::new(connection)));
    }
}

/// One connection.
pub struct LocalServerConnection {
    reader: SocketReader,
    writer: Writer,
    slots: Arc<ServerSlots>,
    intake: Intake,
    /// The bytes copied since the last report to the client.
    consumed: Option<Consumed>,
    lost: bool,
    /// True if something queued should not wait for more.
    urgent: bool,
    /// Messages received since the last flush.
    unanswered: u32,
    peer: String,
    /// Counts against the server's connections.
    admission: Option<Arc<AdmissionGuard>>,
    shortages: Arc<LogLimit>,
    /// The server's count of bytes.
    counts: Arc<ByteCounts>,
    /// Bytes of the socket that are in it: received and sent.
    counted: (u64, u64),
}

impl LocalServerConnection {
    /// Counts the socket's bytes since the last call.
    fn count(&mut self) {
        let (received, sent) = (self.reader.received(), self.writer.sent());
        let (before, sent_before) = std::mem::replace(&mut self.counted, (received, sent));
        if received > before {
            self.counts.received.fetch_add(received - before, Ordering::Relaxed);
        }
        if sent > sent_before {
            self.counts.sent.fetch_add(sent - sent_before, Ordering::Relaxed);
        }
    }

    /// Sends as much as the peer takes now, and wakes the task when it takes more.
    fn flush(&mut self, context: &mut Context<'_>) {
        if let Some(consumed) = self.consumed.take() {
            self.queue(&ServerMessage { body: Some(Body::Consumed(consumed)) }, None);
        }
        (self.urgent, self.unanswered) = (false, 0);
        if !self.lost {
            self.lost = matches!(self.writer.poll_flush(context), Poll::Ready(Err(_)));
        }
        self.count();
    }

    /// Counts bytes that the peer reads in a slot.
    fn count_sent(&self, in_slot: u64) {
        self.counts.sent.fetch_add(in_slot, Ordering::Relaxed);
    }

    fn queue(&mut self, message: &ServerMessage, descriptor: Option<std::os::fd::OwnedFd>) {
        if let (false, Err(error)) = (self.lost, self.writer.queue(message, descriptor)) {
            // Only a defect produces such a message; without it, the client would wait forever.
            tracing::error!("the connection of {} was ended: {error}", self.peer);
            self.lost = true;
            self.writer.close();
        }
    }
}

impl ServerConnection for LocalServerConnection {
    fn transport(&self) -> &'static str {
        "shared-memory"
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn authenticated(&self) -> bool {
        false
    }

    fn admission(&self) -> Option<Arc<AdmissionGuard>> {
        self.admission.clone()
    }

    fn admitted(&mut self) {
        self.reader.set_longest(MAX_MESSAGE_BYTES);
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ClientMessage>>> {
        match self.reader.poll_next(context) {
            Poll::Ready(Ok(message)) => {
                self.unanswered += 1;
                Poll::Ready(message.map(Ok))
            }
            Poll::Ready(Err(Error::Protocol(why))) => Poll::Ready(Some(Err(Error::Protocol(why)))),
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Pending => {
                // There is nothing more to answer: send everything queued at once.
                self.flush(context);
                Poll::Pending
            }
        }
    }

    fn unfinished_bytes(&self) -> u64 {
        self.reader.unfinished_bytes()
    }

    fn send(&mut self, message: ServerMessage) {
        let slot = match &message.body {
            Some(Body::Batch(batch)) => batch.slot.inspect(|_| self.count_sent(batch.bulk_bytes)),
            _ => None,
        };
        let descriptor = slot.filter(|slot| slot.fresh).and_then(|slot| self.slots.descriptor(slot.slot));
        self.urgent |= matches!(&message.body, Some(Body::Batch(batch)) if batch.bulk_bytes >= LARGE_BATCH);
        self.queue(&message, descriptor);
    }

    fn queued_bytes(&self) -> u64 {
        self.writer.waiting() as u64
    }

    fn poll_queued(&mut self, context: &mut Context<'_>, below: u64) -> Poll<()> {
        if self.urgent || self.unanswered >= PATIENCE || self.queued_bytes() >= below.min(TOGETHER) {
            self.flush(context);
        }
        if self.lost || self.queued_bytes() < below { Poll::Ready(()) } else { Poll::Pending }
    }

    fn close(mut self: Box<Self>) {
        self.flush(&mut Context::from_waker(Waker::noop()));
        if self.lost || self.queued_bytes() == 0 {
            return self.writer.close();
        }
        tokio::spawn(async move {
            // A client that does not read loses its last messages.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.writer.flush()).await;
            self.count();
            self.writer.close();
        });
    }

    fn lend(&mut self, size_bytes: usize) -> Option<Box<dyn WritableSlot>> {
        self.slots.take(size_bytes).map(|lease| Box::new(lease) as Box<dyn WritableSlot>)
    }

    fn lent_bytes(&self) -> u64 {
        self.slots.lent_bytes()
    }

    fn freed(&mut self, slots: &[u32]) -> Result<()> {
        slots.iter().try_for_each(|slot| self.slots.freed(*slot))
    }

    fn slot_wanted(&mut self, size_bytes: u64) -> Result<()> {
        let (slot, descriptor) = self.intake.wanted(size_bytes)?;
        if let (None, Some(more)) = (&descriptor, self.shortages.allows()) {
            tracing::warn!("no shared memory is left for inserts of {}: they use the socket{more}", self.peer);
        }
        self.queue(&ServerMessage { body: Some(Body::InsertSlot(slot)) }, descriptor);
        Ok(())
    }

    fn bulk<'a>(&'a mut self, bulk: &'a Bulk) -> Result<Box<dyn BulkSource + 'a>> {
        Ok(match &bulk.place {
            Some(bulk::Place::Range(range)) => {
                let bytes = self.intake.bytes(range)?;
                self.counts.received.fetch_add(range.size_bytes, Ordering::Relaxed);
                Box::new(bytes)
            }
            Some(bulk::Place::Inline(bytes)) => Box::new(bytes.clone()),
            None => Box::new(Bytes::new()),
        })
    }

    fn consumed(&mut self, bulk: &Bulk) {
        if let Some(bulk::Place::Range(range)) = &bulk.place {
            self.intake.consumed(range);
            self.consumed = Some(Consumed { slot: range.slot, end: range.start.saturating_add(range.size_bytes) });
        }
    }
}

impl WritableSlot for Lease {
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        Lease::bytes(self)
    }

    fn give(self: Box<Self>) -> Slot {
        Lease::give(*self)
    }
}
