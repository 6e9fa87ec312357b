//! The arrays of a batch, and the requests that are refused.

use super::support::{column, gather, gather_split, item, pattern, shapes, squeezed, steps, window};
use reverie_core::batch::{BatchOptions, Planner, Ragged, Role, Split, plan};
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter};
use reverie_core::error::Error;
use reverie_core::item::{Body, Cells, Form, Item, Part, Pattern, PatternColumn};
use reverie_core::sample::Draws;
use reverie_core::spec::{DType, Structure, StructureKey};
use std::mem::MaybeUninit;
use std::sync::Arc;

#[test]
fn squeezed_columns_lose_the_time_axis_and_equal_lengths_stack() {
    for interleaved in [false, true] {
        let (chunk, form) = (steps(8, interleaved), window(0, 3));
        let items = [item(&chunk, &form, 0), item(&chunk, &form, 5)];
        let plan = plan(&items, &BatchOptions::default()).unwrap();
        assert_eq!(shapes(&plan), [("a", vec![2, 3, 2]), ("b", vec![2])]);
        let arrays = gather(&plan, &items).unwrap();
        assert_eq!(arrays[0], [0, 0, 1, 1, 2, 2, 5, 5, 6, 6, 7, 7]);
        assert_eq!(arrays[1], [100, 105]);
    }
}

#[test]
fn large_columns_are_where_they_lie_and_the_rest_is_gathered() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 3), 1), item(&chunk, &window(0, 3), 4)];
    let plan = plan(&items, &BatchOptions::default()).unwrap();
    let gathered = Some(gather(&plan, &items).unwrap());
    for (least, large) in [(1, vec![0, 1]), (2, vec![0]), (6, vec![0])] {
        assert_eq!(Split::new(&Arc::new(plan.clone()), least).unwrap().large(), large, "{least}");
        assert_eq!(gather_split(&plan, &items, least), gathered, "{least}");
    }
    assert!(Split::new(&Arc::new(plan.clone()), 7).is_none());
    // Two chunks hold the cells of one item: each piece is half as long.
    let part = Part { chunks: [chunk.clone(), chunk.clone()].into(), starts: [0, 3, 8].into() };
    let body = Body::Span(Arc::new(vec![part].into()));
    let items = [0, 1].map(|anchor| Item { body: body.clone(), anchor, ..items[0].clone() });
    assert_eq!(gather_split(&plan, &items, 1), Some(gather(&plan, &items).unwrap()));
    assert_eq!(gather_split(&plan, &items, 4), None);
    // Cells of a row lie apart, and cells of a packed chunk are not there as they are.
    let packed = ChunkWriter::new(chunk.layout().clone(), Compression::Lz4, &Arc::new(Meter::new()));
    for chunk in [steps(8, true), packed.chunk().clone()] {
        let items = [item(&chunk, &window(0, 3), 1), item(&chunk, &window(0, 3), 4)];
        assert_eq!(gather_split(&plan, &items, 1), None);
    }
}

#[test]
fn unequal_lengths_are_refused_with_the_lengths_and_the_way_out() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 3), 0), item(&chunk, &window(0, 1), 0), item(&chunk, &window(0, 3), 1)];
    let error = plan(&items, &BatchOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Ragged { path, .. } if path == "a"));
    let text = error.to_string();
    assert!(text.contains("column 'a'") && text.contains("lengths 1, 3") && text.contains("ragged=\"pad\""), "{text}");
}

#[test]
fn padding_gives_zeros_and_a_mask() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 3), 1), item(&chunk, &window(0, 1), 4)];
    let options = BatchOptions { ragged: Ragged::Pad, columns: None };
    let plan = plan(&items, &options).unwrap();
    assert_eq!(shapes(&plan), [("a", vec![2, 3, 2]), ("b", vec![2]), ("mask", vec![2, 3])]);
    assert_eq!((plan.num_columns, plan.outputs[2].role, plan.outputs[2].dtype), (2, Role::Mask(None), DType::Bool));
    let arrays = gather(&plan, &items).unwrap();
    assert_eq!(arrays[0], [1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 0, 0]);
    assert_eq!(arrays[2], [1, 1, 1, 1, 0, 0]);
}

