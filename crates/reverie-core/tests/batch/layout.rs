//! The places of a batch's arrays in one block of memory.

use reverie_core::Error;
use reverie_core::batch::{BatchLayout, OutputArray, Role};
use reverie_core::spec::DType;

fn column(shape: Vec<usize>) -> OutputArray {
    OutputArray { path: "x".to_owned(), dtype: DType::UInt8, itemsize: 1, shape, role: Role::Column }
}

#[test]
fn the_columns_of_a_batch_begin_at_cache_lines_behind_what_is_known_of_its_draws() {
    let layout = BatchLayout::new(3, &[column(vec![3, 5]), column(vec![3, 7])]).unwrap();
    // Seven arrays of three 8-byte numbers end at 168.
    assert_eq!((layout.outputs, layout.size_bytes), (vec![192..207, 256..277], 277));
}

#[test]
fn a_batch_that_fits_no_memory_has_no_layout() {
    for (n, shape) in [(usize::MAX / 8, vec![1]), (1, vec![usize::MAX]), (1, vec![usize::MAX / 2, 4])] {
        assert!(
            matches!(BatchLayout::new(n, &[column(shape)]), Err(Error::Protocol(text)) if text.contains("too large for the address space"))
        );
    }
}
