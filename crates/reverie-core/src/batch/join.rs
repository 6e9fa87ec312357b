//! Joins the batches of several servers: the shapes of the arrays, and the rows of each part.

use super::output::{OutputArray, Ragged, Role};
use crate::chunk::fill;
use crate::error::{Error, Result};
use std::mem::MaybeUninit;

/// The concatenated arrays of several batches; `parts` has the outputs of each.
///
/// They may differ in their rows, in the width of text, and, with `Pad`, in the longest item. `Ragged` if they differ
/// in anything else.
pub fn join(parts: &[&[OutputArray]], ragged: Ragged) -> Result<Vec<OutputArray>> {
    let Some((first, others)) = parts.split_first() else { return Ok(Vec::new()) };
    let mut whole = first.to_vec();
    for part in others {
        if part.len() != whole.len() {
            return Err(differ("the data", "different columns, or columns of different lengths"));
        }
        for (whole, part) in whole.iter_mut().zip(*part) {
            if (&whole.path, whole.dtype, whole.role, whole.shape.len())
                != (&part.path, part.dtype, part.role, part.shape.len())
            {
                return Err(differ(&whole.path, "other columns or dtypes"));
            }
            whole.itemsize = whole.itemsize.max(part.itemsize);
            whole.shape[0] += part.shape[0];
            for axis in 1..part.shape.len() {
                let (here, there) = (whole.shape[axis], part.shape[axis]);
                // The lengths of cells that differ in size have an axis of steps, of which an item may have fewer.
                let may_differ =
                    matches!(ragged, Ragged::Pad | Ragged::PadCells) || matches!(whole.role, Role::Lengths(_));
                if here != there && !may_differ {
                    let reason = format!("items of {here} and of {there} cells; ask for ragged=\"pad\" or \"values\"");
                    return Err(differ(&whole.path, &reason));
                }
                whole.shape[axis] = here.max(there);
            }
        }
    }
    Ok(whole)
}

#[cold]
fn differ(path: &str, what: &str) -> Error {
    Error::Ragged { path: path.to_owned(), reason: format!("the shards have {what}") }
}

/// Writes the rows of a part, whose bytes are given, into the whole array from row `row` on; returns the next row.
///
/// The rest of shorter items and of narrower text becomes zero.
pub fn place(out: &mut [MaybeUninit<u8>], whole: &OutputArray, row: usize, part: &OutputArray, bytes: &[u8]) -> usize {
    let (rows, stride) = (part.shape[0], whole.bytes() / whole.shape[0].max(1));
    let out = &mut out[row * stride..(row + rows) * stride];
    if part.itemsize == whole.itemsize && part.shape[1..] == whole.shape[1..] {
        fill(out, bytes);
    } else {
        out.fill(MaybeUninit::new(0));
        widen(out, (&whole.shape[1..], whole.itemsize), bytes, (&part.shape[1..], part.itemsize), rows);
    }
    row + rows
}

/// Copies `rows` cells of one shape and element width into cells of another that is nowhere smaller.
fn widen(
    out: &mut [MaybeUninit<u8>],
    (to, to_width): (&[usize], usize),
    bytes: &[u8],
    (from, from_width): (&[usize], usize),
    rows: usize,
) {
    let to_stride = to.iter().product::<usize>() * to_width;
    let from_stride = from.iter().product::<usize>() * from_width;
    for row in 0..rows {
        let (out, bytes) = (&mut out[row * to_stride..][..to_stride], &bytes[row * from_stride..][..from_stride]);
        match (to.split_first(), from.split_first()) {
            (Some((_, to)), Some((cells, from))) => widen(out, (to, to_width), bytes, (from, from_width), *cells),
            _ => _ = fill(&mut out[..from_width], bytes),
        }
    }
}
