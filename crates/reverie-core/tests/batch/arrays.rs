//! Batches: what the cells hold is what the arrays hold, for every form of item and every way to store its chunks.

use proptest::prelude::*;
use reverie_core::batch::{Options, Output, Plan, Planner, Ragged, Role, Split, plan};
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout, Meter};
use reverie_core::error::Error;
use reverie_core::item::{Body, Cells, Form, Item, Part, Pattern, PatternColumn, Span};
use reverie_core::sample::Draws;
use reverie_core::spec::{ColumnSpec, DType, Key, Structure};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Plans and gathers into arrays full of a byte that no test writes by chance, so that a gap shows.
fn gather(plan: &Plan, items: &[Item]) -> Result<Vec<Vec<u8>>, Error> {
    let mut arrays: Vec<Vec<MaybeUninit<u8>>> =
        plan.outputs.iter().map(|output| vec![MaybeUninit::new(0xaa); output.bytes()]).collect();
    let mut slices = arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>();
    plan.gather(items, &mut slices)?;
    // SAFETY: every byte was initialised above.
    Ok(arrays.into_iter().map(|array| array.into_iter().map(|byte| unsafe { byte.assume_init() }).collect()).collect())
}

/// The same of a split batch: large columns from where they lie, the rest gathered. `None` where nothing can be split off.
fn gather_split(plan: &Plan, items: &[Item], least: usize) -> Option<Vec<Vec<u8>>> {
    let plan = Arc::new(plan.clone());
    let split = Split::new(&plan, least)?;
    let draws = Draws { items: items.to_vec(), ..Draws::default() };
    let lying = split.lying(&draws)?;
    assert!(lying.iter().all(|cells| cells.as_ref().len() >= least));
    let mut large = lying.iter().flat_map(|cells| cells.as_ref().to_vec());
    let is_large = |index: &usize| split.large().contains(index);
    let rest = (0..plan.outputs.len()).filter(|index| !is_large(index)).map(|index| plan.outputs[index].bytes());
    let mut arrays: Vec<Vec<MaybeUninit<u8>>> = rest.map(|bytes| vec![MaybeUninit::new(0xaa); bytes]).collect();
    split.gather_rest(&draws, &mut arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>()).unwrap();
    // SAFETY: every byte was initialised above.
    let initialised =
        |array: Vec<MaybeUninit<u8>>| array.into_iter().map(|byte| unsafe { byte.assume_init() }).collect();
    let mut rest = arrays.into_iter().map(initialised);
    let whole = (0..plan.outputs.len()).map(|index| match is_large(&index) {
        true => large.by_ref().take(plan.outputs[index].bytes()).collect(),
        false => rest.next().unwrap(),
    });
    let whole = whole.collect();
    assert!(large.next().is_none());
    Some(whole)
}

fn column(path: &str, dtype: DType, shape: &[usize], at: u32, cells: Cells) -> PatternColumn {
    let spec = ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() };
    PatternColumn { spec, part: 0, column: at, cells, squeeze: false, stack_axis: 0 }
}

fn squeezed(path: &str, dtype: DType, shape: &[usize], at: u32) -> PatternColumn {
    PatternColumn { squeeze: true, ..column(path, dtype, shape, at, Cells::one(0)) }
}

fn pattern(columns: Vec<PatternColumn>) -> Form {
    let entries = columns.iter().map(|column| (Key::Str(column.spec.path.clone()), Structure::Leaf)).collect();
    Form::new(Pattern { columns: columns.into(), structure: Structure::Dict(entries), timestep: false })
}

fn item(chunk: &Arc<Chunk>, pattern: &Form, anchor: u32) -> Item {
    Item { body: Body::Chunk(chunk.clone()), pattern: pattern.clone(), anchor, episode: 0, stream: 0 }
}

/// Two uint8 columns, `a` of shape [2] and `b` of shape []: step s holds [s, s] and 100 + s.
fn steps(n: u8, interleaved: bool) -> Arc<Chunk> {
    let make = if interleaved { Layout::interleaved } else { Layout::columnar };
    let layout = Arc::new(make(&[(2, 1), (1, 1)], usize::from(n)));
    let mut writer = ChunkWriter::new(layout, Compression::None, &Arc::new(Meter::new()));
    for step in 0..n {
        writer.push(0, &[step, step]);
        writer.push(1, &[100 + step]);
    }
    writer.seal(&mut Chooser::new(Compression::None))
}

