//! Items as messages: what the encoder writes, what the decoder reads from it, and what it refuses.

#[path = "../support/mod.rs"]
mod support;
mod decoder;
mod encoder;
mod held;
mod hostile;
mod long;
mod ways;
