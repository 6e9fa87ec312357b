//! The plan of a batch: every decision and every refusal.

use super::output::{BatchOptions, OutputArray, Ragged, Role, missing};
use super::select::select;
use super::sizes::{Sizes, is_variable, named};
use crate::error::{Error, Result};
use crate::item::{Form, Item, Pattern, PatternColumn};
use crate::spec::{ColumnSpec, DType, Structure};
use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::sync::Arc;

/// The plan of a batch: the arrays to allocate and their meaning.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The arrays: first the columns in the structure's order, then masks or lengths.
    pub outputs: Vec<OutputArray>,
    /// The items' structure without the columns that are not read.
    ///
    /// A list, tuple or record that is only partly read becomes a dictionary by index or field name.
    pub structure: Structure,
    /// The number of outputs that are columns.
    pub num_columns: usize,
    pub(super) batch: usize,
    pub(super) columns: Vec<Column>,
    /// The column whose cells are counted, for each output after the columns.
    pub(super) counted: Vec<usize>,
    /// The pattern that all items share; `None` if they have several.
    pub(super) pattern: Option<Form>,
    /// The arrays of a batch of as many items of that pattern are the same.
    pub(super) reusable: bool,
}

/// The layout of one column's cells.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The column of the pattern.
    pub(super) source: usize,
    pub(super) kind: OutputKind,
    /// Elements of a cell.
    pub(super) elements: usize,
    /// Bytes of an element in the batch.
    pub(super) itemsize: usize,
    /// The product of the cell's axes before the axis that counts cells.
    pub(super) outer: usize,
    /// The size of the axis that counts cells; 1 if there is none. Meaningless for values.
    pub(super) steps: usize,
    /// The first cell of each item, then the end of the last; only for values.
    pub(super) starts: Vec<usize>,
    /// The sizes of the cells, if they differ.
    pub(super) sizes: Option<Arc<Sizes>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputKind {
    Squeezed,
    Dense,
    Padded,
    Values,
}

impl Column {
    /// Bytes of a cell in the batch.
    pub(super) fn cell_bytes(&self) -> usize {
        self.elements * self.itemsize
    }

    /// The byte range of an item's cells.
    pub(super) fn range(&self, item: usize) -> std::ops::Range<usize> {
        let (first, end) = match self.kind {
            OutputKind::Values => (self.starts[item], self.starts[item + 1]),
            _ => (item * self.steps, (item + 1) * self.steps),
        };
        first * self.cell_bytes()..end * self.cell_bytes()
    }
}

impl Plan {
    /// A plan for no items, without arrays, for callers that want only the draws' figures.
    pub fn nothing() -> Self {
        Self {
            outputs: Vec::new(),
            structure: Structure::Tuple(Vec::new()),
            num_columns: 0,
            batch: 0,
            columns: Vec::new(),
            counted: Vec::new(),
            pattern: None,
            reusable: false,
        }
    }

    pub(super) fn serves<T: Borrow<Item>>(&self, items: &[T]) -> bool {
        self.reusable
            && self.batch == items.len()
            && self.pattern.as_ref().is_some_and(|pattern| shared(pattern, items))
    }
}

fn shared<T: Borrow<Item>>(pattern: &Form, items: &[T]) -> bool {
    items.iter().all(|item| item.borrow().pattern.same(pattern))
}

