//! The things that a connection has named, and the bytes that it holds through them.

use super::episodes::Episodes;
use super::limits::{DecoderLimits, broken, layout_bytes, too_many};
use super::released_chunks::{ReleasedChunks, SweepSchedule};
use crate::convert::numbers;
use crate::proto;
use reverie_core::chunk::{Chunk, ChunkWriter};
use reverie_core::item::{Part, Span};
use reverie_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Positions in a body at most: no sum of them overflows.
const MAX_POSITION: i64 = 1 << 40;

pub(super) enum NamedObject {
    Chunk {
        chunk: Arc<Chunk>,
        /// Present while cells may still arrive.
        writer: Option<ChunkWriter>,
    },
    Body {
        span: Arc<Span>,
        size_bytes: u64,
    },
}

pub(super) struct Names {
    known: HashMap<u64, NamedObject>,
    limits: DecoderLimits,
    /// Bytes of bodies and forms.
    others: u64,
    /// Bytes of chunks that no table referred to when they were last looked at.
    chunks: u64,
    /// The names of the chunks that are counted in `chunks`; some may be released by now.
    unreferenced: Vec<u64>,
    pace: SweepSchedule,
    recount_schedule: SweepSchedule,
    released: ReleasedChunks,
    /// The value of `chunks` when all chunks were last looked at, and the bytes and number of chunks named since.
    bytes_at_recount: u64,
    since: u64,
    named: usize,
}

/// The bytes of a body without parts: its place among the names, and itself.
const BODY_BYTES: u64 = 160;

/// Named things that may all be looked at for each chunk that seems too much.
const FEW: usize = 1 << 12;

/// Bytes that a connection may name before all its chunks are looked at again: some may have left their tables.
const SLACK: u64 = 16 << 20;
/// Like [`SLACK`], for connections that name much, all of which is looked at.
const MOST_SLACK: u64 = 256 << 20;

impl Names {
    pub(super) fn new(limits: DecoderLimits) -> Self {
        Self {
            known: HashMap::new(),
            limits,
            others: 0,
            chunks: 0,
            unreferenced: Vec::new(),
            pace: SweepSchedule::default(),
            recount_schedule: SweepSchedule::default(),
            released: ReleasedChunks::default(),
            bytes_at_recount: 0,
            since: 0,
            named: 0,
        }
    }

    pub(super) fn get(&self, name: u64) -> Option<&NamedObject> {
        self.known.get(&name)
    }

    pub(super) fn chunk_mut(&mut self, name: u64) -> Result<Option<(&Arc<Chunk>, &mut Option<ChunkWriter>)>> {
        match self.known.get_mut(&name) {
            None => Ok(None),
            Some(NamedObject::Chunk { chunk, writer }) => Ok(Some((chunk, writer))),
            Some(NamedObject::Body { .. }) => Err(broken(format!("name {name} is a body, not a chunk"))),
        }
    }

    /// Checks that this many bytes of a chunk can be held, before memory is allocated for them.
    pub(super) fn admit(&mut self, bytes: u64) -> Result<()> {
        if self.known.len() >= self.limits.max_named {
            return Err(too_many("chunks", self.limits.max_named));
        }
        self.chunks += bytes;
        self.since += bytes;
        self.named += 1;
        self.check(bytes)
    }

    /// See [`super::Decoder::held_bytes`].
    /// All chunks are looked at only if much was named since, so that each chunk is looked at a few times.
    pub(super) fn held_bytes(&mut self) -> u64 {
        let much = self.since > self.bytes_at_recount.max(SLACK);
        let enough = self.named >= self.known.len() / 4 || self.since > MOST_SLACK;
        if much && enough { self.recount() } else { self.counted() }
    }

    fn counted(&mut self) -> u64 {
        let chunks = self.chunks.saturating_add(self.released.bytes());
        chunks.saturating_add(self.others)
    }

    /// See [`super::Decoder::settle`].
    pub(super) fn settle(&mut self) {
        let Self { known, unreferenced, chunks, pace, .. } = self;
        if !pace.is_due(unreferenced.len()) {
            return;
        }
        *chunks = 0;
        unreferenced.retain(|name| {
            let bytes = known.get(name).map_or(0, held);
            *chunks += bytes;
            bytes > 0
        });
    }

    pub(super) fn recount(&mut self) -> u64 {
        self.recount_with(0);
        self.counted()
    }

    /// Like [`Names::recount`], but where much is named only now and then.
    pub(super) fn recount_paced(&mut self) -> u64 {
        let len = self.known.len() + self.released.len();
        if len <= FEW || self.recount_schedule.is_due(len) { self.recount() } else { self.counted() }
    }

    fn recount_with(&mut self, coming: u64) {
        let Self { known, unreferenced, .. } = self;
        let mut chunks = coming;
        unreferenced.clear();
        unreferenced.extend(known.iter().filter_map(|(name, known)| {
            let bytes = held(known);
            chunks += bytes;
            (bytes > 0).then_some(*name)
        }));
        self.released.recount();
        (self.chunks, self.bytes_at_recount) = (chunks, chunks);
        (self.since, self.named) = (0, 0);
    }

