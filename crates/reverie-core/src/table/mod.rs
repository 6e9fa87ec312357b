//! **Table**: a bounded set of items with a sampler, a remover and a rate limiter.

pub mod limiter;
pub mod selector;
pub mod sum_tree;
