//! Batches of random stores against copying element by element.

use super::cases::cases;
use super::support::{column, gather, gather_split, item, pattern};
use super::tiers::{self, Temporary, until};
use proptest::prelude::*;
use reverie_core::batch::{BatchOptions, OutputArray, Plan, Ragged, Role, plan};
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter};
use reverie_core::error::Error;
use reverie_core::item::{Body, Cells, Form, Item, Part, PatternColumn, Span};
use reverie_core::spec::{ColumnSpec, DType};
use std::sync::Arc;

/// The content of a random store: columns in two parts, cut into chunks at random places.
#[derive(Debug, Clone)]
struct Store {
    specs: Vec<(DType, Vec<usize>)>,
    parts: Vec<u32>,
    /// Lengths of the chunks of each part.
    cuts: [Vec<usize>; 2],
    interleaved: bool,
    compression: Compression,
    /// The chunks are on the disk when they are read.
    on_disk: bool,
}

const STEPS: usize = 12;

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The element width of a column's text in the chunk that begins at `step`.
fn itemsize(dtype: DType, step: usize) -> usize {
    dtype.size().unwrap_or(step * 3 % 5)
}

/// The bytes of a column's cell, `None` if it holds no value.
fn cell(column: usize, step: usize, bytes: usize) -> Option<Vec<u8>> {
    (!(column * 7 + step * 3).is_multiple_of(11))
        .then(|| (0..bytes).map(|at| (column * 50 + step * 13 + at * 3) as u8).collect())
}

/// A cell: the width of its elements, and its bytes.
type Stored = (usize, Vec<u8>);

impl Store {
    /// The parts, and for each column its cells as (itemsize, bytes) in order.
    fn build(&self) -> (Arc<Span>, Vec<Vec<Stored>>) {
        let folder = Temporary::new();
        let meter = if self.on_disk { tiers::meter(tiers::options(&folder, 1)) } else { Arc::new(Meter::new()) };
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
        let parts: Span = parts.collect::<Vec<_>>().into();
        let in_memory = |part: &Part| part.chunks.iter().any(|chunk| !chunk.is_on_disk());
        until("the chunks are on the disk", || !self.on_disk || !parts.iter().any(in_memory));
        (Arc::new(parts), cells)
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
            let forms = (any::<bool>(), compression.clone(), any::<bool>());
            (Just(specs), Just(parts), [cuts.clone(), cuts.clone()], forms)
        })
        .prop_map(|(specs, parts, cuts, (interleaved, compression, on_disk))| Store {
            specs,
            parts,
            cuts,
            interleaved,
            compression,
            on_disk,
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

/// The position of an element in the output: the index of its cell with the steps axis put in, and the batch axis in
/// front.
fn position(output: &OutputArray, shape: &[usize], item: usize, step: Option<(usize, usize)>, element: usize) -> usize {
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
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

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
        match plan(&items, &BatchOptions { ragged, columns: None }) {
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
        picks in prop::collection::vec((0..3_usize, 0..5_u32, 0..6_usize, prop::bool::weighted(0.2)), 1..200),
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
        let arrays = gather(&plan(&items, &BatchOptions { ragged, columns: None }).unwrap(), &items).unwrap();
        for (column, width) in widths.iter().enumerate() {
            let expected = picks.iter().flat_map(|(chunk, anchor, form, _)| (0..n as usize).flat_map(move |step| {
                let start = *anchor as usize + if column == 0 { form % 2 } else { 0 };
                (0..*width).map(move |at| byte(*chunk, column, start + step, at))
            }));
            prop_assert_eq!(&arrays[column], &expected.collect::<Vec<_>>());
        }
    }
}
