//! **Item**: an entry of a table: references to cells of chunks, never bytes.
//!
//! An item is (body, pattern, anchor). The *body* keeps chunks alive, the *pattern* lists the cells of each column
//! relative to the *anchor*. All items of the same form share a pattern, all items on the same chunks share a body: an
//! n-step transition, a frame stack or a sequence needs no allocation.

mod check;

pub use crate::key::Key;

use crate::chunk::Chunk;
use crate::spec::{ColumnSpec, Structure};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The cells of a column, relative to the item's anchor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cells {
    /// `start, start + step, ...`, `len` cells; `step` may be negative, never zero.
    Range {
        /// The first cell.
        start: i32,
        /// The distance from one cell to the next.
        step: i32,
        /// The number of cells.
        len: u32,
    },
    /// Any cells in any order, repeats allowed (padding at the start of an episode).
    List(Box<[i32]>),
}

impl Cells {
    /// One cell.
    pub fn one(at: i32) -> Self {
        Cells::Range { start: at, step: 1, len: 1 }
    }

    /// `start..end`.
    pub fn range(start: i32, end: i32) -> Self {
        Cells::Range { start, step: 1, len: (end - start).max(0) as u32 }
    }

    /// The number of cells.
    pub fn len(&self) -> usize {
        match self {
            Cells::Range { len, .. } => *len as usize,
            Cells::List(list) => list.len(),
        }
    }

    /// True if the column has no cell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cell at `index` (below `len`), relative to the anchor.
    #[inline]
    pub fn get(&self, index: usize) -> i64 {
        match self {
            Cells::Range { start, step, .. } => i64::from(*start) + i64::from(*step) * index as i64,
            Cells::List(list) => i64::from(list[index]),
        }
    }

    /// All cells in order.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// One column of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PatternColumn {
    /// Path in the item's structure, dtype and cell shape.
    pub spec: ColumnSpec,
    /// The part of the body (column group of the writer) that holds it.
    pub part: u32,
    /// The column of that part's chunks.
    pub column: u32,
    /// The cells.
    pub cells: Cells,
    /// True for one cell without a time axis: `[...]` instead of `[1, ...]`.
    pub squeeze: bool,
    /// The position of the axis that counts the cells among the cell's own axes.
    ///
    /// 0 leads, as for time; a frame stack may want it last. Ignored with `squeeze`.
    pub stack_axis: u8,
}

/// The form of an item, shared by all items of that form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pattern {
    /// The columns in flattening order.
    pub columns: Box<[PatternColumn]>,
    /// The structure that the columns fill.
    pub structure: Structure,
    /// True for an item of whole steps of an environment loop (`insert`, the legacy writer).
    ///
    /// A signature may describe the step or the item.
    pub timestep: bool,
    /// True for an item of Reverie's own writers: a table without a signature refuses it if its layout is another than
    /// that of the table's first such item. Items of dm-reverb's names may differ in one table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alike: bool,
}

/// A shared pattern that costs nothing to clone.
///
/// A program has few patterns and refers to one for every item of every batch; counting those references took longer
/// than reading the items. So equal patterns are merged and live as long as the process, up to a number and a size in
/// bytes that no program reaches with its own patterns; those beyond (lengths that never recur, long lists of cells)
/// are counted by reference.
#[derive(Clone, Debug)]
pub struct Form(FormHandle);

#[derive(Clone, Debug)]
enum FormHandle {
    Interned(&'static Pattern),
    Counted(Arc<Pattern>),
}

/// The number of patterns that are kept for the life of the process.
const KEPT_FORMS: usize = 4096;
/// The most bytes that kept patterns take together; one may take a 64th of them.
const KEPT_BYTES: usize = 4 << 20;

/// The patterns that are kept.
#[derive(Default)]
struct InternedPatterns {
    patterns: HashSet<&'static Pattern>,
    bytes: usize,
}

impl InternedPatterns {
    fn form(&mut self, pattern: Pattern) -> Form {
        if let Some(known) = self.patterns.get(&pattern) {
            return Form(FormHandle::Interned(known));
        }
        let bytes = pattern.size_bytes();
        if self.patterns.len() >= KEPT_FORMS || bytes > KEPT_BYTES / 64 || self.bytes + bytes > KEPT_BYTES {
            return Form(FormHandle::Counted(Arc::new(pattern)));
        }
        self.bytes += bytes;
        let pattern: &'static Pattern = Box::leak(Box::new(pattern));
        self.patterns.insert(pattern);
        Form(FormHandle::Interned(pattern))
    }
}

impl Pattern {
    /// True for a step inserted alone: readers of timesteps give its columns a time axis of one.
    pub fn is_one_step(&self) -> bool {
        self.timestep && self.columns.iter().all(|column| column.squeeze)
    }

