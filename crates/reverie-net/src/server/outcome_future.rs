//! The future of an outcome.

use std::pin::Pin;

/// An outcome that arrives later.
pub(super) type OutcomeFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
