//! The chunks that the server has, and the cells of each that it has.

use super::super::{FULL_HEAD_BYTES, MAX_ENTRY_BYTES};
use super::known::{ByAddress, PushOutcome, SWEPT_AT_ONCE};
use crate::bulk::BulkSink;
use crate::proto::{self, MAX_CHUNK_BYTES, MAX_MESSAGE_BYTES};
use prost::encoding::encoded_len_varint;
use reverie_core::chunk::{Chunk, PackedBytes, RawCells};
use reverie_core::{Error, Result};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The largest piece that cannot be split: it must fit in one message, together with its description.
const MAX_PIECE_BYTES: u64 = (MAX_MESSAGE_BYTES - (64 << 10)) as u64;

/// Bytes that a note takes of a message's head, at most, without what there is for each column.
const HEAD_BYTES: usize = 96;

/// Cells of each column.
type ColumnCounts = SmallVec<[u32; 8]>;

/// The first cell and the number of cells of each column.
type Columns = SmallVec<[(u32, u32); 8]>;

struct KnownChunk {
    number: u64,
    /// The weak reference keeps the address from being reused.
    chunk: Weak<Chunk>,
    /// The chunk, held until it is packed or has no other owner.
    /// Its packed form is sent even if its items have been in their tables for long.
    held: Option<Arc<Chunk>>,
    /// The layout of the chunk was sent or noted.
    defined: bool,
    /// Cells sent, or noted for the message.
    sent: ColumnCounts,
    /// The packed form was sent or noted: there is nothing more to send.
    packed: bool,
    /// The index of the note about its cells in the message.
    note: Option<u32>,
}

/// A note: the part of a chunk that the message will contain.
struct ChunkPart {
    address: usize,
    number: u64,
    layout: Option<Box<proto::ChunkLayout>>,
    what: ChunkPartBytes,
}

enum ChunkPartBytes {
    Cells(RawCells, Columns),
    Packed(PackedBytes),
}

/// The chunks by their address.
#[derive(Default)]
pub(super) struct Chunks {
    known: ByAddress<KnownChunk>,
    /// All addresses, the least recently checked first.
    turns: VecDeque<usize>,
    /// Chunks named since the last check.
    fresh: usize,
    notes: Vec<ChunkPart>,
    planned: u64,
}

fn address(chunk: &Arc<Chunk>) -> usize {
    Arc::as_ptr(chunk).addr()
}

impl Chunks {
    /// True if none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Bulk bytes of the notes.
    pub(super) fn planned(&self) -> u64 {
        self.planned
    }

    /// The number of a chunk that was noted.
    pub(super) fn number(&self, chunk: &Arc<Chunk>) -> Option<u64> {
        self.known.get(&address(chunk)).map(|known| known.number)
    }

    /// Bytes of the chunk that the server does not have.
    pub(super) fn unsent(&self, chunk: &Arc<Chunk>) -> u64 {
        let known = self.known.get(&address(chunk));
        if known.is_some_and(|known| known.packed) {
            return 0;
        }
        let Some(raw) = chunk.raw_cells() else {
            return chunk.packed_bytes().map_or(0, |bytes| bytes.len() as u64);
        };
        let sent = |column| known.map_or(0, |known| known.sent[column] as usize);
        let unsent = |column| (raw.len(column).saturating_sub(sent(column)) * raw.layout().width(column)) as u64;
        (0..raw.layout().num_columns()).map(unsent).sum()
    }

    /// Refuses a chunk with an unsent piece that no message can hold: `ResourceExhausted`. Notes nothing.
    pub(super) fn check(&self, chunk: &Arc<Chunk>) -> Result<()> {
        // Most chunks are smaller as a whole.
        if chunk.raw_bytes() <= MAX_PIECE_BYTES {
            return Ok(());
        }
        let known = self.known.get(&address(chunk));
        if known.is_some_and(|known| known.packed) {
            return Ok(());
        }
        let piece = match chunk.raw_cells() {
            None => chunk.packed_bytes().map_or(0, |bytes| bytes.len() as u64),
            Some(raw) => {
                let sent = |column| known.map_or(0, |known| known.sent[column] as usize);
                let unsent = (0..raw.layout().num_columns()).filter(|column| raw.len(*column) > sent(*column));
                unsent.map(|column| raw.layout().width(column) as u64).max().unwrap_or(0)
            }
        };
        if piece > MAX_PIECE_BYTES { no_room(piece).map(drop) } else { Ok(()) }
    }

