//! **Batch**: the arrays.
