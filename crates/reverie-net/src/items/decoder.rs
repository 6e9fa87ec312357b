//! The server's end: items from messages.

mod cells;
mod episodes;
mod limits;
mod names;
mod released_chunks;

use super::{ITEM_BYTES, MAX_CHECKS, MAX_ITEMS, Row, WAITING_BYTES, WAITING_ITEM_BYTES, checks};
use crate::bulk::BulkSource;
use crate::convert::item::decode_pattern;
use crate::convert::numbers::words;
use crate::proto;
use cells::Layouts;
use names::{NamedObject, Names};
use reverie_core::Result;
use reverie_core::chunk::Meter;
use reverie_core::item::{Body, Form, Item};
use reverie_core::table::{Inserts, Priority};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use episodes::Episodes;
pub use limits::DecoderLimits;
use limits::{broken, too_many};
pub use released_chunks::ReleasedChunks;

/// One request of an insert message.
pub struct ArrivedInsert {
    /// The number of the insert.
    pub id: u64,
    /// Index of the table, not checked.
    pub table: u32,
    /// The items; every cell of them exists.
    pub items: Inserts,
    /// Bytes that it counts for against the insert credit: see [`ITEM_BYTES`].
    pub size_bytes: u64,
    /// The memory that it takes while it waits for its table, without its chunks.
    pub waiting_bytes: u64,
}

struct Pattern {
    form: Form,
    checks: u64,
    size_bytes: u64,
    /// Bytes that an item keeps after the form was released.
    own_bytes: u64,
}

/// Decodes messages into items.
/// Nothing in a message is trusted: a message that breaks a rule is `Protocol`, and one that exceeds the limits is
/// `ResourceExhausted`. After either the connection must be ended.
pub struct Decoder {
    meter: Arc<Meter>,
    limits: DecoderLimits,
    episodes: Arc<Episodes>,
    patterns: HashMap<u32, Pattern>,
    names: Names,
    layouts: Layouts,
    /// Bulk bytes of messages without a request: they count for the next request.
    unassigned_bytes: u64,
}

impl Decoder {
    /// A decoder for a new connection of the session that owns these episodes. Chunks are counted in `meter`.
    pub fn new(meter: Arc<Meter>, limits: DecoderLimits, episodes: Arc<Episodes>) -> Self {
        let (patterns, names, layouts) = (HashMap::new(), Names::new(limits), Layouts::default());
        Self { meter, limits, episodes, patterns, names, layouts, unassigned_bytes: 0 }
    }

    /// Counts chunks that waiting items of earlier connections have; see [`Decoder::release`].
    pub fn adopt(&mut self, released: ReleasedChunks) {
        *self.names.released() = released;
    }

    /// To be called while no insert of the session waits: released chunks are no longer its own.
    pub fn nothing_waits(&mut self) {
        self.names.released().clear();
    }

    /// Ends the connection: releases all that it named. Returns the chunks that waiting items still have.
    pub fn release(self) -> ReleasedChunks {
        self.names.release_all()
    }

    /// The requests of a message, in order; none if it only has cells. The bulk bytes are copied on return.
    pub fn insert(&mut self, message: proto::Insert, bulk: &dyn BulkSource) -> Result<Vec<ArrivedInsert>> {
        for definition in message.patterns {
            self.define_pattern(definition)?;
        }
        for chunk in &message.chunks {
            cells::take(&mut self.names, &mut self.layouts, &self.limits, &self.meter, chunk, bulk)?;
        }
        for definition in message.bodies {
            self.names.define_body(definition, &self.episodes)?;
        }
        self.unassigned_bytes += bulk.len();
        let arrived = self.requests(message.first_id, &message.runs, &message.items)?;
        for number in words(&message.released, "released numbers")? {
            self.names.release(u64::from_le_bytes(*number));
        }
        for number in message.released_patterns {
            if let Some(pattern) = self.patterns.remove(&number) {
                self.names.release_bytes(pattern.size_bytes);
            }
        }
        Ok(arrived)
    }

