//! Draws to a `reverie.Batch` of NumPy arrays.

use crate::array::{LentBlock, NewArray, Slab};
use crate::enter::{quick, reading_cells};
use crate::info::DrawInfo;
use crate::nest::Unflattener;
use crate::read_options::ReadOptions;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use reverie_core::batch::{Arrays, OutputArray, Plan, Planner, Role};
use reverie_core::sample::{Description, DrawnBatch, Draws};
use reverie_core::spec::{DType, Structure};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

/// Makes batches of draws; the last plan and structure mostly serve the next batch.
#[derive(Default)]
pub struct Batcher {
    /// The plan for items.
    prepared: Mutex<Option<BatchAssembler>>,
    /// The structure of arrays that arrived from another process.
    arrived: Mutex<Unflattener>,
}

struct BatchAssembler {
    read_options: ReadOptions,
    planner: Planner,
    unflattener: Unflattener,
}

impl Batcher {
    /// The `reverie.Batch` of these draws, which are taken; items that cannot become one are left in place.
    pub fn batch<'py>(
        &self,
        py: Python<'py>,
        drawn: &mut DrawnBatch,
        read_options: &ReadOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        match drawn {
            DrawnBatch::Items(draws) => self.prepared(read_options, |prepared| prepared.batch(py, draws)),
            DrawnBatch::Gathered(batch) => {
                let arrays = batch.description.outputs().iter().zip(std::mem::take(&mut batch.arrays));
                let arrays = arrays.map(|(output, memory)| {
                    NewArray::over(py, output.dtype, output.itemsize, &output.shape, Slab::from_memory(memory))
                });
                let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
                self.prepared(read_options, |prepared| prepared.wrap(py, &batch.description, &mut batch.draws, arrays))
            }
            DrawnBatch::Arrays(arrays) => self.arrived(py, arrays),
        }
    }

    /// The `reverie.BatchInfo` of the draws, without a batch.
    pub fn info<'py>(&self, py: Python<'py>, drawn: &mut DrawnBatch) -> PyResult<Bound<'py, PyAny>> {
        match drawn {
            DrawnBatch::Items(draws) => DrawInfo::of(py, draws),
            DrawnBatch::Gathered(batch) => DrawInfo::of(py, &mut batch.draws),
            DrawnBatch::Arrays(arrays) => infos(py, &LentBlock::new(py, Arc::clone(&arrays.block))?, arrays),
        }
    }

    /// A batch of arrays, including those of the info, that are views of the memory in which they arrived.
    fn arrived<'py>(&self, py: Python<'py>, batch: &Arrays) -> PyResult<Bound<'py, PyAny>> {
        let lent = LentBlock::new(py, Arc::clone(&batch.block))?;
        let mut arrays = Vec::with_capacity(batch.head.outputs.len());
        for (output, bytes) in batch.head.outputs.iter().zip(&batch.layout.outputs) {
            arrays.push(lent.array(output.dtype, output.itemsize, &output.shape, bytes.clone())?);
        }
        // Another thread may be inside, as building a structure may run Python code: then use a new unflattener.
        let (mut kept, mut fresh) = (self.arrived.try_lock(), Unflattener::default());
        let unflattener = kept.as_deref_mut().unwrap_or(&mut fresh);
        let head = &batch.head;
        let parts = assemble(py, unflattener, &head.structure, head.num_columns, &head.outputs, arrays.into_iter())?;
        drop(kept);
        made(infos(py, &lent, batch)?, parts, batch.smallest_probability)
    }

    /// Works with the last planner for these options.
    fn prepared<T>(&self, read_options: &ReadOptions, work: impl FnOnce(&mut BatchAssembler) -> T) -> T {
        // Another thread may be inside, as building a structure may run Python code: then prepare without memory.
        let (mut kept, mut fresh) = (self.prepared.try_lock(), None);
        let slot = kept.as_deref_mut().unwrap_or(&mut fresh);
        work(BatchAssembler::for_read_options(slot, read_options))
    }
}

