//! Checkpoints: what is saved comes back, whatever fails in between.

#[path = "../support/mod.rs"]
mod support;
mod crash;
mod failed;
mod kept;
mod meanwhile;
mod restore;
mod saves;
mod sections;