    pub(super) fn hold_at_most(&mut self, limit: u64, more: u64) {
        self.limits.max_held_bytes = limit.min(self.counted().saturating_add(more));
    }

    /// Refuses bytes beyond the limit; `coming` bytes are of a chunk that is not named yet.
    /// The bytes are computed again when the limit seems exceeded, by looking at all that is named. That may happen for
    /// each chunk near the limit; so a connection that has named much is refused from three quarters of the limit on.
    fn check(&mut self, coming: u64) -> Result<()> {
        let budget = self.limits.max_held_bytes;
        if self.counted() <= budget {
            return Ok(());
        }
        self.recount_with(coming);
        let needed = self.counted();
        let few = self.known.len() + self.released.len() <= FEW;
        let free = if few { 0 } else { budget / 4 };
        if needed <= budget - free {
            return Ok(());
        }
        Err(Error::ResourceExhausted {
            what: "a connection with chunks that no table holds".to_owned(),
            needed,
            budget,
            hint: "confirm inserts more often, or cut shorter chunks (max_chunk_length)".to_owned(),
        })
    }

    pub(super) fn add_chunk(&mut self, name: u64, chunk: Arc<Chunk>, writer: Option<ChunkWriter>) {
        self.known.insert(name, NamedObject::Chunk { chunk, writer });
        self.unreferenced.push(name);
        self.pace.added();
    }

    pub(super) fn define_body(&mut self, definition: proto::BodyDef, episodes: &Episodes) -> Result<()> {
        let name = definition.body;
        if self.known.contains_key(&name) {
            return Err(broken(format!("the body {name} is defined twice")));
        }
        if self.known.len() >= self.limits.max_named {
            return Err(too_many("bodies", self.limits.max_named));
        }
        let theirs = numbers::words(&definition.episodes, "episodes")?;
        if theirs.contains(&[0; 4]) {
            return Err(broken(format!("the body {name} has cells of an episode without a number")));
        }
        // A part keeps for each chunk a reference and the position of its start.
        let size = |part: &proto::BodyPart| (size_of::<Part>() + 2 * part.starts.len()) as u64;
        let parts = definition.parts.iter().map(size).sum::<u64>();
        let size_bytes = BODY_BYTES + parts + definition.episodes.len() as u64;
        self.hold(size_bytes)?;
        let parts = definition.parts.iter().map(|part| self.part(part)).collect::<Result<Vec<_>>>()?;
        let episodes = theirs.iter().map(|episode| episodes.episode(u32::from_le_bytes(*episode))).collect();
        self.known.insert(name, NamedObject::Body { span: Arc::new(Span { parts, episodes }), size_bytes });
        Ok(())
    }

    fn part(&self, part: &proto::BodyPart) -> Result<Part> {
        let chunks = numbers::words(&part.chunks, "chunks")?;
        let starts = numbers::decode::<i64>(&part.starts, "starts")?;
        let in_order = starts.windows(2).all(|pair| pair[0] < pair[1])
            && starts.iter().all(|start| (-MAX_POSITION..=MAX_POSITION).contains(start));
        if chunks.is_empty() || starts.len() != chunks.len() + 1 || !in_order {
            return Err(broken(format!("a body of {} chunks has the invalid starts {starts:?}", chunks.len())));
        }
        let chunk = |name: &[u8; 8]| match self.known.get(&u64::from_le_bytes(*name)) {
            Some(NamedObject::Chunk { chunk, .. }) => Ok(Arc::clone(chunk)),
            _ => Err(broken(format!("the chunk {} of a body is not defined", u64::from_le_bytes(*name)))),
        };
        Ok(Part { chunks: chunks.iter().map(chunk).collect::<Result<_>>()?, starts: starts.into() })
    }

    /// Counts bytes of bodies and forms.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        self.others = self.others.saturating_add(bytes);
        self.check(0)
    }

    pub(super) fn release_bytes(&mut self, bytes: u64) {
        self.others = self.others.saturating_sub(bytes);
    }

    /// Releases a chunk or body; an unknown number is ignored.
    pub(super) fn release(&mut self, name: u64) {
        match self.known.remove(&name) {
            Some(NamedObject::Body { size_bytes, .. }) => self.release_bytes(size_bytes),
            Some(NamedObject::Chunk { chunk, writer }) => {
                drop(writer);
                self.released.push(chunk);
            }
            None => {}
        }
    }

    /// Releases all; returns the chunks of items that wait.
    pub(super) fn release_all(mut self) -> ReleasedChunks {
        for known in std::mem::take(&mut self.known).into_values() {
            if let NamedObject::Chunk { chunk, writer } = known {
                drop(writer);
                self.released.push(chunk);
            }
        }
        self.released
    }

    pub(super) fn released(&mut self) -> &mut ReleasedChunks {
        &mut self.released
    }
}

fn held(known: &NamedObject) -> u64 {
    match known {
        NamedObject::Chunk { chunk, .. } if !chunk.in_tables() => chunk.size_bytes() + layout_bytes(chunk.layout()),
        _ => 0,
    }
}
