//! **Item**: what a table holds: references to cells of chunks, never bytes.
//!
//! An item is (body, pattern, anchor). The *body* keeps chunks alive, the *pattern* says which cells
//! relative to the *anchor* each column takes. Patterns are shared by all items of the same form, bodies by
//! all items on the same chunks: an n-step transition, a frame stack or a sequence costs no allocation.

mod check;

pub use crate::key::Key;

use crate::chunk::Chunk;
use crate::spec::{ColumnSpec, Structure};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Which cells a column takes, relative to the item's anchor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cells {
    /// `start, start + step, ...`, `len` cells; `step` may be negative, never zero.
    Range {
        /// The first cell.
        start: i32,
        /// From one cell to the next.
        step: i32,
        /// How many.
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

    /// How many cells.
    pub fn len(&self) -> usize {
        match self {
            Cells::Range { len, .. } => *len as usize,
            Cells::List(list) => list.len(),
        }
    }

    /// True where the column takes no cell.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PatternColumn {
    /// Path in the item's structure, dtype and cell shape.
    pub spec: ColumnSpec,
    /// Which part of the body (column group of the writer) holds it.
    pub part: u32,
    /// Which column of that part's chunks.
    pub column: u32,
    /// Which cells.
    pub cells: Cells,
    /// One cell without a time axis: `[...]` instead of `[1, ...]`.
    pub squeeze: bool,
    /// Where the axis that counts the cells stands among the cell's own axes: 0 leads, as for time;
    /// a frame stack may want it last. Without meaning where `squeeze`.
    pub stack_axis: u8,
}

/// The form of an item, shared by all items of that form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The columns in flattening order.
    pub columns: Box<[PatternColumn]>,
    /// The structure that the columns fill.
    pub structure: Structure,
    /// True for an item of whole steps of an environment loop (`insert`, the legacy writer): a signature may
    /// describe the step or the item.
    pub timestep: bool,
}

/// A pattern behind a handle that costs nothing to copy.
///
/// A program has few patterns and refers to one for every item of every batch; counting those references took
/// longer than reading the items. So equal patterns are made one and live as long as the process, up to a number and
/// to bytes that no program reaches with patterns of its own; those beyond (lengths that never come back, long lists
/// of cells) are counted.
#[derive(Clone, Debug)]
pub struct Form(Handle);

#[derive(Clone, Debug)]
enum Handle {
    Kept(&'static Pattern),
    Counted(Arc<Pattern>),
}

/// Patterns that are kept for the life of the process.
const KEPT_FORMS: usize = 4096;
/// And the bytes that they take together at most; one may take a 64th of them.
const KEPT_BYTES: usize = 4 << 20;

/// The patterns that are kept.
#[derive(Default)]
struct Kept {
    patterns: HashSet<&'static Pattern>,
    bytes: usize,
}

impl Kept {
    fn form(&mut self, pattern: Pattern) -> Form {
        if let Some(known) = self.patterns.get(&pattern) {
            return Form(Handle::Kept(known));
        }
        let bytes = pattern.size_bytes();
        if self.patterns.len() >= KEPT_FORMS || bytes > KEPT_BYTES / 64 || self.bytes + bytes > KEPT_BYTES {
            return Form(Handle::Counted(Arc::new(pattern)));
        }
        self.bytes += bytes;
        let pattern: &'static Pattern = Box::leak(Box::new(pattern));
        self.patterns.insert(pattern);
        Form(Handle::Kept(pattern))
    }
}

impl Pattern {
    /// True for a step inserted alone: readers that speak of timesteps give its columns a time axis of one.
    pub fn is_one_step(&self) -> bool {
        self.timestep && self.columns.iter().all(|column| column.squeeze)
    }