#[test]
fn values_come_with_their_lengths() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 2), 1), item(&chunk, &window(0, 0), 4), item(&chunk, &window(0, 1), 7)];
    let options = BatchOptions { ragged: Ragged::Values, columns: None };
    let plan = plan(&items, &options).unwrap();
    assert_eq!(shapes(&plan), [("a", vec![3, 2]), ("b", vec![3]), ("lengths", vec![3])]);
    let arrays = gather(&plan, &items).unwrap();
    assert_eq!(arrays[0], [1, 1, 2, 2, 7, 7]);
    assert_eq!(arrays[2], [2_i64, 0, 1].iter().flat_map(|length| length.to_ne_bytes()).collect::<Vec<_>>());
}

#[test]
fn columns_of_unlike_lengths_have_masks_of_their_own() {
    let chunk = steps(8, false);
    let form = |a: i32, b: i32| {
        pattern(vec![
            column("a", DType::UInt8, &[2], 0, Cells::range(0, a)),
            column("b", DType::UInt8, &[], 1, Cells::range(0, b)),
        ])
    };
    let items = [item(&chunk, &form(4, 3), 0), item(&chunk, &form(3, 2), 0)];
    let options = BatchOptions { ragged: Ragged::Pad, columns: None };
    let plan = plan(&items, &options).unwrap();
    let roles = plan.outputs.iter().map(|output| (output.path.as_str(), output.role)).collect::<Vec<_>>();
    assert_eq!(
        roles,
        [("a", Role::Column), ("b", Role::Column), ("a", Role::Mask(Some(0))), ("b", Role::Mask(Some(1)))]
    );
    let arrays = gather(&plan, &items).unwrap();
    assert_eq!((&arrays[2][..], &arrays[3][..]), (&[1, 1, 1, 1, 1, 1, 1, 0][..], &[1, 1, 1, 1, 1, 0][..]));
}

#[test]
fn a_frame_stack_can_have_its_axis_last() {
    let chunk = steps(8, false);
    let mut stack = column("a", DType::UInt8, &[2], 0, Cells::List([-1, -1, 0].into()));
    stack.stack_axis = 1;
    let form = pattern(vec![stack]);
    let items = [item(&chunk, &form, 1), item(&chunk, &form, 4)];
    let plan = plan(&items, &BatchOptions::default()).unwrap();
    assert_eq!(shapes(&plan), [("a", vec![2, 2, 3])]);
    assert_eq!(gather(&plan, &items).unwrap()[0], [0, 0, 1, 0, 0, 1, 3, 3, 4, 3, 3, 4]);
}

#[test]
fn the_widest_text_of_the_batch_sets_the_width() {
    let meter = Arc::new(Meter::new());
    let chunk = |itemsize: usize, bytes: &[u8]| {
        let mut writer =
            ChunkWriter::new(Arc::new(Layout::interleaved(&[(2 * itemsize, itemsize)], 1)), Compression::None, &meter);
        writer.push(0, bytes);
        writer.seal(&mut Chooser::new(Compression::None))
    };
    let form = pattern(vec![squeezed("t", DType::Bytes, &[2], 0)]);
    let items = [item(&chunk(1, b"ab"), &form, 0), item(&chunk(3, b"cdefgh"), &form, 0)];
    let plan = plan(&items, &BatchOptions::default()).unwrap();
    assert_eq!((plan.outputs[0].itemsize, &plan.outputs[0].shape), (3, &vec![2, 2]));
    assert_eq!(gather(&plan, &items).unwrap()[0], b"a\0\0b\0\0cdefgh");
}

#[test]
fn a_plan_for_text_is_made_for_every_batch() {
    let meter = Arc::new(Meter::new());
    let form = pattern(vec![squeezed("t", DType::Bytes, &[], 0)]);
    let mut planner = Planner::new(&BatchOptions::default());
    for text in [&b"ab"[..], b"abcdef", b"a"] {
        let layout = Arc::new(Layout::interleaved(&[(text.len(), text.len())], 1));
        let mut writer = ChunkWriter::new(layout, Compression::None, &meter);
        writer.push(0, text);
        let items = [item(writer.chunk(), &form, 0)];
        let plan = planner.plan(&items).unwrap();
        assert_eq!(gather(&plan, &items).unwrap()[0], text);
    }
}

