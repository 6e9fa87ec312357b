//! What targets and the seeds of their corpora share.

use reverie_core::chunk::Layout;
use std::sync::Arc;

/// Layouts that packed bytes are read with: the first byte of an input chooses one.
pub fn layouts() -> [Arc<Layout>; 4] {
    [
        Layout::columnar(&[(16, 4), (8, 8), (1, 1)], 8),
        Layout::interleaved(&[(4, 4), (2, 1)], 20),
        Layout::columnar(&[(96, 1)], 16),
        Layout::columnar(&[(0, 1), (3, 3)], 5),
    ]
    .map(Arc::new)
}
