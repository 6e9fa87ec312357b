//! Bodies of items over several chunks, remembered for the items that come next.

use crate::item::Span;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bodies over several chunks that a writer remembers: forms of different lengths take turns.
pub(super) const KEPT_SPANS: usize = 4;

/// For each column group the first step, and the last.
pub(super) type SpanKey = SmallVec<[(usize, u64, u64); 2]>;

/// A body over several chunks: which, and the step that its positions count from.
pub(super) struct Spanned {
    pub(super) key: SpanKey,
    pub(super) span: Arc<Span>,
    pub(super) origin: u64,
}