    /// Notes the cells of the chunk that the server does not have; names a new chunk. Returns where there is no room.
    /// Adds what the note takes of the message's head.
    pub(super) fn note(
        &mut self,
        chunk: &Arc<Chunk>,
        room: u64,
        named: &mut u64,
        head_bytes: &mut usize,
    ) -> Result<Option<PushOutcome>> {
        let at = address(chunk);
        if !self.known.contains_key(&at) {
            self.name(chunk, named)?;
        }
        let Some(known) = self.known.get_mut(&at) else { return Ok(None) };
        if known.packed {
            return Ok(None);
        }
        if let Some(bytes) = chunk.packed_bytes() {
            return self.note_packed(chunk, bytes, room, head_bytes).map_or(Ok(None), no_room);
        }
        if let Some(ChunkPart { what: ChunkPartBytes::Cells(raw, columns), .. }) =
            known.note.map(|note| &mut self.notes[note as usize])
        {
            return note_cells(raw, columns, &mut known.sent, &mut self.planned, room).map_or(Ok(None), no_room);
        }
        let Some(raw) = chunk.raw_cells() else {
            // It was packed in the meantime.
            let bytes = chunk.packed_bytes().expect("a chunk is raw or packed");
            return self.note_packed(chunk, bytes, room, head_bytes).map_or(Ok(None), no_room);
        };
        let mut columns: Columns = known.sent.iter().map(|sent| (*sent, 0)).collect();
        let missing = note_cells(&raw, &mut columns, &mut known.sent, &mut self.planned, room);
        if !known.defined || columns.iter().any(|(_, cells)| *cells > 0) {
            known.note = Some(self.notes.len() as u32);
            let layout = known.define(chunk);
            *head_bytes += HEAD_BYTES + layout_bytes(chunk) + columns_bytes(chunk);
            self.notes.push(ChunkPart {
                address: at,
                number: known.number,
                layout,
                what: ChunkPartBytes::Cells(raw, columns),
            });
        }
        missing.map_or(Ok(None), no_room)
    }

    fn name(&mut self, chunk: &Arc<Chunk>, named: &mut u64) -> Result<()> {
        let columns = chunk.layout().num_columns();
        if HEAD_BYTES + layout_bytes(chunk) + columns_bytes(chunk) > MAX_ENTRY_BYTES {
            let reason = format!("steps of {columns} columns are too many for one message: use fewer columns");
            return Err(Error::InvalidArgument(reason));
        }
        if chunk.raw_bytes() > MAX_CHUNK_BYTES {
            return Err(Error::ResourceExhausted {
                what: "a chunk of steps".to_owned(),
                needed: chunk.raw_bytes(),
                budget: MAX_CHUNK_BYTES,
                hint: "cut the steps into shorter chunks (max_chunk_length)".to_owned(),
            });
        }
        *named += 1;
        let known = KnownChunk {
            number: *named,
            chunk: Arc::downgrade(chunk),
            held: chunk.is_packable().then(|| Arc::clone(chunk)),
            sent: SmallVec::from_elem(0, columns),
            defined: false,
            packed: false,
            note: None,
        };
        self.known.insert(address(chunk), known);
        self.turns.push_back(address(chunk));
        self.fresh += 1;
        Ok(())
    }

    fn note_packed(
        &mut self,
        chunk: &Arc<Chunk>,
        bytes: PackedBytes,
        room: u64,
        head_bytes: &mut usize,
    ) -> Option<u64> {
        let at = address(chunk);
        let (known, size) = (self.known.get_mut(&at)?, bytes.len() as u64);
        if self.planned + size > room {
            return Some(size);
        }
        self.planned += size;
        *head_bytes += HEAD_BYTES + layout_bytes(chunk);
        known.packed = true;
        known.held = None;
        let layout = known.define(chunk);
        self.notes.push(ChunkPart { address: at, number: known.number, layout, what: ChunkPartBytes::Packed(bytes) });
        None
    }

    /// Checks some of the chunks: notes the packed form of packed ones, and releases those that were dropped.
    pub(super) fn tidy(&mut self, room: u64, released: &mut Vec<u64>, head_bytes: &mut usize) {
        let looks = (SWEPT_AT_ONCE + 2 * std::mem::take(&mut self.fresh)).min(self.turns.len());
        for _ in 0..looks {
            let Some(at) = self.turns.pop_front() else { return };
            let Some(known) = self.known.get_mut(&at) else { continue };
            if let Some(chunk) = known.held.clone() {
                // Our two references: nothing else can pack it any more.
                let last = Arc::strong_count(&chunk) == 2;
                match chunk.packed_bytes() {
                    // If there is no room, it keeps its turn.
                    Some(bytes) if *head_bytes < FULL_HEAD_BYTES => {
                        self.note_packed(&chunk, bytes, room, head_bytes);
                    }
                    Some(_) => {}
                    None if last => known.held = None,
                    None => {}
                }
            }
            let gone = self.known.get(&at).is_some_and(|known| known.note.is_none() && known.chunk.strong_count() == 0);
            match gone.then(|| self.known.remove(&at)).flatten() {
                Some(known) => released.push(known.number),
                None => self.turns.push_back(at),
            }
        }
    }