    /// Bytes of the chunks that no table refers to and that are named here, or released while an item that waits has
    /// them; and of the other named things. May include chunks that came into tables since the last
    /// [`Decoder::recount`].
    pub fn held_bytes(&mut self) -> u64 {
        self.names.held_bytes()
    }

    /// Stops counting chunks that are in tables by now: to be called after a message's items went there.
    pub fn settle(&mut self) {
        self.names.settle();
    }

    /// Like [`Decoder::held_bytes`], computed now: looks at everything that is named.
    pub fn recount(&mut self) -> u64 {
        self.names.recount()
    }

    /// Like [`Decoder::recount`], but where much is named only now and then.
    pub fn recount_paced(&mut self) -> u64 {
        self.names.recount_paced()
    }

    /// Lets the next messages hold up to `more` bytes in addition to the current ones, within the limits.
    pub fn hold_at_most(&mut self, more: u64) {
        self.names.hold_at_most(self.limits.max_held_bytes, more);
    }

    fn define_pattern(&mut self, definition: proto::PatternDef) -> Result<()> {
        let (number, pattern) = decode_pattern(definition)?;
        if self.patterns.len() >= self.limits.max_named {
            return Err(too_many("forms of items", self.limits.max_named));
        }
        let (checks, size_bytes) = (checks(&pattern), pattern.size_bytes() as u64);
        self.names.hold(size_bytes)?;
        let form = Form::new(pattern);
        let known = Pattern { checks, size_bytes, own_bytes: form.own_bytes() as u64, form };
        match self.patterns.insert(number, known) {
            None => Ok(()),
            Some(_) => Err(broken(format!("the form {number} is defined twice"))),
        }
    }

    fn requests(&mut self, first_id: u64, runs: &[proto::InsertRun], items: &[u8]) -> Result<Vec<ArrivedInsert>> {
        let items = Row::all(items)?;
        let count = items.len();
        if count > MAX_ITEMS {
            return Err(broken(format!("{count} items in one message; {MAX_ITEMS} are allowed")));
        }
        let counts = runs.iter().try_fold((0_u64, 0_u64, 0_u64), |(requests, skipped, items), run| {
            let (requests, more) = (requests + u64::from(run.requests), u64::from(run.requests) * u64::from(run.items));
            (run.items > 0).then_some((requests, skipped + u64::from(run.skipped), items.checked_add(more)?))
        });
        let Some((requests, skipped, _)) = counts.filter(|(.., items)| *items == count as u64) else {
            return Err(broken(format!("the requests of a message do not cover its {count} items")));
        };
        let last = first_id.checked_add(requests + skipped);
        if last.is_none() || (first_id == 0 && requests > 0) {
            return Err(broken(format!("{requests} requests cannot begin at number {first_id}")));
        }
        let mut reader = ItemReader {
            decoder: self,
            items,
            at: 0,
            checks: 0,
            pattern: None,
            body: None,
            episode: (0, 0),
            stream: (0, 0),
            mentioned: None,
        };
        let mut arrived = Vec::with_capacity(requests as usize);
        let unassigned_bytes = if requests > 0 { std::mem::take(&mut reader.decoder.unassigned_bytes) } else { 0 };
        let (mut id, mut tables) = (first_id, Tables::default());
        for run in runs {
            id += u64::from(run.skipped);
            let mut own = if run.requests > 0 && tables.is_new(run.table) { unassigned_bytes } else { 0 };
            for _ in 0..run.requests {
                reader.mentioned = None;
                let mut waiting_bytes = WAITING_BYTES;
                let items = (0..run.items).map(|_| reader.next(&mut waiting_bytes)).collect::<Result<Inserts>>()?;
                let size_bytes = std::mem::take(&mut own).saturating_add(u64::from(run.items) * ITEM_BYTES);
                arrived.push(ArrivedInsert { id, table: run.table, items, size_bytes, waiting_bytes });
                id += 1;
            }
        }
        Ok(arrived)
    }
}

/// The tables of a message, mostly one.
#[derive(Default)]
struct Tables {
    first: Option<u32>,
    others: HashSet<u32>,
}

