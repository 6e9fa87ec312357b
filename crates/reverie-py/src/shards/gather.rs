//! One batch made of the draws of several shards.

use super::ShardDraws;
use crate::array::Fresh;
use crate::batch::{Batcher, assemble, gather, made, room};
use crate::enter::{copying, quick};
use crate::info::DrawInfo;
use crate::nest::Unflattener;
use crate::reading::Reading;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::batch::{Arrays, Output, Plan, Planner, join, place};
use reverie_core::item::Key;
use reverie_core::sample::{Drawn, Draws};
use reverie_core::spec::Structure;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

/// The probability of each draw among the items of its shard.
pub(super) fn probabilities(drawn: &Drawn) -> Vec<f64> {
    match drawn {
        Drawn::Items(draws) => draws.probabilities.clone(),
        Drawn::Gathered(batch) => batch.draws.probabilities.clone(),
        Drawn::Arrays(arrays) => told(arrays, arrays.num_draws).probabilities,
    }
}

/// The `reverie.Batch`. Items of this process are gathered into it; arrays from a network are copied once more.
pub(super) fn whole<'py>(
    py: Python<'py>,
    batcher: &Batcher,
    drawn: &[Bound<'py, ShardDraws>],
    reading: &Reading,
) -> PyResult<Bound<'py, PyAny>> {
    let mut sources = Vec::with_capacity(drawn.len());
    for part in drawn {
        let source = part.get().source.lock().unwrap_or_else(PoisonError::into_inner).take();
        sources.push(source.ok_or_else(|| PyValueError::new_err("these draws were gathered already"))?);
    }
    // All draws are from one shard that has all items: a view of the memory in which they arrived.
    if let ([source @ Drawn::Arrays(_)], [part]) = (&mut sources[..], drawn) {
        let ShardDraws { len, chance, size, .. } = part.get();
        let has_all = source.tally().is_some_and(|tally| tally.size == *size);
        if *chance == 1.0 && *len == source.len() && has_all {
            return batcher.batch(py, source, reading);
        }
    }
    let mut all = Draws::default();
    let here = sources.iter().all(|source| matches!(source, Drawn::Items(_)));
    let mut arrays = Vec::new();
    for (source, part) in sources.into_iter().zip(drawn) {
        let mut draws = match source {
            Drawn::Items(mut draws) if here => {
                drop(draws.split_off(part.get().len));
                draws
            }
            Drawn::Items(mut draws) => {
                drop(draws.split_off(part.get().len));
                arrays.push(Parts::here(py, &draws, reading)?);
                draws.items = Vec::new();
                draws
            }
            Drawn::Arrays(batch) => {
                let draws = told(&batch, part.get().len);
                arrays.push(Parts::there(batch, part.get().len));
                draws
            }
            Drawn::Gathered(_) => return Err(PyValueError::new_err("the draws of a shard are not made ahead")),
        };
        let ShardDraws { chance, size, .. } = part.get();
        draws.probabilities.iter_mut().for_each(|probability| *probability *= chance);
        draws.table_sizes.fill(*size);
        all.append(draws);
    }
    all.tally = None;
    all.smallest_probability = drawn
        .iter()
        .map(|part| part.get().smallest)
        .collect::<Option<Vec<_>>>()
        .and_then(|all| all.into_iter().reduce(f64::min));
    if here { batcher.batch(py, &mut Drawn::Items(all), reading) } else { joined(py, &arrays, all, reading) }
}

/// The metadata of the first draws of a batch from a network; without items.
fn told(batch: &Arrays, len: usize) -> Draws {
    let numbers = |index: usize| {
        let bytes = Fresh::arrived(&*batch.block, batch.layout.info[index].clone());
        bytes.chunks_exact(8).take(len).map(|bytes| <[u8; 8]>::try_from(bytes).expect("eight bytes"))
    };
    Draws {
        keys: numbers(0).map(|bytes| Key::from(i64::from_le_bytes(bytes))).collect(),
        items: Vec::new(),
        probabilities: numbers(1).map(f64::from_le_bytes).collect(),
        priorities: numbers(2).map(f64::from_le_bytes).collect(),
        table_sizes: numbers(3).map(u64::from_le_bytes).collect(),
        times_sampled: numbers(4).map(|bytes| u32::try_from(u64::from_le_bytes(bytes)).unwrap_or(u32::MAX)).collect(),
        versions: numbers(5).map(|bytes| u32::try_from(u64::from_le_bytes(bytes)).unwrap_or(u32::MAX)).collect(),
        inserted_at: numbers(6).map(|bytes| (f64::from_le_bytes(bytes) * 1e9).round() as u64).collect(),
        smallest_probability: batch.smallest_probability,
        tally: batch.tally,
        ..Draws::default()
    }
}

