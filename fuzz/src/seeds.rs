//! Writes the seeds of `corpus/packed_chunk`: chunks as they are packed, of every layout and compression.

use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Meter};
use reverie_fuzz::layouts;
use std::sync::Arc;

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/packed_chunk");
    std::fs::create_dir_all(&folder)?;
    for (choice, layout) in layouts().into_iter().enumerate() {
        for (name, compression) in [("lz4", Compression::Lz4), ("zstd", Compression::Zstd)] {
            for (kind, noisy) in [("calm", false), ("noisy", true)] {
                let mut writer = ChunkWriter::new(Arc::clone(&layout), compression, &Arc::new(Meter::new()));
                let mut state = 1_u32;
                for step in 0..layout.capacity() {
                    for column in 0..layout.num_columns() {
                        let cell: Vec<u8> = (0..layout.width(column))
                            .map(|at| {
                                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                                // Noise without an end would not be packed; blocks of it are as small as the whole.
                                match (noisy, at < 300) {
                                    (true, true) => (state >> 24) as u8,
                                    (true, false) => 0,
                                    (false, _) => (at / 8 + step / 3) as u8,
                                }
                            })
                            .collect();
                        // A column that ends early, and cells without a value.
                        match (column, step) {
                            (1, step) if step + 2 > layout.capacity() => {}
                            (0, step) if noisy && step % 4 == 1 => writer.skip(0),
                            _ => writer.push(column, &cell),
                        }
                    }
                }
                if let Some(packed) = writer.seal(&mut Chooser::new(compression)).packed() {
                    let mut seed = vec![choice as u8];
                    seed.extend(packed);
                    // The fuzzers' inputs are no longer (`tools/fuzz.sh`).
                    if seed.len() > 4096 {
                        continue;
                    }
                    std::fs::write(folder.join(format!("{choice}-{name}-{kind}")), seed)?;
                }
            }
        }
    }
    Ok(())
}
