//! Chunks of frames and of noise.

use reverie_core::chunk::{ChunkWriter, Compression, Layout, Meter};
use std::sync::Arc;

pub fn meter() -> Arc<Meter> {
    Arc::new(Meter::new())
}

pub fn columnar(cells: &[(usize, usize)], capacity: usize) -> Arc<Layout> {
    Arc::new(Layout::columnar(cells, capacity))
}

/// A frame-like chunk: one column, each cell the one before it with one byte changed.
pub fn frames(compression: Compression, meter: &Arc<Meter>, width: usize, steps: usize) -> (ChunkWriter, Vec<Vec<u8>>) {
    let mut writer = ChunkWriter::new(columnar(&[(width, 1)], steps), compression, meter);
    let mut frame: Vec<u8> = (0..width).map(|at| ((at * at * 31) >> 3) as u8).collect();
    let frames: Vec<Vec<u8>> = (0..steps)
        .map(|step| {
            frame[step * 7 % width] ^= 0x5a;
            frame.clone()
        })
        .collect();
    frames.iter().for_each(|frame| writer.push(0, frame));
    (writer, frames)
}

/// Bytes without any pattern (xorshift).
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
