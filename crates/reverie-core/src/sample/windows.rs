//! Windows: parts of a fixed length of items with a time axis, chosen when the item is drawn.

use crate::error::{CountedNoun, Error, Result};
use crate::item::{Body, Cells, Item, Pattern, PatternColumn};
use smallvec::SmallVec;

/// The most steps of a window: more is a mistake.
pub const MAX_WINDOW: u64 = 1 << 24;

/// The handling of windows that are longer than the rest of their item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Borders {
    /// Windows lie within their item; shorter items have no window.
    Drop,
    /// The part to learn from begins anywhere in the item; missing steps are zeros, and masked.
    Pad,
    /// Windows begin anywhere in the item and continue in later items of the same stream of steps.
    Cross,
}

/// The windows that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    length: u32,
    burn_in: u32,
    borders: Borders,
    once: bool,
}

impl Windows {
    /// Windows of `burn_in` steps and `length` more. Refuses a length of 0, and more than [`MAX_WINDOW`] steps.
    pub fn new(length: u64, burn_in: u64, borders: Borders) -> Result<Self> {
        if length == 0 {
            return Err(Error::InvalidArgument("length must be at least 1, got 0".to_owned()));
        }
        match length.checked_add(burn_in) {
            Some(steps) if steps <= MAX_WINDOW => {
                Ok(Self { length: length as u32, burn_in: burn_in as u32, borders, once: false })
            }
            _ => Err(Error::InvalidArgument(format!(
                "length and burn_in must be at most {MAX_WINDOW} steps together, got {length} and {burn_in}"
            ))),
        }
    }

    /// These windows, without a replacement for a draw of an item that is too short for one.
    ///
    /// The request then returns fewer draws, and a client that draws from several tables replaces them from any table.
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// True if [`Windows::once`] made it.
    pub fn is_once(&self) -> bool {
        self.once
    }

    /// All steps of a window.
    pub fn steps(&self) -> usize {
        self.length as usize + self.burn_in as usize
    }

    /// The number of steps to learn from, the last ones.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The number of steps before them.
    pub fn burn_in(&self) -> u32 {
        self.burn_in
    }

    /// The handling of windows that are longer than the rest of their item.
    pub fn borders(&self) -> Borders {
        self.borders
    }
}

/// The position of one draw's window.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// The step of the drawn item at which it begins; below 0 if it begins with padding.
    pub start: i64,
    /// The later items in which it continues, and the first step of each.
    pub behind: SmallVec<[(Item, u32); 1]>,
}

/// Consecutive steps of one item in a window.
pub(crate) struct Segment {
    /// The window's number.
    pub(crate) row: usize,
    /// The step of the window at which they begin.
    pub(crate) at: usize,
    /// The number of steps.
    pub(crate) len: usize,
    /// True if an episode begins with them.
    pub(crate) begins: bool,
    /// An item of only these steps; columns without a time axis are unchanged.
    pub(crate) item: Item,
}

/// The number of steps of an item: that of each of its columns with a time axis.
///
/// `None` if they differ, if there is no such column, or if the time axis is not the first, as with stacked frames.
pub(crate) fn num_steps(pattern: &Pattern) -> Option<usize> {
    let mut steps = None;
    for column in pattern.columns.iter().filter(|column| !column.squeeze) {
        let len = column.cells.len();
        if column.stack_axis != 0 || *steps.get_or_insert(len) != len {
            return None;
        }
    }
    steps.filter(|steps| *steps > 0)
}

/// True if windows can continue from one item in the other.
pub(crate) fn same_columns(left: &Item, right: &Item) -> bool {
    let alike = |(left, right): (&PatternColumn, &PatternColumn)| {
        left.spec == right.spec && (left.squeeze, left.stack_axis) == (right.squeeze, right.stack_axis)
    };
    let (left, right) = (&left.pattern, &right.pattern);
    left.same(right)
        || (left.structure == right.structure
            && left.columns.len() == right.columns.len()
            && left.columns.iter().zip(&right.columns).all(alike))
}

