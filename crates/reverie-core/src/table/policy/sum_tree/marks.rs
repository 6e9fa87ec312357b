//! The nodes of a level that a batch of updates touched, each once.

/// A set of node numbers that keeps the order of their first marking.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// A bit for each node; all clear between batches.
    bits: Vec<u64>,
    nodes: Vec<u32>,
    len: usize,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { bits: Vec::new(), nodes: Vec::new(), len: 0 }
    }

    /// Clears all marks, and makes room for up to `marks` marks on nodes below `nodes`.
    pub(super) fn begin(&mut self, nodes: usize, marks: usize) {
        self.clear();
        self.reserve(nodes, marks);
    }

    /// Clears all marks.
    pub(super) fn clear(&mut self) {
        for node in &self.nodes[..self.len] {
            self.bits[*node as usize / 64] = 0;
        }
        self.len = 0;
    }

    /// Makes room for up to `marks` more marks on nodes below `nodes`.
    #[inline]
    pub(super) fn reserve(&mut self, nodes: usize, marks: usize) {
        if self.bits.len() * 64 < nodes {
            self.bits.resize(nodes.div_ceil(64), 0);
        }
        // One more than the marks: a node that is marked already is written after the last and not counted.
        if self.nodes.len() <= self.len + marks {
            self.nodes.resize(self.len + marks + 1, 0);
        }
    }

    /// Marks a node.
    #[inline(always)]
    pub(super) fn mark(&mut self, node: usize) {
        let word = &mut self.bits[node / 64];
        let bit = 1_u64 << (node % 64);
        let is_new = !*word & bit != 0;
        *word |= bit;
        self.nodes[self.len] = node as u32;
        self.len += usize::from(is_new);
    }

    /// The marked nodes.
    #[inline(always)]
    pub(super) fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }
}
