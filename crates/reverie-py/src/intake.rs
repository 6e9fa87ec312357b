//! Nests to columns that the engine takes.

use crate::array::{Cell, Leaf, contiguous_bytes, read};
use crate::errors::signature;
use crate::nest::Flattener;
use pyo3::prelude::*;
use reverie_core::append::ColumnCells;
use reverie_core::spec::{ColumnSpec, DType, Schema, Signature};
use smallvec::SmallVec;
use std::sync::Arc;

/// Cells of the columns of one call.
pub type CallColumns<'a> = SmallVec<[ColumnCells<'a>; 8]>;

/// The bytes of the leaves of one nest. The caller creates it and it is filled in place: moving it would be slow.
pub type LeafCells<'py> = SmallVec<[Cell<'py>; 8]>;

/// A nest that was read: its schema and its bytes.
pub struct Intake<'py> {
    /// The columns and their structure.
    pub schema: Arc<Schema>,
    cells: LeafCells<'py>,
}

impl Intake<'_> {
    /// The cells, column by column.
    pub fn columns(&self) -> CallColumns<'_> {
        columns(&self.cells)
    }
}

/// The cells, column by column.
#[inline]
pub fn columns<'a>(given: &'a LeafCells<'_>) -> CallColumns<'a> {
    given.iter().map(|cell| ColumnCells { itemsize: cell.itemsize, bytes: cell.bytes() }).collect()
}

/// Reads one nest after another; remembers the last form.
#[derive(Default)]
pub struct Reader {
    flattener: Flattener,
    /// The schema of the last nest, by the address of its structure, which the entry keeps alive.
    last: Option<(Arc<reverie_core::spec::Structure>, Arc<Schema>)>,
    /// The schema of another reader for the same table: Python's own numbers take its dtypes, too.
    hint: Option<Arc<Schema>>,
}

impl Reader {
    /// A reader with another reader's schema as a hint.
    pub fn with_hint_of(other: &Reader) -> Self {
        Self { hint: other.last.as_ref().map(|(_, schema)| Arc::clone(schema)), ..Self::default() }
    }