#[test]
fn cells_may_be_taken_in_strides_and_backwards() {
    for interleaved in [false, true] {
        let chunk = steps(8, interleaved);
        for (step, expected) in [(2, [3, 3, 5, 5]), (-3, [3, 3, 0, 0])] {
            let form = pattern(vec![column("a", DType::UInt8, &[2], 0, Cells::Range { start: 0, step, len: 2 })]);
            let items = [item(&chunk, &form, 3)];
            assert_eq!(gather(&plan(&items, &BatchOptions::default()).unwrap(), &items).unwrap()[0], expected);
        }
    }
}

#[test]
fn a_path_selects_all_that_is_below_it() {
    let names = ["act", "obs/0", "obs/1", "obs2"];
    let chunk = steps(2, false);
    let columns = names.iter().map(|name| squeezed(name, DType::UInt8, &[], 1)).collect::<Vec<_>>();
    let key = |name: &str| StructureKey::Str(name.to_owned());
    let structure = Structure::Dict(vec![
        (key("act"), Structure::Leaf),
        (key("obs"), Structure::Tuple(vec![Structure::Leaf, Structure::Leaf])),
        (key("obs2"), Structure::Leaf),
    ]);
    let form = Form::new(Pattern { columns: columns.into(), structure, timestep: false, alike: false });
    let items = [item(&chunk, &form, 0)];
    let select = |paths: &[&str]| {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        plan(&items, &BatchOptions { columns: Some(&paths), ragged: Ragged::Refuse })
    };
    let both = select(&["obs"]).unwrap();
    assert_eq!(shapes(&both).iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["obs/0", "obs/1"]);
    let whole = Structure::Tuple(vec![Structure::Leaf, Structure::Leaf]);
    assert_eq!(both.structure, Structure::Dict(vec![(key("obs"), whole)]));
    let part = select(&["obs/1", "act"]).unwrap();
    let left = Structure::Dict(vec![(StructureKey::Int(1), Structure::Leaf)]);
    assert_eq!(part.structure, Structure::Dict(vec![(key("act"), Structure::Leaf), (key("obs"), left)]));
    assert_eq!(part.structure.paths(), ["act", "obs/1"]);
    let text = select(&["ob"]).unwrap_err().to_string();
    assert!(text.contains("no 'ob'") && text.contains("'obs/0'") && text.contains("'obs2'"), "{text}");
    assert!(matches!(select(&[]), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_record_of_which_a_part_is_read_becomes_a_dictionary_in_key_order() {
    let chunk = steps(2, false);
    let columns = ["z", "m", "a"].iter().enumerate();
    let columns =
        columns.map(|(at, name)| squeezed(name, DType::UInt8, if at == 0 { &[2] } else { &[] }, u32::from(at > 0)));
    let fields = ["z", "m", "a"].iter().map(|name| ((*name).to_owned(), Structure::Leaf)).collect();
    let structure = Structure::Record { dataclass: true, module: "there".to_owned(), name: "Step".to_owned(), fields };
    let form =
        Form::new(Pattern { columns: columns.collect(), structure: structure.clone(), timestep: false, alike: false });
    let items = [item(&chunk, &form, 1)];
    let paths = ["z".to_owned(), "a".to_owned()];
    let part = plan(&items, &BatchOptions { columns: Some(&paths), ragged: Ragged::Refuse }).unwrap();
    assert_eq!(part.structure.paths(), ["a", "z"]);
    assert_eq!(gather(&part, &items).unwrap(), [vec![101], vec![1, 1]]);
    let all = ["z".to_owned(), "m".to_owned(), "a".to_owned()];
    assert_eq!(
        plan(&items, &BatchOptions { columns: Some(&all), ragged: Ragged::Refuse }).unwrap().structure,
        structure
    );
}

#[test]
fn items_that_differ_in_kind_are_refused_by_name() {
    let chunk = steps(2, false);
    let one = |path: &str, dtype, shape: &[usize]| item(&chunk, &pattern(vec![squeezed(path, dtype, shape, 0)]), 0);
    let first = one("a", DType::UInt8, &[2]);
    let refuse = |other: Item| plan(&[first.clone(), other], &BatchOptions::default()).unwrap_err();
    let text = refuse(one("a", DType::Int16, &[])).to_string();
    assert!(text.contains("column 'a': got int16[], want uint8[2]"), "{text}");
    let text = refuse(one("c", DType::UInt8, &[2])).to_string();
    assert!(text.contains("some have 'a' and some 'c'"), "{text}");
    let timed = item(&chunk, &pattern(vec![column("a", DType::UInt8, &[2], 0, Cells::range(0, 1))]), 0);
    assert!(matches!(refuse(timed), Error::Ragged { path, .. } if path == "a"));
    assert!(matches!(plan::<Item>(&[], &BatchOptions::default()), Err(Error::InvalidArgument(_))));
}

#[test]
fn cells_that_do_not_exist_or_fit_are_an_error() {
    let chunk = steps(2, false);
    let bad = |column: PatternColumn, anchor| {
        let items = [item(&chunk, &pattern(vec![column]), anchor)];
        gather(&plan(&items, &BatchOptions::default()).unwrap(), &items)
    };
    let fine = squeezed("a", DType::UInt8, &[2], 0);
    assert!(bad(fine.clone(), 1).is_ok());
    assert!(matches!(bad(fine, 2), Err(Error::Signature { path, .. }) if path == "a"));
    assert!(matches!(bad(squeezed("a", DType::UInt8, &[3], 0), 0), Err(Error::Signature { .. })));
    assert!(matches!(bad(squeezed("a", DType::UInt8, &[2], 7), 0), Err(Error::Signature { .. })));
    assert!(matches!(bad(column("a", DType::UInt8, &[2], 0, Cells::range(-1, 1)), 0), Err(Error::Signature { .. })));
}

#[test]
fn arrays_of_another_size_and_items_of_another_plan_are_refused() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 3), 0)];
    for ragged in [Ragged::Refuse, Ragged::Pad, Ragged::Values] {
        let plan = plan(&items, &BatchOptions { ragged, columns: None }).unwrap();
        assert!(matches!(plan.gather(&items, &mut []), Err(Error::InvalidArgument(_))));
        for other in [window(0, 2), window(0, 4)] {
            let refused = gather(&plan, &[item(&chunk, &other, 0)]);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{ragged:?}");
        }
        assert!(matches!(gather(&plan, &[items[0].clone(), items[0].clone()]), Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn a_planner_keeps_its_plan_while_the_pattern_and_the_size_stay() {
    let chunk = steps(8, false);
    let form = window(0, 3);
    let batch = |form: &Form, n: u32| (0..n).map(|at| item(&chunk, form, at)).collect::<Vec<_>>();
    let mut planner = Planner::new(&BatchOptions::default());
    let first = planner.plan(&batch(&form, 4)).unwrap();
    assert!(Arc::ptr_eq(&first, &planner.plan(&batch(&form, 4)).unwrap()));
    assert_eq!(planner.plan(&batch(&form, 3)).unwrap().outputs[0].shape, [3, 3, 2]);
    assert_eq!(planner.plan(&batch(&window(0, 2), 3)).unwrap().outputs[0].shape, [3, 2, 2]);
}

/// A chunk of zeros that was packed: columns of two bytes and of one, `n` cells each.
fn packed(n: usize) -> Arc<reverie_core::chunk::Chunk> {
    let layout = Arc::new(Layout::columnar(&[(2, 1), (1, 1)], n));
    let mut writer = ChunkWriter::new(layout, Compression::Lz4, &Arc::new(Meter::new()));
    writer.push_cells(0, &vec![0; 2 * n], n);
    writer.push_cells(1, &vec![0; n], n);
    let chunk = writer.seal(&mut Chooser::new(Compression::Lz4));
    assert!(chunk.packed_bytes().is_some());
    chunk
}

#[test]
fn the_bytes_to_unpack_are_known_before_and_count_each_chunk_and_column_once() {
    let (plain, first, second) = (steps(8, false), packed(1000), packed(3000));
    let form = window(0, 3);
    let items = [item(&first, &form, 1), item(&plain, &form, 0), item(&second, &form, 9), item(&first, &form, 70)];
    let read = |columns: Option<&[String]>, items: &[Item]| {
        let plan = plan(items, &BatchOptions { columns, ragged: Ragged::Refuse }).unwrap();
        let draws = Draws { items: items.to_vec(), ..Draws::default() };
        (plan.unpacking(&draws).unwrap().bytes, plan, draws)
    };
    assert_eq!(read(None, &items[1..2]).0, 0);
    assert_eq!(read(Some(&["b".to_owned()]), &items).0, 4000);
    let (bytes, plan, draws) = read(None, &items);
    assert_eq!(bytes, 12_000);
    let mut arrays: Vec<Vec<_>> = plan.outputs.iter().map(|output| vec![MaybeUninit::new(1); output.bytes()]).collect();
    let mut slices = arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>();
    let mut pauses = Vec::new();
    plan.gather_draws_with(&draws, &mut slices, &mut |bytes| {
        pauses.push(bytes);
        Ok(())
    })
    .unwrap();
    pauses.sort_unstable();
    assert_eq!(pauses, [3000, 9000]);
    let ended = plan.gather_draws_with(&draws, &mut slices, &mut |_| Err(Error::Deadline("enough".to_owned())));
    assert_eq!(ended, Err(Error::Deadline("enough".to_owned())));
}

#[test]
fn many_packed_chunks_are_unpacked_by_several_threads_into_the_same_batch() {
    let chunks: Vec<_> = (0..24).map(|_| packed(40_000)).collect();
    let form = window(0, 3);
    let items: Vec<_> = (0..96_u32).map(|at| item(&chunks[at as usize % 24], &form, at * 400)).collect();
    let plan = plan(&items, &BatchOptions::default()).unwrap();
    let draws = Draws { items: items.clone(), ..Draws::default() };
    let bytes = plan.unpacking(&draws).unwrap().bytes;
    assert!(bytes > 2 << 20, "{bytes} bytes are worth several threads");
    let all = gather(&plan, &items).unwrap();
    for (at, item) in items.iter().enumerate() {
        let one = gather(&super::support::plan_of(std::slice::from_ref(item)), std::slice::from_ref(item)).unwrap();
        for (all, one) in all.iter().zip(&one) {
            assert_eq!(&all[at * one.len()..][..one.len()], &one[..], "item {at}");
        }
    }
    let (mut pauses, mut arrays) = (0, Vec::new());
    arrays.extend(plan.outputs.iter().map(|output| vec![MaybeUninit::new(1); output.bytes()]));
    let mut slices = arrays.iter_mut().map(|array: &mut Vec<_>| &mut array[..]).collect::<Vec<_>>();
    let stop = plan.gather_draws_with(&draws, &mut slices, &mut |_| {
        pauses += 1;
        if pauses == 7 { Err(Error::Deadline("enough".to_owned())) } else { Ok(()) }
    });
    assert_eq!((stop, pauses), (Err(Error::Deadline("enough".to_owned())), 7), "it ends where its caller ends it");
}

#[test]
fn cells_that_alternate_in_the_batch_are_unpacked_by_several_threads_and_spread_by_one() {
    let chunks: Vec<_> = (0..6_u8).map(|value| frames(value, 20_000)).collect();
    let mut column = column("a", DType::UInt8, &[8], 0, Cells::range(0, 3));
    column.stack_axis = 1;
    let form = pattern(vec![column]);
    let items: Vec<_> = (0..48_u32).map(|at| item(&chunks[at as usize % 6], &form, at * 300)).collect();
    let plan = plan(&items, &BatchOptions::default()).unwrap();
    let draws = Draws { items: items.clone(), ..Draws::default() };
    assert!(plan.unpacking(&draws).unwrap().bytes > 900_000, "worth several threads");
    let all = gather(&plan, &items).unwrap().remove(0);
    for (at, row) in all.chunks_exact(24).enumerate() {
        let cell = |step: usize| ((at % 6) as u8).wrapping_add(((at * 300 + step) / 100) as u8);
        let want: Vec<u8> = (0..8).flat_map(|_| (0..3).map(cell)).collect();
        assert_eq!(row, want, "item {at}");
    }
}

/// A packed chunk of one column of eight bytes: cell `n` holds `value + n / 100`.
fn frames(value: u8, n: usize) -> Arc<reverie_core::chunk::Chunk> {
    let mut writer =
        ChunkWriter::new(Arc::new(Layout::columnar(&[(8, 1)], n)), Compression::Zstd, &Arc::new(Meter::new()));
    (0..n).for_each(|at| writer.push(0, &[value.wrapping_add((at / 100) as u8); 8]));
    let chunk = writer.seal(&mut Chooser::new(Compression::Zstd));
    assert!(chunk.packed_bytes().is_some());
    chunk
}
