//! Batches of cells that differ in the size of their first axis.

use super::support::{column, gather, gather_split, pattern, squeezed};
use super::tiers::{self, Temporary, until};
use proptest::prelude::*;
use reverie_core::batch::{BatchOptions, Plan, Planner, Ragged, Role, join, plan};
use reverie_core::chunk::{Chooser, ChunkWriter, Compression, Layout, Meter};
use reverie_core::error::Error;
use reverie_core::item::{Body, Cells, Form, Item, Part, PatternColumn};
use reverie_core::spec::{ANY_SIZE, DType};
use std::sync::Arc;

/// The bytes of step `step`'s cell.
fn cell(step: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (1 + step * 29 + at * 3) as u8).collect()
}

/// A body with two parts, a chunk for each step: cells `int16[sizes[step], 2]`, and `uint8[]` that counts the steps.
fn body(sizes: &[usize], compression: Compression, meter: &Arc<Meter>) -> Body {
    let chunk = |cell: &[u8], itemsize: usize| {
        let layout = Arc::new(Layout::columnar(&[(cell.len(), itemsize)], 1));
        let mut writer = ChunkWriter::new(layout, compression, meter);
        writer.push(0, cell);
        writer.seal(&mut Chooser::new(compression))
    };
    let starts: Box<[i64]> = (0..=sizes.len() as i64).collect();
    let cells = sizes.iter().enumerate().map(|(step, size)| chunk(&cell(step, 4 * size), 2)).collect();
    let steps = (0..sizes.len()).map(|step| chunk(&[step as u8], 1)).collect();
    let part = |chunks| Part { chunks, starts: starts.clone() };
    Body::Span(Arc::new(vec![part(cells), part(steps)].into()))
}

fn points(cells: Option<Cells>, shape: &[usize]) -> PatternColumn {
    match cells {
        Some(cells) => column("points", DType::Int16, shape, 0, cells),
        None => squeezed("points", DType::Int16, shape, 0),
    }
}

/// Items that begin at these steps: with a time axis of so many steps, or of one step without one.
fn items(body: &Body, picks: &[(u32, usize)], time: bool) -> Vec<Item> {
    let form = |steps: usize| -> Form {
        let cells = time.then(|| Cells::range(0, steps as i32));
        let step = match time {
            true => column("step", DType::UInt8, &[], 0, Cells::range(0, steps as i32)),
            false => squeezed("step", DType::UInt8, &[], 0),
        };
        pattern(vec![points(cells, &[ANY_SIZE, 2]), PatternColumn { part: 1, ..step }])
    };
    let item = |(anchor, steps): &(u32, usize)| Item {
        body: body.clone(),
        pattern: form(*steps),
        anchor: *anchor,
        episode: 0,
        stream: 0,
    };
    picks.iter().map(item).collect()
}

/// The arrays, cell by cell: the points, and their mask or lengths.
fn model(plan: &Plan, sizes: &[usize], picks: &[(u32, usize)], ragged: Ragged) -> [Vec<u8>; 2] {
    let counts = plan.outputs[2..].iter().find(|output| output.path != "step").unwrap();
    let mut arrays = [vec![0; plan.outputs[0].bytes()], vec![0; counts.bytes()]];
    let steps = if plan.outputs[1].shape.len() > 1 || counts.shape.len() > 1 {
        picks.iter().map(|(_, steps)| *steps).max().unwrap()
    } else {
        1
    };
    let (mut values, largest) = (0, plan.outputs[0].shape[plan.outputs[0].shape.len() - 2]);
    for (row, (anchor, count)) in picks.iter().enumerate() {
        for at in 0..*count {
            let step = *anchor as usize + at;
            let (bytes, place) = (cell(step, 4 * sizes[step]), row * steps + at);
            let start = if ragged == Ragged::Pad { 4 * largest * place } else { values };
            arrays[0][start..start + bytes.len()].copy_from_slice(&bytes);
            values += bytes.len();
            match ragged {
                Ragged::Pad => arrays[1][largest * place..][..sizes[step]].fill(1),
                _ => arrays[1][8 * place..][..8].copy_from_slice(&(sizes[step] as i64).to_ne_bytes()),
            }
        }
    }
    arrays
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn cells_of_any_size_are_padded_or_put_behind_one_another(
        sizes in prop::collection::vec(0..40_usize, 8),
        picks in prop::collection::vec((0..4_u32, 1..5_usize), 1..12),
        time: bool,
        ragged in prop::sample::select(vec![Ragged::Refuse, Ragged::Pad, Ragged::Values]),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
        on_disk in prop::bool::weighted(0.1),
    ) {
        let folder = Temporary::new();
        let meter = if on_disk { tiers::meter(tiers::options(&folder, 1)) } else { Arc::new(Meter::new()) };
        let body = body(&sizes, compression, &meter);
        let picks: Vec<_> = picks.iter().map(|(anchor, steps)| (*anchor, if time { *steps } else { 1 })).collect();
        let items = items(&body, &picks, time);
        let in_memory = || items.iter().flat_map(Item::chunks).any(|chunk| !chunk.is_on_disk() && chunk.size_bytes() > 0);
        until("the chunks are on the disk", || !on_disk || !in_memory());
        let used = |pick: &(u32, usize)| sizes[pick.0 as usize..pick.0 as usize + pick.1].to_vec();
        let used: Vec<usize> = picks.iter().flat_map(used).collect();
        let equal = used.iter().all(|size| *size == used[0]) && picks.iter().all(|(_, steps)| *steps == picks[0].1);
        match plan(&items, &BatchOptions { ragged, columns: None }) {
            Err(Error::Ragged { path, reason }) => {
                prop_assert!(ragged == Ragged::Refuse && !equal, "{}", reason);
                prop_assert!(path == "points" || reason.contains("lengths"), "{} {}", path, reason);
            }
            Err(other) => prop_assert!(false, "{}", other),
            Ok(plan) => {
                let gathered = gather(&plan, &items).unwrap();
                prop_assert_eq!(gather_split(&plan, &items, 1).is_some_and(|split| split != gathered), false);
                if ragged == Ragged::Refuse {
                    prop_assert!(equal);
                    let all: Vec<u8> = picks.iter().flat_map(|(anchor, steps)| {
                        (*anchor as usize..*anchor as usize + steps).flat_map(|step| cell(step, 4 * sizes[step]))
                    }).collect();
                    prop_assert_eq!(&gathered[0], &all);
                } else {
                    let [points, counts] = model(&plan, &sizes, &picks, ragged);
                    prop_assert_eq!(&gathered[0], &points);
                    let found = plan.outputs[2..].iter().position(|output| output.path != "step").unwrap();
                    prop_assert_eq!(&gathered[2 + found], &counts);
                }
            }
        }
    }
}