/// Decides how the items become a batch. Reads no cell; chunks are read only for the widths of bytes and str.
///
/// `InvalidArgument`: no items, or a path in `columns` that they do not have. `Ragged`: items with different columns,
/// or unequal lengths with [`Ragged::Refuse`]. `Signature`: a column whose dtype or cell shape differs among items.
pub fn plan<T: Borrow<Item>>(items: &[T], options: &BatchOptions<'_>) -> Result<Plan> {
    let Some(first) = items.first() else {
        return Err(Error::InvalidArgument("a batch of no items has no columns; ask for at least one".to_owned()));
    };
    let pattern = &first.borrow().pattern;
    let (sources, structure) = match options.columns {
        None => ((0..pattern.columns.len()).collect(), pattern.structure.clone()),
        Some(paths) => {
            let known = pattern.columns.iter().map(|column| column.spec.path.as_str()).collect::<Vec<_>>();
            select(&pattern.structure, &known, paths)?
        }
    };
    let patterns = distinct(items);
    for other in &patterns {
        check_alike(pattern, other, &sources)?;
    }
    let one = patterns.len() == 1;
    // The width of bytes and str, and the size of some cells, differ from batch to batch.
    let fixed =
        |source: &usize| pattern.columns[*source].spec.row_bytes().is_some() && !is_variable(&patterns, *source);
    let reusable = one && sources.iter().all(fixed);
    let mut plan = Plan {
        outputs: Vec::with_capacity(sources.len() + 1),
        structure,
        num_columns: sources.len(),
        batch: items.len(),
        columns: Vec::with_capacity(sources.len()),
        counted: Vec::new(),
        pattern: one.then(|| pattern.clone()),
        reusable,
    };
    for source in sources {
        let (column, output) = plan_column(items, source, &patterns, options.ragged)?;
        plan.columns.push(column);
        plan.outputs.push(output);
    }
    plan.add_lengths(&patterns, options.ragged);
    Ok(plan)
}

/// The patterns of the items, each once, the first item's first.
fn distinct<T: Borrow<Item>>(items: &[T]) -> Vec<&Pattern> {
    let first = &items[0].borrow().pattern;
    if shared(first, items) {
        return vec![first];
    }
    let mut seen = HashSet::new();
    items
        .iter()
        .map(|item| &item.borrow().pattern)
        .filter(|pattern| seen.insert(std::ptr::from_ref::<Pattern>(pattern)))
        .map(|pattern| &**pattern)
        .collect()
}

pub(super) fn check_alike(first: &Pattern, other: &Pattern, sources: &[usize]) -> Result<()> {
    if std::ptr::eq(first, other) {
        return check_axes(other, sources);
    }
    let paths = |pattern: &Pattern| {
        let paths = pattern.columns.iter().map(|column| format!("'{}'", column.spec.path)).collect::<Vec<_>>();
        paths.join(", ")
    };
    if first.structure != other.structure || first.columns.len() != other.columns.len() {
        let reason = format!(
            "items of one batch need the same columns in the same structure, some have {} and some {}",
            paths(first),
            paths(other)
        );
        return Err(Error::Ragged { path: String::new(), reason });
    }
    for (want, got) in sources.iter().map(|source| (&first.columns[*source], &other.columns[*source])) {
        let open = want.spec.is_variable() || got.spec.is_variable();
        if want.spec != got.spec && !(open && want.spec.is_alike(&got.spec)) {
            return Err(Error::Signature {
                path: want.spec.path.clone(),
                got: describe(&got.spec),
                want: format!("{}, as in the first item of the batch{}", describe(&want.spec), advice(want, got)),
            });
        }
        if (want.squeeze, want.stack_axis) != (got.squeeze, got.stack_axis) {
            let axis = |column: &PatternColumn| match column.squeeze {
                true => "no time axis".to_owned(),
                false => format!("a time axis at {}", column.stack_axis),
            };
            let (want_axis, got_axis) = (axis(want), axis(got));
            let reason = format!(
                "some items of the batch have {want_axis}, some {got_axis}; keep items of the one kind in a table of \
                 their own, or read the others by columns="
            );
            return Err(Error::Ragged { path: want.spec.path.clone(), reason });
        }
    }
    check_axes(other, sources)
}

fn check_axes(pattern: &Pattern, sources: &[usize]) -> Result<()> {
    for column in sources.iter().map(|source| &pattern.columns[*source]) {
        let (path, cells, axes) = (&column.spec.path, column.cells.len(), column.spec.shape.len());
        if column.squeeze && cells != 1 {
            let reason = format!("a column without a time axis has one cell, this one has {cells}");
            return Err(Error::Ragged { path: path.clone(), reason });
        }
        if !column.squeeze && usize::from(column.stack_axis) > axes {
            let reason = format!("stack_axis is {}, and the cell has {axes} axes", column.stack_axis);
            return Err(Error::Ragged { path: path.clone(), reason });
        }
    }
    Ok(())
}