    /// The approximate bytes of memory.
    pub fn size_bytes(&self) -> usize {
        let column = |column: &PatternColumn| {
            let list = if let Cells::List(list) = &column.cells { size_of_val(&**list) } else { 0 };
            // The structure contains the path, too.
            size_of::<PatternColumn>() + list + 2 * column.spec.path.len() + size_of_val(&column.spec.shape[..]) + 64
        };
        size_of::<Self>() + self.columns.iter().map(column).sum::<usize>() + self.structure.size_bytes()
    }
}

impl Form {
    /// A handle for this pattern; the same for equal patterns while there is room to keep them.
    pub fn new(pattern: Pattern) -> Self {
        /// Guards the set; a look-up and an insertion happen under it.
        static KEPT: Mutex<Option<InternedPatterns>> = Mutex::new(None);
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().form(pattern)
    }

    /// The pattern if it lives as long as the process: its address is then its own for good.
    pub(crate) fn kept(&self) -> Option<&'static Pattern> {
        match &self.0 {
            FormHandle::Interned(pattern) => Some(pattern),
            FormHandle::Counted(_) => None,
        }
    }

    /// The bytes of memory that are freed with the last handle: none of a pattern that lives as long as the process.
    pub fn own_bytes(&self) -> usize {
        match &self.0 {
            FormHandle::Interned(_) => 0,
            FormHandle::Counted(pattern) => pattern.size_bytes(),
        }
    }

    /// True if both are one pattern; equal patterns that are not kept may compare as different.
    #[inline]
    pub fn same(&self, other: &Self) -> bool {
        std::ptr::eq(&**self, &**other)
    }
}

impl std::ops::Deref for Form {
    type Target = Pattern;

    #[inline]
    fn deref(&self) -> &Pattern {
        match &self.0 {
            FormHandle::Interned(pattern) => pattern,
            FormHandle::Counted(pattern) => pattern,
        }
    }
}

/// A run of chunks of one column group.
#[derive(Debug)]
pub struct Part {
    /// The chunks in order.
    pub chunks: Box<[Arc<Chunk>]>,
    /// The position, relative to the body's origin, of each chunk's first cell, then the end of the last chunk.
    ///
    /// One longer than `chunks`, strictly increasing.
    pub starts: Box<[i64]>,
}

/// The chunks of items that need more than one.
#[derive(Debug)]
pub struct Span {
    /// The parts, one for each column group.
    pub parts: Vec<Part>,
    /// The episodes of the items' cells other than the one in which the items begin, each once.
    ///
    /// Usually empty: only a writer that keeps its history across the end of an episode creates items over several.
    pub episodes: Box<[u32]>,
}

impl From<Vec<Part>> for Span {
    /// A span for items that are each in one episode.
    fn from(parts: Vec<Part>) -> Self {
        Self { parts, episodes: Box::default() }
    }
}

impl std::ops::Deref for Span {
    type Target = [Part];

    #[inline]
    fn deref(&self) -> &[Part] {
        &self.parts
    }
}

/// Keeps an item's chunks alive.
#[derive(Clone, Debug)]
pub enum Body {
    /// All cells are in one chunk and of one episode: positions are cells of the chunk, and every column is of part 0.
    Chunk(Arc<Chunk>),
    /// The cells are in several chunks or column groups, or of several episodes.
    Span(Arc<Span>),
}

/// References to the cells of one item.
#[derive(Clone, Debug)]
pub struct Item {
    /// The chunks.
    pub body: Body,
    /// The form.
    pub pattern: Form,
    /// The position, from the body's origin, that the pattern's cells are relative to.
    pub anchor: u32,
    /// The episode in which the item begins, unique among the writers of one server.
    ///
    /// 0 for a step inserted alone, which is an episode of its own.
    pub episode: u32,
    /// The stream of steps in which the item begins; unique on one server. 0 if unknown.
    ///
    /// Each writer has a stream, and a vector writer one for each environment.
    pub stream: u32,
}