fn window(start: i32, end: i32) -> Form {
    pattern(vec![column("a", DType::UInt8, &[2], 0, Cells::range(start, end)), squeezed("b", DType::UInt8, &[], 1)])
}

fn shapes(plan: &Plan) -> Vec<(&str, Vec<usize>)> {
    plan.outputs.iter().map(|output| (output.path.as_str(), output.shape.clone())).collect()
}

#[test]
fn squeezed_columns_lose_the_time_axis_and_equal_lengths_stack() {
    for interleaved in [false, true] {
        let (chunk, form) = (steps(8, interleaved), window(0, 3));
        let items = [item(&chunk, &form, 0), item(&chunk, &form, 5)];
        let plan = plan(&items, &Options::default()).unwrap();
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
    let plan = plan(&items, &Options::default()).unwrap();
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
    let error = plan(&items, &Options::default()).unwrap_err();
    assert!(matches!(&error, Error::Ragged { path, .. } if path == "a"));
    let text = error.to_string();
    assert!(text.contains("column 'a'") && text.contains("lengths 1, 3") && text.contains("ragged=\"pad\""), "{text}");
}

#[test]
fn padding_gives_zeros_and_a_mask() {
    let chunk = steps(8, false);
    let items = [item(&chunk, &window(0, 3), 1), item(&chunk, &window(0, 1), 4)];
    let options = Options { ragged: Ragged::Pad, columns: None };
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
    let options = Options { ragged: Ragged::Values, columns: None };
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
    let options = Options { ragged: Ragged::Pad, columns: None };
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
    let plan = plan(&items, &Options::default()).unwrap();
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
    let plan = plan(&items, &Options::default()).unwrap();
    assert_eq!((plan.outputs[0].itemsize, &plan.outputs[0].shape), (3, &vec![2, 2]));
    assert_eq!(gather(&plan, &items).unwrap()[0], b"a\0\0b\0\0cdefgh");
}

#[test]
fn a_plan_for_text_is_made_anew_for_every_batch() {
    let meter = Arc::new(Meter::new());
    let form = pattern(vec![squeezed("t", DType::Bytes, &[], 0)]);
    let mut planner = Planner::new(&Options::default());
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
            assert_eq!(gather(&plan(&items, &Options::default()).unwrap(), &items).unwrap()[0], expected);
        }
    }
}

#[test]
fn a_path_selects_all_that_is_below_it() {
    let names = ["act", "obs/0", "obs/1", "obs2"];
    let chunk = steps(2, false);
    let columns = names.iter().map(|name| squeezed(name, DType::UInt8, &[], 1)).collect::<Vec<_>>();
    let key = |name: &str| Key::Str(name.to_owned());
    let structure = Structure::Dict(vec![
        (key("act"), Structure::Leaf),
        (key("obs"), Structure::Tuple(vec![Structure::Leaf, Structure::Leaf])),
        (key("obs2"), Structure::Leaf),
    ]);
    let form = Form::new(Pattern { columns: columns.into(), structure, timestep: false });
    let items = [item(&chunk, &form, 0)];
    let select = |paths: &[&str]| {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        plan(&items, &Options { columns: Some(&paths), ragged: Ragged::Refuse })
    };
    let both = select(&["obs"]).unwrap();
    assert_eq!(shapes(&both).iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["obs/0", "obs/1"]);
    let whole = Structure::Tuple(vec![Structure::Leaf, Structure::Leaf]);
    assert_eq!(both.structure, Structure::Dict(vec![(key("obs"), whole)]));
    let part = select(&["obs/1", "act"]).unwrap();
    let left = Structure::Dict(vec![(Key::Int(1), Structure::Leaf)]);
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
    let form = Form::new(Pattern { columns: columns.collect(), structure: structure.clone(), timestep: false });
    let items = [item(&chunk, &form, 1)];
    let paths = ["z".to_owned(), "a".to_owned()];
    let part = plan(&items, &Options { columns: Some(&paths), ragged: Ragged::Refuse }).unwrap();
    assert_eq!(part.structure.paths(), ["a", "z"]);
    assert_eq!(gather(&part, &items).unwrap(), [vec![101], vec![1, 1]]);
    let all = ["z".to_owned(), "m".to_owned(), "a".to_owned()];
    assert_eq!(plan(&items, &Options { columns: Some(&all), ragged: Ragged::Refuse }).unwrap().structure, structure);
}

