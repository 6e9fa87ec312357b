//! Several servers as one replay.

mod flow;
mod limits;
mod model;
mod support;