fn describe(spec: &ColumnSpec) -> String {
    format!("{}{}", spec.dtype, spec.shape_text())
}

fn advice(want: &PatternColumn, got: &PatternColumn) -> &'static str {
    match want.spec.is_alike(&got.spec) && want.spec.row_bytes().is_some() {
        true => "; a table's signature with None as the first size takes cells of any size, for batches with ragged=",
        false => "",
    }
}

fn plan_column<T: Borrow<Item>>(
    items: &[T],
    source: usize,
    patterns: &[&Pattern],
    ragged: Ragged,
) -> Result<(Column, OutputArray)> {
    let PatternColumn { spec, squeeze, stack_axis, .. } = &patterns[0].columns[source];
    let axis = usize::from(*stack_axis);
    let length = |pattern: &Pattern| pattern.columns[source].cells.len();
    let longest = patterns.iter().map(|pattern| length(pattern)).max().unwrap_or(0);
    let equal = patterns.iter().all(|pattern| length(pattern) == longest);
    let mut spec = Cow::Borrowed(spec);
    if is_variable(patterns, source) {
        let sizes = Sizes::of(items, source, longest, ragged)?;
        match sizes.common().filter(|_| ragged == Ragged::Refuse) {
            Some(size) => spec.to_mut().shape[0] = size,
            None if ragged == Ragged::Refuse => return Err(sizes.refused(&spec.path)),
            None => return plan_variable(&patterns[0].columns[source], source, longest, sizes),
        }
    }
    let spec = &*spec;
    let kind = match ragged {
        _ if *squeeze => OutputKind::Squeezed,
        Ragged::Values if axis == 0 => OutputKind::Values,
        _ if equal => OutputKind::Dense,
        Ragged::Pad => OutputKind::Padded,
        Ragged::Refuse | Ragged::Values | Ragged::PadCells => {
            return Err(unequal(&spec.path, patterns, source, ragged));
        }
    };
    let mut starts = Vec::new();
    if kind == OutputKind::Values {
        starts.push(0);
        starts.extend(items.iter().scan(0, |end, item| {
            *end += length(&item.borrow().pattern);
            Some(*end)
        }));
    }
    let itemsize = width_of(spec, items, source)?;
    let mut shape = spec.shape.clone();
    match kind {
        OutputKind::Squeezed => shape.insert(0, items.len()),
        OutputKind::Values => shape.insert(0, starts[items.len()]),
        OutputKind::Dense | OutputKind::Padded => {
            shape.insert(axis, longest);
            shape.insert(0, items.len());
        }
    }
    let outer = if *squeeze { 1 } else { spec.shape[..axis].iter().product() };
    let column =
        Column { source, kind, elements: spec.elements(), itemsize, outer, steps: longest, starts, sizes: None };
    let output = OutputArray { path: spec.path.clone(), dtype: spec.dtype, itemsize, shape, role: Role::Column };
    output.check_size()?;
    Ok((column, output))
}

/// A column whose cells differ in size: padded, or as values.
fn plan_variable(from: &PatternColumn, source: usize, longest: usize, sizes: Sizes) -> Result<(Column, OutputArray)> {
    let PatternColumn { spec, squeeze, stack_axis, .. } = from;
    if *stack_axis > 0 && !squeeze {
        let reason = "cells of different sizes can be stacked at the first axis only; set stack_axis to 0".to_owned();
        return Err(Error::Ragged { path: spec.path.clone(), reason });
    }
    let (rows, kind, starts) = match (sizes.padded, *squeeze) {
        (false, _) => (1, OutputKind::Values, sizes.starts()),
        (true, true) => (sizes.largest(), OutputKind::Squeezed, Vec::new()),
        (true, false) => (sizes.largest(), OutputKind::Padded, Vec::new()),
    };
    let itemsize = spec.dtype.size().unwrap_or(1);
    let shape = sizes.shape(&spec.shape);
    let output = OutputArray { path: spec.path.clone(), dtype: spec.dtype, itemsize, shape, role: Role::Column };
    output.check_size()?;
    let elements = rows * spec.shape.iter().skip(1).product::<usize>();
    let steps = if *squeeze { 1 } else { longest };
    let sizes = Some(Arc::new(sizes));
    Ok((Column { source, kind, elements, itemsize, outer: 1, steps, starts, sizes }, output))
}

