//! One batch of the draws of several servers.

use crate::uninit::as_uninit;
use reverie_core::batch::{
    Arrays, BatchOptions, Head, OutputArray, Plan, Planner, Ragged, join as join_outputs, place,
};
use reverie_core::item::Key;
use reverie_core::sample::{ArrayAllocator, ArrayMemory, Description, DrawnBatch, Draws, GatheredBatch};
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The options for reading batches; owns its paths.
#[derive(Clone, Debug)]
pub(super) struct ShardedReadOptions {
    pub(super) columns: Option<Vec<String>>,
    pub(super) ragged: Ragged,
    pub(super) allocate: ArrayAllocator,
}

impl ShardedReadOptions {
    pub(super) fn new(read_options: &BatchOptions<'_>, allocate: ArrayAllocator) -> Self {
        Self { columns: read_options.columns.map(<[String]>::to_vec), ragged: read_options.ragged, allocate }
    }

    pub(super) fn options(&self) -> BatchOptions<'_> {
        BatchOptions { ragged: self.ragged, columns: self.columns.as_deref() }
    }
}

/// The draws of one server, as a part of a batch.
pub(super) struct Part {
    pub(super) drawn: DrawnBatch,
    /// The number of draws that are used, from the first.
    pub(super) len: usize,
    /// The probability with which the server was chosen: it multiplies the draws' own.
    pub(super) chance: f64,
    /// The number of items at all servers.
    pub(super) size: u64,
    /// The smallest probability of any item at all servers.
    pub(super) smallest: Option<f64>,
}

impl Part {
    /// True if the arrays are the batch: no draw is left out, and no figure changes.
    fn is_whole(&self) -> bool {
        let has_all = self.drawn.tally().is_some_and(|tally| tally.size == self.size);
        matches!(self.drawn, DrawnBatch::Arrays(_)) && self.chance == 1.0 && self.len == self.drawn.len() && has_all
    }
}

/// One batch of the used draws, part after part.
///
/// Items of this process stay items, which the caller gathers. Arrays are copied into memory from `allocate`, except
/// those of a single part that has all items. Errors: `Ragged`, as of one batch, and `OutOfMemory`.
pub(super) fn joined(
    mut parts: Vec<Part>,
    read_options: &BatchOptions<'_>,
    allocate: ArrayAllocator,
) -> Result<DrawnBatch> {
    if parts.len() == 1 && parts[0].is_whole() {
        return Ok(parts.remove(0).drawn);
    }
    let least = parts.iter().map(|part| part.smallest).collect::<Option<Vec<_>>>();
    let smallest = least.and_then(|all| all.into_iter().reduce(f64::min));
    let stays = parts.iter().all(|part| matches!(part.drawn, DrawnBatch::Items(_)));
    let (mut all, mut pieces) = (Draws::default(), Vec::new());
    for Part { drawn, len, chance, size, .. } in parts {
        let (mut draws, piece) = PartArrays::of(drawn, len, read_options, stays)?;
        draws.probabilities.iter_mut().for_each(|probability| *probability *= chance);
        draws.table_sizes.fill(size);
        all.append(draws);
        pieces.extend(piece);
    }
    (all.tally, all.smallest_probability) = (None, smallest);
    if stays { Ok(DrawnBatch::Items(all)) } else { copied(&pieces, all, None, read_options.ragged, allocate) }
}

/// One batch of all draws, of which draw `n` of all parts goes to row `rows[n]`. The figures stay.
///
/// Errors: as [`joined`], and `InvalidArgument` for several parts with [`Ragged::Values`], which has no rows.
pub(super) fn merged(
    mut parts: Vec<DrawnBatch>,
    rows: &[usize],
    read_options: &BatchOptions<'_>,
    allocate: ArrayAllocator,
) -> Result<DrawnBatch> {
    // The rows of one server are in order.
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    if read_options.ragged == Ragged::Values {
        let reason = "ragged=\"values\" puts cells behind one another, which several shards cannot do together: pass \
                      ragged=\"pad\", or read each shard's keys with its own client";
        return Err(Error::InvalidArgument(reason.to_owned()));
    }
    let (mut all, mut pieces) = (Draws::default(), Vec::new());
    for drawn in parts {
        let len = drawn.len();
        let (draws, piece) = PartArrays::of(drawn, len, read_options, false)?;
        all.append(draws);
        pieces.extend(piece);
    }
    let mut draws = vec![0; rows.len()];
    rows.iter().enumerate().for_each(|(draw, row)| draws[*row] = draw);
    copied(&pieces, all.figures_of(&draws), Some(rows), read_options.ragged, allocate)
}

