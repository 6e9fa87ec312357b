//! One batch made of the draws of several shards.

use super::ShardDraws;
use crate::array::Fresh;
use crate::enter::{copying, quick};
use crate::info::DrawInfo;
use crate::nest::Unflattener;
use crate::remote::Wrapper;
use crate::sampler::{Batcher, Reading, assemble, gather, made, room};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use reverie_core::batch::{Output, Plan, join, place};
use reverie_core::item::Key;
use reverie_core::sample::Draws;
use reverie_core::spec::Structure;
use reverie_net::client::RemoteBatch;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

/// Draws of one shard, gathered or not.
pub(super) enum Source {
    /// From a table of this process: the items.
    Here(Draws),
    /// From another process: the arrays.
    There(RemoteBatch),
}

impl Source {
    pub(super) fn len(&self) -> usize {
        match self {
            Source::Here(draws) => draws.len(),
            Source::There(batch) => batch.num_draws,
        }
    }

    /// The probability of each draw among the items of its shard.
    pub(super) fn probabilities(&self) -> Vec<f64> {
        match self {
            Source::Here(draws) => draws.probabilities.clone(),
            Source::There(batch) => told(batch, batch.num_draws).probabilities,
        }
    }
}

/// The `reverie.Batch`. Items of this process are gathered into it; arrays from a network are copied once more.
pub(super) fn whole<'py>(
    py: Python<'py>,
    (batcher, wrapper): (&Batcher, &Wrapper),
    drawn: &[Bound<'py, ShardDraws>],
    reading: &Reading,
) -> PyResult<Bound<'py, PyAny>> {
    let mut sources = Vec::with_capacity(drawn.len());
    for part in drawn {
        let source = part.get().source.lock().unwrap_or_else(PoisonError::into_inner).take();
        sources.push(source.ok_or_else(|| PyValueError::new_err("these draws were gathered already"))?);
    }
    // All draws are from one shard that has all items: a view of the memory in which they arrived.
    if let ([Source::There(batch)], [part]) = (&sources[..], drawn) {
        let ShardDraws { len, chance, size, .. } = part.get();
        let has_all = batch.tally.is_some_and(|tally| tally.size == *size);
        if *chance == 1.0 && *len == batch.num_draws && has_all {
            return wrapper.batch(py, batch);
        }
    }
    let mut all = Draws::default();
    let here = sources.iter().all(|source| matches!(source, Source::Here(_)));
    let mut arrays = Vec::new();
    for (source, part) in sources.into_iter().zip(drawn) {
        let mut draws = match source {
            Source::Here(mut draws) if here => {
                drop(draws.split_off(part.get().len));
                draws
            }
            Source::Here(mut draws) => {
                drop(draws.split_off(part.get().len));
                arrays.push(Arrays::here(py, &draws, reading)?);
                draws.items = Vec::new();
                draws
            }
            Source::There(batch) => {
                let draws = told(&batch, part.get().len);
                arrays.push(Arrays::there(batch, part.get().len));
                draws
            }
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
    if here { batcher.batch(py, &mut all, reading) } else { joined(py, &arrays, all, reading) }
}

/// The metadata of the first draws of a batch from a network; without items.
fn told(batch: &RemoteBatch, len: usize) -> Draws {
    let numbers = |index: usize| {
        let bytes = Fresh::arrived(&batch.block, batch.layout.info[index].clone());
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
enum Arrays<'py> {
    Here(Arc<Plan>, Vec<Fresh<'py>>),
    /// With the descriptions of the arrays of the first draws.
    There(Box<RemoteBatch>, Vec<Output>),
}

impl<'py> Arrays<'py> {
    /// The first draws of a batch; fewer than all only if every output has a row for each draw.
    fn there(batch: RemoteBatch, len: usize) -> Self {
        let mut outputs = batch.head.outputs.clone();
        if len < batch.num_draws {
            outputs.iter_mut().for_each(|output| output.shape[0] = len);
        }
        Self::There(Box::new(batch), outputs)
    }

    /// Gathers items of this process apart, for a batch that other shards' arrays are part of.
    fn here(py: Python<'py>, draws: &Draws, reading: &Reading) -> PyResult<Self> {
        let plan = quick(py, || reading.planner().plan_draws(draws))?;
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
                let all = Fresh::arrived(&batch.block, batch.layout.outputs[output].clone());
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
    parts: &[Arrays<'py>],
    mut draws: Draws,
    reading: &Reading,
) -> PyResult<Bound<'py, PyAny>> {
    let of_parts: Vec<&[Output]> = parts.iter().map(Arrays::outputs).collect();
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
