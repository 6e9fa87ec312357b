//! The checks of each target on an input, without libFuzzer: the tests of `reverie-net` check the corpora too.

pub mod batch_head;
pub mod head;
pub mod insert;
pub mod message;
pub mod packed_chunk;

use reverie_core::chunk::Layout;
use std::sync::Arc;

/// Layouts that packed bytes are read with: the first byte of an input chooses one.
pub fn layouts() -> [Arc<Layout>; 5] {
    [
        Layout::columnar(&[(16, 4), (8, 8), (1, 1)], 8),
        Layout::interleaved(&[(4, 4), (2, 1)], 20),
        Layout::columnar(&[(96, 1)], 16),
        Layout::columnar(&[(0, 1), (3, 3)], 5),
        // Cells that are packed in blocks of two.
        Layout::columnar(&[(12 << 10, 1)], 8),
    ]
    .map(Arc::new)
}