/// The probability of each draw among the items of its server.
pub(super) fn probabilities(drawn: &DrawnBatch) -> Vec<f64> {
    match drawn {
        DrawnBatch::Items(draws) => draws.probabilities.clone(),
        DrawnBatch::Gathered(batch) => batch.draws.probabilities.clone(),
        DrawnBatch::Arrays(arrays) => figures(arrays, arrays.num_draws).probabilities,
    }
}

/// The figures of the draws, without their items.
pub(super) fn figures_of(drawn: DrawnBatch) -> Draws {
    match drawn {
        DrawnBatch::Items(draws) => Draws { items: Vec::new(), ..draws },
        DrawnBatch::Gathered(batch) => batch.draws,
        DrawnBatch::Arrays(arrays) => figures(&arrays, arrays.num_draws),
    }
}

/// The figures of the first draws of a batch from a network.
fn figures(arrays: &Arrays, len: usize) -> Draws {
    // The arrays of numbers come first, one behind the other.
    let (rows, ends) = (arrays.num_draws, arrays.layout.info.last().map_or(0, |last| last.end));
    let all = arrays.block.copied(0..ends);
    let numbers = |index: usize| {
        let bytes = all[8 * rows * index..][..8 * len].chunks_exact(8);
        bytes.map(|bytes| <[u8; 8]>::try_from(bytes).expect("eight bytes"))
    };
    let floats = |index: usize| numbers(index).map(f64::from_le_bytes);
    let small = |index| numbers(index).map(|bytes| u32::try_from(u64::from_le_bytes(bytes)).unwrap_or(u32::MAX));
    Draws {
        keys: numbers(0).map(|bytes| Key::from(i64::from_le_bytes(bytes))).collect(),
        probabilities: floats(1).collect(),
        priorities: floats(2).collect(),
        table_sizes: numbers(3).map(u64::from_le_bytes).collect(),
        times_sampled: small(4).collect(),
        versions: small(5).collect(),
        inserted_at: floats(6).map(|seconds| (seconds * 1e9).round() as u64).collect(),
        smallest_probability: arrays.smallest_probability,
        tally: arrays.tally,
        ..Draws::default()
    }
}

/// The arrays of one part.
enum PartArrays {
    /// Gathered here, for a batch that arrays from a network are part of.
    Here { plan: Arc<Plan>, arrays: Vec<Vec<u8>>, one_step: bool },
    /// From a network, with the descriptions of the arrays of the used draws.
    There { arrays: Box<Arrays>, outputs: Vec<OutputArray> },
}

impl PartArrays {
    /// The figures of the used draws, and their arrays if there are draws. With `stays`, items stay in the draws.
    fn of(
        drawn: DrawnBatch,
        len: usize,
        read_options: &BatchOptions<'_>,
        stays: bool,
    ) -> Result<(Draws, Option<Self>)> {
        match drawn {
            DrawnBatch::Items(mut draws) => {
                drop(draws.split_off(len));
                if stays || draws.is_empty() {
                    return Ok((draws, None));
                }
                let one_step = draws.items[0].pattern.is_one_step();
                let plan = Planner::new(read_options).plan_draws(&draws)?;
                let mut arrays: Vec<_> = plan.outputs.iter().map(|output| vec![0; output.bytes()]).collect();
                let mut out: Vec<_> = arrays.iter_mut().map(|array| as_uninit(array)).collect();
                plan.gather_draws(&draws, &mut out)?;
                draws.items = Vec::new();
                Ok((draws, Some(Self::Here { plan, arrays, one_step })))
            }
            DrawnBatch::Arrays(arrays) => {
                let mut outputs = arrays.head.outputs.clone();
                if len < arrays.num_draws {
                    // Every output has a row for each draw: `Values`, which has none, leaves no draw out.
                    outputs.iter_mut().for_each(|output| output.shape[0] = len);
                }
                let draws = figures(&arrays, len);
                Ok((draws, (len > 0).then(|| Self::There { arrays: Box::new(arrays), outputs })))
            }
            DrawnBatch::Gathered(_) => Err(Error::Protocol("draws of one server are not gathered ahead".to_owned())),
        }
    }