#[test]
fn the_arrays_of_sizes_that_happen_to_be_equal_are_those_of_sizes_that_differ() {
    let meter = Arc::new(Meter::new());
    for (sizes, largest, sum) in [([3, 3], 3, 6), ([2, 5], 5, 7)] {
        let items = items(&body(&sizes, Compression::None, &meter), &[(0, 1), (1, 1)], false);
        let shapes = |ragged| {
            let plan = plan(&items, &BatchOptions { ragged, columns: None }).unwrap();
            plan.outputs.iter().map(|output| (output.role, output.shape.clone())).collect::<Vec<_>>()
        };
        let column = |shape: &[usize]| (Role::Column, shape.to_vec());
        let mask = (Role::Mask(None), vec![2, largest]);
        assert_eq!(shapes(Ragged::Pad), [column(&[2, largest, 2]), column(&[2]), mask]);
        assert_eq!(shapes(Ragged::Values), [column(&[sum, 2]), column(&[2]), (Role::Lengths(None), vec![2])]);
    }
}

#[test]
fn a_plan_serves_no_later_batch_whose_sizes_may_differ() {
    let meter = Arc::new(Meter::new());
    for ragged in [Ragged::Refuse, Ragged::Pad, Ragged::Values] {
        let mut planner = Planner::new(&BatchOptions { ragged, columns: None });
        let sizes = [[3, 3], [4, 4]].map(|sizes| {
            let items = items(&body(&sizes, Compression::None, &meter), &[(0, 1), (1, 1)], false);
            let plan = planner.plan(&items).unwrap();
            gather(&plan, &items).unwrap()[0].len()
        });
        assert_eq!(sizes, [24, 32]);
    }
}

#[test]
fn items_of_another_rank_or_with_the_cells_stacked_behind_other_axes_are_refused_by_name() {
    let meter = Arc::new(Meter::new());
    let body = body(&[2, 3], Compression::None, &meter);
    let refused = |columns: [PatternColumn; 2]| {
        let items = columns.map(|column| Item {
            body: body.clone(),
            pattern: pattern(vec![column]),
            anchor: 0,
            episode: 0,
            stream: 0,
        });
        plan(&items, &BatchOptions { ragged: Ragged::Pad, columns: None }).unwrap_err().to_string()
    };
    let open = || points(None, &[ANY_SIZE, 2]);
    let error = refused([open(), points(None, &[4])]);
    assert!(error.contains("column 'points'") && error.contains("int16[any, 2]"), "{error}");
    let error = refused([points(None, &[2, 2]), points(None, &[3, 2])]);
    assert!(error.contains("None as the first size"), "{error}");
    let stacked = || PatternColumn { stack_axis: 1, ..points(Some(Cells::range(0, 2)), &[ANY_SIZE, 2]) };
    let error = refused([stacked(), stacked()]);
    assert!(error.contains("column 'points'") && error.contains("stack_axis"), "{error}");
}

#[test]
fn lengths_of_several_servers_have_the_steps_of_the_longest_item() {
    let meter = Arc::new(Meter::new());
    let body = body(&[2, 3, 1, 4], Compression::None, &meter);
    let parts = [vec![(0, 2)], vec![(0, 4), (1, 1)]].map(|picks| {
        let items = items(&body, &picks, true);
        let options = BatchOptions { ragged: Ragged::Values, columns: Some(&["points".to_owned()]) };
        plan(&items, &options).unwrap().outputs
    });
    let whole = join(&[&parts[0], &parts[1]], Ragged::Values).unwrap();
    let shapes: Vec<_> = whole.iter().map(|output| output.shape.clone()).collect();
    assert_eq!(shapes, [vec![2 + 3 + 10 + 3, 2], vec![3, 4]]);
}
