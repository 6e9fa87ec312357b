//! Items as messages: what the encoder says, what the decoder makes of it, and what it refuses.

#[path = "../support/mod.rs"]
mod support;
mod decoder;
mod encoder;
mod hostile;
mod long;
mod ways;
