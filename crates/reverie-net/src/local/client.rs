//! The client's end: both halves of a connection over the Unix socket.

use super::mapped::{FreedSlots, MappedSlots};
use super::ring::{self, BulkPlacement};
use super::socket::{DescriptorPolicy, SocketReader, Writer, split};
use super::trusted;
use crate::block::Block;
use crate::bulk::BulkSink;
use crate::proto::client_message::Body;
use crate::proto::{Bulk, ClientMessage, Consumed, ServerMessage, SlotWanted, bulk::Place, server_message};
use crate::transport::Traffic;
use crate::transport::client::{ArrivedMessage, Inlet, Outlet};
use bytes::Bytes;
use reverie_core::{Error, Result};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// Fewer bulk bytes than this are not worth a place in the slot, and the message that frees it.
const SMALL: u64 = 1 << 10;
/// The first insert slot: small enough to stay in the processor's cache.
const FIRST_RING: u64 = 4 << 20;
/// Messages sent without a slot before one is requested again after the server had no room.
const ASK_AGAIN: u32 = 64;
/// Messages are joined into one system call up to this size.
const TOGETHER: usize = 16 << 10;

/// The state of the insert slot that the receiving half learned, until the sending half takes it.
#[derive(Debug, Default)]
struct InsertSlotState {
    /// `Some(None)`: the server had no room for a slot.
    ring: Option<Option<ring::RingOutlet>>,
    consumed: Option<Consumed>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct SharedInsertSlotState {
    /// Held for a move only.
    state: Mutex<InsertSlotState>,
}

impl SharedInsertSlotState {
    fn state(&self) -> MutexGuard<'_, InsertSlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut InsertSlotState)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Connects to the server's socket; the server's hello has not arrived yet.
/// `InvalidArgument` if the path is empty: the server has none. `Unavailable` if no process listens there, or the
/// process belongs to another user (not root).
pub async fn connect(path: &str, traffic: &Arc<Traffic>) -> Result<(LocalOutlet, LocalInlet)> {
    if path.is_empty() {
        return Err(Error::InvalidArgument("the server has no Unix socket".to_owned()));
    }
    let unavailable = |why: String| Error::Unavailable(format!("the server's socket {path}: {why}"));
    let stream = tokio::net::UnixStream::connect(path).await.map_err(|error| unavailable(error.to_string()))?;
    trusted(&stream).map_err(unavailable)?;
    let halves = stream.into_std().and_then(|stream| split(stream, DescriptorPolicy::Accept));
    let (reader, writer) = halves.map_err(|error| unavailable(error.to_string()))?;
    traffic.without_insert_slot.store(false, Ordering::Relaxed);
    traffic.without_batch_slot.store(false, Ordering::Relaxed);
    let (shared, freed) = (Arc::<SharedInsertSlotState>::default(), Arc::<FreedSlots>::default());
    let slots = MappedSlots::new(Arc::clone(&freed));
    let inlet = LocalInlet { reader, slots, shared: Arc::clone(&shared), counted: 0, traffic: Arc::clone(traffic) };
    let outlet = LocalOutlet {
        writer,
        shared,
        freed,
        ring: None,
        asked: 0,
        pending: false,
        pause: 0,
        inline: InlineBulk::default(),
        lazy: false,
        traffic: Arc::clone(traffic),
    };
    Ok((outlet, inlet))
}

/// Bulk bytes inside the message.
#[derive(Debug, Default)]
struct InlineBulk(Vec<u8>);

impl BulkSink for InlineBulk {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// The sending half.
#[derive(Debug)]
pub struct LocalOutlet {
    writer: Writer,
    shared: Arc<SharedInsertSlotState>,
    freed: Arc<FreedSlots>,
    /// The insert slot, and whether the next message's bytes go there.
    ring: Option<(ring::RingOutlet, bool)>,
    /// The largest slot requested.
    asked: u64,
    pending: bool,
    /// Messages until a slot is requested again.
    pause: u32,
    inline: InlineBulk,
    /// Something was queued since the last wait for [`Outlet::ready`]: it may be sent with what follows.
    lazy: bool,
    traffic: Arc<Traffic>,
}

impl LocalOutlet {
    fn take_updates(&mut self, context: Option<&mut Context<'_>>) -> Result<()> {
        let mut state = self.shared.state();
        let (ring, consumed) = (state.ring.take(), state.consumed.take());
        state.waker = context.map(|context| context.waker().clone());
        drop(state);
        if let Some(given) = ring {
            self.pending = false;
            match given {
                // The server drops the previous slot when this one is used.
                Some(ring) => self.ring = Some((ring, false)),
                None => (self.asked, self.pause) = (0, ASK_AGAIN),
            }
        }
        match (&mut self.ring, consumed) {
            (Some((ring, _)), Some(Consumed { slot, end })) => ring.consumed(slot, end),
            _ => Ok(()),
        }
    }

