//! Chunks that were made to be packed: which of them a batch is sent from, without a gather.

use super::support::{column, gather, gather_split, item, pattern, plan_of};
use super::tiers::{self, Temporary};
use reverie_core::batch::{Split, UnpackCost};
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter};
use reverie_core::item::{Cells, Item};
use reverie_core::sample::Draws;
use reverie_core::spec::DType;
use std::sync::Arc;

const WIDTH: usize = 2048;
const STEPS: usize = 4;

/// A chunk that may be packed, with as many cells as it has room for.
fn written(cell: impl Fn(usize) -> Vec<u8>, meter: &Arc<Meter>) -> ChunkWriter {
    let mut writer = ChunkWriter::new(Arc::new(Layout::columnar(&[(WIDTH, 1)], STEPS)), Compression::Auto, meter);
    (0..STEPS).for_each(|step| writer.push(0, &cell(step)));
    writer
}

/// Bytes that no compressor makes smaller.
fn noise(step: usize) -> Vec<u8> {
    let mut state = step as u64 + 1;
    let mut byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..WIDTH).map(|_| byte()).collect()
}

fn items(writer: &ChunkWriter) -> [Item; 2] {
    let form = pattern(vec![column("a", DType::UInt8, &[WIDTH], 0, Cells::range(0, 1))]);
    [1, 3].map(|anchor| item(writer.chunk(), &form, anchor))
}

fn seal(writer: ChunkWriter) {
    writer.seal(&mut Chooser::new(Compression::Auto));
}

#[test]
fn a_chunk_that_was_left_raw_is_sent_from_where_it_lies_once_it_is_sealed() {
    let writer = written(noise, &Arc::new(Meter::new()));
    let items = items(&writer);
    let plan = plan_of(&items);
    assert_eq!(gather_split(&plan, &items, 1), None, "an open chunk may still be packed");
    seal(writer);
    assert_eq!(gather_split(&plan, &items, 1), Some(gather(&plan, &items).unwrap()));
    let draws = Draws { items: items.to_vec(), ..Draws::default() };
    assert_eq!(plan.unpacking(&draws).unwrap(), UnpackCost::default());
}

#[test]
fn a_chunk_whose_writer_was_dropped_is_sent_from_where_it_lies() {
    let writer = written(noise, &Arc::new(Meter::new()));
    let items = items(&writer);
    drop(writer);
    let plan = plan_of(&items);
    assert_eq!(gather_split(&plan, &items, 1), Some(gather(&plan, &items).unwrap()));
}

#[test]
fn a_packed_chunk_and_one_that_may_move_to_the_disk_are_gathered() {
    let packed = written(|_| vec![7; WIDTH], &Arc::new(Meter::new()));
    let folder = Temporary::new();
    let movable = written(noise, &tiers::meter(tiers::options(&folder, 1 << 30)));
    for (writer, is_packed) in [(packed, true), (movable, false)] {
        let items = items(&writer);
        let chunk = Arc::clone(writer.chunk());
        seal(writer);
        assert_eq!(chunk.packed().is_some(), is_packed);
        assert_eq!(gather_split(&plan_of(&items), &items, 1), None);
    }
}

#[test]
fn cells_that_are_being_sent_count_for_the_memory_of_their_chunk() {
    let meter = Arc::new(Meter::new());
    let writer = written(noise, &meter);
    let items = items(&writer);
    seal(writer);
    let split = Split::new(&Arc::new(plan_of(&items)), 1).unwrap();
    let contiguous = split.contiguous_cells(&Draws { items: items.to_vec(), ..Draws::default() }).unwrap();
    let before = meter.live_bytes();
    drop(items);
    assert_eq!(
        contiguous.iter().flat_map(|cells| cells.as_ref().to_vec()).collect::<Vec<_>>(),
        [noise(1), noise(3)].concat()
    );
    assert_eq!((meter.live_bytes(), meter.live_chunks()), (before, 1));
    drop((contiguous, split));
    assert_eq!(meter.live_bytes(), 0);
}