#[test]
fn items_that_differ_in_kind_are_refused_by_name() {
    let chunk = steps(2, false);
    let one = |path: &str, dtype, shape: &[usize]| item(&chunk, &pattern(vec![squeezed(path, dtype, shape, 0)]), 0);
    let first = one("a", DType::UInt8, &[2]);
    let refuse = |other: Item| plan(&[first.clone(), other], &Options::default()).unwrap_err();
    let text = refuse(one("a", DType::Int16, &[])).to_string();
    assert!(text.contains("column 'a': got int16[], want uint8[2]"), "{text}");
    let text = refuse(one("c", DType::UInt8, &[2])).to_string();
    assert!(text.contains("some have 'a' and some 'c'"), "{text}");
    let timed = item(&chunk, &pattern(vec![column("a", DType::UInt8, &[2], 0, Cells::range(0, 1))]), 0);
    assert!(matches!(refuse(timed), Error::Ragged { path, .. } if path == "a"));
    assert!(matches!(plan::<Item>(&[], &Options::default()), Err(Error::InvalidArgument(_))));
}

#[test]
fn cells_that_do_not_exist_or_fit_are_an_error() {
    let chunk = steps(2, false);
    let bad = |column: PatternColumn, anchor| {
        let items = [item(&chunk, &pattern(vec![column]), anchor)];
        gather(&plan(&items, &Options::default()).unwrap(), &items)
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
        let plan = plan(&items, &Options { ragged, columns: None }).unwrap();
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
    let mut planner = Planner::new(&Options::default());
    let first = planner.plan(&batch(&form, 4)).unwrap();
    assert!(Arc::ptr_eq(&first, &planner.plan(&batch(&form, 4)).unwrap()));
    assert_eq!(planner.plan(&batch(&form, 3)).unwrap().outputs[0].shape, [3, 3, 2]);
    assert_eq!(planner.plan(&batch(&window(0, 2), 3)).unwrap().outputs[0].shape, [3, 2, 2]);
}

/// What a random store holds: columns in two parts, cut into chunks at random places.
#[derive(Debug, Clone)]
struct Store {
    specs: Vec<(DType, Vec<usize>)>,
    parts: Vec<u32>,
    /// Lengths of the chunks of each part.
    cuts: [Vec<usize>; 2],
    interleaved: bool,
    compression: Compression,
}

const STEPS: usize = 12;

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The element width of a column's text in the chunk that begins at `step`.
fn itemsize(dtype: DType, step: usize) -> usize {
    dtype.size().unwrap_or(step * 3 % 5)
}

/// The bytes of a column's cell, `None` where it holds no value.
fn cell(column: usize, step: usize, bytes: usize) -> Option<Vec<u8>> {
    (!(column * 7 + step * 3).is_multiple_of(11))
        .then(|| (0..bytes).map(|at| (column * 50 + step * 13 + at * 3) as u8).collect())
}

/// A cell: the width of its elements, and its bytes.
type Stored = (usize, Vec<u8>);

impl Store {
    /// The parts, and for each column its cells as (itemsize, bytes) in order.
    fn build(&self) -> (Arc<Span>, Vec<Vec<Stored>>) {
        let meter = Arc::new(Meter::new());
        let mut cells = vec![Vec::new(); self.specs.len()];
        let parts = self.cuts.iter().enumerate().map(|(part, lengths)| {
            let columns =
                (0..self.specs.len()).filter(|column| self.parts[*column] as usize == part).collect::<Vec<_>>();
            let (mut chunks, mut starts) = (Vec::new(), vec![0_i64]);
            let mut chooser = Chooser::new(self.compression);
            for length in lengths {
                let start = *starts.last().unwrap() as usize;
                let widths = columns.iter().map(|column| {
                    let (dtype, shape) = &self.specs[*column];
                    (elements(shape) * itemsize(*dtype, start), itemsize(*dtype, start))
                });
                let widths = widths.collect::<Vec<_>>();
                let make = if self.interleaved { Layout::interleaved } else { Layout::columnar };
                let mut writer = ChunkWriter::new(Arc::new(make(&widths, *length)), self.compression, &meter);
                for step in start..start + length {
                    for (at, column) in columns.iter().enumerate() {
                        let cell = cell(*column, step, widths[at].0);
                        match &cell {
                            Some(cell) => writer.push(at, cell),
                            None => writer.skip(at),
                        }
                        cells[*column].push((widths[at].1, cell.unwrap_or(vec![0; widths[at].0])));
                    }
                }
                starts.push((start + length) as i64);
                // The last chunk stays open.
                let open = starts.len() > lengths.len();
                chunks.push(if open { writer.chunk().clone() } else { writer.seal(&mut chooser) });
            }
            Part { chunks: chunks.into(), starts: starts.into() }
        });
        (Arc::new(parts.collect::<Vec<_>>().into()), cells)
    }
}

fn store() -> impl Strategy<Value = Store> {
    let dtype = prop::sample::select(vec![DType::UInt8, DType::Int32, DType::Complex128, DType::Bytes, DType::Str]);
    let shape = prop::sample::select(vec![vec![], vec![1], vec![3], vec![2, 2], vec![2, 0], vec![3, 2, 5]]);
    let cuts = prop::collection::vec(1..STEPS, 0..4).prop_map(|lengths| {
        let mut left = STEPS;
        let mut cuts = lengths
            .into_iter()
            .map_while(|length| {
                let length = length.min(left);
                left -= length;
                (length > 0).then_some(length)
            })
            .collect::<Vec<_>>();
        cuts.extend((left > 0).then_some(left));
        cuts
    });
    let compression = prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
    prop::collection::vec(((dtype, shape), 0..2_u32), 1..5)
        .prop_flat_map(move |columns| {
            let (specs, parts): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
            (Just(specs), Just(parts), [cuts.clone(), cuts.clone()], any::<bool>(), compression.clone())
        })
        .prop_map(|(specs, parts, cuts, interleaved, compression)| Store {
            specs,
            parts,
            cuts,
            interleaved,
            compression,
        })
}

/// Cells around an anchor in the middle: always inside the store.
fn cells() -> impl Strategy<Value = Cells> {
    let middle = STEPS as i32 / 2;
    prop_oneof![
        (-middle..middle, 0..6_i32).prop_map(move |(start, len)| Cells::range(start, (start + len).min(middle))),
        (-middle..middle, prop::sample::select(vec![-2, -1, 2]), 0..3_u32)
            .prop_filter("inside", move |(start, step, len)| (-middle..middle).contains(&(start + step * *len as i32)))
            .prop_map(|(start, step, len)| Cells::Range { start, step, len }),
        prop::collection::vec(-middle..middle, 0..5).prop_map(|cells| Cells::List(cells.into())),
    ]
}

/// (squeeze, stack axis) per column; cells per pattern and column; the pattern of each item.
type Drawn = (Vec<(bool, usize)>, Vec<Vec<Cells>>, Vec<usize>);

fn forms(columns: usize) -> impl Strategy<Value = Drawn> {
    (1..4_usize).prop_flat_map(move |patterns| {
        (
            prop::collection::vec((any::<bool>(), 0..3_usize), columns),
            prop::collection::vec(prop::collection::vec(cells(), columns), patterns),
            prop::collection::vec(0..patterns, 1..8),
        )
    })
}

fn make_patterns(store: &Store, (axes, cells, _): &Drawn) -> Vec<Form> {
    let pattern_of = |cells: &Vec<Cells>| {
        let columns = store.specs.iter().enumerate().map(|(index, (dtype, shape))| {
            let (squeeze, axis) = axes[index];
            let cells =
                if squeeze { Cells::one(cells[index].iter().next().unwrap_or(0) as i32) } else { cells[index].clone() };
            let spec = ColumnSpec { path: format!("c{index}"), dtype: *dtype, shape: shape.clone() };
            let before = (0..index).filter(|other| store.parts[*other] == store.parts[index]).count() as u32;
            let stack_axis = axis.min(shape.len()) as u8;
            PatternColumn { spec, part: store.parts[index], column: before, cells, squeeze, stack_axis }
        });
        pattern(columns.collect())
    };
    cells.iter().map(pattern_of).collect()
}

/// Where an element goes: the index of its cell with the steps axis put in, and the batch axis in front.
fn position(output: &Output, shape: &[usize], item: usize, step: Option<(usize, usize)>, element: usize) -> usize {
    let (mut index, mut left) = (vec![0; shape.len()], element);
    for axis in (0..shape.len()).rev() {
        index[axis] = left % shape[axis];
        left /= shape[axis];
    }
    if let Some((axis, step)) = step {
        index.insert(axis, step);
    }
    index.insert(0, item);
    assert_eq!(index.len(), output.shape.len());
    index.iter().zip(&output.shape).fold(0, |flat, (index, size)| flat * size + index)
}

/// The arrays, element by element.
fn model(plan: &Plan, items: &[Item], ragged: Ragged, cells: &[Vec<Stored>]) -> Vec<Vec<u8>> {
    let mut arrays = plan.outputs.iter().map(|output| vec![0; output.bytes()]).collect::<Vec<_>>();
    for (index, output) in plan.outputs.iter().enumerate() {
        let (source, longest) = match output.role {
            Role::Column => (index, 0),
            Role::First | Role::Start => unreachable!("whole items have none"),
            Role::Mask(of) | Role::Lengths(of) => (
                of.unwrap_or_else(|| {
                    (0..plan.num_columns)
                        .find(|at| {
                            let column = &items[0].pattern.columns[*at];
                            !column.squeeze && (ragged == Ragged::Pad || column.stack_axis == 0)
                        })
                        .unwrap()
                }),
                *output.shape.last().unwrap(),
            ),
        };
        let mut values = 0;
        for (number, item) in items.iter().enumerate() {
            let column = &item.pattern.columns[source];
            match output.role {
                Role::First | Role::Start => unreachable!("whole items have none"),
                Role::Mask(_) => arrays[index][number * longest..][..column.cells.len()].fill(1),
                Role::Lengths(_) => {
                    arrays[index][number * 8..][..8].copy_from_slice(&(column.cells.len() as i64).to_ne_bytes())
                }
                Role::Column => {
                    for (step, relative) in column.cells.iter().enumerate() {
                        let (itemsize, cell) = &cells[source][(relative + STEPS as i64 / 2) as usize];
                        for element in 0..elements(&column.spec.shape) {
                            let axis = usize::from(column.stack_axis);
                            let at = match (column.squeeze, ragged) {
                                (true, _) => position(output, &column.spec.shape, number, None, element),
                                (_, Ragged::Values) if axis == 0 => {
                                    position(output, &column.spec.shape, values, None, element)
                                }
                                _ => position(output, &column.spec.shape, number, Some((axis, step)), element),
                            };
                            arrays[index][at * output.itemsize..][..*itemsize]
                                .copy_from_slice(&cell[element * itemsize..][..*itemsize]);
                        }
                        values += 1;
                    }
                }
            }
        }
    }
    arrays
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_batch_is_what_copying_element_by_element_gives(
        (store, forms) in store().prop_flat_map(|store| {
            let columns = store.specs.len();
            (Just(store), forms(columns))
        }),
        ragged in prop::sample::select(vec![Ragged::Refuse, Ragged::Pad, Ragged::Values]),
    ) {
        let (parts, cells) = store.build();
        let patterns = make_patterns(&store, &forms);
        let single = store.parts.iter().all(|part| *part == 0) && parts[0].chunks.len() == 1;
        let body = if single { Body::Chunk(parts[0].chunks[0].clone()) } else { Body::Span(parts) };
        let items = forms.2.iter().map(|form| {
            Item { body: body.clone(), pattern: patterns[*form].clone(), anchor: STEPS as u32 / 2, episode: 0, stream: 0 }
        }).collect::<Vec<_>>();
        let lengths = |column: usize| items.iter().map(|item| item.pattern.columns[column].cells.len()).collect::<Vec<_>>();
        let must_refuse = (0..store.specs.len()).any(|column| {
            let stacked = items[0].pattern.columns[column].stack_axis > 0;
            let equal = lengths(column).iter().all(|length| *length == lengths(column)[0]);
            !equal && (ragged == Ragged::Refuse || (ragged == Ragged::Values && stacked))
        });
        match plan(&items, &Options { ragged, columns: None }) {
            Ok(plan) => {
                prop_assert!(!must_refuse);
                let gathered = gather(&plan, &items).unwrap();
                for least in [1, 6] {
                    if let Some(split) = gather_split(&plan, &items, least) {
                        prop_assert_eq!(&split, &gathered);
                    }
                }
                prop_assert_eq!(gathered, model(&plan, &items, ragged, &cells));
            }
            Err(Error::Ragged { .. }) => prop_assert!(must_refuse),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn rows_of_several_kinds_are_gathered_as_they_were_written(
        widths in prop::collection::vec(0..70_usize, 1..6),
        n in 1..4_i32,
        interleaved: bool,
        picks in prop::collection::vec((0..3_usize, 0..5_u32, 0..6_usize, prop::bool::weighted(0.2)), 1..40),
        ragged in prop::sample::select(vec![Ragged::Refuse, Ragged::Pad, Ragged::Values]),
    ) {
        let cells = widths.iter().map(|width| (*width, 1)).collect::<Vec<_>>();
        let meter = Arc::new(Meter::new());
        let byte = |chunk: usize, column: usize, step: usize, at: usize| (chunk * 91 + column * 17 + step * 5 + at) as u8;
        let chunks = (0..3).map(|chunk| {
            let make = if interleaved { Layout::interleaved } else { Layout::columnar };
            // One chunk is longer, so that a columnar one is laid out otherwise than its neighbours.
            let capacity = if chunk == 2 { 100 } else { 8 };
            let mut writer = ChunkWriter::new(Arc::new(make(&cells, capacity)), Compression::None, &meter);
            for step in 0..8 {
                for (column, width) in widths.iter().enumerate() {
                    writer.push(column, &(0..*width).map(|at| byte(chunk, column, step, at)).collect::<Vec<_>>());
                }
            }
            writer.chunk().clone()
        }).collect::<Vec<_>>();
        // Six patterns: the first column starts at the anchor or a step later, written as a range or as a list.
        let forms = (0..6).map(|form: i32| {
            let columns = widths.iter().enumerate().map(|(at, width)| {
                let start = if at == 0 { form % 2 } else { 0 };
                let cells = match form {
                    4.. => Cells::List((start..start + n).collect()),
                    _ => Cells::range(start, start + n),
                };
                column(&format!("c{at}"), DType::UInt8, &[*width], at as u32, cells)
            });
            pattern(columns.collect())
        }).collect::<Vec<_>>();
        let items = picks.iter().map(|(chunk, anchor, form, span)| {
            let single = item(&chunks[*chunk], &forms[*form], *anchor);
            let part = Part { chunks: [chunks[*chunk].clone()].into(), starts: [0, 8].into() };
            if *span { Item { body: Body::Span(Arc::new(vec![part].into())), ..single } } else { single }
        }).collect::<Vec<_>>();
        let arrays = gather(&plan(&items, &Options { ragged, columns: None }).unwrap(), &items).unwrap();
        for (column, width) in widths.iter().enumerate() {
            let expected = picks.iter().flat_map(|(chunk, anchor, form, _)| (0..n as usize).flat_map(move |step| {
                let start = *anchor as usize + if column == 0 { form % 2 } else { 0 };
                (0..*width).map(move |at| byte(*chunk, column, start + step, at))
            }));
            prop_assert_eq!(&arrays[column], &expected.collect::<Vec<_>>());
        }
    }
}