    /// Bytes of memory, about.
    pub fn size_bytes(&self) -> usize {
        let column = |column: &PatternColumn| {
            let list = if let Cells::List(list) = &column.cells { size_of_val(&**list) } else { 0 };
            // The path stands in the structure, too.
            size_of::<PatternColumn>() + list + 2 * column.spec.path.len() + size_of_val(&column.spec.shape[..]) + 64
        };
        size_of::<Self>() + self.columns.iter().map(column).sum::<usize>()
    }
}

impl Form {
    /// The handle of this pattern; the same for equal patterns while there is room to keep them.
    pub fn new(pattern: Pattern) -> Self {
        /// Guards the set; under it a look-up and an insertion.
        static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().form(pattern)
    }

    /// True where both are one pattern; equal ones beyond those that are kept may be told apart.
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
            Handle::Kept(pattern) => pattern,
            Handle::Counted(pattern) => pattern,
        }
    }
}

/// A run of chunks of one column group.
#[derive(Debug)]
pub struct Part {
    /// The chunks in order.
    pub chunks: Box<[Arc<Chunk>]>,
    /// The position, relative to the body's origin, of each chunk's first cell, and behind the last the end.
    /// One longer than `chunks`, strictly increasing.
    pub starts: Box<[i64]>,
}

/// The chunks of items that one is not enough for.
#[derive(Debug)]
pub struct Span {
    /// One for each column group.
    pub parts: Vec<Part>,
    /// The episodes that the items have cells of beside the one that they begin in, each once. None as a rule: only a
    /// writer that keeps its history over the end of an episode makes items over several.
    pub episodes: Box<[u32]>,
}

impl From<Vec<Part>> for Span {
    /// Of items that are each in one episode.
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

/// What keeps an item's chunks alive.
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
    /// The position that the pattern's cells are relative to, from the body's origin.
    pub anchor: u32,
    /// The episode the item begins in, unique among the writers of one server; 0 for a step inserted alone,
    /// which is an episode of its own.
    pub episode: u32,
    /// The stream of steps that the item begins in: one for each writer, and for each environment of a vector writer;
    /// unique among those of one server. 0 where none is known.
    pub stream: u32,
}

impl Item {
    /// The chunk that holds the cell `relative` of a column of `part`, and the cell's index in it;
    /// `None` where the body ends before.
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

    /// The episodes that the item has cells of, beside the one that it begins in.
    #[inline]
    pub fn further_episodes(&self) -> &[u32] {
        match &self.body {
            Body::Chunk(_) => &[],
            Body::Span(span) => &span.episodes,
        }
    }

    /// Asks for the header of the item's chunk, which is read when the item is cloned and gathered.
    #[inline]
    pub fn prefetch(&self) {
        if let Body::Chunk(chunk) = &self.body {
            crate::prefetch::prefetch_whole(&**chunk);
        }
    }

    /// Asks for the count of references that cloning the item adds to, and no more.
    #[inline]
    pub fn prefetch_count(&self) {
        // The counts lie right before what they count.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DType;

    fn pattern(path: &str, cells: i32) -> Pattern {
        let spec = ColumnSpec { path: path.to_owned(), dtype: DType::Int8, shape: vec![] };
        let cells = Cells::List((0..cells).collect());
        let column = PatternColumn { spec, part: 0, column: 0, cells, squeeze: false, stack_axis: 0 };
        Pattern { columns: [column].into(), structure: Structure::Leaf, timestep: false }
    }

    #[test]
    fn equal_patterns_are_one_and_what_is_kept_of_them_is_bounded_in_bytes() {
        let mut kept = Kept::default();
        assert!(kept.form(pattern("a", 4)).same(&kept.form(pattern("a", 4))));
        assert!(!kept.form(pattern("a", 4)).same(&kept.form(pattern("b", 4))));
        let long = pattern("long", 100_000);
        assert!(matches!(kept.form(long).0, Handle::Counted(_)), "400 kB for one pattern");
        let mut forms = (0..KEPT_FORMS).map(|index| kept.form(pattern(&index.to_string(), 10_000)));
        assert!(matches!(forms.next().unwrap().0, Handle::Kept(_)));
        assert!(matches!(forms.last().unwrap().0, Handle::Counted(_)));
        assert!(kept.bytes <= KEPT_BYTES && kept.bytes > KEPT_BYTES / 2);
        assert!(kept.patterns.len() < 200, "40 kB each");
    }
}
