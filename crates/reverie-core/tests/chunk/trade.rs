//! The settings of compression: what each of them packs, and their names.

use super::support::{columnar, frames, meter, noise};
use reverie_core::chunk::{Chooser, ChunkWriter, Compression};

const CELLS: usize = 8;
const WIDTH: usize = 4000;

/// The method of each column as its number in the packed form; `None` if the chunk stays raw.
fn methods(compression: Compression, columns: &[Vec<u8>]) -> Option<Vec<u8>> {
    let layout = columnar(&vec![(WIDTH, 1); columns.len()], CELLS);
    let mut writer = ChunkWriter::new(layout, compression, &meter());
    columns.iter().enumerate().for_each(|(column, bytes)| writer.push_cells(column, bytes, CELLS));
    let packed = writer.seal(&mut Chooser::new(compression)).packed()?;
    let (head, entry, method) = (5, 14, 4);
    Some((0..columns.len()).map(|column| packed[head + entry * column + method]).collect())
}

/// Bytes that LZ4 makes so many times smaller, and Zstandard hardly more: pieces of noise, each repeated.
fn repeated(times: usize) -> Vec<u8> {
    let piece = 500 * times;
    (0..CELLS * WIDTH / piece).flat_map(|seed| noise(500, seed as u64 + 1).repeat(times)).collect()
}

/// Bytes without a repetition that have four bits each: only Zstandard packs them, to a half.
fn half_empty() -> Vec<u8> {
    noise(CELLS * WIDTH, 3).into_iter().map(|byte| byte & 15).collect()
}

/// Noise behind a tenth of zeros.
fn hardly_packing() -> Vec<u8> {
    let mut bytes = noise(CELLS * WIDTH, 5);
    bytes[..CELLS * WIDTH / 10].fill(0);
    bytes
}

#[test]
fn each_setting_weighs_bytes_against_the_time_of_draws() {
    let (raw, lz4, zstd) = (0, 1, 2);
    let columns = [repeated(8), repeated(2), half_empty(), hardly_packing(), noise(CELLS * WIDTH, 9)];
    assert_eq!(methods(Compression::AutoSpeed, &columns), Some(vec![lz4, raw, raw, raw, raw]));
    assert_eq!(methods(Compression::Auto, &columns), Some(vec![lz4, lz4, raw, raw, raw]));
    let sizes = methods(Compression::AutoSize, &columns).unwrap();
    assert!(sizes[..4].iter().all(|method| *method != raw), "{sizes:?}");
    assert_eq!((sizes[2], sizes[4]), (zstd, raw));
    for (compression, method) in [(Compression::Lz4, lz4), (Compression::Zstd, zstd)] {
        assert_eq!(methods(compression, &columns[1..2]), Some(vec![method]));
    }
    assert_eq!(methods(Compression::None, &columns), None);
    assert_eq!(methods(Compression::AutoSpeed, &columns[1..]), None, "and the chunk is not packed at all");
}

#[test]
fn auto_size_is_nowhere_larger_than_the_others() {
    let size = |compression| {
        let meter = meter();
        let mut chooser = Chooser::new(compression);
        let (writer, _) = frames(compression, &meter, 7056, 4);
        writer.seal(&mut chooser).size_bytes()
    };
    let smallest = size(Compression::AutoSize);
    assert!(Compression::ALL.into_iter().all(|compression| smallest <= size(compression)));
}

#[test]
fn every_setting_has_a_name_that_it_is_found_by_and_other_names_are_refused_with_the_list() {
    for compression in Compression::ALL {
        assert_eq!(compression.name().parse(), Ok(compression));
        assert_eq!(compression.to_string(), compression.name());
    }
    let refused = "auto:fast".parse::<Compression>().unwrap_err();
    let list = r#""none", "lz4", "zstd", "auto", "auto:speed" or "auto:size", got "auto:fast""#;
    assert_eq!(refused, format!("compression must be {list}"));
}

#[test]
fn small_steps_stay_raw_unless_all_that_shrinks_is_to_be_packed() {
    let settings = [Compression::Auto, Compression::AutoSpeed, Compression::AutoSize, Compression::Lz4];
    assert_eq!(
        settings.map(|compression| compression.for_steps_of(1023)),
        [Compression::None, Compression::None, Compression::AutoSize, Compression::Lz4]
    );
    assert_eq!(settings.map(|compression| compression.for_steps_of(1024)), settings);
}
