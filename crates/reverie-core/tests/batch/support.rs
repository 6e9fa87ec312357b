//! Chunks and items of a few cells, and batches of them.

use reverie_core::batch::{Plan, Split};
use reverie_core::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout, Meter};
use reverie_core::error::Error;
use reverie_core::item::{Body, Cells, Form, Item, Pattern, PatternColumn};
use reverie_core::sample::Draws;
use reverie_core::spec::{ColumnSpec, DType, Structure, StructureKey};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Plans and gathers into arrays full of a byte that no test writes by chance, so that a gap shows.
pub fn gather(plan: &Plan, items: &[Item]) -> Result<Vec<Vec<u8>>, Error> {
    let mut arrays: Vec<Vec<MaybeUninit<u8>>> =
        plan.outputs.iter().map(|output| vec![MaybeUninit::new(0xaa); output.bytes()]).collect();
    let mut slices = arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>();
    plan.gather(items, &mut slices)?;
    // SAFETY: every byte was initialised above.
    Ok(arrays.into_iter().map(|array| array.into_iter().map(|byte| unsafe { byte.assume_init() }).collect()).collect())
}

/// The arrays of a split batch: large columns from where they lie, the rest gathered. `None` if nothing can be split
/// off.
pub fn gather_split(plan: &Plan, items: &[Item], least: usize) -> Option<Vec<Vec<u8>>> {
    let plan = Arc::new(plan.clone());
    let split = Split::new(&plan, least)?;
    let draws = Draws { items: items.to_vec(), ..Draws::default() };
    let contiguous = split.contiguous_cells(&draws)?;
    assert!(contiguous.iter().all(|cells| cells.as_ref().len() >= least));
    let mut large = contiguous.iter().flat_map(|cells| cells.as_ref().to_vec());
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

pub fn column(path: &str, dtype: DType, shape: &[usize], at: u32, cells: Cells) -> PatternColumn {
    let spec = ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() };
    PatternColumn { spec, part: 0, column: at, cells, squeeze: false, stack_axis: 0 }
}

pub fn squeezed(path: &str, dtype: DType, shape: &[usize], at: u32) -> PatternColumn {
    PatternColumn { squeeze: true, ..column(path, dtype, shape, at, Cells::one(0)) }
}

pub fn pattern(columns: Vec<PatternColumn>) -> Form {
    let entries = columns.iter().map(|column| (StructureKey::Str(column.spec.path.clone()), Structure::Leaf)).collect();
    Form::new(Pattern { columns: columns.into(), structure: Structure::Dict(entries), timestep: false, alike: false })
}

pub fn item(chunk: &Arc<Chunk>, pattern: &Form, anchor: u32) -> Item {
    Item { body: Body::Chunk(chunk.clone()), pattern: pattern.clone(), anchor, episode: 0, stream: 0 }
}

/// Two uint8 columns, `a` of shape [2] and `b` of shape []: step s holds [s, s] and 100 + s.
pub fn steps(n: u8, interleaved: bool) -> Arc<Chunk> {
    let make = if interleaved { Layout::interleaved } else { Layout::columnar };
    let layout = Arc::new(make(&[(2, 1), (1, 1)], usize::from(n)));
    let mut writer = ChunkWriter::new(layout, Compression::None, &Arc::new(Meter::new()));
    for step in 0..n {
        writer.push(0, &[step, step]);
        writer.push(1, &[100 + step]);
    }
    writer.seal(&mut Chooser::new(Compression::None))
}

pub fn window(start: i32, end: i32) -> Form {
    pattern(vec![column("a", DType::UInt8, &[2], 0, Cells::range(start, end)), squeezed("b", DType::UInt8, &[], 1)])
}

pub fn shapes(plan: &Plan) -> Vec<(&str, Vec<usize>)> {
    plan.outputs.iter().map(|output| (output.path.as_str(), output.shape.clone())).collect()
}

pub fn plan_of(items: &[Item]) -> Plan {
    reverie_core::batch::plan(items, &reverie_core::batch::BatchOptions::default()).unwrap()
}