impl BatchAssembler {
    fn for_read_options<'a>(slot: &'a mut Option<Self>, read_options: &ReadOptions) -> &'a mut Self {
        let fits = slot.take().filter(|prepared| prepared.read_options == *read_options);
        slot.insert(fits.unwrap_or_else(|| Self {
            read_options: read_options.clone(),
            planner: Planner::new(&read_options.options()),
            unflattener: Unflattener::default(),
        }))
    }

    fn batch<'py>(&mut self, py: Python<'py>, draws: &mut Draws) -> PyResult<Bound<'py, PyAny>> {
        let plan = quick(py, || self.planner.plan_draws(draws))?;
        let mut arrays = room(py, &plan.outputs)?;
        gather(py, &plan, draws, &mut arrays)?;
        self.wrap(py, &Description::Plan(plan), draws, arrays)
    }

    fn wrap<'py>(
        &mut self,
        py: Python<'py>,
        description: &Description,
        draws: &mut Draws,
        arrays: Vec<NewArray<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arrays = arrays.into_iter().map(NewArray::done);
        let (structure, num_columns) = description.structure();
        let parts = assemble(py, &mut self.unflattener, structure, num_columns, description.outputs(), arrays)?;
        // The draws are taken last: if there is no memory for the batch, they are still there.
        let info = DrawInfo::empty(py)?;
        let batch = made(info.clone(), parts, draws.smallest_probability)?;
        DrawInfo::fill(&info, draws);
        Ok(batch)
    }
}

/// `Batch.data`, `.mask`, `.lengths`, `.is_first` and `.start`.
pub type Parts<'py> = [Bound<'py, PyAny>; 5];

/// Puts the arrays of a batch into their places.
pub fn assemble<'py>(
    py: Python<'py>,
    unflattener: &mut Unflattener,
    structure: &Structure,
    num_columns: usize,
    outputs: &[OutputArray],
    mut arrays: impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Parts<'py>> {
    let data = unflattener.unflatten(py, structure, &mut arrays.by_ref().take(num_columns))?;
    let none = || py.None().into_bound(py);
    let (mut mask, mut lengths, mut is_first, mut start) = (none(), none(), none(), none());
    for (output, array) in outputs[num_columns..].iter().zip(arrays) {
        let (target, column) = match output.role {
            Role::Mask(column) => (&mut mask, column),
            Role::Lengths(column) => (&mut lengths, column),
            Role::First => (&mut is_first, None),
            Role::Start => (&mut start, None),
            Role::Column => continue,
        };
        // One array if it applies to all columns, else one for each column's path.
        match column {
            None => *target = array,
            Some(column) => {
                if target.is_none() {
                    *target = PyDict::new(py).into_any();
                }
                target.set_item(&outputs[column].path, array)?;
            }
        }
    }
    Ok([data, mask, lengths, is_first, start])
}

/// The `reverie.Batch` made of its parts.
pub fn made<'py>(
    info: Bound<'py, PyAny>,
    parts: Parts<'py>,
    smallest_probability: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    static BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let [data, mask, lengths, is_first, start] = parts;
    let class = BATCH.import(info.py(), "reverie.types", "Batch")?;
    class.call1((info, data, mask, lengths, smallest_probability, is_first, start))
}

/// Memory for the arrays.
pub fn room<'py>(py: Python<'py>, outputs: &[OutputArray]) -> PyResult<Vec<NewArray<'py>>> {
    outputs.iter().map(|output| NewArray::new(py, output.dtype, output.itemsize, &output.shape)).collect()
}

/// Gathers the draws' items into arrays made for their plan.
pub fn gather(py: Python<'_>, plan: &Plan, draws: &Draws, arrays: &mut [NewArray<'_>]) -> PyResult<()> {
    let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(NewArray::bytes).collect();
    let bytes = out.iter().map(|out| out.len()).sum();
    reading_cells(py, &draws.items, bytes, || plan.gather_draws(draws, &mut out))
}

/// The `reverie.BatchInfo` of a batch: views of the memory in which it arrived.
fn infos<'py>(py: Python<'py>, lent: &LentBlock<'py>, batch: &Arrays) -> PyResult<Bound<'py, PyAny>> {
    const INFO: [DType; 7] = {
        use DType::{Float64, Int64};
        [Int64, Float64, Float64, Int64, Int64, Int64, Float64]
    };
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let mut info = Vec::with_capacity(INFO.len());
    for (dtype, bytes) in INFO.into_iter().zip(&batch.layout.info) {
        info.push(lent.array(dtype, 8, &[batch.num_draws], bytes.clone())?);
    }
    let [key, probability, priority, table_size, times_sampled, version, inserted_at] =
        <[_; 7]>::try_from(info).expect("seven arrays were made");
    CLASS.import(py, "reverie.types", "BatchInfo")?.call1((
        key,
        probability,
        priority,
        table_size,
        times_sampled,
        version,
        inserted_at,
    ))
}