    /// Puts the notes into the message and its bulk.
    pub(super) fn take(&mut self, bulk: &mut dyn BulkSink, chunks: &mut Vec<proto::ChunkCells>) {
        self.planned = 0;
        for note in self.notes.drain(..) {
            let message = proto::ChunkCells { chunk: note.number, layout: note.layout, ..Default::default() };
            chunks.push(match note.what {
                ChunkPartBytes::Packed(bytes) => {
                    let packed = proto::PackedRange { offset: bulk.len(), size_bytes: bytes.len() as u64 };
                    bulk.put(&bytes);
                    proto::ChunkCells { packed: Some(packed), ..message }
                }
                ChunkPartBytes::Cells(raw, columns) => {
                    if let Some(known) = self.known.get_mut(&note.address) {
                        known.note = None;
                    }
                    put_cells(&raw, &columns, bulk, message)
                }
            });
        }
    }
}

/// The result if the message has no room for a piece; `ResourceExhausted` if no message ever has.
fn no_room(needed: u64) -> Result<Option<PushOutcome>> {
    if needed <= MAX_PIECE_BYTES {
        return Ok(Some(PushOutcome::NoRoom { needed }));
    }
    Err(Error::ResourceExhausted {
        what: "one cell of a column (or one packed chunk) over a network".to_owned(),
        needed,
        budget: MAX_PIECE_BYTES,
        hint: "split it into several columns or steps".to_owned(),
    })
}

/// Notes the unsent cells of all columns; returns the bytes of a cell for which there is no room.
fn note_cells(
    raw: &RawCells,
    columns: &mut [(u32, u32)],
    sent: &mut ColumnCounts,
    planned: &mut u64,
    room: u64,
) -> Option<u64> {
    let layout = raw.layout();
    for (column, ((_, noted), sent)) in columns.iter_mut().zip(sent).enumerate() {
        let (width, fresh) = (layout.width(column) as u64, raw.len(column) as u32 - *sent);
        let fits = match width {
            0 => fresh,
            width => (room.saturating_sub(*planned) / width).min(u64::from(fresh)) as u32,
        };
        *noted += fits;
        *sent += fits;
        *planned += u64::from(fits) * width;
        if fits < fresh {
            return Some(width);
        }
    }
    None
}

fn put_cells(
    raw: &RawCells,
    columns: &[(u32, u32)],
    bulk: &mut dyn BulkSink,
    message: proto::ChunkCells,
) -> proto::ChunkCells {
    let (offset, cells) = (bulk.len(), columns.first().map_or(0, |(_, n)| *n));
    let first = columns.iter().map(|(first, _)| *first).min().unwrap_or(0);
    let mut column_cells = Vec::new();
    let together = !raw.has_holes() && columns.iter().all(|(_, n)| *n == cells);
    for (column, (first, n)) in columns.iter().enumerate().filter(|(_, (_, n))| *n > 0) {
        if !together {
            let holes = raw.holes(column, *first as usize, *n as usize);
            let (column, offset) = (column as u32, bulk.len());
            column_cells.push(proto::ColumnCells { column, first: *first, cells: *n, offset, holes });
        }
        raw.each_piece(column, *first as usize, *n as usize, |piece| bulk.put(piece));
    }
    if !together {
        return proto::ChunkCells { columns: column_cells, ..message };
    }
    let even = columns.iter().all(|(other, _)| *other == first);
    let lead = if even { Vec::new() } else { columns.iter().map(|(other, _)| other - first).collect() };
    proto::ChunkCells { first, cells, offset, lead, ..message }
}

impl KnownChunk {
    /// The layout, if it was not sent.
    fn define(&mut self, chunk: &Chunk) -> Option<Box<proto::ChunkLayout>> {
        let first = !std::mem::replace(&mut self.defined, true);
        first.then(|| Box::new(encode_layout(chunk)))
    }
}

/// Bytes that the layout takes of a message's head, at most: the width and the element size of each column.
fn layout_bytes(chunk: &Chunk) -> usize {
    10 * chunk.layout().num_columns()
}

/// Bytes that the cells of all columns take of a message's head, at most.
fn columns_bytes(chunk: &Chunk) -> usize {
    let layout = chunk.layout();
    let (columns, cells) = (layout.num_columns(), encoded_len_varint(layout.capacity() as u64));
    // Each an entry with the number of the column, its first cell, how many there are, where their bytes begin, and the
    // length of the bits for those without a value; or a lead.
    columns * (5 + (1 + encoded_len_varint(columns as u64)) + 3 * (1 + cells) + 6)
}

fn encode_layout(chunk: &Chunk) -> proto::ChunkLayout {
    let layout = chunk.layout();
    let columns = || 0..layout.num_columns();
    proto::ChunkLayout {
        widths: columns().map(|column| layout.width(column) as u32).collect(),
        itemsizes: columns().map(|column| layout.itemsize(column) as u32).collect(),
        capacity: layout.capacity() as u32,
        interleaved: layout.is_interleaved(),
        packable: chunk.is_packable(),
    }
}