/// The number of `right`'s first steps that are also in `left`: sequences may overlap. Both have steps.
pub(crate) fn overlap(left: &Item, right: &Item) -> usize {
    let timed = |item: &Item| item.pattern.columns.iter().position(|column| !column.squeeze);
    let (Some(index), true) = (timed(left), same_columns(left, right)) else { return 0 };
    let (of_left, of_right) = (&left.pattern.columns[index], &right.pattern.columns[index]);
    let last = of_left.cells.get(of_left.cells.len() - 1);
    let Some((chunk, cell)) = left.locate(of_left.part, last) else { return 0 };
    let position = match &right.body {
        Body::Chunk(other) => std::sync::Arc::ptr_eq(other, chunk).then_some(cell as i64),
        Body::Span(parts) => parts.get(of_right.part as usize).and_then(|part| {
            let at = part.chunks.iter().position(|other| std::sync::Arc::ptr_eq(other, chunk))?;
            Some(part.starts[at] + cell as i64)
        }),
    };
    let relative = position.map(|position| position - i64::from(right.anchor));
    relative.and_then(|relative| of_right.cells.iter().position(|cell| cell == relative)).map_or(0, |at| at + 1)
}

/// The item with `len` of its steps, starting at `first`. The form is the same for all `first` if the columns allow it.
fn part_of(item: &Item, first: usize, len: usize) -> Item {
    let plain = |column: &PatternColumn| matches!(column.cells, Cells::Range { step: 1, .. }) && !column.squeeze;
    // If every cell moves by the same amount, the anchor moves instead: windows of one length then share a form.
    let moves = item.pattern.columns.iter().all(plain);
    let column = |column: &PatternColumn| {
        let cells = match &column.cells {
            cells if column.squeeze => cells.clone(),
            Cells::Range { start, step, .. } => {
                let start = if moves { *start } else { start + step * first as i32 };
                Cells::Range { start, step: *step, len: len as u32 }
            }
            Cells::List(list) => Cells::List(list[first..first + len].into()),
        };
        PatternColumn { cells, ..column.clone() }
    };
    let whole = num_steps(&item.pattern) == Some(len);
    let pattern = match whole {
        true => item.pattern.clone(),
        false => crate::item::Form::new(Pattern {
            columns: item.pattern.columns.iter().map(column).collect(),
            structure: item.pattern.structure.clone(),
            timestep: item.pattern.timestep,
            alike: item.pattern.alike,
        }),
    };
    let anchor = if moves { item.anchor + first as u32 } else { item.anchor };
    Item { pattern, anchor, ..item.clone() }
}

/// The segments of all windows, row by row and in the order of their steps.
///
/// Fails with `Ragged` for an item whose columns have no common time axis.
pub(crate) fn segments(items: &[Item], windows: &[Window], wanted: &Windows) -> Result<Vec<Segment>> {
    let mut all = Vec::with_capacity(items.len());
    for (row, (item, window)) in items.iter().zip(windows).enumerate() {
        let n = num_steps(&item.pattern).ok_or_else(|| no_time_axis(&item.pattern))?;
        let first = window.start.max(0) as usize;
        let mut at = (first as i64 - window.start) as usize;
        let mut add = |item: &Item, first: usize, n: usize, begins: bool, at: &mut usize| {
            let len = n.saturating_sub(first).min(wanted.steps().saturating_sub(*at));
            if len > 0 {
                all.push(Segment { row, at: *at, len, begins, item: part_of(item, first, len) });
                *at += len;
            }
        };
        add(item, first, n, true, &mut at);
        let mut episode = item.episode;
        for (behind, first) in &window.behind {
            let n = num_steps(&behind.pattern).ok_or_else(|| no_time_axis(&behind.pattern))?;
            add(behind, *first as usize, n, behind.episode != episode, &mut at);
            episode = behind.episode;
        }
    }
    Ok(all)
}

fn no_time_axis(pattern: &Pattern) -> Error {
    let column = |column: &PatternColumn| match column.squeeze {
        true => format!("'{}' has none", column.spec.path),
        false if column.stack_axis != 0 => format!("'{}' has it behind other axes", column.spec.path),
        false => format!("'{}' has {}", column.spec.path, CountedNoun(column.cells.len() as u64, "step")),
    };
    let columns = pattern.columns.iter().map(column).collect::<Vec<_>>().join(", ");
    let reason =
        format!("windows need items whose columns have one time axis ({columns}); write whole episodes or sequences");
    Error::Ragged { path: String::new(), reason }
}
