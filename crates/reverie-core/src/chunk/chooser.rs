//! The choice of a column's coding: measured on its first chunks, and again now and then.

use super::codec::{Coding, ENTRY, MOST_IN_BLOCKS, Method, PackedChunk, RAW, Section, block_cells, delta, put_blocks};
use super::compression::{CodingThresholds, Compression};
use super::slab::Slab;
use std::ops::Range;

/// The codings that `Chooser` measures: for each method whole, with a delta, in blocks, and both.
const CANDIDATES: [Coding; 2 * PER_METHOD] = [
    Coding { method: Method::Lz4, delta: false, blocks: false },
    Coding { method: Method::Lz4, delta: true, blocks: false },
    Coding { method: Method::Lz4, delta: false, blocks: true },
    Coding { method: Method::Lz4, delta: true, blocks: true },
    Coding { method: Method::Zstd, delta: false, blocks: false },
    Coding { method: Method::Zstd, delta: true, blocks: false },
    Coding { method: Method::Zstd, delta: false, blocks: true },
    Coding { method: Method::Zstd, delta: true, blocks: true },
];
const PER_METHOD: usize = 4;
/// The distance from a coding to the same one in blocks.
const IN_BLOCKS: usize = 2;

/// Chunks that are measured before a column's coding is settled.
const TRIALS: u64 = 2;

/// Chunks after which a settled coding is measured again: the first steps of a run may not be typical.
const SETTLED_FOR: u64 = 128;

/// The factor by which the delta must be smaller, because it costs another pass over the bytes.
const WORTH_DELTA: f64 = 1.05;

/// Stored and raw bytes of one column's trials.
#[derive(Clone, Debug, Default)]
struct Trial {
    raw: u64,
    stored: [u64; CANDIDATES.len()],
}

impl Trial {
    /// The coding of a method, whose candidates begin at `first`, and its stored bytes.
    fn best(&self, first: usize, trade: &CodingThresholds) -> (Coding, f64) {
        let of = |at: usize| {
            let delta = self.stored[at + 1] as f64 * WORTH_DELTA < self.stored[at] as f64;
            let at = at + usize::from(delta);
            (CANDIDATES[at], self.stored[at] as f64)
        };
        let (whole, in_blocks) = (of(first), of(first + IN_BLOCKS));
        if whole.1 * trade.whole_from < in_blocks.1 { whole } else { in_blocks }
    }
}

/// Chooses how each column of a group is stored. The group's writer owns it and asks it for every chunk.
///
/// The choice depends on sizes alone, so that the same steps are packed alike everywhere.
pub struct Chooser {
    compression: Compression,
    /// Chunks since the present trials began.
    seen: u64,
    trials: Vec<Trial>,
    settled: Vec<Coding>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    contiguous: Vec<u8>,
    delta: Vec<u8>,
}

impl std::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { compression, seen, settled, .. } = self;
        f.debug_struct("Chooser")
            .field("compression", compression)
            .field("seen", seen)
            .field("settled", settled)
            .finish_non_exhaustive()
    }
}