    /// True if the bulk bytes of the next message, about `size`, have a place.
    fn place(&mut self, size: u64, context: &mut Context<'_>) -> Result<bool> {
        self.take_updates(Some(context))?;
        if let Some((ring, begun)) = &mut self.ring {
            *begun = size >= SMALL && ring.begin(size);
            if *begun || size < SMALL {
                return Ok(true);
            }
            if ring.size_bytes() >= size {
                return Ok(false);
            }
        }
        // The server makes a slot only after the previous one was used.
        let used = self.ring.as_ref().is_none_or(|(ring, _)| ring.is_used());
        let size_bytes = FIRST_RING.max(size.saturating_mul(2));
        if size < SMALL || !used || self.pending {
            return Ok(true);
        }
        self.pause = self.pause.saturating_sub(1);
        if self.pause == 0 && size_bytes > self.asked {
            (self.asked, self.pending) = (size_bytes, true);
            let body = Some(Body::SlotWanted(SlotWanted { size_bytes }));
            self.writer.queue(&ClientMessage { body, ..ClientMessage::default() }, None)?;
        }
        // Until the slot arrives, and if none is large enough, the bytes go inside the message.
        Ok(true)
    }

    fn poll_ready(&mut self, size: u64, context: &mut Context<'_>) -> Poll<Result<()>> {
        let lazy = std::mem::take(&mut self.lazy);
        if !lazy || self.writer.waiting() >= TOGETHER {
            ready!(self.writer.poll_flush(context))?;
        }
        if self.place(size, context)? {
            return Poll::Ready(Ok(()));
        }
        // The server can consume only what it was sent.
        match self.writer.poll_flush(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        }
    }

    /// The place of the bulk bytes, as the message names it.
    fn bulk_place(&mut self) -> Option<Place> {
        if let Some((ring, true)) = &mut self.ring {
            let placed = if ring.is_empty() { None } else { Some(ring.end()) };
            self.ring.as_mut().expect("it was there").1 = false;
            return placed.map(|placed| match placed {
                BulkPlacement::Slot(range) => Place::Range(range),
                BulkPlacement::Spilled(bytes) => Place::Inline(bytes),
            });
        }
        (!self.inline.is_empty()).then(|| Place::Inline(Bytes::from(std::mem::take(&mut self.inline.0))))
    }
}

impl Outlet for LocalOutlet {
    const TRANSPORT: &'static str = "shared-memory";
    const MESSAGE_BYTES: u64 = 1 << 20;

    async fn ready(&mut self, bulk_bytes: u64) -> Result<()> {
        poll_fn(|context| self.poll_ready(bulk_bytes, context)).await
    }

    fn bulk(&mut self) -> &mut dyn BulkSink {
        match &mut self.ring {
            Some((ring, true)) => ring,
            _ => &mut self.inline,
        }
    }

    fn send(&mut self, mut message: ClientMessage) -> Result<()> {
        let place = self.bulk_place();
        let in_slot = match &place {
            Some(Place::Range(range)) => range.size_bytes,
            _ => 0,
        };
        if let Some(Body::Insert(insert)) = &mut message.body {
            insert.bulk = place.map(|place| Bulk { place: Some(place) });
        }
        message.freed_slots = self.freed.take();
        self.lazy = true;
        let before = self.writer.waiting();
        self.writer.queue(&message, None)?;
        let in_message = (self.writer.waiting() - before) as u64;
        self.traffic.bytes.sent.fetch_add(in_slot + in_message, Ordering::Relaxed);
        Ok(())
    }

    fn is_pressed(&self) -> bool {
        self.writer.waiting() > 0
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct LocalInlet {
    reader: SocketReader,
    slots: MappedSlots,
    shared: Arc<SharedInsertSlotState>,
    /// Bytes of the socket that are counted already.
    counted: u64,
    traffic: Arc<Traffic>,
}

impl LocalInlet {
    fn count(&mut self, in_slot: u64) {
        let received = self.reader.received();
        self.traffic.bytes.received.fetch_add(in_slot + received - self.counted, Ordering::Relaxed);
        self.counted = received;
    }

    /// Handles the fields about slots; `None` if the message had nothing else.
    fn arrived(&mut self, message: ServerMessage) -> Result<Option<ArrivedMessage>> {
        match &message.body {
            Some(server_message::Body::InsertSlot(slot)) => {
                let ring = match slot.size_bytes {
                    0 => None,
                    _ => Some(ring::RingOutlet::open(slot, &self.reader.descriptor()?)?),
                };
                self.traffic.without_insert_slot.store(ring.is_none(), Ordering::Relaxed);
                self.shared.update(|state| state.ring = Some(ring));
                Ok(None)
            }
            Some(server_message::Body::Consumed(consumed)) => {
                self.shared.update(|state| state.consumed = Some(*consumed));
                Ok(None)
            }
            Some(server_message::Body::Batch(batch)) => {
                self.traffic.without_batch_slot.store(batch.slot.is_none(), Ordering::Relaxed);
                let Some(slot) = &batch.slot else { return Ok(Some(message.into())) };
                let block = self.slots.hold(slot, batch.bulk_bytes, || self.reader.descriptor())?;
                self.count(batch.bulk_bytes);
                Ok(Some(ArrivedMessage { message, block: Some(Block::lent(block)) }))
            }
            _ => Ok(Some(message.into())),
        }
    }
}

impl Inlet for LocalInlet {
    async fn receive(&mut self) -> Result<Option<ArrivedMessage>> {
        while let Some(message) = self.reader.next::<ServerMessage>().await? {
            self.count(0);
            if let Some(arrived) = self.arrived(message)? {
                return Ok(Some(arrived));
            }
        }
        Ok(None)
    }
}