/// The arrays of one shard's draws.
enum Parts<'py> {
    Here(Arc<Plan>, Vec<Fresh<'py>>),
    /// With the descriptions of the arrays of the first draws.
    There(Box<Arrays>, Vec<Output>),
}

impl<'py> Parts<'py> {
    /// The first draws of a batch; fewer than all only if every output has a row for each draw.
    fn there(batch: Arrays, len: usize) -> Self {
        let mut outputs = batch.head.outputs.clone();
        if len < batch.num_draws {
            outputs.iter_mut().for_each(|output| output.shape[0] = len);
        }
        Self::There(Box::new(batch), outputs)
    }

    /// Gathers items of this process apart, for a batch that other shards' arrays are part of.
    fn here(py: Python<'py>, draws: &Draws, reading: &Reading) -> PyResult<Self> {
        let plan = quick(py, || Planner::new(&reading.options()).plan_draws(draws))?;
        let mut arrays = room(py, &plan.outputs)?;
        gather(py, &plan, draws, &mut arrays)?;
        Ok(Self::Here(plan, arrays))
    }

    fn outputs(&self) -> &[Output] {
        match self {
            Self::Here(plan, _) => &plan.outputs,
            Self::There(_, outputs) => outputs,
        }
    }

    fn structure(&self) -> (&Structure, usize) {
        match self {
            Self::Here(plan, _) => (&plan.structure, plan.num_columns),
            Self::There(batch, _) => (&batch.head.structure, batch.head.num_columns),
        }
    }

    fn bytes(&self, output: usize) -> &[u8] {
        match self {
            Self::Here(_, arrays) => arrays[output].written(),
            Self::There(batch, outputs) => {
                let all = Fresh::arrived(&*batch.block, batch.layout.outputs[output].clone());
                let (rows, of) = (outputs[output].shape.first(), batch.head.outputs[output].shape.first());
                match (rows, of) {
                    (Some(rows), Some(of)) if rows < of => &all[..all.len() / of * rows],
                    _ => all,
                }
            }
        }
    }
}

fn joined<'py>(
    py: Python<'py>,
    parts: &[Parts<'py>],
    mut draws: Draws,
    reading: &Reading,
) -> PyResult<Bound<'py, PyAny>> {
    let of_parts: Vec<&[Output]> = parts.iter().map(Parts::outputs).collect();
    let outputs = quick(py, || join(&of_parts, reading.ragged))?;
    let mut arrays = room(py, &outputs)?;
    let from: Vec<Vec<&[u8]>> =
        parts.iter().map(|part| (0..outputs.len()).map(|output| part.bytes(output)).collect()).collect();
    let mut out: Vec<&mut [MaybeUninit<u8>]> = arrays.iter_mut().map(Fresh::bytes).collect();
    let bytes = out.iter().map(|out| out.len()).sum();
    copying(py, bytes, || {
        for (index, (out, whole)) in out.iter_mut().zip(&outputs).enumerate() {
            let mut row = 0;
            for (from, of_part) in from.iter().zip(&of_parts) {
                row = place(out, whole, row, &of_part[index], from[index]);
            }
        }
        Ok(())
    })?;
    let smallest = draws.smallest_probability;
    let (structure, num_columns) = parts[0].structure();
    let arrays = arrays.into_iter().map(Fresh::done);
    let parts = assemble(py, &mut Unflattener::default(), structure, num_columns, &outputs, arrays)?;
    made(DrawInfo::of(py, &mut draws)?, parts, smallest)
}