impl Tables {
    fn is_new(&mut self, table: u32) -> bool {
        match self.first {
            None => self.first.replace(table).is_none(),
            Some(first) => table != first && self.others.insert(table),
        }
    }
}

/// Reads the items of a message in order. Most have the form, the body and the episode of the item before.
struct ItemReader<'a> {
    decoder: &'a mut Decoder,
    items: &'a [[u8; Row::BYTES]],
    at: usize,
    checks: u64,
    /// The last form, with the cost of its looks and its size.
    pattern: Option<(u32, Form, (u64, u64))>,
    /// The last body, with its size.
    body: Option<(u64, Body, u64)>,
    episode: (u32, u32),
    stream: (u32, u32),
    /// The form and the body of the item before in the same request.
    mentioned: Option<(u32, u64)>,
}

impl ItemReader<'_> {
    /// The next item, whose memory while it waits is added to `waiting_bytes`.
    fn next(&mut self, waiting_bytes: &mut u64) -> Result<(Item, Priority)> {
        let at = self.at;
        self.at += 1;
        let row = Row::read(&self.items[at]);
        let (pattern, checks, form_bytes) = self.pattern(row.pattern)?;
        let (body, body_bytes) = self.body(row.body)?;
        *waiting_bytes += WAITING_ITEM_BYTES;
        // Items that wait keep their forms and bodies, also after the client has released them.
        let before = self.mentioned.replace((row.pattern, row.body));
        if before.is_none_or(|(pattern, _)| pattern != row.pattern) {
            *waiting_bytes += form_bytes;
        }
        if before.is_none_or(|(_, body)| body != row.body) {
            *waiting_bytes += body_bytes;
        }
        let episode = self.episode(row.episode);
        let stream = self.stream(row.stream);
        let item = Item { body, pattern, anchor: row.anchor, episode, stream };
        self.checks += checks + item.further_episodes().len() as u64;
        if self.checks > MAX_CHECKS {
            return Err(broken("the items of a message have more cells than are allowed"));
        }
        item.check().map_err(|error| broken(format!("an item is invalid: {error}")))?;
        let priority = match row.priority {
            max if max.is_nan() => Priority::Max,
            f64::NEG_INFINITY => Priority::Default,
            value => Priority::Value(value),
        };
        Ok((item, priority))
    }

    fn pattern(&mut self, number: u32) -> Result<(Form, u64, u64)> {
        if let Some((_, form, (checks, bytes))) = self.pattern.as_ref().filter(|(last, ..)| *last == number) {
            return Ok((form.clone(), *checks, *bytes));
        }
        let known = self.decoder.patterns.get(&number);
        let Pattern { form, checks, own_bytes, .. } =
            known.ok_or_else(|| broken(format!("the form {number} is not defined")))?;
        self.pattern = Some((number, form.clone(), (*checks, *own_bytes)));
        Ok((form.clone(), *checks, *own_bytes))
    }

    fn body(&mut self, name: u64) -> Result<(Body, u64)> {
        if let Some((_, body, bytes)) = self.body.as_ref().filter(|(last, ..)| *last == name) {
            return Ok((body.clone(), *bytes));
        }
        let (body, bytes) = match self.decoder.names.get(name) {
            Some(NamedObject::Chunk { chunk, .. }) => (Body::Chunk(Arc::clone(chunk)), 0),
            Some(NamedObject::Body { span, size_bytes }) => (Body::Span(Arc::clone(span)), *size_bytes),
            None => return Err(broken(format!("the body {name} is not defined"))),
        };
        self.body = Some((name, body.clone(), bytes));
        Ok((body, bytes))
    }

    fn episode(&mut self, episode: u32) -> u32 {
        if self.episode.0 != episode {
            self.episode = (episode, self.decoder.episodes.episode(episode));
        }
        self.episode.1
    }

    fn stream(&mut self, stream: u32) -> u32 {
        if self.stream.0 != stream {
            self.stream = (stream, self.decoder.episodes.stream(stream));
        }
        self.stream.1
    }
}