impl Chooser {
    /// A chooser without measurements.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            seen: 0,
            trials: Vec::new(),
            settled: Vec::new(),
            zstd: None,
            contiguous: Vec::new(),
            delta: Vec::new(),
        }
    }

    /// The compression of the next chunk.
    ///
    /// `None` once `auto` has settled on raw for all columns, else the requested one.
    pub fn next(&self) -> Compression {
        let settled_raw = !self.settled.is_empty() && self.settled.iter().all(|coding| *coding == RAW);
        match self.compression {
            auto if auto.is_measured() && settled_raw && self.seen < SETTLED_FOR => Compression::None,
            compression => compression,
        }
    }

    /// Counts a chunk that was not to be packed.
    pub(super) fn pass(&mut self) {
        self.seen += 1;
    }

    /// The chunk's packed form; `None` if raw is better.
    pub(super) fn pack(&mut self, slab: &Slab) -> Option<PackedChunk> {
        let layout = slab.layout().clone();
        let columns = layout.num_columns();
        if self.seen >= SETTLED_FOR || self.trials.len() != columns {
            (self.seen, self.trials, self.settled) = (0, vec![Trial::default(); columns], Vec::new());
        }
        self.seen += 1;
        let mut sections = Vec::with_capacity(columns);
        let mut bodies = Vec::new();
        for column in 0..columns {
            let cells = slab.len(column);
            let start = bodies.len();
            let holes = hole_bits(slab, column, 0..cells);
            bodies.extend_from_slice(&holes);
            let (coding, stored) = self.pack_column(slab, column, cells, &mut bodies);
            sections.push(Section { cells: cells as u32, coding, holes: !holes.is_empty(), start, stored });
        }
        if self.settled.is_empty() && self.seen >= TRIALS {
            self.settled = self.trials.iter().map(|trial| self.settle(trial)).collect();
        }
        let raw = sections.iter().all(|section| section.coding == RAW);
        (!raw && bodies.len() < layout.size_bytes()).then(|| PackedChunk::new(sections, &bodies))
    }

    fn pack_column(&mut self, slab: &Slab, column: usize, cells: usize, out: &mut Vec<u8>) -> (Coding, usize) {
        let width = slab.layout().width(column);
        let mut contiguous = std::mem::take(&mut self.contiguous);
        let raw = match slab.run(column, 0, cells) {
            Some(run) => run,
            None => {
                contiguous.clear();
                (0..cells).filter_map(|cell| slab.cell(column, cell)).for_each(|cell| contiguous.extend(cell));
                &contiguous
            }
        };
        let several = cells > block_cells(width) && raw.len() <= MOST_IN_BLOCKS;
        let coding = match self.settled.get(column) {
            Some(coding) => Coding { blocks: coding.blocks && several, ..*coding },
            None => self.measure(raw, width, column, several),
        };
        let start = out.len();
        self.encode(coding, raw, width, out);
        let coding = if out.len() - start < raw.len() { coding } else { RAW };
        if coding == RAW {
            out.truncate(start);
            out.extend_from_slice(raw);
        }
        self.contiguous = contiguous;
        (coding, out.len() - start)
    }

    /// Tries every candidate coding on this chunk; returns the one that suits this chunk alone.
    ///
    /// `several`: its cells are more than a block.
    fn measure(&mut self, raw: &[u8], width: usize, column: usize, several: bool) -> Coding {
        let mut now = Trial { raw: raw.len() as u64, ..Trial::default() };
        let mut scratch = Vec::new();
        for (index, coding) in CANDIDATES.into_iter().enumerate() {
            if coding.blocks && !several {
                now.stored[index] = now.stored[index - IN_BLOCKS];
                continue;
            }
            scratch.clear();
            self.encode(coding, raw, width, &mut scratch);
            now.stored[index] = (scratch.len() + ENTRY) as u64;
        }
        let sum = &mut self.trials[column];
        sum.raw += now.raw;
        sum.stored.iter_mut().zip(now.stored).for_each(|(sum, now)| *sum += now);
        let coding = self.settle(&now);
        Coding { blocks: coding.blocks && several, ..coding }
    }

    fn settle(&self, trial: &Trial) -> Coding {
        let Some(trade) = self.compression.trade() else { return RAW };
        let (lz4, zstd) = (trial.best(0, &trade), trial.best(PER_METHOD, &trade));
        let is_packed = |(_, stored): &(Coding, f64), from: f64| stored * from < trial.raw as f64;
        match self.compression {
            Compression::None => RAW,
            Compression::Lz4 => lz4.0,
            Compression::Zstd => zstd.0,
            Compression::Auto | Compression::AutoSpeed | Compression::AutoSize => {
                match (is_packed(&lz4, trade.lz4_from), is_packed(&zstd, trade.zstd_from)) {
                    (false, false) => RAW,
                    (true, true) if zstd.1 * trade.zstd_over_lz4 < lz4.1 => zstd.0,
                    (true, _) => lz4.0,
                    (false, true) => zstd.0,
                }
            }
        }
    }

    /// Appends the stored bytes of a column to `out`.
    fn encode(&mut self, coding: Coding, raw: &[u8], width: usize, out: &mut Vec<u8>) {
        if coding.blocks {
            put_blocks(raw, width, out, |block, out| self.encode_block(coding, block, width, out));
        } else {
            self.encode_block(coding, raw, width, out);
        }
    }

    fn encode_block(&mut self, coding: Coding, raw: &[u8], width: usize, out: &mut Vec<u8>) {
        if coding.delta {
            delta(raw, width, &mut self.delta);
        }
        let bytes = if coding.delta { &self.delta } else { raw };
        let start = out.len();
        match coding.method {
            Method::Raw => out.extend_from_slice(bytes),
            Method::Lz4 => match lz4::block::compress_bound(bytes.len()) {
                Ok(most) if bytes.len() <= MOST_IN_BLOCKS => {
                    out.resize(start + most, 0);
                    let stored = lz4::block::compress_to_buffer(bytes, None, false, &mut out[start..]);
                    out.truncate(start + stored.expect("room for the worst case"));
                }
                // More than LZ4 takes.
                _ => out.extend_from_slice(bytes),
            },
            Method::Zstd => {
                let level = self.compression.trade().map_or(1, |trade| trade.zstd_level);
                let zstd = self.zstd.get_or_insert_with(|| {
                    zstd::bulk::Compressor::new(level).expect("a zstd context can be made wherever memory can be")
                });
                out.resize(start + zstd::zstd_safe::compress_bound(bytes.len()), 0);
                let stored = zstd.compress_to_buffer(bytes, &mut out[start..]).expect("room for the worst case");
                out.truncate(start + stored);
            }
        }
    }
}

/// One bit per cell, set if it holds no value; empty if all hold values.
pub(super) fn hole_bits(slab: &Slab, column: usize, cells: Range<usize>) -> Vec<u8> {
    if !slab.has_holes() || cells.clone().all(|cell| slab.has(column, cell)) {
        return Vec::new();
    }
    let mut bits = vec![0_u8; cells.len().div_ceil(8)];
    for (at, cell) in cells.enumerate().filter(|(_, cell)| !slab.has(column, *cell)) {
        debug_assert!(cell >= at);
        bits[at / 8] |= 1 << (at % 8);
    }
    bits
}
