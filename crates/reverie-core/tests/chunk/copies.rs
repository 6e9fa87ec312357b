//! Chunks that are copied from elsewhere, and what a thread that copies them further learns of them.

use super::shared::spec;
use reverie_core::Error;
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter, fill, filled};
use reverie_core::item::{Body, Cells, Form, Item, Part, Pattern, PatternColumn};
use reverie_core::spec::{DType, Structure};
use std::mem::MaybeUninit;
use std::sync::Arc;

fn writer(layout: Layout, compression: Compression) -> ChunkWriter {
    ChunkWriter::new(Arc::new(layout), compression, &Arc::new(Meter::new()))
}

fn copied(writer: &mut ChunkWriter, column: usize, n: usize, from: &[u8]) {
    writer.push_cells_with(column, n, |at, to| {
        let len = to.len();
        fill(to, &from[at..at + len])
    });
}

#[test]
fn cells_that_are_copied_in_are_those_that_pushing_writes() {
    let bytes: Vec<u8> = (0..40).collect();
    for layout in [Layout::columnar, Layout::interleaved] {
        let (mut pushed, mut other) =
            [0, 1].map(|_| writer(layout(&[(4, 4), (2, 1), (0, 0)], 10), Compression::None)).into();
        for (column, width) in [(0, 4), (1, 2), (2, 0)] {
            pushed.push_cells(column, &bytes[..7 * width], 7);
            copied(&mut other, column, 3, &bytes[..3 * width]);
            copied(&mut other, column, 4, &bytes[3 * width..7 * width]);
            for cell in 0..8 {
                let cells = [&pushed, &other].map(|w| w.chunk().read().unwrap().cell(column, cell).map(<[u8]>::to_vec));
                assert_eq!(cells[0], cells[1]);
                assert_eq!(cells[0].is_some(), cell < 7);
            }
        }
    }
}

#[test]
#[should_panic(expected = "a filler gives back what it was given")]
fn a_filler_that_gives_back_less_than_it_was_given_publishes_nothing() {
    writer(Layout::columnar(&[(4, 4)], 4), Compression::None)
        .push_cells_with(0, 2, |_, to| fill(&mut to[..4], &[1; 4]));
}

#[test]
#[should_panic(expected = "a filler gives back what it was given")]
fn a_filler_that_gives_back_other_bytes_makes_no_slice() {
    filled(4, |_: &mut [MaybeUninit<u8>]| Box::leak(Box::new([1, 2, 3, 4])));
}

#[test]
fn layouts_from_numbers_that_may_be_anything_are_refused_and_never_panic() {
    let refused = |cells: &[(usize, usize)], capacity| {
        for interleaved in [false, true] {
            let layout = Layout::checked(cells, capacity, interleaved);
            assert!(matches!(layout, Err(Error::InvalidArgument(_))), "{layout:?}");
        }
    };
    refused(&[], 4);
    refused(&[(4, 4)], 0);
    refused(&[(4, 4)], usize::MAX);
    refused(&[(4, 0)], 4);
    refused(&[(4, 3)], 4);
    refused(&[(usize::MAX, 1)], 1);
    refused(&[(usize::MAX - 8, 1), (64, 1)], 1);
    refused(&[(1 << 62, 1)], 4);
    assert_eq!(Layout::checked(&[(4, 4), (1, 1)], 5, true).unwrap(), Layout::interleaved(&[(4, 4), (1, 1)], 5));
    assert_eq!(Layout::checked(&[(4, 4), (1, 1)], 5, false).unwrap(), Layout::columnar(&[(4, 4), (1, 1)], 5));
}

#[test]
fn a_packed_form_made_elsewhere_takes_the_place_of_the_cells() {
    let open = || {
        let mut writer = writer(Layout::columnar(&[(64, 1)], 4), Compression::Lz4);
        writer.push_cells(0, &[3; 128], 2);
        writer
    };
    let mut whole = open();
    whole.push_cells(0, &[4; 64], 1);
    let packed = whole.seal(&mut Chooser::new(Compression::Lz4)).packed().expect("it packs");
    let mirror = open();
    let (chunk, before) = (Arc::clone(mirror.chunk()), mirror.chunk().size_bytes());
    let raw = chunk.raw_cells().expect("it is raw");
    mirror.seal_packed(packed.clone().into()).unwrap();
    assert!(chunk.size_bytes() < before && chunk.raw_cells().is_none());
    assert_eq!(&chunk.packed_bytes().unwrap()[..], &packed[..]);
    assert_eq!((chunk.len(0), chunk.read().unwrap().cell(0, 2)), (3, Some(&[4_u8; 64][..])));
    // A reader that holds the raw cells still reads them.
    assert_eq!((raw.rows(), raw.len(0)), (2, 2));

    let mut longer = open();
    longer.push_cells(0, &[5; 128], 2);
    let chunk = Arc::clone(longer.chunk());
    assert!(matches!(longer.seal_packed(packed.into()), Err(Error::Damaged(_))), "a cell that was written is lost");
    assert!(chunk.packed().is_none() && chunk.len(0) == 4);
    assert!(matches!(open().seal_packed([1, 2, 3].into()), Err(Error::Damaged(_))));
}

