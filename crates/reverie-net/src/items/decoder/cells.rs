//! Received cells of chunks.

use super::limits::{DecoderLimits, broken, layout_bytes};
use super::names::Names;
use crate::bulk::BulkSource;
use crate::proto;
use reverie_core::chunk::{Chunk, ChunkWriter, Compression, Layout, Meter, filled};
use reverie_core::{Error, Result};
use std::sync::Arc;

/// Layouts that are kept: chunks of the same layout share it, and are gathered faster.
const KEPT: usize = 16;
/// Columns of a kept layout at most: those of more are counted with each chunk.
const MOST_COLUMNS: usize = 1 << 10;

/// Bytes that a chunk may take in addition to twice those of its cells.
const FREE_BYTES: usize = 64 << 10;

/// The latest layouts.
#[derive(Default)]
pub(super) struct Layouts {
    known: Vec<(proto::ChunkLayout, Arc<Layout>)>,
}

impl Layouts {
    fn get(&mut self, message: &proto::ChunkLayout, limits: &DecoderLimits) -> Result<Arc<Layout>> {
        if let Some((_, layout)) = self.known.iter().find(|(known, _)| known == message) {
            return Ok(Arc::clone(layout));
        }
        if message.widths.len() != message.itemsizes.len() {
            return Err(broken("a layout has lists of different lengths"));
        }
        let cells = message.widths.iter().zip(&message.itemsizes);
        let cells = cells.map(|(width, itemsize)| (*width as usize, *itemsize as usize)).collect::<Vec<_>>();
        let layout = Layout::checked(&cells, message.capacity as usize, message.interleaved)
            .map_err(|error| broken(error.to_string()))?;
        // Cells of zero bytes need no bytes to be sent: the bits for their values are limited in proportion.
        let cells: usize = cells.iter().map(|(width, _)| width * layout.capacity()).sum();
        if layout.size_bytes() - cells > cells + FREE_BYTES + 128 * layout.num_columns() {
            return Err(broken(format!("a chunk has {} steps with almost no bytes", layout.capacity())));
        }
        if layout.size_bytes() as u64 > limits.max_chunk_bytes {
            return Err(Error::ResourceExhausted {
                what: "a chunk of steps".to_owned(),
                needed: layout.size_bytes() as u64,
                budget: limits.max_chunk_bytes,
                hint: "cut the steps into shorter chunks (max_chunk_length)".to_owned(),
            });
        }
        let layout = Arc::new(layout);
        if layout.num_columns() > MOST_COLUMNS {
            return Ok(layout);
        }
        self.known.truncate(KEPT - 1);
        self.known.insert(0, (message.clone(), Arc::clone(&layout)));
        Ok(layout)
    }
}

/// Adds the cells of one chunk from a message. Cells that are there already are skipped.
pub(super) fn take(
    names: &mut Names,
    layouts: &mut Layouts,
    limits: &DecoderLimits,
    meter: &Arc<Meter>,
    message: &proto::ChunkCells,
    bulk: &dyn BulkSource,
) -> Result<()> {
    let name = message.chunk;
    let layout = message.layout.as_ref().map(|layout| layouts.get(layout, limits)).transpose()?;
    if let Some((chunk, writer)) = names.chunk_mut(name)? {
        if layout.is_some_and(|layout| layout != *chunk.layout()) {
            return Err(broken(format!("chunk {name} is defined twice, with different layouts")));
        }
        return grow(name, writer, message, bulk);
    }
    let layout = layout.ok_or_else(|| broken(format!("chunk {name} is not defined")))?;
    let packable = message.layout.as_ref().is_some_and(|layout| layout.packable);
    if let (Some(packed), true) = (&message.packed, packable) {
        let bytes = packed_bytes(packed, bulk)?;
        names.admit(bytes.len() as u64)?;
        let chunk = Chunk::from_packed(layout, &bytes, meter).map_err(|error| broken(error.to_string()))?;
        names.add_chunk(name, chunk, None);
        return Ok(());
    }
    names.admit(layout.size_bytes() as u64 + layout_bytes(&layout))?;
    let compression = if packable { Compression::Auto } else { Compression::None };
    let writer = ChunkWriter::new(layout, compression, meter);
    let mut writer = Some(writer);
    let chunk = Arc::clone(writer.as_ref().expect("just made").chunk());
    grow(name, &mut writer, message, bulk)?;
    names.add_chunk(name, chunk, writer);
    Ok(())
}

