//! **Chunk**: consecutive steps of one writer, column by column.

/// Bytes of consecutive steps.
#[derive(Debug)]
pub struct Chunk {}

impl Chunk {
    /// True where the cell was written and holds a value.
    pub fn has(&self, _column: usize, _cell: usize) -> bool {
        false
    }
}
