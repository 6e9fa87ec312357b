//! Bodies of items over several chunks. They are kept because consecutive items mostly share them.

use crate::item::Span;
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of bodies that a writer keeps: forms of different lengths alternate.
pub(super) const KEPT_SPANS: usize = 4;

/// The first and the last step of each column group.
pub(super) type SpanKey = SmallVec<[(usize, u64, u64); 2]>;

/// A body over several chunks: its key, and the step from which its positions count.
pub(super) struct SpannedBody {
    pub(super) key: SpanKey,
    pub(super) span: Arc<Span>,
    pub(super) origin: u64,
}
