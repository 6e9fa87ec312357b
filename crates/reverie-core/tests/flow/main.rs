//! The whole flow, and the replay that it belongs to.

#[path = "../support/mod.rs"]
mod support;
mod replay;
mod sample;
mod whole;
