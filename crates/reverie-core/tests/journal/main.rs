//! The journal: which requests wait for it, who makes its commits, and machines that stop.

#[path = "../support/mod.rs"]
mod support;
mod commits;
mod consumed;
mod crash;
mod ended;
mod folder;
mod headless;
mod starts;
mod waiting;
mod withdrawn;