impl Item {
    /// The chunk that holds the cell `relative` of a column of `part`, and the cell's index in it.
    ///
    /// `None` if the body ends before.
    #[inline]
    pub fn locate(&self, part: u32, relative: i64) -> Option<(&Arc<Chunk>, usize)> {
        let position = i64::from(self.anchor) + relative;
        match &self.body {
            Body::Chunk(chunk) => (position >= 0 && part == 0).then_some((chunk, position as usize)),
            Body::Span(parts) => {
                let Part { chunks, starts } = parts.get(part as usize)?;
                // The number of starts at or before the position, less one, is the chunk.
                let after = starts.partition_point(|start| *start <= position);
                let index = after.checked_sub(1)?;
                Some((chunks.get(index)?, (position - starts[index]) as usize))
            }
        }
    }

    /// The episodes of the item's cells other than the one in which it begins.
    #[inline]
    pub fn further_episodes(&self) -> &[u32] {
        match &self.body {
            Body::Chunk(_) => &[],
            Body::Span(span) => &span.episodes,
        }
    }

    /// Prefetches what is read of the item's chunk when the item is cloned and gathered: its reference count, and the
    /// beginning of its header.
    #[inline]
    pub fn prefetch(&self) {
        if let Body::Chunk(chunk) = &self.body {
            let header: *const u8 = Arc::as_ptr(chunk).cast();
            // The counts lie right before the counted value. An allocation need not begin with a line.
            crate::prefetch::prefetch_address(header.wrapping_sub(1));
            crate::prefetch::prefetch_address(header.wrapping_add(Chunk::READ_FIRST - 1));
        }
    }

    /// Prefetches only the reference count that a clone of the item increments.
    #[inline]
    pub fn prefetch_count(&self) {
        // The counts lie right before the counted value.
        let behind: *const u8 = match &self.body {
            Body::Chunk(chunk) => Arc::as_ptr(chunk).cast(),
            Body::Span(span) => Arc::as_ptr(span).cast(),
        };
        crate::prefetch::prefetch_address(behind.wrapping_sub(1));
    }

    /// The chunks that the item keeps alive, each once.
    pub fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        let (one, many): (Option<&Arc<Chunk>>, &[Part]) = match &self.body {
            Body::Chunk(chunk) => (Some(chunk), &[]),
            Body::Span(parts) => (None, parts),
        };
        one.into_iter().chain(many.iter().flat_map(|part| part.chunks.iter()))
    }

    /// The bytes of the chunks that the item keeps alive.
    pub fn size_bytes(&self) -> u64 {
        self.chunks().map(|chunk| chunk.size_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DType;

    fn pattern(path: &str, cells: i32) -> Pattern {
        let spec = ColumnSpec { path: path.to_owned(), dtype: DType::Int8, shape: vec![] };
        let cells = Cells::List((0..cells).collect());
        let column = PatternColumn { spec, part: 0, column: 0, cells, squeeze: false, stack_axis: 0 };
        Pattern { columns: [column].into(), structure: Structure::Leaf, timestep: false, alike: false }
    }

    #[test]
    fn a_pattern_counts_the_nodes_and_names_of_its_structure() {
        let of = |structure| Pattern { columns: Box::new([]), structure, timestep: false, alike: false }.size_bytes();
        let (text, least) = (|n: usize| "x".repeat(n), of(Structure::Leaf));
        assert!(of(Structure::List(vec![Structure::List(Vec::new()); 1000])) >= least + 1000 * size_of::<Structure>());
        assert!(of(Structure::Dict(vec![(crate::spec::StructureKey::Str(text(500)), Structure::Leaf)])) > least + 500);
        let fields = vec![(text(300), Structure::Leaf)];
        let record = Structure::Record { dataclass: true, module: text(100), name: text(200), fields };
        assert!(of(record) > least + 600);
    }

    #[test]
    fn equal_patterns_are_one_and_what_is_kept_of_them_is_bounded_in_bytes() {
        let mut kept = InternedPatterns::default();
        assert!(kept.form(pattern("a", 4)).same(&kept.form(pattern("a", 4))));
        assert!(!kept.form(pattern("a", 4)).same(&kept.form(pattern("b", 4))));
        let long = pattern("long", 100_000);
        assert!(matches!(kept.form(long).0, FormHandle::Counted(_)), "400 kB for one pattern");
        let mut forms = (0..KEPT_FORMS).map(|index| kept.form(pattern(&index.to_string(), 10_000)));
        assert!(matches!(forms.next().unwrap().0, FormHandle::Interned(_)));
        assert!(matches!(forms.last().unwrap().0, FormHandle::Counted(_)));
        assert!(kept.bytes <= KEPT_BYTES && kept.bytes > KEPT_BYTES / 2);
        assert!(kept.patterns.len() < 200, "40 kB each");
    }
}