    fn outputs(&self) -> &[OutputArray] {
        match self {
            Self::Here { plan, .. } => &plan.outputs,
            Self::There { outputs, .. } => outputs,
        }
    }

    fn head(&self, outputs: Vec<OutputArray>) -> Head {
        let (structure, num_columns, timestep) = match self {
            Self::Here { plan, one_step, .. } => (&plan.structure, plan.num_columns, *one_step),
            Self::There { arrays, .. } => (&arrays.head.structure, arrays.head.num_columns, arrays.head.timestep),
        };
        Head { structure: structure.clone(), num_columns, timestep, outputs }
    }

    /// Writes the used rows of an output into the whole array, from row `row` on or to the rows of `scattered`.
    fn write(
        &self,
        index: usize,
        whole: &OutputArray,
        out: &mut [MaybeUninit<u8>],
        row: usize,
        scattered: Option<&[usize]>,
    ) {
        let output = &self.outputs()[index];
        let alike = output.itemsize == whole.itemsize && output.shape[1..] == whole.shape[1..];
        if let (Self::There { arrays, .. }, true, None) = (self, alike, scattered) {
            let stride = whole.bytes() / whole.shape[0].max(1);
            let out = &mut out[row * stride..][..output.bytes()];
            return arrays.block.copy_to(arrays.layout.outputs[index].start, out);
        }
        let bytes = match self {
            Self::Here { arrays, .. } => arrays[index].clone(),
            Self::There { arrays, .. } => {
                let start = arrays.layout.outputs[index].start;
                arrays.block.copied(start..start + output.bytes())
            }
        };
        let Some(rows) = scattered else {
            place(out, whole, row, output, &bytes);
            return;
        };
        let mut one = output.clone();
        one.shape[0] = 1;
        for (bytes, row) in bytes.chunks_exact(one.bytes().max(1)).zip(rows) {
            place(out, whole, *row, &one, bytes);
        }
    }
}

/// Copies the pieces into one batch, one after the other, or draw `n` to row `rows[n]`.
fn copied(
    pieces: &[PartArrays],
    draws: Draws,
    rows: Option<&[usize]>,
    ragged: Ragged,
    allocate: ArrayAllocator,
) -> Result<DrawnBatch> {
    let of_pieces: Vec<&[OutputArray]> = pieces.iter().map(PartArrays::outputs).collect();
    let outputs = join_outputs(&of_pieces, ragged)?;
    let mut arrays: Vec<Box<dyn ArrayMemory>> = Vec::with_capacity(outputs.len());
    for (index, whole) in outputs.iter().enumerate() {
        let needed = whole.bytes();
        let mut memory = allocate(needed).ok_or(Error::OutOfMemory { needed: needed as u64 })?;
        let (out, mut row) = (memory.bytes(needed), 0);
        for piece in pieces {
            let count = piece.outputs()[index].shape[0];
            piece.write(index, whole, out, row, rows.map(|rows| &rows[row..row + count]));
            row += count;
        }
        arrays.push(memory);
    }
    let head = match pieces.first() {
        Some(piece) => piece.head(outputs),
        None => return Ok(DrawnBatch::Items(draws)),
    };
    Ok(DrawnBatch::Gathered(GatheredBatch { draws, description: Description::Head(head), arrays }))
}
