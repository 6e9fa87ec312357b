//! The client's end: items to messages.

mod bodies;
mod chunks;
mod forms;
mod known;

use super::{FULL_HEAD_BYTES, MAX_CHECKS, MAX_ITEMS, Row};
use crate::bulk::BulkSink;
use crate::convert::numbers::encode;
use crate::proto;
use bodies::Bodies;
use chunks::Chunks;
use forms::Forms;
pub use known::PushOutcome;
use reverie_core::item::{Body, Item};
use reverie_core::table::{Inserts, Priority};
use reverie_core::{Error, Result};

/// Definitions of one message at most, in bytes, with the lists that are not of its head.
const MAX_DEFINED_BYTES: usize = 8 << 20;

/// Bytes of an entry about requests, at most.
const RUN_BYTES: usize = 26;

/// Encodes items into messages: names what the server does not know, and sends only the cells that it does not have.
#[derive(Default)]
pub struct Encoder {
    message: proto::Insert,
    /// Rows of items.
    items: Vec<u8>,
    /// Numbers of chunks and bodies that are not used any more.
    released: Vec<u64>,
    /// Requests in the message.
    requests: u64,
    next_id: u64,
    checks: u64,
    /// Bytes of the message's head, at most.
    head_bytes: usize,
    /// Bytes of the message's definitions.
    defined_bytes: usize,
    /// The last request had no room for all of its definitions: the forms among them are not released.
    is_split: bool,
    /// The last number given to a chunk or body.
    named: u64,
    forms: Forms,
    chunks: Chunks,
    bodies: Bodies,
}

impl Encoder {
    /// About how many bytes this request would add to the bulk, for grouping and credit.
    pub fn bulk_bytes(&self, items: &Inserts) -> u64 {
        let mut bytes = 0;
        each_chunk(items, |chunk| {
            bytes += self.chunks.unsent(chunk);
            Ok(None)
        })
        .ok();
        bytes
    }

    /// The bytes that [`Encoder::take`] will put into the bulk.
    pub fn planned_bytes(&self) -> u64 {
        self.chunks.planned()
    }

    /// Adds one request to the message, whose bulk may have `room` bytes in all.
    /// A request whose number is not larger than the one before has no room in its message. Cells are only noted here,
    /// and copied by `take`.
    ///
    /// `InvalidArgument`: no items, more than [`MAX_ITEMS`], items of more cells than a message may ask for, or a
    /// priority that is NaN. `ResourceExhausted`: a chunk larger than [`proto::MAX_CHUNK_BYTES`], or a cell larger
    /// than a message; of a request with such a cell, nothing is noted.
    pub fn push(&mut self, id: u64, table: u32, items: &Inserts, room: u64) -> Result<PushOutcome> {
        check(items)?;
        if self.requests == 0 {
            self.tidy(room);
        } else if !self.can_follow(id) || self.items.len() / Row::BYTES + items.len() > MAX_ITEMS {
            return Ok(PushOutcome::NoRoom { needed: 0 });
        }
        if self.head_bytes >= FULL_HEAD_BYTES {
            return Ok(PushOutcome::NoRoom { needed: 0 });
        }
        if let Some(no_room) = self.note_cells(items, room)? {
            return Ok(no_room);
        }
        self.is_split = self.define(items)?;
        if self.is_split {
            return Ok(PushOutcome::NoRoom { needed: 0 });
        }
        for (item, priority) in items {
            let pattern = self.forms.number(&item.pattern).expect("defined above");
            let body = match &item.body {
                Body::Chunk(chunk) => self.chunks.number(chunk),
                Body::Span(span) => self.bodies.number(span),
            };
            let row = Row {
                pattern,
                anchor: item.anchor,
                body: body.expect("named above"),
                priority: match priority {
                    Priority::Value(priority) => *priority,
                    Priority::Max => f64::NAN,
                    Priority::Default => f64::NEG_INFINITY,
                },
                episode: item.episode,
                stream: item.stream,
            };
            row.put(&mut self.items);
        }
        self.add_request(id, table, items.len() as u32);
        Ok(PushOutcome::Whole)
    }

    /// True if a request of this number can follow those of the message.
    fn can_follow(&self, id: u64) -> bool {
        id >= self.next_id && id - self.next_id <= u64::from(u32::MAX)
    }

    /// Notes the cells that the request's items use; returns [`PushOutcome::NoRoom`] if they do not fit.
    fn note_cells(&mut self, items: &Inserts, room: u64) -> Result<Option<PushOutcome>> {
        each_chunk(items, |chunk| self.chunks.check(chunk).map(|()| None))?;
        let (chunks, named, head_bytes) = (&mut self.chunks, &mut self.named, &mut self.head_bytes);
        each_chunk(items, |chunk| match *head_bytes >= FULL_HEAD_BYTES {
            true => Ok(Some(PushOutcome::NoRoom { needed: 0 })),
            false => chunks.note(chunk, room, named, head_bytes),
        })
    }