    /// Reads a nest. `rows`: every leaf has a leading axis of that many rows; `None`: the nest is one row.
    /// `Some(None)`: any number of rows, the same in all leaves. `prefix` is the caller's name for the nest, which
    /// precedes paths in errors.
    pub fn read<'py>(
        &mut self,
        prefix: &str,
        value: &Bound<'py, PyAny>,
        rows: Option<Option<usize>>,
        promised: Option<&Signature>,
    ) -> PyResult<Intake<'py>> {
        let mut cells = LeafCells::new();
        let (schema, _) = self.read_into(&mut cells, prefix, value, rows, promised)?;
        Ok(Intake { schema, cells })
    }

    /// Like [`Reader::read`], with the bytes filled in place; returns the schema and the number of rows (1 for one
    /// row).
    #[inline]
    pub fn read_into<'py>(
        &mut self,
        given: &mut LeafCells<'py>,
        prefix: &str,
        value: &Bound<'py, PyAny>,
        rows: Option<Option<usize>>,
        promised: Option<&Signature>,
    ) -> PyResult<(Arc<Schema>, usize)> {
        if let Some(known) = self.read_known(given, value, rows)? {
            return Ok(known);
        }
        given.clear();
        self.read_any(given, prefix, value, rows, promised)
    }

    /// Fast path: passes one row in place to `work`, if it is a dict of leaves with the types of the last row.
    /// Runs no Python code, so that locks may be held. `None`: read it.
    #[inline]
    pub fn with_known_row<T>(
        &self,
        value: &Bound<'_, PyAny>,
        work: impl FnOnce(&Arc<Schema>, &[ColumnCells<'_>]) -> T,
    ) -> Option<T> {
        let (last, schema) = self.last.as_ref()?;
        let (leaves, structure) = self.flattener.known(value)?;
        if !Arc::ptr_eq(last, structure) {
            return None;
        }
        let mut cells = CallColumns::new();
        for (leaf, spec) in leaves.iter().zip(&schema.columns) {
            cells.push(ColumnCells { itemsize: spec.dtype.size()?, bytes: contiguous_bytes(leaf, spec)? });
        }
        Some(work(schema, &cells))
    }

    #[inline(never)]
    fn read_any<'py>(
        &mut self,
        given: &mut LeafCells<'py>,
        prefix: &str,
        value: &Bound<'py, PyAny>,
        rows: Option<Option<usize>>,
        promised: Option<&Signature>,
    ) -> PyResult<(Arc<Schema>, usize)> {
        let py = value.py();
        let path = |path: String| join(prefix, &path);
        let (leaves, nest) = self.flattener.flatten(value)?;
        if leaves.len() == 0 {
            return Err(signature(py, prefix, "an empty nest", "at least one column"));
        }
        let known = self.last.as_ref().filter(|(structure, _)| Arc::ptr_eq(structure, &nest.structure));
        let promised = promised.filter(|signature| known.is_none() && signature.structure == *nest.structure);
        let hint = self.hint.as_ref().filter(|hint| known.is_none() && hint.structure == *nest.structure);
        let mut read_leaves: SmallVec<[Leaf<'py>; 8]> = SmallVec::with_capacity(leaves.len());
        for (index, leaf) in leaves.iter().enumerate() {
            let want: Option<DType> = match (known, promised) {
                (Some((_, schema)), _) => Some(schema.columns[index].dtype),
                (None, Some(signature)) => Some(signature.columns[index].dtype),
                _ => hint.map(|hint| hint.columns[index].dtype),
            };
            read_leaves.push(read(leaf, want, &|| path(nest.path(index)))?);
        }
        let mut count = rows.flatten();
        if rows.is_some() {
            for (index, leaf) in read_leaves.iter().enumerate() {
                let got = leaf.shape.first().copied();
                if got.is_none() || count.is_some_and(|count| got != Some(count)) {
                    let got = got.map_or("no rows: a single value".to_owned(), |got| format!("{got} rows"));
                    let listed = nest.structure.has_lists();
                    let hint = if listed { "; a list is a nest of columns, np.asarray(...) makes it one" } else { "" };
                    let want = count.map_or("a leading axis of rows".to_owned(), |count| format!("{count} rows"));
                    return Err(signature(py, &path(nest.path(index)), &got, &(want + hint)));
                }
                count = got;
            }
        }
        let skip = usize::from(rows.is_some());
        let fits = |schema: &Schema| {
            let mut pairs = schema.columns.iter().zip(&read_leaves);
            pairs.all(|(spec, leaf)| spec.dtype == leaf.dtype && spec.shape[..] == leaf.shape[skip..])
        };
        let schema = match known {
            Some((_, schema)) if fits(schema) => Arc::clone(schema),
            _ => {
                let paths = nest.structure.paths();
                let columns = paths.into_iter().zip(&read_leaves).map(|(path, leaf)| ColumnSpec {
                    path,
                    dtype: leaf.dtype,
                    shape: leaf.shape[skip..].to_vec(),
                });
                Arc::new(Schema { columns: columns.collect(), structure: (*nest.structure).clone() })
            }
        };
        self.last = Some((Arc::clone(&nest.structure), Arc::clone(&schema)));
        given.extend(read_leaves.into_iter().map(|leaf| leaf.cell));
        Ok((schema, count.unwrap_or(1)))
    }

    /// Fast path: a nest of the last form, with leaves of the types that their columns hold. `None` otherwise.
    #[inline]
    fn read_known<'py>(
        &mut self,
        given: &mut LeafCells<'py>,
        value: &Bound<'py, PyAny>,
        rows: Option<Option<usize>>,
    ) -> PyResult<Option<(Arc<Schema>, usize)>> {
        let Some((structure, schema)) = &self.last else { return Ok(None) };
        let (mut leaves, nest) = self.flattener.flatten(value)?;
        if !Arc::ptr_eq(structure, &nest.structure) {
            return Ok(None);
        }
        let mut count = rows.flatten();
        given.reserve(schema.columns.len());
        for (leaf, spec) in leaves.slots().zip(&schema.columns) {
            let Some(cell) = Cell::taken(leaf, spec, rows.is_some().then_some(&mut count)) else { return Ok(None) };
            given.push(cell);
        }
        Ok(Some((Arc::clone(schema), count.unwrap_or(1))))
    }
}

/// Refuses a schema that differs from that of the first call, except in sizes that are open there.
pub fn check_same(py: Python<'_>, prefix: &str, first: &Arc<Schema>, now: &Arc<Schema>) -> PyResult<()> {
    if Arc::ptr_eq(first, now) || first == now {
        return Ok(());
    }
    let fits = |(first, now): &(&ColumnSpec, &ColumnSpec)| first == now || (first.is_variable() && first.is_alike(now));
    if first.structure != now.structure {
        let paths =
            |schema: &Schema| schema.columns.iter().map(|spec| spec.path.clone()).collect::<Vec<_>>().join(", ");
        let (got, want) = (paths(now), paths(first));
        return Err(signature(py, prefix, &format!("columns ({got})"), &format!("({want}), as in the first call")));
    }
    let Some((want, got)) = first.columns.iter().zip(&now.columns).find(|columns| !fits(columns)) else {
        return Ok(());
    };
    let say = |spec: &ColumnSpec| format!("{} {}", spec.dtype, spec.shape_text());
    Err(signature(py, &join(prefix, &got.path), &say(got), &format!("{}, as in the first call", say(want))))
}

/// The schema with the first size open of cells that may differ in it: of the columns with these paths, which `prefix`
/// precedes, and numbers of a cell's axes.
pub fn opened(schema: &Arc<Schema>, prefix: &str, variable: &[(String, usize)]) -> Arc<Schema> {
    let mut opened = (**schema).clone();
    for spec in &mut opened.columns {
        let place = (join(prefix, &spec.path), spec.shape.len());
        if let Some(open) = spec.variable().filter(|_| variable.contains(&place)) {
            *spec = open;
        }
    }
    Arc::new(opened)
}

fn join(prefix: &str, path: &str) -> String {
    match (prefix.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => prefix.to_owned(),
        _ => format!("{prefix}/{path}"),
    }
}