/// Adds cells to a known chunk. A packed chunk has all its cells already, as has one that is sealed.
fn grow(name: u64, open: &mut Option<ChunkWriter>, message: &proto::ChunkCells, bulk: &dyn BulkSource) -> Result<()> {
    let Some(writer) = open else { return Ok(()) };
    if message.columns.is_empty() {
        push_rows(name, writer, message, bulk)?;
    } else {
        message.columns.iter().try_for_each(|column| push_column(name, writer, column, bulk))?;
    }
    let Some(packed) = &message.packed else {
        // Nothing can follow: it is sealed, so that it may move to the disk.
        if writer.is_full() && !writer.chunk().is_packable() {
            *open = None;
        }
        return Ok(());
    };
    let bytes = packed_bytes(packed, bulk)?;
    if !writer.chunk().is_packable() {
        return Err(broken(format!("chunk {name} is packed, although its layout forbids that")));
    }
    let writer = open.take().expect("it is open");
    writer.seal_packed(bytes).map_err(|error| broken(format!("chunk {name}: {error}")))?;
    Ok(())
}

fn packed_bytes(packed: &proto::PackedRange, bulk: &dyn BulkSource) -> Result<Box<[u8]>> {
    check_range(bulk, packed.offset, Some(packed.size_bytes))?;
    Ok(filled(packed.size_bytes as usize, |to| bulk.copy_to(packed.offset, to)))
}

/// Checks that the bulk has these bytes.
fn check_range(bulk: &dyn BulkSource, offset: u64, size: Option<u64>) -> Result<()> {
    match size.and_then(|size| offset.checked_add(size)).filter(|end| *end <= bulk.len()) {
        Some(_) => Ok(()),
        None => Err(broken(format!("bytes from {offset} on of the {} of a message", bulk.len()))),
    }
}

/// The number of these cells that the column has already. The others must follow directly, and fit.
fn overlap(name: u64, writer: &ChunkWriter, column: usize, first: u64, cells: u32) -> Result<u32> {
    let have = writer.len(column) as u64;
    let end = first.saturating_add(u64::from(cells));
    if first > have || end > writer.layout().capacity() as u64 {
        return Err(broken(format!("chunk {name}: cells {first} to {end} of column {column}, which has {have}")));
    }
    Ok((have - first).min(u64::from(cells)) as u32)
}

fn push_rows(name: u64, writer: &mut ChunkWriter, message: &proto::ChunkCells, bulk: &dyn BulkSource) -> Result<()> {
    let (layout, cells) = (Arc::clone(writer.layout()), message.cells);
    let columns = layout.num_columns();
    if !message.lead.is_empty() && message.lead.len() != columns {
        return Err(broken(format!("chunk {name}: 'lead' has {} entries for {columns} columns", message.lead.len())));
    }
    let mut offset = message.offset;
    for column in 0..columns {
        let (width, lead) = (layout.width(column) as u64, message.lead.get(column).copied().unwrap_or(0));
        let size = width.checked_mul(u64::from(cells));
        check_range(bulk, offset, size)?;
        let skip = overlap(name, writer, column, u64::from(message.first) + u64::from(lead), cells)?;
        push(writer, column, cells - skip, offset + u64::from(skip) * width, bulk);
        offset += size.expect("checked above");
    }
    Ok(())
}

/// Copies `n` cells, which were checked to fit and to be in the bulk.
fn push(writer: &mut ChunkWriter, column: usize, n: u32, offset: u64, bulk: &dyn BulkSource) {
    if n > 0 {
        writer.push_cells_with(column, n as usize, |at, to| bulk.copy_to(offset + at as u64, to));
    }
}

fn push_column(name: u64, writer: &mut ChunkWriter, cells: &proto::ColumnCells, bulk: &dyn BulkSource) -> Result<()> {
    let (column, n) = (cells.column as usize, cells.cells);
    let layout = Arc::clone(writer.layout());
    if column >= layout.num_columns() {
        return Err(broken(format!(
            "chunk {name}: column {column} does not exist, there are {}",
            layout.num_columns()
        )));
    }
    let width = layout.width(column) as u64;
    check_range(bulk, cells.offset, width.checked_mul(u64::from(n)))?;
    let skip = overlap(name, writer, column, u64::from(cells.first), n)?;
    let offset = |cell: u32| cells.offset + u64::from(cell) * width;
    if cells.holes.is_empty() {
        push(writer, column, n - skip, offset(skip), bulk);
        return Ok(());
    }
    if cells.holes.len() != n.div_ceil(8) as usize {
        return Err(broken(format!("chunk {name}: {} bytes of holes for {n} cells", cells.holes.len())));
    }
    let hole = |cell: u32| cells.holes[cell as usize / 8] & (1 << (cell % 8)) != 0;
    let mut at = skip;
    while at < n {
        if hole(at) {
            writer.skip(column);
            at += 1;
            continue;
        }
        let end = (at..n).find(|cell| hole(*cell)).unwrap_or(n);
        push(writer, column, end - at, offset(at), bulk);
        at = end;
    }
    Ok(())
}