    /// Defines the forms and bodies of the request; true if they do not fit.
    fn define(&mut self, items: &Inserts) -> Result<bool> {
        let mut checks = 0;
        for (item, _) in items {
            if self.head_bytes >= FULL_HEAD_BYTES || self.defined_bytes >= MAX_DEFINED_BYTES {
                return Ok(true);
            }
            let sizes = (&mut self.head_bytes, &mut self.defined_bytes);
            checks += self.forms.define(&item.pattern, &mut self.message.patterns, sizes)?;
            checks += item.further_episodes().len() as u64;
            if let Body::Span(span) = &item.body {
                let define = self.bodies.define(span, &self.chunks, &mut self.named);
                if let Some(body) = define {
                    self.head_bytes += bodies::head_bytes(&body);
                    self.defined_bytes += prost::Message::encoded_len(&body);
                    self.message.bodies.push(body);
                }
            }
        }
        if checks > MAX_CHECKS {
            let reason = "the items of one request have too many cells: insert fewer at a time";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
        let full = self.checks + checks > MAX_CHECKS;
        self.checks += if full { 0 } else { checks };
        Ok(full)
    }

    fn add_request(&mut self, id: u64, table: u32, items: u32) {
        if self.requests == 0 {
            self.message.first_id = id;
            self.next_id = id;
        }
        let skipped = (id - self.next_id) as u32;
        self.requests += 1;
        self.next_id = id + 1;
        match self.message.runs.last_mut() {
            Some(run) if (run.table, run.items, skipped) == (table, items, 0) => run.requests += 1,
            _ => {
                self.head_bytes += RUN_BYTES;
                self.message.runs.push(proto::InsertRun { table, requests: 1, items, skipped });
            }
        }
    }

    /// Checks some of the named things, and releases unused ones.
    /// Also notes chunks that were packed meanwhile, if there is room. `push` does this for every message; call it now
    /// and then while nothing is pushed, and then take the message.
    pub fn tidy(&mut self, room: u64) {
        self.chunks.tidy(room, &mut self.released, &mut self.head_bytes);
        self.bodies.tidy(&mut self.released);
        if !self.is_split {
            self.forms.tidy(&mut self.message.released_patterns);
        }
    }

    /// True if the server keeps something because it was named.
    pub fn names_any(&self) -> bool {
        !self.chunks.is_empty() || !self.bodies.is_empty()
    }

    /// The message, with its bulk bytes put into `bulk`, which must be empty. The caller sets `insert.bulk`.
    /// `None` if there is nothing to send.
    pub fn take(&mut self, bulk: &mut dyn BulkSink) -> Option<proto::Insert> {
        self.chunks.take(bulk, &mut self.message.chunks);
        let mut message = std::mem::take(&mut self.message);
        message.released = encode(&self.released);
        self.released.clear();
        message.items = std::mem::take(&mut self.items).into();
        (self.requests, self.checks, self.head_bytes, self.defined_bytes) = (0, 0, 0, 0);
        (message != proto::Insert::default()).then_some(message)
    }
}

fn check(items: &Inserts) -> Result<()> {
    let refuse = |reason: String| Err(Error::InvalidArgument(reason));
    if items.is_empty() || items.len() > MAX_ITEMS {
        return refuse(format!("{} items in one request: insert 1 to {MAX_ITEMS} at a time", items.len()));
    }
    // In a message these stand for priorities that the table finds.
    let reserved = |priority: f64| priority.is_nan() || priority == f64::NEG_INFINITY;
    let wrong = |(_, priority): &(Item, Priority)| match priority {
        Priority::Value(value) if reserved(*value) => Some(*value),
        _ => None,
    };
    match items.iter().find_map(wrong) {
        Some(value) => refuse(format!("a priority must be a finite number, got {value}")),
        None => Ok(()),
    }
}

/// Calls `each` for the items' chunks until it returns a value; skips an item with the same body as the one before.
fn each_chunk(
    items: &Inserts,
    mut each: impl FnMut(&std::sync::Arc<reverie_core::chunk::Chunk>) -> Result<Option<PushOutcome>>,
) -> Result<Option<PushOutcome>> {
    let mut before: Option<&Item> = None;
    for (item, _) in items {
        if before.is_none_or(|before| !same_body(&before.body, &item.body)) {
            for chunk in item.chunks() {
                if let Some(found) = each(chunk)? {
                    return Ok(Some(found));
                }
            }
        }
        before = Some(item);
    }
    Ok(None)
}

fn same_body(left: &Body, right: &Body) -> bool {
    match (left, right) {
        (Body::Chunk(left), Body::Chunk(right)) => std::sync::Arc::ptr_eq(left, right),
        (Body::Span(left), Body::Span(right)) => std::sync::Arc::ptr_eq(left, right),
        _ => false,
    }
}