fn unequal(path: &str, patterns: &[&Pattern], source: usize, ragged: Ragged) -> Error {
    let mut lengths = patterns.iter().map(|pattern| pattern.columns[source].cells.len()).collect::<Vec<_>>();
    lengths.sort_unstable();
    lengths.dedup();
    let named = named(&lengths);
    let advice = match ragged {
        Ragged::Values => {
            "a column that is stacked behind other axes has no values without padding; pass ragged=\"pad\""
        }
        _ => "pass ragged=\"pad\" for zeros and a mask, or ragged=\"values\" for values and lengths",
    };
    Error::Ragged { path: path.to_owned(), reason: format!("its items have the lengths {named}; {advice}") }
}

/// Bytes of an element of a column in the batch.
pub(super) fn width_of<T: Borrow<Item>>(spec: &ColumnSpec, items: &[T], source: usize) -> Result<usize> {
    spec.dtype.size().map_or_else(|| widest(items, source, &spec.path), Ok)
}

/// Bytes of the widest element among the cells of a bytes or str column.
fn widest<T: Borrow<Item>>(items: &[T], source: usize, path: &str) -> Result<usize> {
    let mut widest = 0;
    for item in items.iter().map(Borrow::borrow) {
        let PatternColumn { part, column, cells, .. } = &item.pattern.columns[source];
        for relative in cells.iter() {
            let (chunk, _) = item.locate(*part, relative).ok_or_else(|| missing(path))?;
            let layout = chunk.layout();
            if *column as usize >= layout.num_columns() {
                return Err(missing(path));
            }
            widest = widest.max(layout.itemsize(*column as usize));
        }
    }
    Ok(widest)
}

impl Plan {
    /// Adds the masks (`pad`) or lengths (`values`): one for all columns if each item has them equally long.
    ///
    /// Columns whose cells differ in size have their own, even if they happen to be equal in this batch.
    fn add_lengths(&mut self, patterns: &[&Pattern], ragged: Ragged) {
        let concerns = |column: &&Column| match ragged {
            Ragged::Refuse => false,
            _ if column.sizes.is_some() => true,
            Ragged::Pad => column.kind != OutputKind::Squeezed,
            Ragged::Values => column.kind == OutputKind::Values,
            Ragged::PadCells => false,
        };
        let concerned = (0..self.num_columns).filter(|index| concerns(&&self.columns[*index])).collect::<Vec<_>>();
        let Some(first) = concerned.first() else { return };
        let length = |pattern: &Pattern, index: usize| pattern.columns[self.columns[index].source].cells.len();
        let differ = concerned.iter().any(|index| self.columns[*index].sizes.is_some());
        let equal =
            |pattern: &&Pattern| concerned.iter().all(|index| length(pattern, *index) == length(pattern, *first));
        let one = ragged != Ragged::PadCells && (concerned.len() == 1 || (!differ && patterns.iter().all(equal)));
        let outputs = match one {
            true => vec![(None, *first)],
            false => concerned.iter().map(|index| (Some(*index), *index)).collect(),
        };
        for (of, index) in outputs {
            let (name, dtype, itemsize, role) = match ragged {
                Ragged::Values => ("lengths", DType::Int64, size_of::<i64>(), Role::Lengths(of)),
                _ => ("mask", DType::Bool, 1, Role::Mask(of)),
            };
            let column = &self.columns[index];
            let shape = match (&column.sizes, role) {
                (Some(sizes), _) => sizes.counts_shape(),
                (None, Role::Mask(_)) => vec![self.batch, column.steps],
                (None, _) => vec![self.batch],
            };
            let path = of.map_or(name, |of| &self.outputs[of].path).to_owned();
            self.outputs.push(OutputArray { path, dtype, itemsize, shape, role });
            self.counted.push(index);
        }
    }
}
