//! The choice of a column's coding: measured on its first chunks, and again now and then.

use super::codec::{Coding, ENTRY, Method, Packed, RAW, Section, delta};
use super::slab::Slab;
use std::ops::Range;

/// The compression of a column group's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Compression {
    /// No compression: the cheapest reads.
    #[default]
    None,
    /// LZ4, after a per-step delta if that is smaller.
    Lz4,
    /// Zstandard, level 1, after a per-step delta if that is smaller.
    Zstd,
    /// Measured on the first chunks, column by column: raw, LZ4 or Zstandard.
    Auto,
}

/// The codings that `Chooser` measures.
const CANDIDATES: [Coding; 4] = [
    Coding { method: Method::Lz4, delta: false },
    Coding { method: Method::Lz4, delta: true },
    Coding { method: Method::Zstd, delta: false },
    Coding { method: Method::Zstd, delta: true },
];

/// Chunks that are measured before a column's coding is settled.
const TRIALS: u64 = 2;

/// Chunks after which a settled coding is measured again: the first steps of a run may not be typical.
const SETTLED_FOR: u64 = 128;

/// How much smaller a coding must make the data before `auto` prefers it to plain reads.
const WORTH_PACKING: f64 = 1.2;

/// How much smaller zstd must be than lz4.
///
/// Data that hardly compresses unpacks at half of lz4's speed (1.2 against 2.5 GB/s at a ratio of 2 to 3), data that
/// compresses well several times faster than with lz4 (Pong frames: 13 against 1.6 GB/s).
const WORTH_ZSTD: f64 = 1.25;

/// How much smaller the delta must be, which costs another pass over the bytes.
const WORTH_DELTA: f64 = 1.05;

/// Stored and raw bytes of one column's trials.
#[derive(Clone, Debug, Default)]
struct Trial {
    raw: u64,
    stored: [u64; CANDIDATES.len()],
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
            Compression::Auto if settled_raw && self.seen < SETTLED_FOR => Compression::None,
            compression => compression,
        }
    }

    /// Counts a chunk that was not to be packed.
    pub(super) fn pass(&mut self) {
        self.seen += 1;
    }

    /// The chunk's packed form; `None` if raw is better.
    pub(super) fn pack(&mut self, slab: &Slab) -> Option<Packed> {
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
        (!raw && bodies.len() < layout.size_bytes()).then(|| Packed::new(sections, &bodies))
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
        delta(raw, width, &mut self.delta);
        let coding = match self.settled.get(column) {
            Some(coding) => *coding,
            None => self.measure(raw, column),
        };
        let start = out.len();
        self.encode(coding, raw, out);
        let coding = if out.len() - start < raw.len() { coding } else { RAW };
        if coding == RAW {
            out.truncate(start);
            out.extend_from_slice(raw);
        }
        self.contiguous = contiguous;
        (coding, out.len() - start)
    }

    /// Tries every candidate coding on this chunk; returns the one that suits this chunk alone.
    fn measure(&mut self, raw: &[u8], column: usize) -> Coding {
        let mut now = Trial { raw: raw.len() as u64, ..Trial::default() };
        let mut scratch = Vec::new();
        for (stored, coding) in now.stored.iter_mut().zip(CANDIDATES) {
            scratch.clear();
            self.encode(coding, raw, &mut scratch);
            *stored = (scratch.len() + ENTRY) as u64;
        }
        let sum = &mut self.trials[column];
        sum.raw += now.raw;
        sum.stored.iter_mut().zip(now.stored).for_each(|(sum, now)| *sum += now);
        self.settle(&now)
    }

    fn settle(&self, trial: &Trial) -> Coding {
        let best = |plain: usize| {
            let delta = trial.stored[plain + 1] as f64 * WORTH_DELTA < trial.stored[plain] as f64;
            let at = plain + usize::from(delta);
            (CANDIDATES[at], trial.stored[at] as f64)
        };
        let (lz4, zstd) = (best(0), best(2));
        match self.compression {
            Compression::None => RAW,
            Compression::Lz4 => lz4.0,
            Compression::Zstd => zstd.0,
            Compression::Auto if (trial.raw as f64) < WORTH_PACKING * lz4.1.min(zstd.1) => RAW,
            Compression::Auto if zstd.1 * WORTH_ZSTD <= lz4.1 => zstd.0,
            Compression::Auto => lz4.0,
        }
    }

    /// Appends `raw` in that coding to `out`; `self.delta` must hold its delta.
    fn encode(&mut self, coding: Coding, raw: &[u8], out: &mut Vec<u8>) {
        let bytes = if coding.delta { &self.delta } else { raw };
        let start = out.len();
        match coding.method {
            Method::Raw => out.extend_from_slice(bytes),
            Method::Lz4 => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
                let stored = lz4_flex::block::compress_into(bytes, &mut out[start..]).expect("room for the worst case");
                out.truncate(start + stored);
            }
            Method::Zstd => {
                let zstd = self.zstd.get_or_insert_with(|| {
                    zstd::bulk::Compressor::new(1).expect("a zstd context can be made wherever memory can be")
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