#[test]
fn a_packed_form_that_has_no_value_where_the_chunk_has_one_is_damaged() {
    let mut holed = writer(Layout::columnar(&[(64, 1)], 4), Compression::Lz4);
    holed.push(0, &[3; 64]);
    holed.skip(0);
    holed.push_cells(0, &[3; 128], 2);
    let packed = holed.seal(&mut Chooser::new(Compression::Lz4)).packed().expect("it packs");
    let mut mirror = writer(Layout::columnar(&[(64, 1)], 4), Compression::Lz4);
    mirror.push_cells(0, &[3; 128], 2);
    assert!(matches!(mirror.seal_packed(packed.into()), Err(Error::Damaged(_))));
}

#[test]
fn raw_cells_have_their_holes_and_their_bytes_in_few_pieces() {
    for layout in [Layout::columnar, Layout::interleaved] {
        let mut writer = writer(layout(&[(2, 1), (1, 1)], 20), Compression::None);
        writer.push_cells(0, &(0..24).collect::<Vec<u8>>(), 12);
        (0..10).for_each(|_| writer.skip(1));
        writer.push(1, &[7]);
        let raw = writer.chunk().raw_cells().unwrap();
        assert_eq!((raw.rows(), raw.len(0), raw.len(1), raw.has_holes()), (11, 12, 11, true));
        assert!(raw.holes(0, 3, 9).is_empty());
        assert_eq!(raw.holes(1, 1, 10), [0b1111_1111, 0b01]);
        let (mut bytes, mut pieces) = (Vec::new(), 0);
        raw.each_piece(0, 3, 4, |piece| {
            bytes.extend_from_slice(piece);
            pieces += 1;
        });
        assert_eq!((bytes, pieces), ((6..14).collect(), if raw.layout().is_interleaved() { 4 } else { 1 }));
    }
}

fn column(part: u32, column: u32, cells: Cells) -> PatternColumn {
    PatternColumn { spec: spec("a", DType::Int16, &[2]), part, column, cells, squeeze: false, stack_axis: 0 }
}

fn item(body: Body, column: PatternColumn) -> Item {
    let pattern = Pattern { columns: [column].into(), structure: Structure::Leaf, timestep: false, alike: false };
    Item { body, pattern: Form::new(pattern), anchor: 1, episode: 0, stream: 0 }
}

#[test]
fn an_item_is_checked_for_cells_that_exist_have_values_and_have_its_width() {
    let mut chunks = [0, 1].map(|_| writer(Layout::columnar(&[(4, 2), (8, 2)], 8), Compression::None));
    for writer in &mut chunks {
        writer.push_cells(0, &[1; 12], 3);
        writer.skip(0);
        writer.push_cells(0, &[1; 8], 2);
        writer.push_cells(1, &[1; 8], 1);
    }
    let [first, second] = chunks;
    let single = || Body::Chunk(Arc::clone(first.chunk()));
    let span = || {
        let chunks = [first.chunk(), second.chunk()].map(Arc::clone);
        Body::Span(Arc::new(vec![Part { chunks: chunks.into(), starts: [0, 3, 9].into() }].into()))
    };
    let stepped = Cells::Range { start: 1, step: 2, len: 2 };
    for (body, cells, sound) in [
        (single(), Cells::range(-1, 2), true),
        (single(), Cells::range(-2, 2), false),
        (single(), Cells::range(0, 3), false),
        (single(), Cells::range(3, 5), true),
        (single(), Cells::range(3, 6), false),
        (single(), stepped.clone(), true),
        (single(), Cells::Range { start: 0, step: 2, len: 2 }, false),
        (single(), Cells::List([4, 3, 3, -1].into()), true),
        (span(), Cells::range(-1, 5), true),
        (span(), Cells::range(-1, 6), false),
        (span(), Cells::range(6, 8), true),
        (span(), Cells::range(6, 9), false),
        (span(), stepped, true),
    ] {
        assert_eq!(item(body, column(0, 0, cells.clone())).check().is_ok(), sound, "{cells:?}");
    }
    let refused = |column: PatternColumn| {
        assert!(matches!(item(single(), column).check(), Err(Error::Signature { .. })));
    };
    refused(column(0, 1, Cells::one(-1)));
    refused(column(0, 2, Cells::one(-1)));
    refused(column(1, 0, Cells::one(-1)));
    let with = |dtype, shape: &[usize]| PatternColumn { spec: spec("a", dtype, shape), ..column(0, 0, Cells::one(0)) };
    refused(with(DType::Int32, &[2]));
    refused(with(DType::Int16, &[3]));
    refused(with(DType::Str, &[2]));
    assert!(item(single(), with(DType::Bytes, &[2])).check().is_ok());
}
