//! Steps that are single items: `insert` and `insert_batch`. Rows of one form share open chunks.

use super::run::{layout, packing};
use super::sink::{ColumnCells, Sink, next_stream};
use crate::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout};
use crate::error::{Error, Result};
use crate::item::{self, Body, Item, Pattern, PatternColumn};
use crate::spec::Schema;
use smallvec::SmallVec;
use std::sync::Arc;

/// The most rows of a chunk, and its target size in bytes.
///
/// Items that share nothing else keep each other alive while they share a chunk, so it is kept small.
const MAX_ROWS: usize = 64;
const CHUNK_BYTES: usize = 8 << 10;

/// Packs rows into chunks.
pub struct RowWriter {
    sink: Arc<dyn Sink>,
    compression: Compression,
    timestep: bool,
    must_be_alike: bool,
    stream: u32,
    form: Option<RowForm>,
    /// The number of rows of that form since another one.
    alike: usize,
    open: Option<ChunkWriter>,
    chooser: Chooser,
}

struct RowForm {
    schema: Arc<Schema>,
    pattern: item::Form,
    /// The layout of all chunks, once they have `capacity` rows: readers need not compare layouts again.
    layout: Arc<Layout>,
    capacity: usize,
    itemsizes: SmallVec<[usize; 8]>,
    widths: SmallVec<[usize; 8]>,
}

impl RowWriter {
    /// Creates a writer. `timestep`: the rows are steps of an environment loop (see [`Pattern::timestep`]).
    pub fn new(sink: Arc<dyn Sink>, compression: Compression, timestep: bool) -> Self {
        let (stream, chooser) = (next_stream(), Chooser::new(compression));
        Self { sink, compression, timestep, must_be_alike: false, stream, form: None, alike: 0, open: None, chooser }
    }

    /// The rows will be like other items of their table (see [`Pattern::alike`]).
    #[must_use]
    pub fn of_alike(mut self) -> Self {
        self.must_be_alike = true;
        self
    }

    /// Stores `rows` rows, given column by column, and returns one item for each.
    ///
    /// If the columns do not fit the schema, nothing is stored.
    pub fn append(
        &mut self,
        schema: &Arc<Schema>,
        columns: &[ColumnCells<'_>],
        rows: usize,
    ) -> Result<SmallVec<[Item; 1]>> {
        self.take_form(schema, columns, rows)?;
        self.alike += rows;
        let mut items = SmallVec::with_capacity(rows);
        let mut done = 0;
        while done < rows {
            let (form, writer) = self.writer();
            let first = writer.len(0);
            let count = (writer.layout().capacity() - first).min(rows - done);
            let part = columns.iter().zip(&form.widths);
            writer.push_rows(part.map(|(cells, width)| &cells.bytes[done * width..(done + count) * width]), count);
            let full = first + count == writer.layout().capacity();
            let (pattern, chunk) = (form.pattern.clone(), Arc::clone(writer.chunk()));
            let stream = self.stream;
            items.extend((first..first + count).map(|row| item(Arc::clone(&chunk), pattern.clone(), row, stream)));
            done += count;
            if full {
                self.close_full();
            }
        }
        Ok(items)
    }

    /// Like [`RowWriter::append`], for one row.
    pub fn append_row(&mut self, schema: &Arc<Schema>, columns: &[ColumnCells<'_>]) -> Result<Item> {
        self.take_form(schema, columns, 1)?;
        self.alike += 1;
        let (form, writer) = self.writer();
        let row = writer.len(0);
        writer.push_rows(columns.iter().map(|cells| cells.bytes), 1);
        let full = row + 1 == writer.layout().capacity();
        let (pattern, chunk) = (form.pattern.clone(), Arc::clone(writer.chunk()));
        if full {
            self.close_full();
        }
        Ok(item(chunk, pattern, row, self.stream))
    }

    /// The form, which must be set, and the open chunk, which has room.
    #[inline]
    fn writer(&mut self) -> (&RowForm, &mut ChunkWriter) {
        let form = self.form.as_ref().expect("the form was just set");
        let open = || {
            let compression = packing(self.chooser.next(), &form.layout);
            ChunkWriter::new(Arc::clone(&form.layout), compression, self.sink.meter())
        };
        (form, self.open.get_or_insert_with(open))
    }

    /// Closes a chunk that is full. If it had few rows, the next one has twice as many.
    fn close_full(&mut self) {
        self.close();
        if let Some(form) = self.form.as_mut().filter(|form| form.layout.capacity() < form.capacity) {
            form.layout = form.layout_of(2 * form.layout.capacity());
        }
    }

    /// Closes the open chunk.
    pub fn close(&mut self) {
        if let Some(writer) = self.open.take() {
            writer.seal(&mut self.chooser);
        }
    }

    #[inline]
    fn take_form(&mut self, schema: &Arc<Schema>, columns: &[ColumnCells<'_>], rows: usize) -> Result<()> {
        // The usual case: the columns of the last call.
        let known = self.form.as_ref().is_some_and(|form| {
            let mut forms = form.itemsizes.iter().zip(&form.widths).zip(columns);
            Arc::ptr_eq(&form.schema, schema)
                && columns.len() == form.widths.len()
                && forms.all(|((size, width), cells)| *size == cells.itemsize && cells.bytes.len() == width * rows)
        });
        if known { Ok(()) } else { self.take_other_form(schema, columns, rows) }
    }

    #[inline(never)]
    fn take_other_form(&mut self, schema: &Arc<Schema>, columns: &[ColumnCells<'_>], rows: usize) -> Result<()> {
        let same = self.form.as_ref().is_some_and(|form| {
            (Arc::ptr_eq(&form.schema, schema) || form.schema == *schema)
                && form.itemsizes.iter().zip(columns).all(|(itemsize, cells)| *itemsize == cells.itemsize)
        });
        if !same {
            // Rows whose sizes alternate would leave most of each chunk empty: as many rows are expected as were alike.
            let expected = if self.form.is_some() { self.alike } else { MAX_ROWS };
            // The form is replaced only after the columns are known to fit it.
            let mut form = RowForm::new(schema, columns, rows, item::Form::new(self.pattern(schema)))?;
            form.layout = form.layout_of(expected.max(rows));
            self.close();
            self.chooser = Chooser::new(self.compression);
            (self.form, self.alike) = (Some(form), 0);
            return Ok(());
        }
        self.form.as_ref().map_or(Ok(()), |form| check(&form.schema, &form.widths, columns, rows))
    }

    fn pattern(&self, schema: &Schema) -> Pattern {
        let columns = schema.columns.iter().enumerate().map(|(index, spec)| PatternColumn {
            spec: spec.clone(),
            part: 0,
            column: index as u32,
            cells: item::Cells::one(0),
            squeeze: true,
            stack_axis: 0,
        });
        let (timestep, alike) = (self.timestep, self.must_be_alike);
        Pattern { columns: columns.collect(), structure: schema.structure.clone(), timestep, alike }
    }
}

/// A row of a chunk as an item.
#[inline]
fn item(chunk: Arc<Chunk>, pattern: item::Form, row: usize, stream: u32) -> Item {
    Item { body: Body::Chunk(chunk), pattern, anchor: row as u32, episode: 0, stream }
}

impl RowForm {
    fn new(schema: &Arc<Schema>, columns: &[ColumnCells<'_>], rows: usize, pattern: item::Form) -> Result<Self> {
        let itemsizes: SmallVec<[usize; 8]> = columns.iter().map(|cells| cells.itemsize).collect();
        let elements = schema.columns.iter().map(|column| column.elements());
        let widths: SmallVec<[usize; 8]> = elements.zip(&itemsizes).map(|(count, size)| count * size).collect();
        check(schema, &widths, columns, rows)?;
        let row_bytes: usize = widths.iter().sum();
        let capacity = (CHUNK_BYTES / row_bytes.max(1)).clamp(1, MAX_ROWS);
        let cells: Vec<_> = widths.iter().copied().zip(itemsizes.iter().copied()).collect();
        let layout = layout(&cells, capacity);
        Ok(Self { schema: Arc::clone(schema), pattern, layout, capacity, itemsizes, widths })
    }

    /// The layout of chunks of `rows` rows, at most `capacity`.
    fn layout_of(&self, rows: usize) -> Arc<Layout> {
        let rows = rows.clamp(1, self.capacity);
        if rows == self.layout.capacity() {
            return Arc::clone(&self.layout);
        }
        let cells: Vec<_> = self.widths.iter().copied().zip(self.itemsizes.iter().copied()).collect();
        layout(&cells, rows)
    }
}

fn check(schema: &Schema, widths: &[usize], columns: &[ColumnCells<'_>], rows: usize) -> Result<()> {
    if columns.is_empty() {
        return Err(Error::InvalidArgument("a step needs at least one array".to_owned()));
    }
    let fits = columns.len() == widths.len();
    let wrong = columns.iter().zip(widths).position(|(cells, width)| cells.bytes.len() != width * rows);
    match (fits, wrong) {
        (true, None) => Ok(()),
        (true, Some(column)) => Err(Error::Signature {
            path: schema.columns[column].path.clone(),
            got: format!("{} bytes", columns[column].bytes.len()),
            want: format!("{rows} rows of {} bytes", widths[column]),
        }),
        (false, _) => Err(Error::InvalidArgument(format!(
            "the schema has {} columns, {} were given",
            widths.len(),
            columns.len()
        ))),
    }
}
